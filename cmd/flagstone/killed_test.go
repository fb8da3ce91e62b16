package main

// Commands that move many rows are killed at random moments, in processes of their own, and run again.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/instances"
)

// killAtRandom kills the processes of a command at random moments, as often as kills says. begin begins a round: run returns the command
// line of its next process, and verify is called when one was not killed, which ends the round. The first round, whose
// process is not killed, shows how long one takes.
func killAtRandom(t *testing.T, kills int, begin func(round int) (run func() []string, verify func())) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	usual, killed, rounds := time.Duration(0), 0, 0
	for killed < kills {
		run, verify := begin(rounds)
		for first := true; ; first = false {
			limit := time.Hour
			if rounds > 0 && killed < kills {
				limit = time.Duration(random.Int64N(int64(usual)))
			}
			args, began := run(), time.Now()
			if endedWithin(t, limit, args) {
				if first {
					usual = time.Since(began)
				}
				break
			}
			killed++
		}
		if rounds++; rounds > 20*kills {
			t.Fatalf("seed %d: only %d processes were killed in %d rounds", seed, killed, rounds)
		}
		verify()
		if t.Failed() {
			t.Fatalf("seed %d, round %d, %d kills", seed, rounds, killed)
		}
	}
	t.Logf("seed %d: %d kills in %d rounds of about %s", seed, killed, rounds, usual)
}

// endedWithin runs a command in a process of its own, and reports whether it has ended before it was killed.
func endedWithin(t *testing.T, limit time.Duration, args []string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	said, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() == nil {
		t.Fatalf("%q: %v, %s", args, err, said)
	}
	return err == nil
}

// servingProcess starts a server in a process of its own, which is killed at the end of the test if it still runs.
func servingProcess(t *testing.T, args ...string) (server *exec.Cmd, url string) {
	t.Helper()
	server, said := process(t, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	t.Cleanup(func() { kill(server) })
	line, err := said.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), " on ")
	if err != nil || !ok {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return server, url
}

