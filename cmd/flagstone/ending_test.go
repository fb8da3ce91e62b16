package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances/admin"
)

// fullDevice takes nothing.
type fullDevice struct{}

func (fullDevice) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputThatIsLostIsAFailure has commands of every form of output print to a full device.
func TestOutputThatIsLostIsAFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	t.Setenv("FLAGSTONE_DIR", dir)
	done(t, "table", "create", "t", "--key", "k:string")
	for _, line := range []string{
		"count t", "advise t", "inspect manifest", "console", "scan t", "table list --json", "top --count 1 --interval 100ms", "check", "version", "get --help",
	} {
		var errOut bytes.Buffer
		status := run(context.Background(), strings.Fields(line), &output{out: fullDevice{}, err: &errOut})
		if said := errOut.String(); status == 0 || strings.Count(said, syscall.ENOSPC.Error()) != 1 {
			t.Errorf("%s: status %d, %s", line, status, said)
		}
	}
}

// TestAnInterruptionIsCalledOne interrupts commands beside a server, at a folder and in a shell.
func TestAnInterruptionIsCalledOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	url, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	t.Setenv("FLAGSTONE_DIR", dir)
	done(t, "table", "create", "t", "--key", "k:integer", "--stream", "1")
	var rows strings.Builder
	for i := range 1001 { // two pages
		fmt.Fprintln(&rows, i)
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("k\n"+rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "t", file, "--endpoint", url)
	closed := newHome(t)
	for line, want := range map[string]string{
		"scan t --limit 0":       "flagstone: interrupted\n",
		"stream tail t":          "flagstone: interrupted\n",
		"shell":                  "flagstone: interrupted\n",
		"scan t --dir " + closed: "flagstone: interrupted\n",
		"count nothing":          "flagstone: interrupted\n", // before the table is looked for
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		var errOut bytes.Buffer
		out := &interrupted{interrupt: func() { cancel(signalled{}) }}
		if line == "count nothing" || strings.Contains(line, closed) {
			out.interrupt()
		}
		c := &output{in: strings.NewReader("stream tail t --follow\n"), out: out, err: &errOut}
		if status := run(ctx, strings.Fields(line), c); status != 1 || errOut.String() != want {
			t.Errorf("%s: status %d, %q, want %q", line, status, errOut.String(), want)
		}
		cancel(nil)
	}
}

// signalled is an error as the context of a signal has it.
type signalled struct{}

func (signalled) Error() string        { return "interrupt signal received" }
func (signalled) Is(target error) bool { return target == context.Canceled }

