package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a shell in a process of its own, at a terminal that a test types on.
type terminal struct {
	t    *testing.T
	file *os.File
	seen string // what the shell wrote since the last match
}

// types sends keys, and waits until the shell has written a text.
func (s *terminal) types(keys, want string) {
	s.t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
	for buffer := make([]byte, 4096); ; {
		if _, behind, found := strings.Cut(s.seen, want); found {
			s.seen = behind
			return
		}
		n, err := s.file.Read(buffer)
		if s.seen += string(buffer[:n]); err != nil {
			s.t.Fatalf("after %q: %v; the shell wrote %q; want %q", keys, err, s.seen, want)
		}
	}
}

// TestAShellAtATerminal uses the keys that people use: completion, history, editing, Ctrl-C and Ctrl-D.
func TestAShellAtATerminal(t *testing.T) {
	const prompt, up, home, interrupt, end = "flagstone/demo> ", "\x1b[A", "\x01", "\x03", "\x04"
	const listed = `"partitions": 1` // of the only table
	dir, cache := newHome(t), t.TempDir()
	start := func() (*terminal, *exec.Cmd) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for a shell that hangs
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, os.Args[0], "shell", "--dir", dir)
		cmd.Env = append(os.Environ(), serverEnv+"=1", "TERM=xterm", "HOME="+cache, "XDG_CACHE_HOME="+cache)
		file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		s := &terminal{t: t, file: file}
		s.types("", prompt)
		return s, cmd
	}
	ends := func(s *terminal, cmd *exec.Cmd) {
		t.Helper()
		s.types(end, "\n")
		if err := cmd.Wait(); err != nil {
			t.Errorf("after Ctrl-D: %v", err)
		}
	}

	s, cmd := start()
	s.types("table li\t--json\r", listed)
	s.types("", prompt)
	s.types(up+"\r", listed)
	s.types("", prompt)
	s.types("list --json"+home+"table \r", listed)
	s.types("", prompt)
	s.types("tabel", "tabel")
	s.types(interrupt, prompt) // the line is given up, and the shell goes on
	s.types("tabel\r", `did you mean "table"`)
	s.types("", prompt)
	ends(s, cmd)

	s, cmd = start() // with the lines of the first
	s.types(up+up+"\r", listed)
	s.types("", prompt)
	ends(s, cmd)
	name := filepath.Join(cache, "flagstone", "history")
	text, err := os.ReadFile(name)
	if want := strings.Repeat("table list --json\n", 3) + "tabel\ntable list --json\n"; err != nil || string(text) != want {
		t.Errorf("the history is %q, %v; want %q", text, err, want)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the history: %v, %v", info.Mode(), err)
	}
}
