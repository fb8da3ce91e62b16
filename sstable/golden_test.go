package sstable

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

var update = flag.Bool("update", false, "rewrite testdata and the worked example in docs")

// exampleTable is the table of the worked example: a row as PutRow leaves it, a row as updates
// leave it, and a row that does not fit in a block.
func exampleTable() modelTable {
	text := func(column string, version int64, seq uint64, value string) row.Cell {
		return row.Cell{Column: []byte(column), Version: version, Seq: seq, Kind: row.KindPut, Type: row.TypeString, Value: []byte(value)}
	}
	return modelTable{
		{[]byte("\x20alice"), []row.Cell{
			{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: 7},
			{Kind: row.KindRowMarker, Version: 1000, Seq: 7},
			{Column: []byte("age"), Version: 1000, Seq: 7, Kind: row.KindPut, Type: row.TypeInteger, Value: []byte{30, 0, 0, 0, 0, 0, 0, 0}},
			text("name", 1000, 7, "Alice"),
		}},
		{[]byte("\x20alina"), []row.Cell{
			{Kind: row.KindRowMarker, Version: 1250, Seq: 9},
			{Column: []byte("age"), Version: row.MaxVersion, Seq: 8, Kind: row.KindTrim},
			text("name", 1250, 9, "Alina"),
			{Column: []byte("name"), Version: 1003, Seq: 8, Kind: row.KindDeleteVersion},
		}},
		{[]byte("\x20bo"), []row.Cell{
			{Kind: row.KindRowMarker, Version: 1000, Seq: 3},
			text("x", 1000, 3, strings.Repeat("x", 90)),
			text("y", 1000, 3, strings.Repeat("y", 90)),
		}},
	}
}

var exampleOptions = WriterOptions{BlockSize: 128, FilterBitsPerKey: 10, UniqueID: testID}

// dump annotates the bytes of a file.
type dump struct {
	out  strings.Builder
	file []byte
	at   int
}

// line shows the next n bytes, sixteen per line. The first line says what they are.
func (d *dump) line(n int, what string) {
	for end := d.at + n; ; what = "" {
		part := d.file[d.at:min(d.at+16, end)]
		line := fmt.Sprintf("%04x  %-47s  %s", d.at, fmt.Sprintf("% x", part), what)
		d.out.WriteString(strings.TrimRight(line, " ") + "\n")
		if d.at += len(part); d.at == end {
			return
		}
	}
}

func (d *dump) title(format string, args ...any) {
	fmt.Fprintf(&d.out, "\n      "+format+"\n", args...)
}

func (d *dump) uvarint(what string) int {
	v, n := binary.Uvarint(d.file[d.at:])
	d.line(n, what)
	return int(v)
}

func (d *dump) array(n int, what string) {
	c := cursor{data: d.file, at: d.at}
	u := c.uints(n, what)
	values := make([]string, n)
	for i := range n {
		values[i] = fmt.Sprint(u.at(d.file, i))
	}
	d.line(c.at-d.at, what+": "+strings.Join(values, " "))
}

func (d *dump) trailer() {
	d.line(1, "type")
	d.line(8, "checksum")
}

func (d *dump) ends(n int, what string) {
	c := cursor{data: d.file, at: d.at}
	u := c.steps(n, 1<<30, what)
	values := make([]string, n)
	for i := range n {
		values[i] = fmt.Sprint(u.at(d.file, i))
	}
	d.line(c.at-d.at, what+": "+strings.Join(values, " "))
}

