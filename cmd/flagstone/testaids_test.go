package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAServerInMemoryIsEmptiedAndLeavesNothing makes a table through the administration port of a server in memory.
func TestAServerInMemoryIsEmptiedAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	never := filepath.Join(t.TempDir(), "never")
	url, log, stop := servingWithLog(t, "--memory", "--dir", never, "--test-clock")
	made, err := filepath.Glob(filepath.Join(os.TempDir(), "flagstone-memory-*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("%v, %v; %s", made, err, log())
	}
	follow(t, made[0], []step{{"table create orders --key k:string", ""}, {"put orders a -s c=1", ""}, {"count orders", "1"}})
	for path, want := range map[string]int{"faults": 403, "clock": 405, "reset": 200} {
		r, err := http.NewRequest("DELETE", url+"/flagstone/test/"+path, nil)
		if path == "reset" {
			r, err = http.NewRequest("POST", url+"/flagstone/test/reset", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	if status, out, errOut := command(t, "table", "list", "--dir", made[0]); status != 0 || strings.Contains(out, "orders") {
		t.Errorf("after a reset: %d %s %s", status, out, errOut)
	}
	follow(t, made[0], []step{{"table create orders --key k:string", ""}, {"count orders", "0"}})
	if status := stop(); status != 0 {
		t.Errorf("stopped with status %d: %s", status, log())
	}
	for _, dir := range append(made, never) {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
}
