package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/instances"
)

// tableWithHistory makes a table of several partitions and files, with every type and edge value, versions, large values,
// deleted cells and a stream, in a home that a server has open.
func tableWithHistory(t *testing.T, dir, url string) {
	t.Helper()
	done(t, "table", "create", "t", "--dir", dir, "--key", "s:string", "--key", "i:integer", "--key", "b:binary", "--versions", "9", "--version-offset", "4000000000", "--stream", "24")
	done(t, "table", "create", "other", "--dir", dir, "--key", "k:string")
	done(t, "put", "other", "x", "-s", "c=y", "--dir", dir)
	lines := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(lines, edgeLines(t, true), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "t", lines, "--endpoint", url, "--dir", dir)
	done(t, "table", "flush", "t", "--dir", dir)
	for i := range 20 {
		done(t, "put", "t", fmt.Sprintf("large%d", i%7), strconv.Itoa(i), "00", "-s", "value="+strings.Repeat(strconv.Itoa(i), 20_000), "-s", "old=1", "--dir", dir)
	}
	done(t, "table", "split", "t", "large3", "--dir", dir)
	done(t, "table", "flush", "t", "--dir", dir)
	for i := range 7 {
		done(t, "update", "t", fmt.Sprintf("large%d", i%7), strconv.Itoa(i), "00", "-u", "old", "-s", "new=2", "--dir", dir)
	}
	done(t, "delete", "t", "large6", "6", "00", "--dir", dir)
}

// TestATableComesBackBesideTheOneThatIsThere restores a table of a backup beside a server, into instances of both types.
func TestATableComesBackBesideTheOneThatIsThere(t *testing.T) {
	at := t.TempDir()
	dir, repo := filepath.Join(at, "store"), filepath.Join(at, "backups")
	url, log, stop := servingWithLog(t, "--dir", dir, "--sync", "none", "--log-format", "json")
	defer stop()
	tableWithHistory(t, dir, url)
	done(t, "instance", "create", "cold", "--dir", dir, "--type", "capacity")
	dump := func(table, instance string) string {
		t.Helper()
		return done(t, "export", table, "--endpoint", url, "--dir", dir, "--instance", instance)
	}
	before, stream := dump("t", "demo"), done(t, "stream", "list", "--endpoint", url, "--dir", dir)
	done(t, "backup", "create", repo, "--dir", dir)
	done(t, "put", "t", "later", "1", "00", "--dir", dir)
	done(t, "delete", "t", "large1", "1", "00", "--dir", dir)
	now := dump("t", "demo")

	if out := done(t, "restore", repo, "--table", "t", "--as", "monday", "--dir", dir); !strings.Contains(out, "restored table t of") {
		t.Errorf("it says %q", out)
	}
	done(t, "restore", repo, "--table", "t", "--as", "t", "--into", "cold", "--dir", dir)
	if got := dump("monday", "demo"); got != before || strings.Count(got, "\n") < 35 {
		t.Errorf("restored is\n%.3000s\nwant\n%.3000s", got, before)
	}
	if got := dump("t", "cold"); got != before {
		t.Errorf("restored into another instance is\n%.3000s", got)
	}
	if dump("t", "demo") != now || done(t, "stream", "list", "--endpoint", url, "--dir", dir) != stream {
		t.Error("the table that was there is another one now")
	}
	for _, want := range []string{"versions 9", "4000000000"} {
		if out := done(t, "table", "describe", "monday", "--dir", dir); !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("restored is %s", out)
		}
	}
	done(t, "put", "monday", "later", "1", "00", "-s", "c=1", "--dir", dir) // and it takes writes
	if got, want := done(t, "count", "monday", "--dir", dir), done(t, "count", "t", "--dir", dir, "--instance", "cold"); got == want {
		t.Errorf("%s rows after a put", got)
	}

	refused(t, "has a table t;", "restore", repo, "--as", "t", "--dir", dir)
	refused(t, "no such table", "restore", repo, "--table", "none", "--as", "new", "--dir", dir)
	refused(t, "no such table", "restore", repo, "--table", "t", "--instance", "cold", "--as", "new", "--dir", dir)
	refused(t, "not found", "restore", repo, "--table", "t", "--into", "nowhere", "--as", "new", "--dir", dir)
	refused(t, "no such backup", "restore", repo, "1999", "--table", "t", "--as", "new", "--dir", dir)
	for _, args := range [][]string{{"--as", "9/x"}, {"--as", ""}, {}, {"--to", filepath.Join(at, "x"), "--as", "new"}, {"--to", filepath.Join(at, "x"), "--table", "t"}} {
		if status, out, _ := command(t, append([]string{"restore", repo, "--dir", dir}, args...)...); status == 0 || out != "" {
			t.Errorf("%q: status %d, %q", args, status, out)
		}
	}
	if list, err := os.ReadDir(filepath.Join(dir, instances.ArrivalsDir)); err != nil || len(list) > 0 {
		t.Errorf("left is %v, %v", list, err)
	}
	if len(logged(log(), "table restored")) != 2 {
		t.Error("the log does not say what was restored")
	}
	done(t, "check", "--dir", dir, "--rate", "1GiB")
}

