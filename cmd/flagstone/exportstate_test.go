package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/cmd/flagstone/statefile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// manyRows fills a table x with rows of several types and versions, and returns its folder.
func manyRows(t *testing.T, rows int, dir string) string {
	t.Helper()
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:string", "--key", "n:integer", "--versions", "3", "--version-offset", "4000000000")
	var lines strings.Builder
	for n := range rows {
		other := `{"binary":"00"}`
		if n%3 == 0 {
			other = strconv.Itoa(n)
		}
		fmt.Fprintf(&lines, `{"key":[{"name":"k","value":"a\"%d"},{"name":"n","value":%d}],"columns":[{"name":"a","version":1600000000000,"value":"line\n%d"},{"name":"a","version":1500000000000,"value":%s}`, n%2, n, n, other)
		if n%3 == 1 {
			fmt.Fprintf(&lines, `,{"name":"b","version":1600000000000,"value":%s}`, other)
		}
		lines.WriteString("]}\n")
	}
	name := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(name, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "x", name, "--dir", dir)
	return dir
}

// holdsAll compares a complete export with what it should hold.
func holdsAll(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s has %d bytes, want %d, %v", name, len(got), len(want), err)
	}
	if parts, err := filepath.Glob(name + ".*.part"); err != nil || len(parts) > 0 {
		t.Errorf("left: %q, %v", parts, err)
	}
}

// TestAKilledExportEndsWithTheRowsOfTheTable kills exports of a folder and of an endpoint, of a whole table and of a part
// of it, which go on by their state.
func TestAKilledExportEndsWithTheRowsOfTheTable(t *testing.T) {
	t.Parallel()
	files, served, folder := t.TempDir(), manyRows(t, 800, newHome(t)), manyRows(t, 800, newHome(t))
	_, url := servingProcess(t, "--dir", served, "--sync", "none")
	for name, c := range map[string]struct {
		extension string
		kills     int
		args      []string
	}{
		"folder":   {".jsonl", 10, []string{"--dir", folder}},
		"columns":  {".csv", 3, []string{"--dir", folder}},
		"endpoint": {".csv", 10, []string{"--dir", served, "--endpoint", url, "--columns", "a:string,b:integer,b:binary"}},
		"part":     {".jsonl", 3, []string{"--dir", served, "--endpoint", url, "--prefix", `a"1`, "--from", "100", "--to", "750", "--where", "a exists"}},
	} {
		all := filepath.Join(files, name+c.extension)
		done(t, slices.Concat([]string{"export", "x", all}, c.args)...)
		want, err := os.ReadFile(all)
		if err != nil || len(want) < 10_000 {
			t.Fatalf("%d bytes, %v", len(want), err)
		}
		killAtRandom(t, c.kills, func(round int) (run func() []string, verify func()) {
			file := filepath.Join(files, fmt.Sprint(name, round, c.extension))
			args := slices.Concat([]string{"export", "x", file, "--state", file + ".state", "--save-every", "20ms", "--rate", "2000"}, c.args)
			return func() []string { return args }, func() {
				t.Helper()
				holdsAll(t, file, string(want))
				if _, _, errOut := command(t, args...); !strings.Contains(errOut, "all of it is exported by an earlier run: ") {
					t.Errorf("once more: %s", errOut)
				}
			}
		})
	}
}

