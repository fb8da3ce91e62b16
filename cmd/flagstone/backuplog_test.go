package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMomentsAreRestored runs the commands of docs/backup.md that keep a log, beside a server with instances of both
// types, and serves what they restore.
func TestMomentsAreRestored(t *testing.T) {
	text, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## A moment between two backups\n")
	lines := regexp.MustCompile(`(?m)^    flagstone (.+)$`).FindAllStringSubmatch(section, 5)
	if len(lines) != 5 {
		t.Fatalf("the section begins with %d commands", len(lines))
	}
	at := t.TempDir()
	dir, restored := filepath.Join(at, "store"), filepath.Join(at, "restored")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	stop = sync.OnceValue(stop)
	defer stop()
	write := func(state string) {
		t.Helper()
		for _, instance := range []string{"demo", "archive"} {
			succeed(t, "put", "orders", "anna", "-s", "state="+state, "--dir", dir, "--instance", instance)
		}
	}
	moment := ""
	do := func(line string) string {
		t.Helper()
		line = strings.NewReplacer("/mnt/backups", filepath.Join(at, "backups"), "./restored", restored, "2026-11-27T10:00:00Z", moment, " --every 1m", "").Replace(line)
		if strings.Contains(line, "create") || strings.Contains(line, "backup log") {
			line += " --dir " + dir
		}
		return succeed(t, strings.Fields(line)...)
	}
	succeed(t, "instance", "create", "archive", "--type", "capacity", "--dir", dir)
	succeed(t, "table", "create", "orders", "--key", "customer:string", "--dir", dir, "--instance", "archive")
	do(lines[0][1])
	succeed(t, "table", "create", "orders", "--key", "customer:string", "--dir", dir, "--instance", "demo")
	write("before")
	moment = time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	write("after")
	if out := do(lines[1][1]); !regexp.MustCompile(`complete up to 20\S+Z: \d+ records, `).MatchString(out) {
		t.Errorf("log prints %s", out)
	}
	if out := do(lines[2][1]); !regexp.MustCompile(`20\S+Z  20\S+Z\n`).MatchString(out) {
		t.Errorf("list prints %s", out)
	}
	if out := do(lines[3][1]); !strings.Contains(out, moment) {
		t.Errorf("restore prints %s", out)
	}
	if out := do(lines[4][1]); !regexp.MustCompile(`archive/orders +1\n`).MatchString(out) || !strings.Contains(out, " up to "+moment+": no problem found") || !strings.Contains(out, "expired since are not counted") {
		t.Errorf("rehearse prints %s", out)
	}
	for _, instance := range []string{"demo", "archive"} {
		succeed(t, "restore", filepath.Join(at, "backups"), "--at", moment, "--table", "orders", "--as", "orders_then", "--instance", instance, "--dir", dir)
		if out := succeed(t, "get", "orders_then", "anna", "--dir", dir, "--instance", instance); !strings.Contains(out, "before") {
			t.Errorf("%s, beside the present table: %s", instance, out)
		}
	}
	if status, _, errOut := command(t, "backup", "log", filepath.Join(at, "backups"), "--dir", dir); status != 0 || !regexp.MustCompile(`moments from 20\S+Z on need another backup: the log does not have \S.* demo/orders_then\n`).MatchString(errOut) {
		t.Errorf("the log behind a table that was restored: status %d, %s", status, errOut)
	}
	_, stopRestored := serving(t, "--dir", restored)
	for _, instance := range []string{"demo", "archive"} {
		if out := succeed(t, "get", "orders", "anna", "--dir", restored, "--instance", instance); !strings.Contains(out, "before") {
			t.Errorf("%s: %s", instance, out)
		}
	}
	stopRestored()
	stop() // without a server the commands open the store
	if out := do(lines[1][1]); !strings.Contains(out, " 0 records") {
		t.Errorf("the log of an idle store: %s", out)
	}
	refusedMoments(t, filepath.Join(at, "backups"), at)
}