func (d *dump) dataBlock(end int) {
	head, at, bad := headOf(d.file[d.at:end])
	var b dataBlock
	if bad == "" {
		bad = b.parse(head[:len(head)-trailerSize], at)
	}
	if bad != "" {
		panic(bad)
	}
	begin := d.at
	for k := range b.segments {
		if n := begin + int(b.partEnd.at(b.data, k)) - trailerSize - d.at; n > 0 {
			d.line(n, fmt.Sprintf("values of segment %d", k))
		}
		d.trailer()
	}
	d.line(1, "flags")
	d.uvarint("rows")
	d.uvarint("stamps")
	d.uvarint("columns")
	d.uvarint("cells")
	d.uvarint("segments")
	d.uvarint("prefix length")
	withColumn := b.cells
	if b.ordered {
		withColumn = 0
	}
	for _, a := range []struct {
		n    int
		what string
	}{
		{b.rows, "keyEnd*"}, {b.rows, "cellEnd*"}, {b.rows, "stampEnd"}, {b.rows, "rowFlags"},
		{b.stamps, "seq"}, {b.stamps, "version"}, {b.columns, "nameEnd*"},
		{withColumn, "column"}, {b.cells, "stamp"}, {b.cells, "kind"}, {b.cells, "valueEnd*"},
		{b.segments, "rowEnd*"}, {b.segments, "partEnd*"},
	} {
		if strings.HasSuffix(a.what, "*") {
			d.ends(a.n, a.what)
		} else {
			d.array(a.n, a.what)
		}
	}
	d.line(arrayPad, "padding")
	for _, s := range []struct {
		b    []byte
		what string
	}{{b.prefix(), "prefix"}, {b.keys(), "key suffixes"}, {b.names(), "column names"}} {
		if len(s.b) > 0 {
			d.line(len(s.b), s.what)
		}
	}
	d.trailer()
	d.line(headLengthSize, "length of the head")
}

func (d *dump) index(x *index) {
	d.uvarint("groups")
	d.uvarint("blocks")
	d.uvarint("prefix length")
	for i, what := range []string{"sepEnd", "firstBlock", "blockEnd", "columnEnd", "version", "tie", "awayEnd"} {
		n := x.blocks
		if i < 2 {
			n = x.groups
		}
		d.array(n, what)
	}
	d.line(arrayPad, "padding")
	d.line(len(x.prefix), "prefix")
	d.line(len(x.separators), "separator suffixes")
	d.line(len(x.cols), "columns")
	d.trailer()
}

// annotate returns the worked example of the format document.
func annotate(r *Reader, file []byte) string {
	d := dump{file: file}
	for i := range r.index.blocks {
		from, to := r.index.blockRange(i)
		d.title("data block %d, bytes %#x to %#x", i, from, to)
		d.dataBlock(int(to))
	}
	d.title("filter")
	d.line(1, "probes")
	d.line(4, "lines")
	d.line(lineBytes*r.filter.lines, "words")
	d.trailer()
	d.title("index")
	d.index(&r.index)
	d.title("properties")
	for _, what := range []string{
		"rows", "cells", "puts", "tombstones", "smallest seq", "largest seq", "newest tombstone",
		"smallest version", "largest version", "flags", "data blocks", "raw bytes", "key bytes", "value bytes",
	} {
		d.uvarint(what)
	}
	for _, what := range []string{"smallest key", "largest key"} {
		n := d.uvarint(what + " length")
		d.line(n, what)
	}
	d.uvarint("value files")
	d.trailer()
	d.title("footer")
	d.line(16, "unique id")
	for _, what := range []string{"data length", "filter length", "index length", "properties length", "file size"} {
		d.line(8, what)
	}
	d.line(1, "index kind")
	d.line(1, "filter kind")
	d.line(2, "zero")
	d.line(4, "format version")
	d.line(8, "checksum")
	d.line(8, "magic")
	return strings.TrimPrefix(d.out.String(), "\n")
}

// readAll opens a file and reads all of it in every way. It returns the first error.
func (t modelTable) readAll(f *memFile) error {
	r, err := Open(f, ReaderOptions{FileName: "000001.sst"})
	if err != nil {
		return err
	}
	it := r.blockByBlock()
	defer it.Close()
	for i := range t {
		if !r.MayContain(Hash(t[i].key)) {
			return fmt.Errorf("filter denies %q", t[i].key)
		}
		if !it.SeekRowExact(t[i].key) {
			return fmt.Errorf("row %q: %w", t[i].key, orEnd(it.Error()))
		}
	}
	return t.checkAll(it)
}

