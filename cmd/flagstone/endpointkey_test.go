package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestARefusalOfAKeySaysWhereTheKeyIsFrom gives wrong keys to commands, from each place that a key can come from.
func TestARefusalOfAKeySaysWhereTheKeyIsFrom(t *testing.T) {
	dir, wrong := emptyStore(t, "x"), t.TempDir()
	url, stop := serving(t, "--dir", dir)
	defer stop()
	file := filepath.Join(wrong, credentialsFile)
	const id, secret = "anID", "aSecretThatIsWrong"
	if err := os.WriteFile(file, []byte(credentialLines(id, secret)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range []struct{ prefix, from string }{{"", file}, {"FLAGSTONE_", "FLAGSTONE_ACCESS_KEY_ID in the environment"}} {
		if set.prefix != "" {
			t.Setenv(envKeyID, id)
			t.Setenv(envKeySecret, secret)
		}
		for _, args := range [][]string{
			{"export", "x", "--endpoint", url}, {"tunnel", "list", "x", "--endpoint", url}, {"stream", "list", "--endpoint", url},
			{"bench", "c", "--rows", "1", "--duration", "100ms", "--endpoint", url},
		} {
			status, _, said := command(t, append(args, "--dir", wrong)...)
			if status != 1 || !strings.Contains(said, "OTSAuthFailed") || strings.Count(said, "(the access key "+id+" is that of "+set.from+")") != 1 || strings.Contains(said, secret) {
				t.Errorf("%q: status %d, %s; want %s", args, status, said, set.from)
			}
		}
	}
	t.Setenv("FLAGSTONE_TO_ACCESS_KEY_ID", id)
	t.Setenv("FLAGSTONE_TO_ACCESS_KEY_SECRET", secret)
	refused(t, "FLAGSTONE_TO_ACCESS_KEY_ID in the environment", "copy", "x", "--dir", emptyStore(t, "x"), "--to-endpoint", url)
}
