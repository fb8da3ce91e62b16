package gosdk_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

func TestASecondServerOfADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := command.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Kill()
	r, err := command.Run(nil, "serve", "--addr", "127.0.0.1:0", "--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status == 0 {
		t.Error("a second server: status 0")
	}
	wantOneLine(t, "serve", r.Stderr, dir)
	if r, err := command.Run(nil, "check", "--dir", dir); err != nil || r.Status != 0 { // the server checks its files itself
		t.Errorf("check beside the server: %v, status %d, %s", err, r.Status, r.Stderr)
	}
	if _, err := connect(first).ListTable(); err != nil {
		t.Errorf("the first server: %v", err)
	}
	first.Kill()
	second, err := command.Start(dir)
	if err != nil {
		t.Fatalf("after the first was killed: %v", err)
	}
	defer second.Kill()
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
}

// wantOneLine fails the test unless a refusal is one line that holds part.
func wantOneLine(t *testing.T, what, stderr, part string) {
	t.Helper()
	line, rest, _ := strings.Cut(stderr, "\n")
	if rest != "" || !strings.HasPrefix(line, "flagstone: ") || !strings.Contains(line, part) {
		t.Errorf("%s: got %q; want one line with %q", what, stderr, part)
	}
}

func TestRefusalsAreOneLineAndAStatus(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	badKey := t.TempDir()
	if err := os.WriteFile(filepath.Join(badKey, "credentials"), []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		env    []string
		args   []string
		status int
		part   string
	}{
		{"unknown flag", nil, []string{"serve", "--nonsense"}, 2, "--nonsense"},
		{"unknown command", nil, []string{"swerve"}, 2, "swerve"},
		{"bad size", nil, []string{"serve", "--dir", t.TempDir(), "--memtable-size", "lots"}, 2, "lots"},
		{"bad sync", nil, []string{"serve", "--dir", t.TempDir(), "--sync", "perhaps"}, 2, "perhaps"},
		{"port taken", nil, []string{"serve", "--dir", t.TempDir(), "--addr", taken.Addr().String()}, 1, taken.Addr().String()},
		{"directory is a file", nil, []string{"serve", "--addr", "127.0.0.1:0", "--dir", file}, 1, file},
		{"bad instance name", nil, []string{"serve", "--addr", "127.0.0.1:0", "--dir", t.TempDir(), "--instance", "9"}, 1, "9"},
		{"half a key", []string{"FLAGSTONE_ACCESS_KEY_ID=x"}, []string{"serve", "--addr", "127.0.0.1:0", "--dir", t.TempDir()}, 1, "FLAGSTONE_ACCESS_KEY_SECRET"},
		{"no key in the file", nil, []string{"serve", "--addr", "127.0.0.1:0", "--dir", badKey}, 1, filepath.Join(badKey, "credentials")},
		{"check of nothing", nil, []string{"check", "--dir", filepath.Join(badKey, "nowhere")}, 1, "nowhere"},
	} {
		r, err := command.Run(c.env, c.args...)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		want(t, c.what+", status", r.Status, c.status)
		want(t, c.what+", standard output", r.Stdout, "")
		wantOneLine(t, c.what, lastLine(r.Stderr), c.part)
	}
}

// lastLine leaves out what was logged before the refusal.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestVersion(t *testing.T) {
	r, err := command.Run(nil, "version")
	if err != nil || r.Status != 0 || !strings.HasPrefix(r.Stdout, "flagstone ") || strings.Count(r.Stdout, "\n") != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestTheFirstStartMakesAKeyThatStays(t *testing.T) {
	dir := t.TempDir()
	first, err := command.LaunchEnv(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Kill()
	if err := first.Ready(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "credentials")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want it read by its owner only", info.Mode(), err)
	}
	var id, secret string
	for line := range strings.Lines(string(content)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch k {
		case "FLAGSTONE_ACCESS_KEY_ID":
			id = v
		case "FLAGSTONE_ACCESS_KEY_SECRET":
			secret = v
		}
	}
	if !strings.Contains(first.Log(), secret) {
		t.Error("the first start does not show the key")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second, err := command.LaunchEnv(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Kill()
	if err := second.Ready(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(second.Log(), secret) {
		t.Error("the second start shows the key again")
	}
	c := ots.NewClientWithConfig(second.URL, endpoint.Instance, id, secret, "", noRetries())
	if _, err := c.ListTable(); err != nil {
		t.Errorf("with the key of the file: %v", err)
	}
}

// TestAStopLosesNothing writes while the server is told to stop: it ends within
// the time that endpoint.Stop allows, and a restart holds what was acknowledged.
func TestAStopLosesNothing(t *testing.T) {
	dir := t.TempDir()
	flags := []string{"--memtable-size", "64KiB", "--table-file-size", "128KiB", "--wal-segment-size", "256KiB"}
	first, err := command.Start(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Kill()
	c := connect(first)
	if _, err := c.CreateTable(table{}.request("Stop", "i")); err != nil {
		t.Fatal(err)
	}
	const writers = 4
	acknowledged := make(chan int, writers)
	begun := make(chan struct{}, writers)
	for w := range writers {
		go func() {
			c := connect(first)
			n := 0
			for ; ; n++ {
				if n == 100 {
					begun <- struct{}{}
				}
				k := key("i", w*1_000_000+n)
				if _, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("Stop", k, "c", strings.Repeat("x", 500), "n", n)}); err != nil {
					var own *ots.OtsError
					if errors.As(err, &own) && own.HttpStatusCode < 500 {
						t.Errorf("writer %d: %v", w, err)
					}
					break
				}
			}
			if n < 100 {
				begun <- struct{}{}
			}
			acknowledged <- w*1_000_000 + n
		}()
	}
	for range writers {
		<-begun
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	ends := map[int]int{}
	for range writers {
		end := <-acknowledged
		ends[end/1_000_000] = end % 1_000_000
	}

	second, err := command.Start(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Kill()
	c = connect(second)
	for w, end := range ends {
		found := 0
		q := over("Stop", key("i", w*1_000_000), key("i", (w+1)*1_000_000))
		for {
			r, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Rows {
				if id := row.PrimaryKey.PrimaryKeys[0].Value; id != int64(w*1_000_000+found) || len(row.Columns) != 2 {
					t.Fatalf("writer %d: row %v where row %d should be", w, id, found)
				}
				found++
			}
			if r.NextStartPrimaryKey == nil {
				break
			}
			q.StartPrimaryKey = r.NextStartPrimaryKey
		}
		// The write that was under way at the end may have succeeded.
		if end < 100 || found < end || found > end+1 {
			t.Errorf("writer %d: %d writes acknowledged, %d rows found", w, end, found)
		}
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	checkStore(t, dir)
}

// checkStore requires flagstone check to find nothing wrong.
func checkStore(t *testing.T, dir string) {
	t.Helper()
	r, err := command.Run(nil, "check", "--dir", dir)
	if err != nil || r.Status != 0 {
		t.Errorf("flagstone check: status %d, %v\n%s", r.Status, err, fmt.Sprint(r.Stdout, r.Stderr))
	}
}
