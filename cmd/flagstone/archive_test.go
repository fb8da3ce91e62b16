package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/row"
)

// aged is a table whose rows have old and new cells; old is what an archive of it holds, and left what stays.
func aged(now int64) (lines, old, left string) {
	line := func(k int, cells ...string) string {
		return fmt.Sprintf(`{"key":[{"name":"k","value":%d}],"columns":[%s]}`+"\n", k, strings.Join(cells, ","))
	}
	a := `{"name":"a","version":1600000000000,"value":1}`
	older := `{"name":"a","version":1500000000000,"value":{"binary":"00"}}`
	recent := fmt.Sprintf(`{"name":"a","version":%d,"value":"new"}`, now)
	b := `{"name":"b","version":1600000000000,"value":1.5}`
	return line(1, a, older) + line(2, recent, a, b) + line(3, recent) + line(4),
		line(1, a, older) + line(2, a, b), line(2, recent) + line(3, recent) + line(4)
}

// TestAnArchiveMovesOldCells archives from a folder and from an endpoint, in both formats.
func TestAnArchiveMovesOldCells(t *testing.T) {
	for _, name := range []string{"old.jsonl", "old.parquet"} {
		for _, remote := range []bool{false, true} {
			dir, files := newHome(t), t.TempDir()
			lines, old, left := aged(time.Now().UnixMilli())
			done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
			in, file := filepath.Join(files, "in.jsonl"), filepath.Join(files, name)
			if err := os.WriteFile(in, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			done(t, "import", "x", in, "--dir", dir)
			args, stop := []string{"--dir", dir}, func() int { return 0 }
			if remote {
				var url string
				url, stop = serving(t, "--dir", dir)
				args = append(args, "--endpoint", url)
			}
			done(t, append([]string{"archive", "x", file, "--older-than", "24h"}, args...)...)
			refused(t, "exists", append([]string{"archive", "x", file, "--older-than", "24h"}, args...)...)
			for _, wrong := range []string{"x.csv", "-", "x.jsonl --format=csv", "x.old"} {
				words := append([]string{"archive", "x", "--older-than", "24h"}, strings.Fields(wrong)...)
				refused(t, "give a name ending in .jsonl or .parquet", append(words, args...)...)
			}
			for range 2 {
				none := filepath.Join(files, "none-"+name)
				done(t, append([]string{"archive", "x", none, "--older-than", "24h"}, args...)...)
				if exists(none) {
					t.Errorf("%s, remote %t: an archive of nothing is left", name, remote)
				}
			}
			stop()
			if got := done(t, "export", "x", "--dir", dir); got != left {
				t.Errorf("%s, remote %t: the table has %s, want %s", name, remote, got, left)
			}
			done(t, "table", "create", "back", "--dir", dir, "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
			done(t, "import", "back", file, "--dir", dir)
			if got := done(t, "export", "back", "--dir", dir); got != old {
				t.Errorf("%s, remote %t: the archive has %s, want %s", name, remote, got, old)
			}
		}
	}
}

// TestARepeatedCellIsOne compares a row of two cells with a file that has one of them twice.
func TestARepeatedCellIsOne(t *testing.T) {
	a, b := rowfile.Cell{Name: "a", Version: 1, Value: row.Integer(1)}, rowfile.Cell{Name: "b", Version: 1, Value: row.Integer(1)}
	if same := unchanged([]rowfile.Cell{a, a}, []rowfile.Cell{a, b}); len(same) != 1 {
		t.Errorf("%d cells are the same", len(same))
	}
}

// TestAnArchiveSaysThatItsFileWasChanged deletes by a file that another program has written to after it was verified.
func TestAnArchiveSaysThatItsFileWasChanged(t *testing.T) {
	dir, name := newHome(t), filepath.Join(t.TempDir(), "old.jsonl")
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer")
	if err := os.WriteFile(name, []byte(`{"key":[{"name":"k","value":1}],"columns":[]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	key := []rowfile.Column{{Name: "k", Type: row.TypeInteger}}
	ended, end := context.WithCancel(context.Background())
	end()
	a, written := archiveCommand{File: name}, newRowSum()
	if _, err := a.each(ended, file, rowfile.JSON, key, nil); err != context.Canceled {
		t.Errorf("%v", err)
	}
	a.Dir, a.Instance, a.Table = dir, "demo", "x"
	err = a.remove(context.Background(), &output{err: os.Stderr}, file, rowfile.JSON, key, &written)
	if err == nil || !strings.Contains(err.Error(), "was changed while") {
		t.Errorf("%v", err)
	}
}

// TestArchivesComeBackByMerge archives one row twice, and puts both files into another table and into the live one.
func TestArchivesComeBackByMerge(t *testing.T) {
	for _, remote := range []bool{false, true} {
		dir, files := newHome(t), t.TempDir()
		file := func(name string) string { return filepath.Join(files, name) }
		now := time.Now().UnixMilli()
		row := func(columns ...string) string {
			return `{"key":[{"name":"k","value":1}],"columns":[` + strings.Join(columns, ",") + "]}\n"
		}
		a, b := `{"name":"a","version":1600000000000,"value":1}`, `{"name":"b","version":1700000000000,"value":"x"}`
		recent := fmt.Sprintf(`{"name":"a","version":%d,"value":3}`, now)
		for name, content := range map[string]string{"1.jsonl": row(recent, a), "2.jsonl": row(b), "none.jsonl": row()} {
			if err := os.WriteFile(file(name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range []string{"x", "back"} {
			done(t, "table", "create", table, "--dir", dir, "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
		}
		args, stop := []string{"--dir", dir}, func() int { return 0 }
		if remote {
			var url string
			url, stop = serving(t, "--dir", dir)
			args = append(args, "--endpoint", url)
		}
		do := func(words ...string) { done(t, append(words, args...)...) }
		do("import", "x", file("1.jsonl"))
		do("archive", "x", file("old1.jsonl"), "--older-than", "1d")
		do("import", "x", file("2.jsonl"), "--merge")
		do("archive", "x", file("old2.parquet"), "--older-than", "24h")
		for _, table := range []string{"x", "back"} {
			do("import", table, file("old1.jsonl"), file("old2.parquet"), "--merge")
		}
		refused(t, "no cells", append([]string{"import", "x", file("none.jsonl"), "--merge"}, args...)...)
		stop()
		for table, want := range map[string]string{"x": row(recent, a, b), "back": row(a, b)} {
			if got := done(t, "export", table, "--dir", dir); got != want {
				t.Errorf("remote %t: %s has %s, want %s", remote, table, got, want)
			}
		}
		refused(t, "does not work with --merge", "import", "x", file("1.jsonl"), "--dir", dir, "--merge", "--bulk")
	}
}

// TestAnArchiveLeavesWhatWasChanged drops a row of a file from a table that has another value at the same version.
func TestAnArchiveLeavesWhatWasChanged(t *testing.T) {
	for _, remote := range []bool{false, true} {
		dir := newHome(t)
		lines, _, _ := aged(time.Now().UnixMilli())
		done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer", "--versions", "3", "--version-offset", "4000000000")
		in := filepath.Join(t.TempDir(), "in.jsonl")
		if err := os.WriteFile(in, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		done(t, "import", "x", in, "--dir", dir)
		a := archiveCommand{}
		a.Dir, a.Instance, a.Table = dir, "demo", "x"
		stop := func() int { return 0 }
		if remote {
			a.Endpoint, stop = serving(t, "--dir", dir)
		}
		drop, closeTable, err := a.dropper(context.Background(), &output{err: os.Stderr}, []rowfile.Column{{Name: "k", Type: row.TypeInteger}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			key  int64
			old  int64 // value of a, in the file
			want int
		}{{2, 1, 1}, {2, 1, 0}, {1, 2, 0}, {9, 1, 0}} {
			n, err := drop(context.Background(), &rowfile.Row{Key: []row.Value{row.Integer(c.key)}, Cells: []rowfile.Cell{
				{Name: "a", Version: 1_600_000_000_000, Value: row.Integer(c.old)}, {Name: "b", Version: 1_600_000_000_000, Value: row.Integer(1)},
			}})
			if err != nil || n != c.want {
				t.Errorf("remote %t, %+v: %d, %v", remote, c, n, err)
			}
		}
		if err := closeTable(); err != nil {
			t.Error(err)
		}
		stop()
		got := done(t, "export", "x", "--dir", dir)
		if strings.Count(got, "\n") != 4 || strings.Count(got, `"version":1600000000000`) != 2 || strings.Count(got, `"version":1500000000000`) != 1 {
			t.Errorf("remote %t: the table has %s", remote, got)
		}
	}
}
