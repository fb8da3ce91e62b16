package rowfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/flagstone-db/flagstone/row"
)

var testKey = []Column{{"s", row.TypeString}, {"i", row.TypeInteger}, {"b", row.TypeBinary}}

// edgeValues are values that a text may change.
var edgeValues = []row.Value{
	row.Integer(0), row.Integer(math.MinInt64), row.Integer(math.MaxInt64), row.Integer(1<<53 + 1),
	row.Double(0), row.Double(math.Copysign(0, -1)), row.Double(math.SmallestNonzeroFloat64), row.Double(math.MaxFloat64), row.Double(0.1), row.Double(-2),
	row.Double(math.Inf(1)), row.Double(math.Inf(-1)), row.Double(math.NaN()), row.Boolean(true), row.Boolean(false),
	row.String(""), row.String(" a,\"b\"\r\n\x00\u2028<&>"), row.String("\ufeffmark"), row.String("\""), row.String("null"), row.String("1.5"), row.String("\xff\xfe"),
	row.Binary(nil), row.Binary([]byte{0, 255, ','}),
}

// edgeRows are rows of these values: each in a column of its own, with several versions if several is set.
func edgeRows(several bool) (rows []Row) {
	for i, v := range edgeValues {
		r := Row{Key: []row.Value{row.String(fmt.Sprintf("k%02d,\"", i)), row.Integer(int64(-i)), row.Binary([]byte{byte(i)})}}
		for j, other := range []row.Value{v, edgeValues[(i+1)%len(edgeValues)]} {
			c := Cell{Name: fmt.Sprintf("c:%d %s", j, other.Type()), Version: NoVersion, Value: other}
			if several {
				for version := range int64(3) {
					c.Version = 2 - version
					r.Cells = append(r.Cells, c)
				}
				continue
			}
			r.Cells = append(r.Cells, c)
		}
		rows = append(rows, r)
	}
	return append(rows, Row{Key: []row.Value{row.String(""), row.Integer(0), row.Binary(nil)}}) // it has no cells
}

// layoutOf has the columns of rows.
func layoutOf(rows []Row) *Layout {
	l := &Layout{Key: testKey}
	for i := range rows {
		for _, c := range rows[i].Cells {
			if column := (Column{c.Name, c.Value.Type()}); !slices.Contains(l.Columns, column) {
				l.Columns = append(l.Columns, column)
			}
		}
	}
	return l
}

// text writes a row so that equal texts are equal rows. The cells are sorted: a flat file has an order of its own.
func text(r *Row) string {
	var cells []string
	for i, c := range r.Cells {
		cells = append(cells, fmt.Sprintf("%s@%d.%03d=%s %s", c.Name, c.Version, i, c.Value.Type(), c.Value))
	}
	for i := range cells { // the place in the row is kept for versions of one column
		if c := r.Cells[i]; c.Version == NoVersion {
			cells[i] = fmt.Sprintf("%s=%s %s", c.Name, c.Value.Type(), c.Value)
		}
	}
	slices.Sort(cells)
	return fmt.Sprint(r.Key, cells)
}