func TestAnInterruptionHidesNeitherWhatItLeavesNorAnotherFailure(t *testing.T) {
	broken := errors.New("broken")
	stopped := fmt.Errorf("%w: %w", admin.ErrNoServer, signalled{})
	for want, err := range map[string]error{
		"interrupted":                           stopped,
		"broken":                                broken,
		"interrupted; a file stays":             fmt.Errorf("table t: %w", leaving(stopped, "a file %s", "stays")),
		"broken; a file stays":                  leaving(broken, "a file stays"),
		"interrupted; a file stays; so do rows": leaving(leaving(stopped, "a file stays"), "so do rows"),
		"interrupted; the outcome of the last writes is unknown": fmt.Errorf("%w: %w", flagstone.ErrOutcomeUnknown, signalled{}),
		"interrupted; broken":        errors.Join(stopped, broken, context.Canceled),
		"interrupted; close: broken": fmt.Errorf("folder: %w", errors.Join(stopped, fmt.Errorf("close: %w", broken))),
	} {
		if got := oneLine(interruption(err)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAnInterruptionSaysWhatIsDone interrupts an export at its rate, an archive while its file is read back and while cells are deleted, and a
// copy before its last step.
func TestAnInterruptionSaysWhatIsDone(t *testing.T) {
	dir, files := newHome(t), t.TempDir()
	in, read, deleted := filepath.Join(files, "in.jsonl"), filepath.Join(files, "read.jsonl"), filepath.Join(files, "deleted.jsonl")
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer", "--version-offset", "4000000000")
	var lines strings.Builder
	for k := range 3 {
		fmt.Fprintf(&lines, `{"key":[{"name":"k","value":%d}],"columns":[{"name":"a","version":1600000000000,"value":1}]}`+"\n", k)
	}
	if err := os.WriteFile(in, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "x", in, "--dir", dir)
	for _, c := range []struct{ line, at, want string }{
		{"export x " + filepath.Join(files, "out.jsonl") + " --rate 1000 --progress 1ns", "exported 1 rows", ""},
		{"copy x --progress 0 --to-dir " + newHome(t), "copied 3 rows", "; all rows are copied, and the options of table x are not"},
		{"archive x " + read + " --older-than 24h --progress 0", "exported 3 rows", "; " + read + " is kept, and nothing is deleted"},
		{"archive x " + deleted + " --older-than 24h --progress 1ns", "deleted cells of 1 rows", "; " + deleted + " is complete, and cells of 2 rows at most are deleted: run the command again with another name"},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		out := &interrupted{interrupt: func() { cancel(signalled{}) }, at: c.at}
		status := run(ctx, strings.Fields(c.line+" --dir "+dir), &output{out: io.Discard, err: out})
		if want := "\nflagstone: interrupted" + c.want + "\n"; status != 1 || !strings.HasSuffix(out.String(), want) {
			t.Errorf("%s: status %d, %s; want %q", c.line, status, out.String(), want)
		}
	}
	if got, err := os.ReadFile(read); string(got) != lines.String() {
		t.Errorf("%s, %v", got, err)
	}
}

// TestAFailureIsReportedAlsoWhenTheServerIsStopped starts a server that is stopped at once, in a folder of another one.
func TestAFailureIsReportedAlsoWhenTheServerIsStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var errOut bytes.Buffer
	status := run(ctx, []string{"serve", "--dir", dir, "--addr", "127.0.0.1:0"}, &output{out: io.Discard, err: &errOut})
	if status != 1 || !strings.Contains(errOut.String(), "stop the other process") {
		t.Errorf("status %d, %s", status, errOut.String())
	}
}

// TestABackupThatIsMadeIsNotCalledFailed interrupts a command that has made its backup.
func TestABackupThatIsMadeIsNotCalledFailed(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	out, errOut := &interrupted{interrupt: cancel}, &bytes.Buffer{}
	repo := filepath.Join(t.TempDir(), "backups")
	status := run(ctx, []string{"backup", "create", repo, "--dir", newHome(t)}, &output{out: out, err: errOut})
	if status != 0 || !strings.Contains(errOut.String(), "the backup is made") {
		t.Errorf("status %d, %s, %s", status, out.String(), errOut.String())
	}
}

// TestAServerThatDoesNotTellItsAddressIsNamed has the administration file of an older server.
func TestAServerThatDoesNotTellItsAddressIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	url, stop := serving(t, "--dir", dir)
	defer stop()
	name := filepath.Join(dir, admin.FileName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.ReplaceAll(text, []byte(url), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"stream list", "tunnel list", "export t"} {
		refused(t, "give it with --endpoint", append(strings.Fields(line), "--dir", dir)...)
	}
}

// TestHelpIsAsWideAsTheTerminal prints a help of one long paragraph.
func TestHelpIsAsWideAsTheTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "")
	screen, out, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	if err := pty.Setsize(out, &pty.Winsize{Rows: 24, Cols: 200}); err != nil {
		t.Fatal(err)
	}
	status := run(context.Background(), []string{"console", "--help"}, &output{out: out, err: out})
	out.Close()
	text, _ := io.ReadAll(screen) // which fails at the end
	longest := 0
	for line := range strings.Lines(string(text)) {
		longest = max(longest, len(line))
	}
	if status != 0 || longest < 150 || longest > 202 {
		t.Errorf("status %d, a line of %d bytes: %s", status, longest, text)
	}
}
