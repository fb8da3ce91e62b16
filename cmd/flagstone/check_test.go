package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stopAt ends a context when a text is written.
type stopAt struct {
	text string
	stop context.CancelFunc
}

func (s *stopAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return len(p), nil
}

// TestAServerChecksItsFiles damages a table file beside its server, which goes on to serve what it has read.
func TestAServerChecksItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, log, stop := servingWithLog(t, "--dir", dir, "--metrics-addr", "127.0.0.1:0", "--log-format", "json")
	defer stop()
	defer http.DefaultClient.CloseIdleConnections()
	if _, out, errOut := command(t, "check", "--dir", dir); strings.Contains(errOut, "done") || !strings.Contains(errOut, "checking") {
		t.Errorf("a store without files: %s%s", out, errOut)
	}
	done(t, "table", "create", "t", "--dir", dir, "--key", "k:string")
	done(t, "instance", "create", "cold", "--dir", dir, "--type", "capacity")
	done(t, "put", "t", "anna", "-s", "state=new", "--dir", dir)
	done(t, "put", "t", "bert", "-s", "state="+strings.Repeat("new", 600_000), "--dir", dir) // a slow check takes seconds
	done(t, "table", "flush", "t", "--dir", dir)
	out := done(t, "check", "--dir", dir, "--rate", "1GiB")
	for _, want := range []string{"high-performance: 1 table, 1 table file with 2 rows", "capacity: 0 tables", "no problem found"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var said bytes.Buffer
	interrupted := run(ctx, []string{"check", "--dir", dir, "--rate", "64KiB"}, &output{out: &said, err: &stopAt{"checking", cancel}})
	if interrupted != 1 || strings.Contains(said.String(), "no problem") {
		t.Errorf("an interrupted check: status %d, %q", interrupted, said.String())
	}

	// The server notices a little later that a client has gone, and until then that check would find the damage, too.
	status, _, errOut := command(t, "check", "--quiet", "--dir", dir)
	for status == 1 && strings.Contains(errOut, "a check is under way") {
		status, _, errOut = command(t, "check", "--quiet", "--dir", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "sst", "*", "*.sst"))
	if err != nil || len(files) != 1 {
		t.Fatalf("table files %v, %v", files, err)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff, 0xff}, 10); err != nil {
		t.Fatal(err)
	}
	status, found, errOut := command(t, "check", "--quiet", "--dir", dir)
	if status != 1 || strings.Count(found, "\n") != 1 || !strings.Contains(found, files[0]) || !strings.Contains(found, "offset") || !strings.Contains(errOut, "1 problem found") {
		t.Errorf("status %d, %q, %q", status, found, errOut)
	}
	if lines := logged(log(), "damage found"); len(lines) != 1 || lines[0]["level"] != "ERROR" || !strings.Contains(lines[0]["error"].(string), files[0]) {
		t.Errorf("the log has %v", lines)
	}
	at := logged(log(), "metrics")[0]["url"].(string)
	if _, body := get(t, at); !strings.Contains(body, `flagstone_store_failures_total{store="high-performance",work="check"} 1`) {
		t.Error("the metrics do not count the damage")
	}
}