func written(t *testing.T, format Format, l *Layout, rows []Row) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, format, l)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.Write(&rows[i]); err != nil {
			t.Fatal(err)
		}
		if w, ok := w.(*parquetWriter); ok && i%2 == 1 { // several row groups
			if err := w.out.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// forms are the formats with the rows that they hold without loss.
var forms = []struct {
	name    string
	format  Format
	several bool
	flat    bool
}{{"csv", CSV, false, true}, {"json", JSON, true, false}, {"parquet", Parquet, true, false}, {"flat parquet", Parquet, false, true}}

// TestRowsComeBackAsTheyWereWritten also begins in the middle, behind each row.
func TestRowsComeBackAsTheyWereWritten(t *testing.T) {
	for _, f := range forms {
		rows := edgeRows(f.several)
		l := &Layout{Key: testKey}
		if f.flat {
			l = layoutOf(rows)
		}
		file := written(t, f.format, l, rows)
		places := []Position{{}}
		for begin := 0; begin <= len(rows); begin++ {
			r, err := NewReader(bytes.NewReader(file), int64(len(file)), &ReadOptions{Format: f.format, Key: testKey, At: places[begin]})
			if err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			var got Row
			for i := begin; i < len(rows); i++ {
				if err := r.Next(&got); err != nil {
					t.Fatalf("%s: row %d from %d: %v", f.name, i, begin, err)
				}
				if text(&got) != text(&rows[i]) {
					t.Errorf("%s: row %d from %d is\n%s, want\n%s", f.name, i, begin, text(&got), text(&rows[i]))
				}
				if begin == 0 {
					places = append(places, r.Position())
				}
			}
			if err := r.Next(&got); err != io.EOF {
				t.Errorf("%s: behind the last row: %v", f.name, err)
			}
			if r.Position().Offset != r.Size() {
				t.Errorf("%s: the end is at %d of %d", f.name, r.Position().Offset, r.Size())
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPartsOfAFileHaveEachRowOnce divides files into several numbers of parts.
func TestPartsOfAFileHaveEachRowOnce(t *testing.T) {
	for _, f := range forms {
		rows := edgeRows(f.several)
		l := &Layout{Key: testKey}
		if f.flat {
			l = layoutOf(rows)
		}
		file := written(t, f.format, l, rows)
		if f.format != Parquet {
			file = append(file, '\n', '\n') // lines without a record
		}
		for _, n := range []int{1, 2, 3, 7, 100} {
			o := ReadOptions{Format: f.format, Key: testKey}
			cuts, err := Cut(bytes.NewReader(file), int64(len(file)), &o, n)
			if err != nil || len(cuts) > n+1 || len(cuts) < min(n, len(rows)/2)+1 {
				t.Fatalf("%s: %d cuts for %d parts, %v", f.name, len(cuts), n, err)
			}
			at := 0
			for i := range cuts[1:] {
				o.At = cuts[i]
				r, err := NewReader(bytes.NewReader(file), int64(len(file)), &o)
				if err != nil {
					t.Fatal(err)
				}
				for r.Position().Offset < cuts[i+1].Offset {
					var got Row
					if err := r.Next(&got); err == io.EOF {
						break
					} else if err != nil || text(&got) != text(&rows[at]) {
						t.Fatalf("%s: part %d of %d: row %d is %s, %v", f.name, i, n, at, text(&got), err)
					}
					at++
				}
			}
			if at != len(rows) {
				t.Errorf("%s: %d parts have %d rows, want %d", f.name, n, at, len(rows))
			}
		}
	}
}

// read reads a CSV or JSON text for a key column k, and writes what comes out.
func read(format Format, in string, o ReadOptions) string {
	o.Format, o.Key = format, []Column{{"k", row.TypeString}}
	r, err := NewReader(strings.NewReader(in), int64(len(in)), &o)
	if err != nil {
		return "!" + err.Error()
	}
	var lines []string
	for {
		var got Row
		switch err := r.Next(&got); {
		case err == io.EOF:
			return strings.Join(lines, "; ")
		case errors.As(err, new(*BadRow)):
			lines = append(lines, "!"+err.Error())
		case err != nil:
			return strings.Join(append(lines, "!!"+err.Error()), "; ")
		default:
			line := fmt.Sprintf("%d%v", got.Line, got.Key)
			for _, c := range got.Cells {
				line += fmt.Sprintf(" %s=%s", c.Name, c.Value)
			}
			lines = append(lines, line)
		}
	}
}

func TestCSVOfOtherProgramsIsRead(t *testing.T) {
	types := map[string]row.Type{"n": row.TypeInteger, "d": row.TypeDouble}
	for _, c := range []struct {
		name, in string
		empty    Empty
		want     string
	}{
		{"no end of line", "k,a\nx,1", "", `2["x"] a="1"`},
		{"windows", "\xef\xbb\xbfk,a\r\nx,1\r\n\r\ny,\r\n", "", `2["x"] a="1"; 4["y"]`},
		{"types", "n,k,d\n1,x,2e3\n", "", `2["x"] n=1 d=2000`},
		{"types in the header win", "n:string,k:string\n1,x\n", "", `2["x"] n="1"`},
		{"no type behind the colon", "k,a:b\nx,1\n", "", `2["x"] a:b="1"`},
		{"quoted over lines", "k,a\n\"x\ny\",\"1\"\"\r\n2\"\nz,3\n", "", `2["x\ny"] a="1\"\r\n2"; 5["z"] a="3"`},
		{"by quotes", "k,a,n\nx,,\ny,\"\",1\n", EmptyByQuotes, `2["x"]; 3["y"] a="" n=1`},
		{"missing", "k,a,n\nx,,\ny,\"\",1\n", EmptyMissing, `2["x"]; 3["y"] n=1`},
		{"empty strings", "k,a,n\nx,,\ny,\"\",1\n", EmptyValue, `2["x"] a=""; 3["y"] a="" n=1`},
		{"an empty key", "k,a\n,1\n", EmptyMissing, `2[""] a="1"`},
		{"bad lines", "k,n\nx,1\ny,z\nz\nv\"w,1\n\"a\"b,1\nu,2\n", "", `2["x"] n=1; !line 3: column n: invalid: "z" is no value of type integer; ` +
			`!line 4: 1 fields, and the header has 2; !line 5: field 1: a quote in a field that does not begin with one; !line 6: field 1: text behind the closing quote; 7["u"] n=2`},
		{"never closed", "k,a\nx,\"1\ny,2\n", "", `!!line 2: a quote begins a field, and is never closed`},
		{"never closed later", "k,a\n\"x\n\",\"1\ny,2\n", "", `!!line 3: a quote begins a field, and is never closed`},
		{"a header never closed", "k,\"a\n1,2\n", "", `!line 1: a quote begins a field, and is never closed`},
		{"too many fields", "k\nx,,,,,,\ny\n", "", `!line 2: more than 1 fields; 3["y"]`},
		{"several types", "k,a:integer,a:string\nx,1,\ny,,z\nv,1,z\nw,1,\"\"\n", "", `2["x"] a=1; 3["y"] a="z"; !line 4: column a has two values; !line 5: column a has two values`},
		{"an empty one of several types", "k,a:integer,a:string,a:binary\nx,1,,\ny,,,00\nv,,,\nw,1,z,\n", EmptyValue, `2["x"] a=1; 3["y"] a=0x00; 4["v"] a=""; !line 5: column a has two values`},
		{"nothing", "", "", "!line 1: the file has no header with the names of its columns"},
		{"ends of lines by a carriage return", "k,a\rx,1\r", "", "!line 1: the header: the header has a carriage return; lines end in a line feed, or in both"},
		{"no key", "a\n1\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"a\"]"},
		{"a key in capitals", "a,K\n1,2\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"a\" \"K\"]: names are case-sensitive"},
		{"another delimiter", "a;k,b;c\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"a;k\" \"b;c\"]: is the delimiter ';'? --delimiter ';'"},
		{"a comma in a name", "\"a,k\"\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"a,k\"]"},
		{"tabs", "k\ta\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"k\\ta\"]: is the delimiter tab? --delimiter tab"},
		{"many columns", "a,b,c,d,e,f,g,h,i,j,l\n", "", "!line 1: the header: there is no column k:string, which the key of the table has; the file has [\"a\" \"b\" \"c\" \"d\" \"e\" \"f\" \"g\" \"h\" \"i\" \"j\"] and 1 more"},
		{"UTF-16", "\xff\xfek\x00,\x00a\x00\n\x00", "", "!the file is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8"},
		{"UTF-16, big end first", "\xfe\xff\x00k\x00\n", "", "!the file is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8"},
		{"UTF-16 without its mark", "k\x00\n\x00", "", "!the file is UTF-16; make it UTF-8: iconv -f UTF-16LE -t UTF-8"},
		{"UTF-16, big end first, without its mark", "\x00k\x00\n", "", "!the file is UTF-16; make it UTF-8: iconv -f UTF-16BE -t UTF-8"},
		{"gzip", "\x1f\x8b\x08\r", "", "!the file is packed by gzip; unpack it: zcat FILE | flagstone import TABLE - --format csv"},
		{"one letter", "k", "", ""},
		{"another key", "k:integer\n1\n", "", "!line 1: the header: key column k is of type string in the table, and of type integer in the file"},
		{"twice", "k,a,a\n", "", "!line 1: the header: column a:string is there twice"},
		{"no name", "k,\n", "", "!line 1: the header: column 2 has no name"},
	} {
		header, _, _ := strings.Cut(c.in, "\n")
		known := maps.Clone(types)
		maps.DeleteFunc(known, func(name string, _ row.Type) bool { return !strings.Contains(","+header, ","+name) })
		if got := read(CSV, c.in, ReadOptions{Types: known, Empty: c.empty}); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	const want = "!line 1: the header: there is no column n, for which a type is given; the file has [\"k\" \"N\"]: names are case-sensitive"
	if got := read(CSV, "k,N\nx,1\n", ReadOptions{Types: map[string]row.Type{"n": row.TypeInteger}}); got != want {
		t.Errorf("a type of a column that is not there: %s\nwant %s", got, want)
	}
}

func TestJSONLinesThatAreNoRowsAreBad(t *testing.T) {
	good := `{"key":[{"name":"k","value":"x"}],"columns":[{"name":"a","value":1}]}`
	var manyNulls strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&manyNulls, `,"c%d":null`, i)
	}
	for in, want := range map[string]string{
		`{`:                     "ends within the object",
		`[]`:                    "the line is no object",
		good + good:             "text behind the object",
		`{"other":1}`:           `no value for key column k`,
		`{"k":"x","a":{"b":1}}`: `column "a": {"b":1} is no value: want a string, a number, a boolean, {"binary": `,
		`{"k":"x","a":{"b":"` + strings.Repeat("z", 100) + `"}}`: `zz... is no value: want`,
		`{"k":"x","a":[1]}`:                  `{"double": "NaN"}; a line has a member for each column`,
		`{"k":"x","a":1,"a":2}`:              `column "a" is there twice`,
		`{"k":"x","a":null,"a":2}`:           `column "a" is there twice`,
		`{"k":1}`:                            `column "k" is of type string, and this value of type integer`,
		`{"k":"x"}{}`:                        "text behind the object",
		`{"k":"x","a":1`:                     "ends within the object",
		`{"key":[],"other":1}`:               `member "other" has no place`,
		`{"key":[]}`:                         "no value for key column k",
		`{"key":[{"name":"z","value":"x"}]}`: `no column "z"`,
		`{"key":[{"name":"k","value":1}]}`:   "of type string, and this value of type integer",
		`{"key":[{"name":"k","value":"x"}],"columns":[{"name":"a"}]}`:                        `column "a" has no value`,
		`{"key":[{"name":"k","value":"x"}],"columns":[{"name":"a","value":1,"version":-1}]}`: "version -1",
		good + "}": "text behind the object",
		`{"key":[{"name":"k","value":"x"},{"name":"k","value":"y"}]}`: "key column k is there twice",
		`{"key":[{"name":"k","value":"\ud83d"}]}`:                     "half of a surrogate pair",
		`{"key":[{"name":"k","value":"\ud83d\u0041"}]}`:               "half of a surrogate pair",
		`{"key":[{"name":"k","value":"\ude00\ud83d"}]}`:               "half of a surrogate pair",
		`{"key":[` + strings.Repeat("{},", 10_001) + `{}]}`:           "more than 10000",
		"{\"key\":[{\"name\":\"k\",\"value\":\"\xff\"}]}":             "not UTF-8",
		`{"k":"x"` + manyNulls.String() + `}`:                         "more than 10000 columns",
	} {
		got := read(JSON, good+"\n"+in+"\n"+good+"\n", ReadOptions{})
		if !strings.HasPrefix(got, `1["x"] a=1; !line 2: `) || !strings.Contains(got, want) || !strings.HasSuffix(got, `; 3["x"] a=1`) {
			t.Errorf("%s: %s; want %s", in, got, want)
		}
	}
}

func TestPackedJSONIsNoJSON(t *testing.T) {
	const want = "!the file is packed by gzip; unpack it: zcat FILE | flagstone import TABLE - --format json"
	if got := read(JSON, "\x1f\x8b\x08\r", ReadOptions{}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestJSONLinesMayHaveAMemberForEachColumn(t *testing.T) {
	in := `{"a":1,"k":"x","b":"s","c":null,"d":2,"e":"00ff","f":{"double":"1.5"}}
{"key":[{"name":"k","value":"y"}],"columns":[{"name":"d","value":2}]}
{"k":"z","d":2.5}
{"d":"x","k":"z"}
`
	const want = `1["x"] a=1 b="s" d=2 e=0x00ff f=1.5; 2["y"] d=2; 3["z"] d=2.5; !line 4: column "d": `
	types := map[string]row.Type{"d": row.TypeDouble, "e": row.TypeBinary}
	if got := read(JSON, in, ReadOptions{Types: types}); !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestARecordHasABound reads a quote that is never closed.
func TestARecordHasABound(t *testing.T) {
	for _, csv := range []bool{true, false} {
		r, err := newRecords(strings.NewReader("a\n\""+strings.Repeat("x", 2000)), map[bool]byte{true: ','}[csv], Position{})
		if err != nil {
			t.Fatal(err)
		}
		r.most = 1000
		if first, err := r.next(); err != nil || string(first) != "a" {
			t.Fatalf("%q, %v", first, err)
		}
		if _, err := r.next(); !errors.Is(err, errTooLong) || !strings.Contains(err.Error(), "line 2") {
			t.Error(err)
		}
	}
}

// TestDamagedFilesGiveErrors cuts files and changes their bytes. Whatever comes, the reader ends, and a cut Parquet file is
// not taken for a whole one.
func TestDamagedFilesGiveErrors(t *testing.T) {
	const seed = 17
	random := rand.New(rand.NewPCG(seed, 0))
	for _, f := range forms {
		rows := edgeRows(f.several)
		l := &Layout{Key: testKey}
		if f.flat {
			l = layoutOf(rows)
		}
		whole := written(t, f.format, l, rows)
		drain := func(file []byte) error {
			r, err := NewReader(bytes.NewReader(file), int64(len(file)), &ReadOptions{Format: f.format, Key: testKey})
			var got Row
			for n := 0; err == nil; n++ {
				if err = r.Next(&got); errors.As(err, new(*BadRow)) {
					err = nil
				}
				if n > len(whole) {
					t.Fatalf("%s: the reader does not end (seed %d)", f.name, seed)
				}
			}
			return err
		}
		for range 300 {
			damaged := bytes.Clone(whole)
			for range 1 + random.IntN(3) {
				damaged[random.IntN(len(damaged))] ^= byte(1 + random.IntN(255))
			}
			_ = drain(damaged) // it may well be a row of another value
			if err := drain(whole[:random.IntN(len(whole))]); f.format == Parquet && err == io.EOF {
				t.Errorf("%s: a cut file was read to its end (seed %d)", f.name, seed)
			}
		}
	}
}

func TestWritersRefuseWhatAFileCannotHold(t *testing.T) {
	key := []row.Value{row.String("x"), row.Integer(1), row.Binary(nil)}
	for _, format := range []Format{CSV, Parquet} {
		w, err := NewWriter(io.Discard, format, &Layout{Key: testKey, Columns: []Column{{"a", row.TypeInteger}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []Cell{{"b", 1, row.Integer(1)}, {"a", 1, row.String("1")}} {
			if err := w.Write(&Row{Key: key, Cells: []Cell{c}}); err == nil || !strings.Contains(err.Error(), c.Name) {
				t.Errorf("%s: %s: %v", format, c.Name, err)
			}
		}
	}
	if _, err := NewWriter(io.Discard, Parquet, &Layout{Key: testKey, Columns: []Column{{"a", row.TypeInteger}, {"a", row.TypeString}}}); err == nil {
		t.Error("a flat Parquet file with two columns of one name")
	}
}

// TestEscapesOfJSONAreRead has pairs of surrogates, and backslashes that begin no escape of one.
func TestEscapesOfJSONAreRead(t *testing.T) {
	in := `{"key":[{"name":"k","value":"\\ud83d \ud83d\ude00\n\""}]}`
	if got, want := read(JSON, in, ReadOptions{}), "1[\"\\\\ud83d \U0001F600\\n\\\"\"]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// givenRows are rows as the library gives them.
type givenRows struct {
	parquet.Rows
	left []parquet.Row
}

func (g *givenRows) ReadRows(rows []parquet.Row) (int, error) {
	n := copy(rows, g.left)
	if g.left = g.left[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (g *givenRows) Close() error { return nil }

// TestAColumnThatEndsEarlyEndsTheReader gives rows without values of a column, and out of order.
func TestAColumnThatEndsEarlyEndsTheReader(t *testing.T) {
	flat := &Layout{Key: []Column{{"k", row.TypeInteger}}, Columns: []Column{{"a", row.TypeInteger}, {"b", row.TypeInteger}}}
	cells := &Layout{Key: flat.Key}
	value := func(column int) parquet.Value { return parquet.Int64Value(7).Level(0, 1, column) }
	for what, c := range map[string]struct {
		layout  *Layout
		columns []int // of the values
	}{
		"the first ends": {flat, []int{1, 2}}, "the middle ends": {flat, []int{0, 2}}, "the last ends": {flat, []int{0, 1}},
		"two values": {flat, []int{0, 0, 1, 2}}, "out of order": {flat, []int{0, 1, 2, 1}}, "a field of cells ends": {cells, []int{0, 1, 2, 3, 3, 4, 5, 6, 7}},
	} {
		file := written(t, Parquet, c.layout, nil)
		r, err := NewReader(bytes.NewReader(file), int64(len(file)), &ReadOptions{Format: Parquet, Key: flat.Key})
		if err != nil {
			t.Fatal(err)
		}
		var in parquet.Row
		for _, column := range c.columns {
			in = append(in, value(column))
		}
		r.(*parquetReader).rows = &givenRows{left: []parquet.Row{in}}
		if err := r.Next(new(Row)); err == nil || errors.As(err, new(*BadRow)) || !strings.Contains(err.Error(), "row 1: the file is damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestUnsignedIntegersOfParquetAreRead has the largest ones.
func TestUnsignedIntegersOfParquetAreRead(t *testing.T) {
	var file bytes.Buffer
	type unsigned struct {
		K int64  `parquet:"k"`
		A uint32 `parquet:"a"`
		B uint64 `parquet:"b"`
	}
	if err := parquet.Write(&file, []unsigned{{1, math.MaxUint32, math.MaxInt64}, {2, 0, math.MaxUint64}}); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), &ReadOptions{Format: Parquet, Key: []Column{{"k", row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	var got Row
	if err := r.Next(&got); err != nil || got.Cells[0].Value.Int64() != math.MaxUint32 || got.Cells[1].Value.Int64() != math.MaxInt64 {
		t.Errorf("%v, %v", got, err)
	}
	if err := r.Next(&got); !errors.As(err, new(*BadRow)) {
		t.Error(err)
	}
}
