package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// done runs a command line that must succeed.
func done(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errOut := command(t, args...)
	if status != 0 {
		t.Fatalf("%v: status %d, %s", args, status, errOut)
	}
	return out
}

// refused runs a command line that must fail with one line that holds want.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	status, _, errOut := command(t, args...)
	lines := strings.Split(strings.TrimSpace(errOut), "\n")
	if last := lines[len(lines)-1]; status == 0 || !strings.Contains(last, want) {
		t.Errorf("%v: status %d, %s; want %q", args, status, errOut, want)
	}
}

// emptyStore makes a store with tables of the same key.
func emptyStore(t *testing.T, tables ...string) string {
	t.Helper()
	dir := newHome(t)
	for _, table := range tables {
		done(t, "table", "create", table, "--dir", dir, "--key", "s:string", "--key", "i:integer", "--key", "b:binary", "--versions", "9", "--version-offset", "4000000000")
	}
	return dir
}

// edgeLines are rows of every type and edge value, as JSON Lines. Several versions of a cell come first to last.
func edgeLines(t *testing.T, several bool) []byte {
	t.Helper()
	values := []row.Value{
		row.Integer(0), row.Integer(math.MinInt64), row.Integer(math.MaxInt64), row.Integer(1<<53 + 1),
		row.Double(0), row.Double(math.Copysign(0, -1)), row.Double(math.SmallestNonzeroFloat64), row.Double(-math.MaxFloat64), row.Double(0.1), row.Double(3),
		row.Boolean(true), row.Boolean(false), row.String(""), row.String(" a,\"b\"\r\n\x00\u2028<&>\U0001F600"), row.String("null"), row.String("\ufeff"),
		row.Binary([]byte{}), row.Binary([]byte{0, 255, '"'}),
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	for i := range values {
		r := instances.Row{Key: []instances.KeyValue{
			{Name: "s", Value: instances.Value{Value: row.String([]string{"", "a\x00,\"", "\U0001F600"}[i/7])}},
			{Name: "i", Value: instances.Value{Value: row.Integer([]int64{math.MinInt64, -1, 0, 1, 2, 3, math.MaxInt64}[i%7])}},
			{Name: "b", Value: instances.Value{Value: row.Binary([]byte{0, byte(i)})}},
		}, Columns: []instances.Cell{}}
		for j := range 1 + i%2 {
			for n := range map[bool]int{true: 3, false: 1}[several] {
				other := instances.Value{Value: values[(i+n)%len(values)]}
				r.Columns = append(r.Columns, instances.Cell{Name: fmt.Sprintf("c%d_%s", j, other.Type()), Version: int64(3-n) * 1_000_000_000_000, Value: other})
			}
		}
		if err := encoder.Encode(&r); err != nil {
			t.Fatal(err)
		}
	}
	out.WriteString(`{"key":[{"name":"s","value":"zz"},{"name":"i","value":5},{"name":"b","value":{"binary":""}}],"columns":[]}` + "\n")
	return out.Bytes()
}

// TestExportAndImportKeepEveryValue exports a table in each format, imports it into others, by each way, and compares their
// exports byte by byte.
func TestExportAndImportKeepEveryValue(t *testing.T) {
	for _, c := range []struct {
		file    string
		several bool
		options []string
	}{
		{"rows.jsonl", true, nil}, {"rows.parquet", true, nil}, {"rows.csv", false, nil},
		{"flat.parquet", false, []string{"--columns", "c0_integer:integer,c0_double:double,c0_boolean:boolean,c0_string:string,c0_binary:binary,c1_integer:integer,c1_double:double,c1_boolean:boolean,c1_string:string,c1_binary:binary"}},
	} {
		dir := emptyStore(t, "first", "puts", "bulk", "remote")
		files := t.TempDir()
		lines := filepath.Join(files, "lines.jsonl")
		if err := os.WriteFile(lines, edgeLines(t, c.several), 0o600); err != nil {
			t.Fatal(err)
		}
		exported := func(table string, options ...string) string {
			t.Helper()
			name := filepath.Join(files, fmt.Sprintf("%s-%d-%s", table, len(options), c.file))
			done(t, append([]string{"export", table, name, "--dir", dir}, options...)...)
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
		done(t, "import", "first", lines, "--dir", dir)
		want := exported("first", c.options...)
		from := filepath.Join(files, fmt.Sprintf("first-%d-%s", len(c.options), c.file))
		done(t, "import", "puts", from, "--dir", dir)
		done(t, "import", "bulk", from, "--dir", dir, "--bulk", "--temp", files)
		url, stop := serving(t, "--dir", dir)
		done(t, "import", "remote", from, "--endpoint", url, "--dir", dir)
		overNet := filepath.Join(files, "net-"+c.file)
		done(t, append([]string{"export", "remote", overNet, "--endpoint", url, "--dir", dir}, c.options...)...)
		stop()
		if content, err := os.ReadFile(overNet); err != nil || string(content) != want {
			t.Errorf("%s: by an endpoint, %v\n%s\nwant\n%s", c.file, err, content, want)
		}
		for _, table := range []string{"puts", "bulk", "remote"} {
			if got := exported(table, c.options...); got != want {
				t.Errorf("%s: %s has\n%s\nwant\n%s", c.file, table, got, want)
			}
		}
		if c.several { // versions are there, too
			for _, table := range []string{"first", "puts", "bulk", "remote"} {
				if got := done(t, "export", table, "--dir", dir); got != string(sortedLines(t, edgeLines(t, true))) {
					t.Errorf("%s: %s has\n%s", c.file, table, got)
				}
			}
		}
	}
}

// sortedLines puts the cells of rows in the order of a scan: columns ascending, versions descending.
func sortedLines(t *testing.T, lines []byte) []byte {
	t.Helper()
	dir := emptyStore(t, "t1")
	name := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(name, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "t1", name, "--dir", dir)
	return []byte(done(t, "scan", "t1", "--dir", dir, "--json", "--versions", "9", "--limit", "0"))
}

// TestTheLastRowOfAKeyStays has each key several times, in each way of an import.
func TestTheLastRowOfAKeyStays(t *testing.T) {
	const keys, times = 100, 7
	var in, want strings.Builder
	in.WriteString("k,n:integer,extra\n")
	for n := range keys * times {
		extra := ""
		if n < keys {
			extra = "of the first row alone"
		}
		fmt.Fprintf(&in, "%d,%d,%s\n", n*31%keys, n, extra)
	}
	for k := range keys {
		for n := keys*times - 1; ; n-- {
			if n*31%keys == k {
				fmt.Fprintf(&want, "%d,%d\n", k, n)
				break
			}
		}
	}
	name := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(name, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(what, got string) {
		t.Helper()
		if got != "k:integer,n:integer\n"+want.String() {
			t.Errorf("%s: %.2000s", what, got)
		}
	}
	for _, way := range [][]string{{}, {"--bulk"}, {"--workers", "3"}} {
		dir := newHome(t)
		done(t, append([]string{"import", "t", name, "--dir", dir}, way...)...)
		check(fmt.Sprint(way), done(t, "export", "t", "--dir", dir, "--format", "csv"))
	}
	dir := filepath.Join(t.TempDir(), "store")
	url, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	done(t, "table", "create", "t", "--dir", dir, "--key", "k:integer")
	done(t, "import", "t", name, "--endpoint", url, "--dir", dir, "--workers", "4")
	check("endpoint", done(t, "export", "t", "--endpoint", url, "--dir", dir, "--format", "csv"))
}

// TestABulkImportNeedsAnEmptyRange imports twice.
func TestABulkImportNeedsAnEmptyRange(t *testing.T) {
	dir := newHome(t)
	name := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(name, []byte("k,a\n1,x\n9,y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "t", name, "--dir", dir, "--bulk")
	refused(t, "without --bulk", "import", "t", name, "--dir", dir, "--bulk")
	done(t, "table", "create", "streamed", "--dir", dir, "--key", "k:integer", "--stream", "24")
	refused(t, "--stream 0", "import", "streamed", name, "--dir", dir, "--bulk")
	if got := done(t, "count", "t", "--dir", dir); strings.TrimSpace(got) != "2" {
		t.Errorf("the table has %s rows", got)
	}
}

// TestRefusedRowsGoToAFile has rows that no reader takes, and rows that the table does not take, one of them with the key of a
// row that it takes.
func TestRefusedRowsGoToAFile(t *testing.T) {
	files := t.TempDir()
	name, rejects := filepath.Join(files, "in.jsonl"), filepath.Join(files, "rejects.jsonl")
	line := func(k int, cell string) string {
		return fmt.Sprintf(`{"key":[{"name":"k","value":%d}],"columns":[%s]}`, k, cell)
	}
	in := strings.Join([]string{
		line(1, `{"name":"a","value":1}`), "nonsense", line(1, `{"name":"a","value":2,"version":9000000000000}`), line(3, `{"name":"1st column","value":1}`),
		line(4, `{"name":"a","value":{"double":"NaN"}}`), line(5, `{"name":"a","value":5}`),
	}, "\n")
	if err := os.WriteFile(name, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := newHome(t)
	url, stop := serving(t, "--dir", filepath.Join(files, "store"), "--sync", "none")
	defer stop()
	done(t, "table", "create", "t", "--dir", filepath.Join(files, "store"), "--key", "k:integer")
	for i, where := range [][]string{{"--dir", dir}, {"--dir", newHome(t), "--bulk"}, {"--endpoint", url, "--dir", filepath.Join(files, "store")}} {
		rejects := rejects + strconv.Itoa(i)
		refused(t, name+":2: ", append([]string{"import", "t", name}, where...)...)
		refused(t, "4 lines were rejected before it", append([]string{"import", "t", name, name, "--max-rejects", "4"}, where...)...)
		done(t, append([]string{"import", "t", name, "--max-rejects", "4", "--rejects", rejects}, where...)...)
		content, err := os.ReadFile(rejects)
		if err != nil {
			t.Fatal(err)
		}
		for n := 2; n <= 4; n++ {
			if bytes.Count(content, fmt.Appendf(nil, `"line":%d,`, n)) != 1 {
				t.Errorf("%v: line %d in %s", where, n, content)
			}
		}
		if where[len(where)-1] == "--bulk" {
			where = where[:2]
		}
		if out := done(t, append([]string{"export", "t", "--format", "csv"}, where...)...); out != "k:integer,a:integer\n1,1\n5,5\n" {
			t.Errorf("%v: %s", where, out)
		}
	}
}

// TestImportAndExportRefuseWhatTheyCannotDo looks at the messages.
func TestImportAndExportRefuseWhatTheyCannotDo(t *testing.T) {
	dir := newHome(t)
	files := t.TempDir()
	file := func(name, content string) string {
		name = filepath.Join(files, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	in := file("in.csv", "k,a\n1,x\n")
	other := file("other.csv", "k,a\n2,x\n")
	state := filepath.Join(files, "state")
	rejects := filepath.Join(files, "rejects")
	done(t, "import", "t", in, "--dir", dir, "--state", state, "--rejects", rejects)
	precious := file("precious", "of the user")
	for _, c := range [][]string{
		{"a format", "import", "t", file("in.txt", "")},
		{"no such file", "import", "t", filepath.Join(files, "absent.csv")},
		{"is a directory", "import", "t", files, "--format", "csv"},
		{"header", "import", "t", file("empty.csv", "")},
		{"parquet file", "import", "t", file("bad.parquet", "not parquet")},
		{"empty file", "import", "t", file("none.parquet", "")},
		{"another import", "import", "t", other, "--state", state, "--rejects", rejects},
		{"--empty-as", "import", "t", in, "--state", state, "--empty-as", "missing", "--rejects", rejects},
		{"another import", "import", "t", in, other, "--state", state, "--rejects", rejects},
		{"it has --rejects", "import", "t", in, "--state", state, "--rejects", precious},
		{"not empty", "import", "t", in, "--state", filepath.Join(files, "fresh"), "--rejects", precious},
		{"not empty", "import", "t", in, "--state", filepath.Join(files, "fresh"), "--rejects", precious},
		{"no regular file", "import", "t", os.DevNull, "--format", "csv", "--state", filepath.Join(files, "fresh")},
		{"no regular file", "import", "t", os.DevNull, "--format", "csv", "--spread", "2"},
		{"it is no", "import", "t", in, "--state", other},
		{"standard input", "import", "t", "-", "--state", state},
		{"standard input", "import", "t", "-", in},
		{"nothing to resume", "import", "t", in, "--state", state, "--bulk"},
		{"at an endpoint", "import", "t", in, "--bulk", "--endpoint", "http://127.0.0.1:1"},
		{"--types a", "import", "t", in, "--types", "a"},
		{"--rate", "import", "t", in, "--rate", "-1"},
		{"--rate", "export", "t", "--rate", "-1"},
		{"--workers", "import", "t", in, "--workers", "-1"},
		{"--spread", "import", "t", in, "--spread", "0"},
		{"one place", "import", "t", "-", "--spread", "2"},
		{"--spread out", "import", "t", in, "--spread", "2", "--bulk"},
		{"--max-rejects", "import", "t", in, "--max-rejects=-2"},
		{"--save-every", "import", "t", in, "--save-every", "0s"},
		{"--temp", "import", "t", in, "--temp", files},
		{`no table "absent"`, "import", "absent", in},
		{`no table "absent"`, "export", "absent"},
		{"exists", "export", "t", in},
		{"a format", "export", "t", filepath.Join(files, "out.txt")},
		{"to all, or to none", "export", "t", "--format", "csv", "--columns", "a:string,b"},
		{"leave the types", "export", "t", "--columns", "a:string"},
		{"column of the key", "export", "t", "--columns", "k"},
		{"one version", "export", "t", "--format", "csv", "--versions", "2"},
		{"--versions", "export", "t", "--versions=-1"},
		{"FLAGSTONE_ACCESS_KEY_ID", "export", "t", "--endpoint", "http://127.0.0.1:1"},
		{"column a holds a value of type string", "export", "t", "--format", "csv", "--columns", "a:integer"},
		{"column a holds a value of type string", "export", "t", filepath.Join(files, "new.csv"), "--columns", "a:integer"},
	} {
		refused(t, c[0], append(c[1:], "--dir", dir)...)
	}
	refused(t, "no store in", "export", "t", "--dir", files)
	if content, err := os.ReadFile(precious); err != nil || string(content) != "of the user" {
		t.Errorf("a file of the user holds %q, %v", content, err)
	}
	if left, err := filepath.Glob(filepath.Join(files, "new*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestAnExportKeepsToItsRate exports three rows, of which the second one would come after days. It is interrupted when it
// says how far it is, in each pass over the table.
func TestAnExportKeepsToItsRate(t *testing.T) {
	dir := newHome(t)
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer")
	for _, k := range []string{"1", "2", "3"} {
		done(t, "put", "x", k, "--dir", dir)
	}
	for format, says := range map[string]string{"json": "exported", "csv": "looked for columns"} {
		ctx, cancel := context.WithCancel(context.Background())
		errOut := new(interrupted)
		errOut.interrupt = func() {
			if errOut.Len() > 0 { // by the line of no row; this one is of the first row
				cancel()
			}
		}
		status := run(ctx, []string{"export", "x", "--format", format, "--rate", "0.000001", "--progress", "1ns", "--dir", dir}, &output{out: io.Discard, err: errOut})
		if status != 1 || !strings.Contains(errOut.String(), says) || strings.Contains(errOut.String(), " 2 rows") || !strings.HasSuffix(errOut.String(), "interrupted\n") {
			t.Errorf("%s: status %d, %s", format, status, errOut)
		}
		cancel()
	}
	if got := done(t, "export", "x", "--rate", "1000000", "--dir", dir); strings.Count(got, "\n") != 3 {
		t.Errorf("below its rate: %s", got)
	}
}

// TestExportsAreFiltered takes parts of a table, and imports from standard input.
func TestExportsAreFiltered(t *testing.T) {
	dir := emptyStore(t, "orders")
	var o, e bytes.Buffer
	in := "s,i,b,state,total:double\nanna,1,00,new,1.5\nanna,2,00,paid,2\nbert,1,00,new,3\n"
	if status := run(context.Background(), []string{"import", "orders", "-", "--format", "csv", "--dir", dir, "--progress", "0s"}, &output{in: strings.NewReader(in), out: &o, err: &e}); status != 0 {
		t.Fatal(e.String())
	}
	for want, options := range map[string]string{
		"anna,1,00,new,1.5\nanna,2,00,paid,2\nbert,1,00,new,3\n": "",
		"anna,2,00,paid,2\n":                        "--prefix anna --from 2",
		"anna,1,00,new\nbert,1,00,new\n":            "--columns state:string --where total!=2.0",
		"anna,1,00,1.5\nanna,2,00,2\nbert,1,00,3\n": "--columns total",
		"bert,1,00,new,3\n":                         "--from b --to c",
	} {
		out := done(t, append([]string{"export", "orders", "--format", "csv", "--dir", dir}, strings.Fields(options)...)...)
		if _, rows, _ := strings.Cut(out, "\n"); rows != want {
			t.Errorf("%s: %s", options, out)
		}
	}
	filters := []string{
		`state == "paid"`, `total exists`, `not total exists`, `not (state exists or total > 2.5)`, `s == "anna" and (b == x"00" or total < 2.0)`,
		`total >= 2.0 and state != "new"`, `i <= 1`, `total == 2`, // a double is no integer
	}
	ask := func(filter string, options ...string) string {
		return done(t, append([]string{"export", "orders", "--dir", dir, "--columns", "total", "--where", filter}, options...)...)
	}
	done(t, "put", "orders", "carl", "1", "00", "-s", "note=x", "--dir", dir)
	var fromFolder []string
	for _, filter := range filters {
		fromFolder = append(fromFolder, ask(filter))
	}
	url, stop := serving(t, "--dir", dir)
	defer stop()
	for i, filter := range filters {
		for _, options := range [][]string{nil, {"--endpoint", url}} {
			if out := ask(filter, options...); out != fromFolder[i] {
				t.Errorf("%s %q: the server gives %s, the folder gave %s", filter, options, out, fromFolder[i])
			}
		}
	}
	refused(t, "the filter", "export", "orders", "--dir", dir, "--where", "total")
	lines := filepath.Join(t.TempDir(), "lines.jsonl")
	done(t, "export", "orders", lines, "--dir", dir)
	done(t, "table", "create", "again", "--dir", dir, "--key", "s:string", "--key", "i:integer", "--key", "b:binary", "--version-offset", "4000000000")
	done(t, "import", "again", lines, "--dir", dir)
	refused(t, "--bulk", "import", "again", lines, "--dir", dir, "--bulk")
	done(t, "copy", "orders", "--dir", dir, "--to-table", "copied")
	refused(t, "to itself", "copy", "orders", "--dir", dir)
	for _, table := range []string{"again", "copied"} {
		if out, want := done(t, "export", table, "--dir", dir, "--format", "csv"), done(t, "export", "orders", "--dir", dir, "--format", "csv"); out != want || strings.Count(out, "\n") != 5 {
			t.Errorf("table %s has %s, want %s", table, out, want)
		}
	}
	done(t, "archive", "copied", filepath.Join(t.TempDir(), "old.jsonl"), "--older-than", "1ns", "--dir", dir)
	if out := done(t, "count", "copied", "--dir", dir); out != "0\n" {
		t.Errorf("after the archive: %s rows", out)
	}
	if out := done(t, "export", "orders", "--endpoint", url, "--dir", dir, "--format", "csv", "--columns", "total:double", "--prefix", "anna", "--from", "2"); out != "s:string,i:integer,b:binary,total:double\nanna,2,00,2\n" {
		t.Error(out)
	}
}

// TestAnImportThatFailsSaysWhatItWrote: a bad line comes after good ones.
func TestAnImportThatFailsSaysWhatItWrote(t *testing.T) {
	dir := newHome(t)
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer")
	file := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(file, []byte("{\"k\":1}\n{\"k\":2,\"a\":\"b\"}\n{\"n\":3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "no value for key column k; up to 2 rows were written, and stay; with --state", "import", "x", file, "--dir", dir)
	if out := done(t, "export", "x", "--dir", dir, "--format", "csv"); out != "k:integer,a:string\n1,\n2,b\n" {
		t.Errorf("the table has %q", out)
	}
	refused(t, "the same command goes on", "import", "x", file, "--dir", dir, "--state", filepath.Join(t.TempDir(), "state"))
	done(t, "table", "create", "empty", "--dir", dir, "--key", "n:string")
	latin := filepath.Join(t.TempDir(), "latin.csv")
	if err := os.WriteFile(latin, []byte("n,v\nlat\xe9,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, errOut := command(t, "import", "empty", latin, "--dir", dir); !strings.Contains(errOut, "latin.csv:2") || strings.Contains(errOut, "rows were written") {
		t.Errorf("nothing was written: %s", errOut)
	}
	if _, _, errOut := command(t, "import", "empty", file, "--dir", dir); strings.Contains(errOut, "rows were written") {
		t.Errorf("without a row: %s", errOut)
	}
}

// TestAnImportTakesOtherDelimiters imports fields between semicolons and tabs.
func TestAnImportTakesOtherDelimiters(t *testing.T) {
	for delimiter, in := range map[string]string{";": "k;a\n1;\"x;\"\"y\n\"\n", "tab": "k\ta\n1\t\"x;\"\"y\n\"\n"} {
		dir := emptyStore(t)
		done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer")
		file := filepath.Join(t.TempDir(), "in.csv")
		if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		done(t, "import", "x", file, "--dir", dir, "--delimiter", delimiter)
		if got, want := done(t, "export", "x", "--dir", dir, "--format", "csv"), "k:integer,a:string\n1,\"x;\"\"y\n\"\n"; got != want {
			t.Errorf("%s: %q", delimiter, got)
		}
		refused(t, "--delimiter", "import", "x", file, "--dir", dir, "--delimiter", "||")
	}
}

// TestASilentEndpointIsToldOnce tells two requests that wait for long, and one that does not.
func TestASilentEndpointIsToldOnce(t *testing.T) {
	var out strings.Builder
	w := waiting{out: &out}
	w.say(time.Now().Add(time.Hour), context.DeadlineExceeded)
	w.say(time.Now().Add(-time.Hour), fmt.Errorf("no answer"))
	w.say(time.Now().Add(-time.Hour), fmt.Errorf("again none"))
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "(no answer)") {
		t.Errorf("it said %q", out.String())
	}
}

// TestAColumnHasTheVersion imports rows whose versions a column has, as milliseconds and as a time, with a row that has none.
func TestAColumnHasTheVersion(t *testing.T) {
	dir, file := newHome(t), filepath.Join(t.TempDir(), "rows.csv")
	done(t, "table", "create", "x", "--dir", dir, "--key", "k:integer")
	if err := os.WriteFile(file, []byte("k,at,c\n1,1764237600000,a\n2,2025-11-27T10:00:01Z,b\n3,,c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "rows.csv:4: no value for column at", "import", "x", file, "--dir", dir, "--version-column", "at")
	refused(t, "the key of the table has this column", "import", "x", file, "--dir", dir, "--version-column", "k")
	refused(t, "it is in --rename or --skip", "import", "x", file, "--dir", dir, "--version-column", "at", "--skip", "at")
	refused(t, "there is no column when", "import", "x", file, "--dir", dir, "--version-column", "when")
	done(t, "import", "x", file, "--dir", dir, "--version-column", "at", "--rejects", filepath.Join(t.TempDir(), "rejects"), "--max-rejects", "1")
	want := `{"key":[{"name":"k","value":1}],"columns":[{"name":"c","version":1764237600000,"value":"a"}]}
{"key":[{"name":"k","value":2}],"columns":[{"name":"c","version":1764237601000,"value":"b"}]}
`
	if got := done(t, "export", "x", "--dir", dir); got != want {
		t.Errorf("got %s", got)
	}
}

// TestAFileOf1970IsAFile: some archives give all files that time.
func TestAFileOf1970IsAFile(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "t.csv")
	succeed(t, "instance", "create", "demo", "--dir", dir)
	succeed(t, "table", "create", "t", "--key", "k:integer", "--dir", dir)
	if err := os.WriteFile(file, []byte("k,c\n1,a\n2,b\n3,c\n4,d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	succeed(t, "import", "t", file, "--spread", "2", "--dir", dir) // a pipe has one part
	if got := succeed(t, "count", "t", "--dir", dir); !strings.Contains(got, "4") {
		t.Errorf("there are %s", got)
	}
}