// TestADamagedObjectOfATableIsRefusedByName flips a byte of each object of a repository in turn.
func TestADamagedObjectOfATableIsRefusedByName(t *testing.T) {
	at, dir := t.TempDir(), newHome(t)
	repo := filepath.Join(at, "backups")
	for _, table := range []string{"orders", "other"} {
		done(t, "table", "create", table, "--key", "k:string", "--dir", dir)
		done(t, "put", table, "anna", "-s", "value="+strings.Repeat("large", 20_000), "--dir", dir)
		done(t, "table", "flush", table, "--dir", dir)
	}
	done(t, "backup", "create", repo, "--dir", dir)
	sound, refused := 0, 0
	flipEach(t, filepath.Join(repo, "objects"), func(name string) {
		status, _, errOut := command(t, "restore", repo, "--table", "orders", "--as", "back", "--dir", dir)
		if status == 0 { // the object is of another table, or has access keys
			sound++
			done(t, "table", "drop", "back", "--yes", "--dir", dir)
		} else if refused++; !strings.Contains(errOut, filepath.Base(name)) || !strings.Contains(errOut, "damaged") {
			t.Errorf("%s: status %d, %s", name, status, errOut)
		}
		if list, err := os.ReadDir(filepath.Join(dir, instances.ArrivalsDir)); err == nil && len(list) > 0 {
			t.Errorf("%s: left is %v", name, list)
		}
	})
	if sound == 0 || refused < 3 { // at least CURRENT, the manifest and a table file
		t.Errorf("%d objects were refused, %d not read", refused, sound)
	}
	if list := done(t, "table", "list", "--dir", dir); strings.Contains(list, "back ") {
		t.Errorf("there is a table:\n%s", list)
	}
}

// TestARestoreOfATableThatIsKilledLeavesNoTable kills processes that restore a table beside a server, when they have read
// so many files and when the server takes them, and then the server.
func TestARestoreOfATableThatIsKilledLeavesNoTable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	at := t.TempDir()
	dir, repo := filepath.Join(at, "store"), filepath.Join(at, "backups")
	start := func() (*exec.Cmd, string) { return servingProcess(t, "--sync", "none", "--dir", dir) }
	server, url := start()
	tableWithHistory(t, dir, url)
	want := done(t, "export", "t", "--endpoint", url, "--dir", dir)
	done(t, "backup", "create", repo, "--dir", dir)
	killed := 0
	for range 6 {
		cmd, _ := process(t, "restore", repo, "--table", "t", "--as", "back", "--dir", dir)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		early := false
		for files := random.IntN(12); !early; { // of the restored store, and links to them
			select {
			case err := <-ended:
				ended <- err
				early = true
			default:
			}
			if list, err := filepath.Glob(filepath.Join(dir, instances.ArrivalsDir, "*", "*", "*", "*")); err != nil || len(list) >= files {
				break
			}
		}
		_ = cmd.Process.Kill()
		if err := <-ended; err != nil {
			killed++
		}
		list := done(t, "table", "list", "--dir", dir)
		if !strings.Contains(list, "back ") {
			continue
		}
		if got := done(t, "export", "back", "--endpoint", url, "--dir", dir); got != want {
			t.Fatalf("the table is there with %d lines of %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
		}
		done(t, "table", "drop", "back", "--yes", "--dir", dir)
	}
	if killed == 0 {
		t.Error("each process ended before it was killed: the test proves nothing")
	}
	kill(server)
	server, url = start()
	defer func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	}()
	if list, err := os.ReadDir(filepath.Join(dir, instances.ArrivalsDir)); err == nil {
		t.Errorf("left is %v", list)
	}
	done(t, "restore", repo, "--table", "t", "--as", "back", "--dir", dir)
	if got := done(t, "export", "back", "--endpoint", url, "--dir", dir); got != want {
		t.Errorf("restored is\n%.3000s\nwant\n%.3000s", got, want)
	}
}
