package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheManualPageHasEveryCommandAndFlag(t *testing.T) {
	page := done(t, "man")
	var cli commands
	parser, err := newParser(t.Context(), &cli, &output{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		_, section, found := strings.Cut(page, "\n.SS "+roff(leaf.Path())+"\n")
		if !found {
			t.Errorf("%s is not on the page", leaf.Path())
		}
		section, _, _ = strings.Cut(section, "\n.SS ")
		for _, f := range leaf.Flags {
			if !f.Hidden && !strings.Contains(section, roff("--"+f.Name)) {
				t.Errorf("%s has no --%s on the page", leaf.Path(), f.Name)
			}
		}
	}
	if got := roff("'a\n.b\\c"); got != `\&'a .b\ec` {
		t.Errorf("quoted: %s", got)
	}
}

func TestBashTakesTheCompletion(t *testing.T) {
	script := exec.Command("bash", "--norc", "-c", `eval "$(cat)"; complete -p flagstone`)
	script.Stdin = strings.NewReader(done(t, "completion", "--code", "bash"))
	if out, err := script.CombinedOutput(); err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), " flagstone") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	status, text := http.StatusOK, "ready\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	defer srv.Close()
	t.Setenv("FLAGSTONE_METRICS_ADDR", strings.TrimPrefix(srv.URL, "http://"))
	if got := done(t, "health"); got != text {
		t.Errorf("it printed %q", got)
	}
	status, text = http.StatusServiceUnavailable, "the stores are being recovered"
	if code, _, e := command(t, "health"); code != 1 || !strings.Contains(e, text) {
		t.Errorf("status %d, %s", code, e)
	}
	srv.Close()
	if code, _, e := command(t, "health"); code != 1 || e == "" {
		t.Errorf("without a server: status %d, %s", code, e)
	}
	for _, wrong := range []string{"--metrics-addr=http://127.0.0.1:1", "--metrics-addr=127.0.0.1", "--timeout=0"} {
		if code, _, e := command(t, "health", wrong); code != 2 || strings.Contains(e, "lookup") {
			t.Errorf("%s: status %d, %s", wrong, code, e)
		}
	}
}

// TestAReleaseIsInstalledAsThePageSays does what docs/installing.md says of files that were received, with the binary of this
// test, below another root and without systemd, and uses what was installed.
func TestAReleaseIsInstalledAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/installing.md")
	if err != nil {
		t.Fatal(err)
	}
	packaging, err := filepath.Abs("../../packaging")
	if err != nil {
		t.Fatal(err)
	}
	files, root := t.TempDir(), t.TempDir()
	err = errors.Join(os.Symlink(os.Args[0], filepath.Join(files, "flagstone-linux-amd64")), os.MkdirAll(filepath.Join(root, "etc/systemd/system"), 0o700), os.MkdirAll(filepath.Join(root, "usr/local/bin"), 0o700))
	for name, content := range map[string]string{"flagstone.1": done(t, "man"), "flagstone.bash": done(t, "completion", "--code", "bash")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(files, name), []byte(content), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, received, _ := strings.Cut(string(page), "Verify files that you received")
	received, _, _ = strings.Cut(received, "## In a container")
	lines := regexp.MustCompile(`(?m)^    .*$`).FindAllString(received, -1)
	if len(lines) < 8 {
		t.Fatalf("the page has %q", lines)
	}
	script := strings.NewReplacer("/usr/local/", root+"/usr/local/", "/etc/", root+"/etc/", "packaging/", packaging+"/").Replace(strings.Join(lines, "\n"))
	install := exec.Command("bash", "--norc", "-ec", `systemctl() { echo "systemctl $*"; }; sha256sum flagstone* > SHA256SUMS`+"\n"+script)
	install.Dir = files
	said, err := install.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "flagstone-linux-amd64: OK") || !strings.Contains(string(said), "systemctl enable --now flagstone") {
		t.Fatalf("%s, %v", said, err)
	}
	use := exec.Command("bash", "--norc", "-ec", `. usr/local/share/bash-completion/completions/flagstone; complete -p flagstone; grep -c '^.SS' usr/local/share/man/man1/flagstone.1
		usr/local/bin/flagstone instance create demo --dir store`)
	use.Dir, use.Env = root, append(os.Environ(), serverEnv+"=1")
	if said, err := use.CombinedOutput(); err != nil || !strings.Contains(string(said), "made instance demo") {
		t.Errorf("%s, %v", said, err)
	}
	info, err := os.Stat(filepath.Join(root, "etc/flagstone.env"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	env, err := os.ReadFile(filepath.Join(root, "etc/flagstone.env"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := parseCredentials("flagstone.env", string(env)); err != nil || c.weakness() != "" {
		t.Errorf("%v, %s", err, c.weakness())
	}
}
