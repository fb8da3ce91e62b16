package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
)

// TestTopShowsABusyTable reads figures beside a server to which rows were put.
func TestTopShowsABusyTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	steps := []step{{"table create busy --key k:string", ""}, {"table create quiet --key k:string", ""}}
	for n := range 20 {
		steps = append(steps, step{fmt.Sprintf("put busy %d -s c=1", n), ""})
	}
	follow(t, dir, steps)
	status, out, errOut := command(t, "top", "--dir", dir, "--interval", "100ms", "--count", "2", "--tables", "1")
	if status != 0 || strings.Count(out, "high-performance: pressure 0%") != 2 || strings.Count(out, "GETS/S") != 2 ||
		strings.Count(out, "and 1 more tables") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("status %d, %s, %s", status, out, errOut)
	}
	var busy instances.Table // its rows are in memory
	if err := json.Unmarshal([]byte(done(t, "table", "describe", "busy", "--json", "--dir", dir)), &busy); err != nil || busy.Bytes == 0 {
		t.Fatalf("%v, %+v", err, busy)
	}
	if size := "  " + bytesText(busy.Bytes) + "  "; !strings.Contains(out, size) {
		t.Errorf("top does not show %q, the bytes of 'table describe':\n%s", size, out)
	}
	status, out, errOut = command(t, "top", "--dir", dir, "--interval", "100ms", "--count", "1", "--json")
	var now figures
	if err := json.Unmarshal([]byte(out), &now); status != 0 || err != nil || len(now[ots.HighPerformance].Tables) != 2 || now[ots.HighPerformance].Tables[0].Size != busy.Bytes {
		t.Errorf("status %d, %v, %s, %s", status, err, out, errOut)
	}
	if status, _, errOut := command(t, "top", "--dir", t.TempDir()); status != 1 || !strings.Contains(errOut, "flagstone serve") {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := command(t, "top", "--dir", dir, "--tables", "-1"); status != 2 || !strings.Contains(errOut, "--tables") {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := command(t, "top", "--dir", dir, "--interval", "1ms"); status != 2 || !strings.Contains(errOut, "--interval") {
		t.Errorf("status %d, %s", status, errOut)
	}
}

// TestTopShowsWhatCameSinceThePictureBefore prints three pictures of a table: ten timed writes, ten more, and none more.
func TestTopShowsWhatCameSinceThePictureBefore(t *testing.T) {
	picture := func(writes int) figures {
		var l flagstone.Latency
		if err := json.Unmarshal(fmt.Appendf(nil, `{"total": 1, "buckets": {"1024": %d}}`, writes), &l); err != nil {
			t.Fatal(err)
		}
		return figures{ots.HighPerformance: {Tables: []flagstone.TableMetrics{{Name: "demo/t", Updates: l, Refused: int64(writes), Files: []int{1, 2}, Bytes: []int64{3, 4}}}}}
	}
	var out bytes.Buffer
	top, c := &topCommand{Tables: 5}, &output{out: &out}
	first, second, third := picture(10), picture(20), picture(20)
	for _, step := range [][2]figures{{nil, first}, {first, second}, {second, third}} {
		if err := top.print(c, step[0], step[1], 2); err != nil {
			t.Fatal(err)
		}
	}
	var rates []string
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[len(fields)-1] == "demo/t" {
			rates = append(rates, fields[7]+" and "+fields[10])
		}
	}
	if got := strings.Join(rates, " "); got != "320 and 5 320 and 5 - and 0" {
		t.Errorf("writes/s and refused/s are %q in\n%s", got, out.String())
	}
}

// TestKeysEndTop types each of them at the terminal of a command that would go on.
func TestKeysEndTop(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	for _, key := range []string{"q", "Q", "\x03"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for a command that hangs
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "top", "--dir", dir, "--interval", "100ms")
		cmd.Env = append(os.Environ(), serverEnv+"=1", "TERM=xterm")
		file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		(&terminal{t: t, file: file}).types("", "pressure")
		if _, err := file.WriteString("x" + key); err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(file) // it ends with an error, as the terminal goes with the command
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %q: %v, %s", key, err, out)
		}
	}
}

// TestTopFitsItsTerminal has tables of which one has a long name, and terminals of two sizes.
func TestTopFitsItsTerminal(t *testing.T) {
	dir, long := filepath.Join(t.TempDir(), "store"), strings.Repeat("n", 200)
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	steps := []step{{"table create " + long + " --key k:string", ""}, {"put " + long + " 1 -s c=1", ""}}
	for n := range 10 {
		steps = append(steps, step{fmt.Sprintf("table create t%d --key k:string", n), ""})
	}
	follow(t, dir, steps)
	for _, c := range []struct {
		size            pty.Winsize
		columns, tables int
		name            string
	}{
		{pty.Winsize{Rows: 13, Cols: 80}, 7, 5, "nnn…"},
		{pty.Winsize{Rows: 50, Cols: 360}, len(topColumns) + 1, 11, "demo/" + long},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for a command that hangs
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "top", "--dir", dir, "--interval", "100ms", "--count", "1")
		cmd.Env = append(os.Environ(), serverEnv+"=1", "TERM=xterm")
		file, err := pty.StartWithSize(cmd, &c.size)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out, _ := io.ReadAll(file) // it ends with an error, as the terminal goes with the command
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		_, picture, _ := strings.Cut(string(out), "\x1b[2J")
		lines := strings.Split(strings.ReplaceAll(picture, "\r", ""), "\n")
		for _, line := range lines {
			if utf8.RuneCountInString(line) > int(c.size.Cols) {
				t.Errorf("%d columns: %s", c.size.Cols, line)
			}
		}
		if len(lines) > int(c.size.Rows) {
			t.Errorf("%d lines:\n%s", len(lines), picture)
		}
		head := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "UNITS/S") })
		if head < 0 || len(strings.Fields(lines[head])) != c.columns || strings.Count(picture, "demo/") != c.tables || !strings.Contains(picture, c.name) {
			t.Errorf("%d columns:\n%s", c.size.Cols, picture)
		}
	}
}

func TestTopSaysWhyWritesAreRefused(t *testing.T) {
	var picture bytes.Buffer
	writeStore(&picture, "hp", flagstone.Metrics{}, flagstone.Metrics{Refusal: "the log cannot grow: no space left"}, 1, 20, 0)
	if !strings.Contains(picture.String(), "\nWRITES ARE REFUSED: the log cannot grow: no space left\n") {
		t.Error(picture.String())
	}
}

// TestAPoisonedStoreFitsItsTerminal prints a store with all the lines that one can have.
func TestAPoisonedStoreFitsItsTerminal(t *testing.T) {
	const lines, columns = 12, 50
	now := flagstone.Metrics{Poisoned: true, MemoryBytes: 1 << 40, MemoryBudget: 1 << 40, CacheBytes: 1 << 40}
	for n := range 20 {
		now.Tables = append(now.Tables, flagstone.TableMetrics{Name: fmt.Sprint("demo/t", n), Files: []int{1, 2}})
	}
	var picture bytes.Buffer
	writeStore(&picture, string(ots.HighPerformance), flagstone.Metrics{}, now, 1, lines-storeLines, columns)
	got := strings.Split(picture.String(), "\n")
	if len(got) > lines || !strings.Contains(picture.String(), "TAKES NO WRITES") || !strings.Contains(picture.String(), "and 16 more") {
		t.Errorf("%d lines:\n%s", len(got), picture.String())
	}
	for _, line := range got {
		if utf8.RuneCountInString(line) > columns {
			t.Errorf("too long: %s", line)
		}
	}
}
