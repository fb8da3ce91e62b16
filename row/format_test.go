package row

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Format tests: the encodings of keys and batches must stay readable in existing files. They are
// compared with golden files, which `go test ./row -update` writes anew, and with the worked
// examples of the documentation.

var update = flag.Bool("update", false, "write the golden files anew")

var goldenKeys = []struct {
	name    string
	columns int
	tuple   []Value
}{
	{"integer", 1, []Value{Integer(5)}},
	{"smallest integer", 1, []Value{Integer(math.MinInt64)}},
	{"minus one", 1, []Value{Integer(-1)}},
	{"largest integer", 1, []Value{Integer(math.MaxInt64)}},
	{"string as the last column is raw", 1, []Value{String("a\x00b")}},
	{"empty string", 1, []Value{String("")}},
	{"string before others is escaped", 2, []Value{String("a\x00b"), Integer(0)}},
	{"empty binary before others", 2, []Value{Binary(nil), String("x")}},
	{"worked example", 3, []Value{String("a\x00"), Integer(-1), Binary([]byte{0})}},
	{"partial tuple", 3, []Value{String("a")}},
	{"no columns given", 3, nil},
	{"minimum after a string", 2, []Value{String("a"), Min()}},
	{"maximum after a string", 2, []Value{String("a"), Max()}},
	{"four columns", 4, []Value{Integer(1), String("s"), Binary([]byte{0xFF}), String("end")}},
}

// goldenBatch holds every kind of cell and every type of value.
func goldenBatch(t interface{ Fatal(...any) }) []byte {
	var b Batch
	for _, m := range []*Mutation{
		{Table: 7, Key: []byte{tagString, 'k'}, DeleteRow: true, PutRow: true, Cells: []Cell{
			put("bin", 1000, Binary([]byte{0, 0xFF})),
			put("bool", 1000, Boolean(true)),
			put("dbl", 1000, Double(1.5)),
			put("int", 1000, Integer(-2)),
			put("str", 1001, String("text")),
			packedPut("zip"),
		}},
		{Table: 300, Key: []byte{tagString, 'l'}, Cells: []Cell{
			trim("col", MaxVersion),
			put("col", 2000, Integer(1)),
			deleteVersion("col", 1500),
		}},
		{Table: 7, Key: []byte{tagString, 'm'}, DeleteRow: true},
	} {
		if err := add(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	b.SetTime(1700000000000123)
	return bytesOf(&b)
}

func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the format has changed\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestGoldenKeysEncodeAsEverAndDecode(t *testing.T) {
	var got strings.Builder
	for _, c := range goldenKeys {
		key := mustKey(t, c.columns, c.tuple...)
		fmt.Fprintf(&got, "%-34s %d columns %v\n    %x\n", c.name, c.columns, c.tuple, key)
		if tuple, err := DecodeKey(key, c.columns); err != nil || !sameTuple(tuple, c.tuple) {
			t.Errorf("%s: %v, %v", c.name, tuple, err)
		}
	}
	checkGolden(t, "keys.golden", []byte(got.String()))
}

func TestTheGoldenBatchEncodesAsEverAndDecodes(t *testing.T) {
	data := goldenBatch(t)
	time, mutations, err := readBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Clone(data)
	old[0] = batchFormat - 1 // differs in how values are packed
	if _, same, err := readBatch(old); err != nil || strings.Join(same, "\n") != strings.Join(mutations, "\n") {
		t.Errorf("as a batch of format 4: %v, %v", same, err)
	}
	checkGolden(t, "batch.golden",
		fmt.Appendf(nil, "%stime %d\n%s\n", hex.Dump(data), time, strings.Join(mutations, "\n")))
}

// TestTheDocumentedExamplesAreTrue compares every line of a worked example in
// docs/format-row.md with what the code writes.
func TestTheDocumentedExamplesAreTrue(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "format-row.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	m := &Mutation{Table: 7, Key: mustKey(t, 1, String("k")), DeleteRow: true, PutRow: true,
		Cells: []Cell{put("n", 1000, Integer(5)), put("s", 1000, String("hi"))}}
	if err := add(&b, m); err != nil {
		t.Fatal(err)
	}
	b.SetTime(1_000_001)
	checkExample(t, string(doc), "batch", bytesOf(&b))
	checkExample(t, string(doc), "key", mustKey(t, 3, String("a\x00"), Integer(-1), Binary([]byte{0})))
}

// checkExample finds the code block ```example NAME. The hexadecimal digits at the beginnings of
// its lines, up to two spaces in a row, must give the bytes.
func checkExample(t *testing.T, doc, name string, want []byte) {
	t.Helper()
	_, block, found := strings.Cut(doc, "```example "+name+"\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatalf("no example %q", name)
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		bytes, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		digits.WriteString(strings.ReplaceAll(bytes, " ", ""))
	}
	if got := digits.String(); got != hex.EncodeToString(want) {
		t.Errorf("example %q is\n%s\nthe code writes\n%x", name, got, want)
	}
}