// stateOf is the state of an export, and partOf the file that its rows have until they are complete.
func stateOf(t *testing.T, file string) (s exportState) {
	t.Helper()
	if err := statefile.Read(file+".state", exportStateKind, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func partOf(t *testing.T, file string) string {
	t.Helper()
	return filepath.Join(filepath.Dir(file), stateOf(t, file).Part)
}

// cutExport makes of a complete export one that has only so many lines.
func cutExport(t *testing.T, file string, lines int) {
	t.Helper()
	s := stateOf(t, file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut := strings.Join(strings.SplitAfter(string(content), "\n")[:lines], "")
	var last instances.Row
	if err := json.Unmarshal([]byte(cut[strings.LastIndexByte(cut[:len(cut)-1], '\n')+1:]), &last); err != nil {
		t.Fatal(err)
	}
	key, err := row.AppendKey(nil, 2, last.Key[0].Value.Value, last.Key[1].Value.Value)
	if err != nil {
		t.Fatal(err)
	}
	s.Done, s.Rows, s.Bytes, s.Key = false, int64(lines), int64(len(cut)), hex.EncodeToString(key)
	if err := errors.Join(statefile.Write(file+".state", exportStateKind, &s), os.Remove(file), os.WriteFile(partOf(t, file), []byte(cut+strings.Repeat("not durable", 1<<14)), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestAnExportGoesOnOnlyWhereItMay changes what an interrupted export finds: its options, its files, and its folder.
func TestAnExportGoesOnOnlyWhereItMay(t *testing.T) {
	dir := manyRows(t, 100, newHome(t))
	file := filepath.Join(t.TempDir(), "x.jsonl")
	args := []string{"export", "x", file, "--state", file + ".state", "--dir", dir}
	done(t, args...)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(content)
	goesOn := func(args ...string) {
		t.Helper()
		if status, _, said := command(t, args...); status != 0 || !strings.Contains(said, "goes on after 40 rows") || !strings.Contains(said, "exported 100 rows") {
			t.Errorf("status %d, %s", status, said)
		}
		holdsAll(t, file, want)
	}
	cutExport(t, file, 40)
	goesOn(args...)

	cutExport(t, file, 40)
	refused(t, "the state of another export", append(args, "--versions", "1")...)
	refused(t, "the state of another export", append(args, "--where", "a exists")...)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(file), link); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"", ".tmp", ".lock"} {
		refused(t, "is a file of --state", "export", "x", file+of, "--state", file, "--format", "json", "--dir", dir)
		refused(t, "is a file of --state", "import", "x", file, "--state", file+".import", "--rejects", file+".import"+of, "--dir", dir)
		refused(t, "is a file of --state", "import", "x", file, "--state", file+".import", "--rejects", filepath.Join(link, "x.jsonl.import"+of), "--dir", dir)
		refused(t, "is a file of --state", "import", "x", file+of, "--state", file, "--dir", dir)
	}
	done(t, "export", "x", file, "--state", file+".other", "--versions", "1", "--dir", dir)
	refused(t, "exists", args...)
	goesOn(append(args, "--overwrite")...)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused(t, "is not there any more", args...)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	later := filepath.Join(t.TempDir(), "later")
	refused(t, "the same command goes on where "+later+".state says", "export", "x", filepath.Join(later, "x.jsonl"), "--state", later+".state", "--dir", dir)
	cutExport(t, file, 40)
	refused(t, "cannot go on", "export", "x", filepath.Join(t.TempDir(), "x.parquet"), "--state", file+".state", "--dir", dir)
	refused(t, "cannot go on", "export", "x", "--state", file+".state", "--dir", dir)
	refused(t, "--save-every is 0s", append(args, "--save-every", "0s")...)
	if err := os.WriteFile(file, []byte("of another program"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "exists", args...)
	done(t, append(args, "--overwrite")...)
	holdsAll(t, file, want)

	cutExport(t, file, 40)
	part, err := os.ReadFile(partOf(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(partOf(t, file), 10); err != nil {
		t.Fatal(err)
	}
	if _, _, said := command(t, args...); !strings.Contains(said, "has 10 bytes, and had") || strings.Contains(said, "goes on") {
		t.Error(said)
	}
	if err := os.Remove(partOf(t, file)); err != nil {
		t.Fatal(err)
	}
	refused(t, "no such file or directory; remove "+file+".state to begin anew", args...)
	if err := os.Mkdir(partOf(t, file), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, "is no regular file; remove "+file+".state to begin anew", args...)
	if err := errors.Join(os.Remove(partOf(t, file)), os.WriteFile(partOf(t, file), part, 0o600)); err != nil {
		t.Fatal(err)
	}
	done(t, "put", "x", "a", "1", "-s", "a=1", "--dir", dir)
	refused(t, "was opened to write since the export began, so the file would not be of one moment", args...)
	url, stop := serving(t, "--dir", dir)
	refused(t, "was opened to write since", args...) // that server is found

	// At an endpoint, where the last row is gone meanwhile, and after which the folder is read.
	if err := errors.Join(os.Remove(partOf(t, file)), os.Remove(file+".state")); err != nil {
		t.Fatal(err)
	}
	done(t, "delete", "x", "a", "1", "--dir", dir)
	named := append(slices.Clone(args), "--endpoint", url)
	for _, at := range [][]string{args, named, append(named, "--from", "a")} {
		_ = os.Remove(file + ".state")
		_ = os.Remove(file)
		done(t, at...)
		holdsAll(t, file, want)
		cutExport(t, file, 40)
		goesOn(at...)
	}
	if err := errors.Join(os.Remove(file+".state"), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
	done(t, args...)
	cutExport(t, file, 40)
	done(t, "delete", "x", `a"0`, "78", "--dir", dir)
	stop()
	status, _, said := command(t, args...)
	if status != 0 || !strings.Contains(said, "not of one moment") {
		t.Errorf("status %d, %s", status, said)
	}
	holdsAll(t, file, want) // with the row that was there
}

// TestAnExportThatWasKilledWhileItGotItsNameGetsIt has each state of files that a kill at the end leaves.
func TestAnExportThatWasKilledWhileItGotItsNameGetsIt(t *testing.T) {
	dir := manyRows(t, 10, newHome(t))
	file := filepath.Join(t.TempDir(), "x.jsonl")
	args := []string{"export", "x", file, "--state", file + ".state", "--dir", dir}
	done(t, args...)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(file, partOf(t, file)), os.WriteFile(file, []byte("of another program"), 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(t, "all rows are in "+partOf(t, file)+"; the same command with --overwrite gives them that name", args...)
	done(t, append(args, "--overwrite")...)
	holdsAll(t, file, string(want))
	for _, reserved := range []bool{false, true} {
		err := os.Rename(file, partOf(t, file))
		if reserved {
			err = errors.Join(err, os.WriteFile(file, nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		done(t, args...)
		holdsAll(t, file, string(want))
	}
}

// TestAStateKnowsATableThatWasMadeAnew drops tables at an endpoint between two runs, and makes others of their names.
func TestAStateKnowsATableThatWasMadeAnew(t *testing.T) {
	dir, at := manyRows(t, 100, newHome(t)), t.TempDir()
	url, _ := serving(t, "--dir", dir)
	state := func(name string) []string {
		return []string{"--state", filepath.Join(at, name+".state"), "--endpoint", url, "--dir", dir}
	}
	file, bad := filepath.Join(at, "x.jsonl"), filepath.Join(at, "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{\"k\":\"a\",\"n\":1}\nbad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	export := append([]string{"export", "x", file}, state("x.jsonl")...)
	load := append([]string{"import", "x", bad}, state("import")...)
	from := append([]string{"copy", "x", "--to-endpoint", url, "--to-table", "y"}, state("from")...)
	to := append([]string{"copy", "z", "--to-endpoint", url, "--to-table", "x"}, state("to")...)
	done(t, append([]string{"copy", "x", "--to-endpoint", url, "--to-table", "z"}, state("z")...)...)
	refused(t, "no JSON", load...)
	done(t, export...)
	cutExport(t, file, 40)
	done(t, from...)
	done(t, to...)
	done(t, strings.Split(strings.ReplaceAll(strings.Join(to, "\n"), url, url+"/"), "\n")...) // nothing is made anew
	done(t, "table", "drop", "x", "--dir", dir, "--yes")
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:string", "--key", "n:integer", "--versions", "3", "--version-offset", "4000000000")
	refused(t, "the state of another export: of table x, made at 20", export...)
	refused(t, "the state of another import or copy: it writes to table x, made at 20", load...)
	refused(t, "the state of another import or copy: it writes to table x, made at 20", to...)
	refused(t, "the state of another import or copy: it reads table x, made at 20", from...)
}

// TestAnExportThatMeetsAnotherColumnDoesNotSayThatItGoesOn puts it into a row that is read in the second run.
func TestAnExportThatMeetsAnotherColumnDoesNotSayThatItGoesOn(t *testing.T) {
	dir := manyRows(t, 100, newHome(t))
	url, _ := serving(t, "--dir", dir)
	file := filepath.Join(t.TempDir(), "x.csv")
	args := []string{"export", "x", file, "--state", file + ".state", "--endpoint", url, "--dir", dir}
	done(t, args...)
	s := stateOf(t, file)
	s.Done, s.Key, s.Rows = false, "", 0
	if err := errors.Join(statefile.Write(file+".state", exportStateKind, &s), os.Rename(file, partOf(t, file))); err != nil {
		t.Fatal(err)
	}
	done(t, "put", "x", "a", "1", "-s", "a:boolean=true", "--dir", dir)
	if status, _, said := command(t, args...); status == 0 || !strings.Contains(said, "and the file has no such column; remove "+file+".state and "+partOf(t, file)) || strings.Contains(said, "the same command") {
		t.Errorf("status %d, %s", status, said)
	}
}
