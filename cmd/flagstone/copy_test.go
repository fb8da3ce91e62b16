package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// TestACopyHasEveryValueVersionAndOption copies a table from a folder to an endpoint, on to another endpoint, and back to
// a folder, and compares exports byte by byte.
func TestACopyHasEveryValueVersionAndOption(t *testing.T) {
	first, second, third, last := emptyStore(t, "x"), newHome(t), newHome(t), newHome(t)
	lines := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(lines, edgeLines(t, true), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "x", lines, "--dir", first)
	done(t, "table", "alter", "x", "--dir", first, "--version-offset", "5000", "--stream", "7")
	want := done(t, "export", "x", "--dir", first)
	url2, stop2 := serving(t, "--dir", second)
	url3, stop3 := serving(t, "--dir", third)
	done(t, "copy", "x", "--dir", first, "--to-endpoint", url2, "--to-dir", second)
	status, _, errOut := command(t, "copy", "x", "--endpoint", url2, "--dir", second, "--to-endpoint", url3, "--to-dir", third, "--to-table", "u")
	if status != 0 || !strings.Contains(errOut, "not of one moment") || !strings.Contains(errOut, "copied 19 rows") {
		t.Errorf("status %d, %s", status, errOut)
	}
	done(t, "copy", "u", "--endpoint", url3, "--dir", third, "--to-dir", last, "--to-table", "x")
	stop2()
	stop3()
	for dir, table := range map[string]string{second: "x", third: "u", last: "x"} {
		if got := done(t, "export", table, "--dir", dir); got != want {
			t.Errorf("%s has %.500s\nwant %.500s", dir, got, want)
		}
		described := done(t, "table", "describe", table, "--dir", dir)
		for _, option := range []string{"s:string,i:integer,b:binary", "9", "5000s", "7h"} {
			if !strings.Contains(described, option) {
				t.Errorf("%s has no %s: %s", dir, option, described)
			}
		}
	}
}