const document = "../docs/format-sstable.md"

func TestTheWorkedExampleOfTheDocumentIsWhatTheWriterWrites(t *testing.T) {
	f := &memFile{}
	exampleTable().write(t, f, exampleOptions)
	r := openFile(t, f, nil)
	if err := r.Verify(nil); err != nil {
		t.Fatal(err)
	}
	example := "```\n" + annotate(r, f.data) + "```\n"
	const begin, end = "<!-- example -->\n", "<!-- end of example -->\n"
	doc, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	doc = bytes.ReplaceAll(doc, []byte("\r\n"), []byte("\n"))
	before, rest, ok := strings.Cut(string(doc), begin)
	shown, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the example", document)
	}
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+example+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if shown != example {
		t.Fatalf("%s shows another example (go test -run WorkedExample -update):\n%s", document, example)
	}
}

// goldenFiles are files of each format version, kept for ever as hexadecimal text. The writer
// must also reproduce an uncompressed one of the present version, byte by byte. Compressed
// blocks may change with the versions of the compressors.
var goldenFiles = []struct {
	name  string // under testdata
	model func() modelTable
	opts  WriterOptions
}{
	{"v1/example", exampleTable, exampleOptions},
	{"v1/s2", exampleTable, WriterOptions{Compression: CompressS2, UniqueID: testID}},
	{"v1/zstd", exampleTable, WriterOptions{Compression: CompressZstd, UniqueID: testID}},
	{"v2/references", referenceTable, WriterOptions{BlockSize: 256, FilterBitsPerKey: 10, UniqueID: testID}},
	{"v3/example", exampleTable, exampleOptions},
	{"v3/references", referenceTable, WriterOptions{BlockSize: 256, FilterBitsPerKey: 10, UniqueID: testID}},
	{"v3/segments", segmentTable, WriterOptions{UniqueID: testID}},
	{"v3/s2", segmentTable, WriterOptions{Compression: CompressS2, UniqueID: testID}},
	{"v3/zstd", segmentTable, WriterOptions{Compression: CompressZstd, UniqueID: testID}},
}

// segmentTable has blocks of several segments, and values that compress.
func segmentTable() modelTable {
	var t modelTable
	for i := range 12 {
		seq, version := uint64(30+i), int64(9000-i)
		t = append(t, modelRow{fmt.Appendf(nil, "\x20row%02d", i), []row.Cell{
			{Kind: row.KindRowMarker, Version: version, Seq: seq},
			put("even", version, seq, bytes.Repeat([]byte{byte('a' + i)}, 600)),
			put("odd", version, seq, bytes.Repeat([]byte{'x', byte('A' + i)}, 10*i)),
		}})
	}
	return t
}

const presentVersion = "v3/"

func goldenPath(name string) string {
	return filepath.Join("testdata", filepath.FromSlash(name)+".hex")
}

func readGolden(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile(goldenPath(name))
	if err != nil {
		tb.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return golden
}

func TestFilesOfEveryVersionStayReadable(t *testing.T) {
	for _, g := range goldenFiles {
		path := goldenPath(g.name)
		f := &memFile{}
		g.model().write(t, f, g.opts)
		if *update && strings.HasPrefix(g.name, presentVersion) {
			var text bytes.Buffer
			for at := 0; at < len(f.data); at += 32 {
				fmt.Fprintf(&text, "%x\n", f.data[at:min(at+32, len(f.data))])
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden := readGolden(t, g.name)
		if g.opts.Compression == CompressNone && strings.HasPrefix(g.name, presentVersion) && !bytes.Equal(golden, f.data) {
			t.Errorf("%s: the writer writes other bytes", g.name)
		}
		if err := g.model().readAll(&memFile{data: golden}); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
		if err := openFile(t, &memFile{data: golden}, nil).Verify(nil); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}