// refusedMoments flips a byte of the log, and asks for a moment behind its end.
func refusedMoments(t *testing.T, repo, at string) {
	t.Helper()
	if status, _, errOut := command(t, "restore", repo, "--at", "2200-01-01T00:00:00Z", "--to", filepath.Join(at, "none")); status != 1 || !strings.Contains(errOut, "what can be: 20") {
		t.Errorf("a moment to come: status %d, %s", status, errOut)
	}
	succeed(t, "backup", "verify", repo)
	parts, err := filepath.Glob(filepath.Join(repo, "log", "*", "*"))
	if err != nil || len(parts) == 0 {
		t.Fatal(parts, err)
	}
	content, err := os.ReadFile(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(parts[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := command(t, "backup", "verify", repo); status != 1 || !strings.Contains(out, filepath.Base(parts[0])) {
		t.Errorf("verify of a damaged log: status %d, %s", status, out)
	}
}

// TestBackupLogGoesOnUntilItIsInterrupted: it puts what is new again and again.
func TestBackupLogGoesOnUntilItIsInterrupted(t *testing.T) {
	dir, repo := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backups")
	succeed(t, "instance", "create", "first", "--dir", dir)
	succeed(t, "backup", "create", repo, "--dir", dir, "--keep-log", "1MiB")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := &counted{enough: 3, then: cancel}
	var errOut strings.Builder
	status := run(ctx, []string{"backup", "log", repo, "--dir", dir, "--every", "1ms"}, &output{out: lines, err: &errOut})
	if status == 0 || !strings.Contains(errOut.String(), "interrupted") || lines.n < 3 {
		t.Errorf("status %d after %d lines: %s", status, lines.n, errOut.String())
	}
	succeed(t, "instance", "create", "archive", "--type", "capacity", "--dir", dir)
	if status, _, errOut := command(t, "backup", "log", repo, "--dir", dir); status != 1 || !strings.Contains(errOut, "capacity does not keep its log") {
		t.Errorf("a store that was made later: status %d, %s", status, errOut)
	}
	succeed(t, "backup", "create", repo, "--dir", dir, "--keep-log", "1MiB")
	succeed(t, "backup", "log", repo, "--dir", dir)
	succeed(t, "backup", "create", repo, "--dir", dir, "--keep-log", "0")
	if status, _, errOut := command(t, "backup", "log", repo, "--dir", dir); status != 1 || !strings.Contains(errOut, "does not keep its log") {
		t.Errorf("a log that is not kept any more: status %d, %s", status, errOut)
	}
}

// counted counts lines, and does something when there are enough.
type counted struct {
	n, enough int
	then      func()
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	if c.n += strings.Count(string(p), "\n"); c.n >= c.enough {
		c.then()
	}
	return len(p), nil
}

// TestABackupLogThatIsKilledGoesOn kills a process in the middle of the log, and then the server. The next one puts all
// of it.
func TestABackupLogThatIsKilledGoesOn(t *testing.T) {
	at := t.TempDir()
	dir, repo, restored := filepath.Join(at, "store"), filepath.Join(at, "backups"), filepath.Join(at, "restored")
	start := func() *exec.Cmd {
		server, said := process(t, "serve", "--addr", "127.0.0.1:0", "--dir", dir)
		if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "serving") {
			t.Fatalf("the server says %q, %v", line, err)
		}
		return server
	}
	server := start()
	succeed(t, "table", "create", "t", "--key", "k:integer", "--dir", dir)
	succeed(t, "backup", "create", repo, "--dir", dir, "--keep-log", "1GiB")
	random := rand.New(rand.NewPCG(1, 0))
	for i := range 10 {
		var value strings.Builder // that packing makes no smaller than 40 KiB
		for value.Len() < 60<<10 {
			value.WriteByte(byte('!' + random.IntN(64)))
		}
		succeed(t, "put", "t", strconv.Itoa(i), "-s", "c="+value.String(), "--dir", dir)
	}
	// The rate is so low that it is not done before it is killed.
	logging, _ := process(t, "backup", "log", repo, "--dir", dir, "--rate", "64KiB")
	ended := make(chan error, 1)
	go func() { ended <- logging.Wait() }()
	for begun := false; !begun; {
		select {
		case err := <-ended:
			t.Fatalf("it ends before it is killed: %v", err)
		default:
		}
		partial, err := filepath.Glob(filepath.Join(repo, "partial", "*"))
		if begun = len(partial) > 0; err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*exec.Cmd{logging, server} {
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	_ = server.Wait() // it was killed
	if parts, err := filepath.Glob(filepath.Join(repo, "log", "*", "*")); err != nil || len(parts) != 0 {
		t.Errorf("the killed one has put %v, %v", parts, err)
	}
	server = start()
	defer func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	}()
	succeed(t, "delete", "t", "3", "--dir", dir)
	moment := time.Now().UTC().Format(time.RFC3339Nano)
	want := succeed(t, "scan", "t", "--limit", "0", "--json", "--dir", dir)
	succeed(t, "delete", "t", "4", "--dir", dir)
	succeed(t, "backup", "log", repo, "--dir", dir)
	succeed(t, "restore", repo, "--at", moment, "--to", restored)
	if got := succeed(t, "scan", "t", "--limit", "0", "--json", "--dir", restored); got != want || strings.Count(got, "\n") != 9 {
		t.Errorf("restored are %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
}