// TestACopyGoesOn ends at a row that the SDK cannot send, and goes on where its state says.
func TestACopyGoesOn(t *testing.T) {
	first, second := newHome(t), newHome(t)
	done(t, "table", "create", "x", "--dir", first, "--key", "k:integer")
	var in, want strings.Builder
	for n := range 1000 {
		version, out := int64(1_700_000_000_000), &want
		if n == 600 {
			version, out = 0, new(strings.Builder)
		}
		line := fmt.Sprintf(`{"key":[{"name":"k","value":%d}],"columns":[{"name":"c","version":%d,"value":%d}]}`+"\n", n, version, n)
		in.WriteString(line)
		out.WriteString(line)
	}
	lines, state := filepath.Join(t.TempDir(), "lines.jsonl"), filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(lines, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "table", "alter", "x", "--dir", first, "--version-offset", "4000000000")
	done(t, "import", "x", lines, "--dir", first)
	from, stopFrom := serving(t, "--dir", first)
	to, stopTo := serving(t, "--dir", second)
	args := []string{"copy", "x", "--endpoint", from, "--dir", first, "--to-endpoint", to, "--to-dir", second, "--to-table", "x", "--state", state, "--save-every", "1ns"}
	refused(t, "version 0", args...)
	done(t, "table", "alter", "x", "--dir", second, "--version-offset", "86400")
	refused(t, "made anew or altered", args...)
	done(t, "table", "alter", "x", "--dir", second, "--version-offset", "4000000000")
	status, _, errOut := command(t, append(args, "--max-rejects", "1")...)
	if status != 0 || !strings.Contains(errOut, "goes on after 512 rows") || !strings.Contains(errOut, "copied 999 rows") {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := command(t, args...); status != 0 || !strings.Contains(errOut, "by an earlier run: 999 rows") {
		t.Errorf("status %d, %s", status, errOut)
	}
	refused(t, "to itself", "copy", "x", "--endpoint", from, "--dir", first, "--to-endpoint", from)
	done(t, "table", "create", "other", "--dir", second, "--key", "k:string")
	refused(t, "with the key k:string", append(args[:len(args)-6], "--to-table", "other")...)
	stopFrom()
	stopTo()
	if got := done(t, "export", "x", "--dir", second); got != want.String() {
		t.Errorf("the copy has %.500s", got)
	}
	refused(t, "start 'flagstone serve --dir "+first+"' first", "copy", "x", "--dir", first)
	refused(t, "--state: open ", "copy", "x", "--dir", first, "--to-dir", second, "--state", filepath.Join(second, "nodir", "st"))
	empty := filepath.Join(t.TempDir(), "empty")
	refused(t, "no store in "+empty+"; name one with --to-dir, or make one with 'flagstone instance create demo --dir "+empty+"'", "copy", "x", "--dir", first, "--to-dir", empty)
	done(t, "instance", "create", "demo", "--dir", empty)
	done(t, "copy", "x", "--dir", first, "--to-dir", empty)
	refused(t, "exists already", "instance", "create", "demo", "--dir", empty)
	other := filepath.Join(t.TempDir(), "other")
	refused(t, "exists already: instance \"demo\", of type high-performance; a new store has it: delete it with 'flagstone instance delete demo --dir "+other+"'", "instance", "create", "demo", "--type", "capacity", "--dir", other)
	done(t, "instance", "delete", "demo", "--dir", other)
	done(t, "instance", "create", "demo", "--type", "capacity", "--dir", other)
	refused(t, "--workers is 0", "copy", "x", "--dir", first, "--to-dir", second, "--workers", "0")
}

// TestACopyBeginsAnewWhenItsTargetDoes drops the target of a complete copy, and makes another one.
func TestACopyBeginsAnewWhenItsTargetDoes(t *testing.T) {
	first, second, state := emptyStore(t, "x"), newHome(t), filepath.Join(t.TempDir(), "state")
	to, stop := serving(t, "--dir", second)
	args := []string{"copy", "x", "--dir", first, "--to-endpoint", to, "--to-dir", second, "--state", state}
	done(t, args...)
	done(t, "table", "drop", "x", "--dir", second, "--yes")
	refused(t, "is not there; remove the file", args...)
	other := strings.Replace(to, "127.0.0.1", "localhost", 1)
	refused(t, "to itself", "copy", "x", "--dir", second, "--endpoint", to, "--to-endpoint", other)
	refused(t, "to itself", "copy", "x", "--dir", second, "--endpoint", to, "--to-endpoint", to+"/", "--to-table", "x")
	refused(t, "give --to-table x", "copy", "x", "--dir", second, "--endpoint", to, "--to-endpoint", "http://other.example")
	_, stopFirst := serving(t, "--dir", first)
	done(t, "copy", "x", "--dir", first, "--to-dir", second)
	stopFirst()
	t.Setenv(envKeyID, "wrong")
	t.Setenv(envKeySecret, "wrong")
	done(t, append(args[:len(args)-2], "--to-table", "y")...)
	stop()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(second, link); err != nil {
		t.Fatal(err)
	}
	refused(t, "to itself", "copy", "x", "--dir", second, "--to-dir", link)
}

// TestACopyTakesExpiredCells puts a cell into the target of an interrupted copy that the Time To Live of its source forbids.
func TestACopyTakesExpiredCells(t *testing.T) {
	first, second := newHome(t), newHome(t)
	to, stop := serving(t, "--dir", second)
	lines := filepath.Join(t.TempDir(), "lines.jsonl")
	line := `{"key":[{"name":"k","value":1}],"columns":[{"name":"c","version":%d,"value":1}]}` + "\n"
	write := func(version int64) {
		if err := os.WriteFile(lines, fmt.Appendf(nil, line, version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done(t, "table", "create", "x", "--dir", first, "--key", "k:integer", "--ttl", "86400", "--version-offset", "9000000000")
	write(7_500_000_000_000) // in 2207
	done(t, "import", "x", lines, "--dir", first)
	args := []string{"copy", "x", "--dir", first, "--to-endpoint", to, "--to-dir", second}
	refused(t, "until a copy is complete", args...)
	write(time.Now().UnixMilli())
	done(t, "import", "x", lines, "--dir", first)
	write(time.Now().Add(-48 * time.Hour).UnixMilli())
	done(t, "import", "x", lines, "--endpoint", to, "--dir", second)
	done(t, args...)
	refused(t, "table alter x --version-offset", "import", "x", lines, "--endpoint", to, "--dir", second)
	stop()
	described := done(t, "table", "describe", "x", "--dir", second)
	if !strings.Contains(described, "86400s") || !strings.Contains(described, "9000000000s") {
		t.Errorf("the copy has %s", described)
	}
	if got, want := done(t, "export", "x", "--dir", second), done(t, "export", "x", "--dir", first); got != want {
		t.Errorf("the copy has %s, want %s", got, want)
	}
}

// held opens a folder, as a process that is no server does, until release.
func held(t *testing.T, dir string) (release func()) {
	t.Helper()
	home, err := instances.Open(dir, instances.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestACopyThatCannotBeginChangesNothing locks the source, and then the target, and gives a file that is not empty.
func TestACopyThatCannotBeginChangesNothing(t *testing.T) {
	first, second := emptyStore(t, "x"), newHome(t)
	done(t, "table", "alter", "x", "--dir", first, "--version-offset", "5000")
	third := newHome(t)
	url, stop := serving(t, "--dir", third)
	defer stop()
	release := held(t, first)
	refused(t, "is open in another process", "copy", "x", "--dir", first, "--to-endpoint", url, "--to-table", "copied")
	refused(t, "is open in another process", "copy", "x", "--dir", first, "--to-dir", second)
	release()
	if tables := done(t, "table", "list", "--dir", third); strings.Contains(tables, "copied") {
		t.Errorf("the target has %s", tables)
	}
	release = held(t, second)
	refused(t, "is open in another process", "copy", "x", "--dir", first, "--to-dir", second)
	release()
	refused(t, "has no table", "table", "describe", "x", "--dir", second)
	full := filepath.Join(t.TempDir(), "rejects")
	if err := os.WriteFile(full, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "exists and is not empty", "copy", "x", "--dir", first, "--to-dir", second, "--rejects", full)
	refused(t, "has no table", "table", "describe", "x", "--dir", second)
}

// TestACopyGivesItsTargetAStreamThatItCanHave copies a table whose stream a tunnel has made, twice.
func TestACopyGivesItsTargetAStreamThatItCanHave(t *testing.T) {
	first, second, third := emptyStore(t, "x"), newHome(t), newHome(t)
	from, stopFrom := serving(t, "--dir", first)
	to, stopTo := serving(t, "--dir", second)
	done(t, "tunnel", "create", "x", "changes", "--endpoint", from, "--dir", first, "--type", "Stream")
	for _, target := range [][]string{{"--to-endpoint", to, "--to-dir", second}, {"--to-dir", third}} {
		for _, want := range []string{"will have 24 hours", "keeps its stream of 24 hours"} {
			args := append([]string{"copy", "x", "--endpoint", from, "--dir", first}, target...)
			if target[0] == "--to-endpoint" {
				args = append(args, "--to-table", "x")
			}
			if status, _, errOut := command(t, args...); status != 0 || !strings.Contains(errOut, want) {
				t.Errorf("%v: status %d, %s; want %s", args, status, errOut, want)
			}
		}
	}
	stopFrom()
	stopTo()
}

// TestSplitsFrom leaves out ranges before a key.
func TestSplitsFrom(t *testing.T) {
	columns := []rowfile.Column{{Name: "a", Type: row.TypeInteger}, {Name: "b", Type: row.TypeString}}
	for _, c := range []struct {
		key   int64
		left  int
		first any // value of the first column of the first bound; nil: unbounded
	}{{-7, 3, int64(-7)}, {4, 3, int64(4)}, {5, 2, int64(5)}, {10, 1, int64(10)}, {11, 1, int64(11)}} {
		bounds := []*tablestore.PrimaryKey{}
		for i := range 4 {
			bound := new(tablestore.PrimaryKey)
			switch i {
			case 0:
				bound.AddPrimaryKeyColumnWithMinValue("a")
			case 3:
				bound.AddPrimaryKeyColumnWithMaxValue("a")
			default:
				bound.AddPrimaryKeyColumn("a", int64(5*i))
			}
			bound.AddPrimaryKeyColumnWithMinValue("b")
			bounds = append(bounds, bound)
		}
		splits := []*tablestore.Split{}
		for i := range bounds[1:] {
			splits = append(splits, &tablestore.Split{LowerBound: bounds[i], UpperBound: bounds[i+1]})
		}
		key := []instances.Value{{Value: row.Integer(c.key)}, {Value: row.String("x")}}
		left := splitsFrom(splits, columns, key)
		if len(left) != c.left || left[0].LowerBound.PrimaryKeys[0].Value != c.first || left[0].LowerBound.PrimaryKeys[1].Value != "x" {
			t.Errorf("%d leaves %d ranges, the first from %v", c.key, len(left), left[0].LowerBound.PrimaryKeys[0])
		}
	}
}

// TestAServerIsAskedWithTheKeyOfItsFolder has the key of another service in the environment.
func TestAServerIsAskedWithTheKeyOfItsFolder(t *testing.T) {
	dir, other := emptyStore(t, "x"), newHome(t)
	_, stop := serving(t, "--dir", dir)
	t.Setenv(envKeyID, "other")
	t.Setenv(envKeySecret, "of-another-service-0123456789")
	url, stopOther := serving(t, "--dir", other)
	done(t, "export", "x", "--dir", dir)
	done(t, "stream", "list", "--dir", dir)
	done(t, "copy", "x", "--dir", dir, "--to-endpoint", url, "--to-table", "x")
	done(t, "copy", "x", "--endpoint", url, "--to-dir", dir, "--to-table", "y")
	done(t, "copy", "x", "--dir", dir, "--to-table", "z")
	stopOther()
	stop()
	_, stop = serving(t, "--dir", dir) // with the key of the environment, and not that of its folder
	done(t, "export", "x", "--dir", dir)
	stop()
}

// TestAStateGoesOnHoweverTheFolderIsReached has a server at two addresses, and none.
func TestAStateGoesOnHoweverTheFolderIsReached(t *testing.T) {
	dir, from, at := newHome(t), emptyStore(t, "y"), t.TempDir()
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:string")
	done(t, "table", "alter", "x", "--dir", dir, "--stream", "7")
	lines, state := filepath.Join(at, "lines.jsonl"), filepath.Join(at, "import")
	if err := os.WriteFile(lines, []byte("{\"k\":\"a\"}\nbad\n{\"k\":\"b\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", "x", lines, "--dir", dir, "--state", state}
	copies := []string{"copy", "y", "--dir", from, "--to-dir", dir, "--state", filepath.Join(at, "copy")}
	tail := []string{"stream", "tail", "x", "--dir", dir, "--state", filepath.Join(at, "tail")}
	for range 2 {
		_, stop := serving(t, "--dir", dir)
		refused(t, "no JSON", args...)
		done(t, copies...)
		done(t, tail...)
		stop()
		refused(t, "no JSON", args...)
		done(t, copies...)
	}
	done(t, append(args, "--max-rejects", "1")...)
	_, stop := serving(t, "--dir", dir)
	if status, _, errOut := command(t, args...); status != 0 || !strings.Contains(errOut, "by an earlier run: 2 rows") {
		t.Errorf("status %d, %s", status, errOut)
	}
	done(t, "table", "drop", "x", "--dir", dir, "--yes")
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:string")
	refused(t, "the state of another import", args...)
	stop()
}