// kill kills a process, if it is not nil, and waits for its end.
func kill(server *exec.Cmd) {
	if server != nil {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
}

// importedLines are lines of a CSV file, and what an export prints of its rows. Keys come twice, and some lines are bad.
func importedLines(rows int) (lines, want string, bad int) {
	values := make([]int, rows)
	var text strings.Builder
	text.WriteString("k:integer,a:string,n:integer\n")
	for n := range rows {
		k := n * 7919 % rows
		if n%10 == 0 { // it is replaced by the next one
			fmt.Fprintf(&text, "%d,old,0\n", k)
		}
		if n%100 == 0 {
			bad++
			text.WriteString("bad\n")
		}
		fmt.Fprintf(&text, "%d,\"value\n%d\",%d\n", k, n, n)
		values[k] = n
	}
	var all strings.Builder
	all.WriteString("k:integer,a:string,n:integer\n")
	for k, n := range values {
		fmt.Fprintf(&all, "%d,\"value\n%d\",%d\n", k, n, n)
	}
	return text.String(), all.String(), bad
}

// TestAKilledImportEndsWithTheRowsOfTheFile kills imports into a folder, from several places of a file, and into an endpoint,
// which go on by their state, and bulk loads, which begin anew.
func TestAKilledImportEndsWithTheRowsOfTheFile(t *testing.T) {
	t.Parallel()
	const rows = 1500
	files := t.TempDir()
	lines, want, bad := importedLines(rows)
	var unique strings.Builder // each key once: any row of several stays with --spread
	for line := range strings.Lines(lines) {
		if line != "bad\n" && !strings.Contains(line, ",old,") {
			unique.WriteString(line)
		}
	}
	name, plain := filepath.Join(files, "in.csv"), filepath.Join(files, "plain.csv")
	for file, content := range map[string]string{name: lines, plain: unique.String()} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remote := filepath.Join(files, "remote")
	_, url := servingProcess(t, "--dir", remote, "--sync", "none")
	folder := newHome(t)
	for what, c := range map[string]struct {
		where, options []string
		file           string
		rejects, all   int
		kills          int
	}{
		"folder":   {[]string{"--dir", folder}, nil, name, bad, rows + rows/10, 3},
		"places":   {[]string{"--dir", folder}, []string{"--spread", "5"}, plain, 0, rows, 3},
		"endpoint": {[]string{"--dir", remote, "--endpoint", url}, nil, name, bad, rows + rows/10, 10},
		"bulk":     {[]string{"--dir", folder}, []string{"--bulk", "--temp", files}, name, bad, rows + rows/10, 10},
	} {
		killAtRandom(t, c.kills, func(round int) (run func() []string, verify func()) {
			table := what + strconv.Itoa(round)
			done(t, "table", "create", table, "--dir", c.where[1], "--key", "k:integer")
			rejects := filepath.Join(files, table+".rejects")
			args := append([]string{"import", table, c.file, "--max-rejects=-1"}, c.where...)
			args = append(args, c.options...)
			run = func() []string { return args }
			if what != "bulk" {
				args = append(args, "--rejects", rejects, "--state", filepath.Join(files, table), "--save-every", "20ms", "--rate", "5000")
			} else {
				run = func() []string {
					if strings.TrimSpace(done(t, "count", table, "--dir", folder)) != "0" { // it was killed after its commit
						return []string{"version"}
					}
					return args
				}
			}
			return run, func() {
				t.Helper()
				if got := done(t, append([]string{"export", table, "--format", "csv"}, c.where...)...); got != want {
					t.Errorf("%s: the table has %d bytes, want %d", table, len(got), len(want))
				}
				oneVersion(t, done(t, append([]string{"export", table}, c.where...)...))
				if what == "bulk" {
					return
				}
				content, err := os.ReadFile(rejects)
				if err != nil || bytes.Count(content, []byte("\n")) != c.rejects {
					t.Errorf("%s: %d lines are rejected, want %d, %v", table, bytes.Count(content, []byte("\n")), c.rejects, err)
				}
				if _, _, errOut := command(t, args...); !strings.Contains(errOut, "all of it is imported by an earlier run: "+strconv.Itoa(c.all)) {
					t.Errorf("%s: once more: %s", table, errOut)
				}
			}
		})
	}
}

// oneVersion checks that all cells of an export have the same version: that at which the import began.
func oneVersion(t *testing.T, lines string) {
	t.Helper()
	version := int64(0)
	for line := range strings.Lines(lines) {
		var r instances.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Columns {
			if version == 0 {
				version = c.Version
			}
			if c.Version != version {
				t.Fatalf("versions %d and %d", c.Version, version)
			}
		}
	}
}

// rowsOfAges are rows with a new cell and two old ones, and of some the old ones only, as JSON Lines.
func rowsOfAges(rows int, now int64) string {
	var lines strings.Builder
	for k := range rows {
		old := `{"name":"a","version":1600000000000,"value":%d},{"name":"a","version":1500000000000,"value":{"binary":"00"}}`
		if k%3 > 0 {
			old = `{"name":"a","version":` + strconv.FormatInt(now, 10) + `,"value":"new"},` + old
		}
		fmt.Fprintf(&lines, `{"key":[{"name":"k","value":%d}],"columns":[`+old+"]}\n", k, k)
	}
	return lines.String()
}

// TestAKilledCopyEndsWithTheRowsOfTheTable kills copies between two tables of an endpoint, and from a folder to another,
// which go on by their state.
func TestAKilledCopyEndsWithTheRowsOfTheTable(t *testing.T) {
	t.Parallel()
	dir, files, folder := filepath.Join(t.TempDir(), "store"), t.TempDir(), newHome(t)
	_, url := servingProcess(t, "--dir", dir, "--sync", "none")
	lines := filepath.Join(files, "lines.jsonl")
	if err := os.WriteFile(lines, []byte(rowsOfAges(1000, time.Now().UnixMilli())), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, target []string }{
		"endpoint": {[]string{"--dir", dir, "--endpoint", url}, []string{"--to-endpoint", url}, []string{"--dir", dir, "--endpoint", url}},
		"folder":   {[]string{"--dir", newHome(t)}, []string{"--to-dir", folder}, []string{"--dir", folder}},
	} {
		done(t, "table", "create", "x", "--dir", c.from[1], "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
		done(t, append([]string{"import", "x", lines}, c.from...)...)
		want := done(t, append([]string{"export", "x"}, c.from...)...)
		killAtRandom(t, 10, func(round int) (run func() []string, verify func()) {
			table := name + strconv.Itoa(round)
			args := slices.Concat([]string{"copy", "x", "--to-table", table, "--state", filepath.Join(files, table), "--save-every", "20ms", "--rate", "5000"}, c.from, c.to)
			return func() []string { return args }, func() {
				t.Helper()
				if got := done(t, append([]string{"export", table}, c.target...)...); got != want {
					t.Errorf("%s has %d lines, want %d", table, strings.Count(got, "\n"), strings.Count(want, "\n"))
				}
			}
		})
	}
}

// TestAKilledArchiveLosesNoCell kills archives of a folder and of an endpoint, each of which is run again with another name.
// What the files that have their names hold, together, is every old cell, and the table has the others.
func TestAKilledArchiveLosesNoCell(t *testing.T) {
	t.Parallel()
	files, rows := t.TempDir(), rowsOfAges(90, time.Now().UnixMilli())
	lines := filepath.Join(files, "lines.jsonl")
	if err := os.WriteFile(lines, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, remote := range []bool{false, true} {
		dir, server := newHome(t), (*exec.Cmd)(nil)
		at := func() []string {
			if !remote {
				return []string{"--dir", dir}
			}
			kill(server) // with the transaction of an archive that was killed, which would lock its row for a minute
			var url string
			server, url = servingProcess(t, "--dir", dir)
			return []string{"--dir", dir, "--endpoint", url}
		}
		killAtRandom(t, 10, func(round int) (run func() []string, verify func()) {
			table, back, where := fmt.Sprintf("x%t%d", remote, round), fmt.Sprintf("back%d", round), at()
			for _, table := range []string{table, back} {
				done(t, "table", "create", table, "--dir", dir, "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
			}
			done(t, append([]string{"import", table, lines}, where...)...)
			var names []string
			run = func() []string {
				if len(names) > 0 {
					where = at()
				}
				name := filepath.Join(files, fmt.Sprintf("%s-%d.jsonl", table, len(names)))
				names = append(names, name)
				return append([]string{"archive", table, name, "--older-than", "24h"}, where...)
			}
			return run, func() {
				t.Helper()
				left := done(t, append([]string{"export", table}, where...)...)
				if n := strings.Count(left, "\n"); n != 60 || strings.Contains(left, `"version":1500000000000`) || strings.Contains(left, `"version":1600000000000`) {
					t.Errorf("%s has %d rows, or old cells", table, n)
				}
				stayed := filepath.Join(files, table+".jsonl")
				if err := os.WriteFile(stayed, []byte(left), 0o600); err != nil {
					t.Fatal(err)
				}
				merge := []string{"import", "--merge", back, stayed}
				for _, name := range names {
					if exists(name) {
						merge = append(merge, name)
					}
				}
				done(t, append(merge, where...)...)
				if got := done(t, append([]string{"export", back}, where...)...); got != rows {
					t.Errorf("%s: together are %d lines, want %d:\n%.2000s", table, strings.Count(got, "\n"), strings.Count(rows, "\n"), got)
				}
			}
		})
	}
}
