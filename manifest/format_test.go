package manifest

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Tests that the format does not change for existing stores. They compare it with golden files,
// which `go test ./manifest -update` rewrites, and with the worked examples of the
// documentation.

var update = flag.Bool("update", false, "write the golden files anew")

// golden returns a golden file, and writes it first if asked to.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
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
	return want
}

func TestTheGoldenStoreIsWrittenAsEverAndOpens(t *testing.T) {
	d := newDamagedStore(t, true)
	for name, got := range map[string][]byte{manifestName(2): d.content, CurrentName: d.current} {
		if want := golden(t, filepath.Join("store-1", name), got); !bytes.Equal(got, want) {
			t.Errorf("the format of %s has changed\ngot:\n%s\nwant:\n%s", name, hex.Dump(got), hex.Dump(want))
		}
	}
	s, report, err := Load(vfs.OS(), filepath.Join("testdata", "store-1"))
	if err != nil || image(s) != d.right() || !report.Closed {
		t.Errorf("report %+v, error %v", report, err)
	}
	if s != nil && s.Clock != (TrustedClock{}) {
		t.Errorf("a store of before has the trusted clock %+v", s.Clock)
	}
}

// TestTheGoldenStoreWithAClockOpens checks the fields of the trusted clock, in edits and in the
// snapshot that the next Open makes of them.
func TestTheGoldenStoreWithAClockOpens(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	for _, e := range append(smallEdits(), clockEdit()) {
		commit(t, l, e)
	}
	closeLog(t, l)
	closeLog(t, openStore(t, sim))
	for _, name := range []string{manifestName(3), CurrentName} {
		got, err := sim.ReadFile(filepath.Join(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if want := golden(t, filepath.Join("store-2", name), got); !bytes.Equal(got, want) {
			t.Errorf("the format of %s has changed\ngot:\n%s\nwant:\n%s", name, hex.Dump(got), hex.Dump(want))
		}
	}
	s, _, err := Load(vfs.OS(), filepath.Join("testdata", "store-2"))
	if err != nil || s.Clock != (TrustedClock{1_700_000_000_500, 86_400_000, 240_000}) {
		t.Errorf("state %+v, error %v", s, err)
	}
}

func TestTheDocumentedExamplesAreTrue(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "format-manifest.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)

	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	var e Edit
	e.LastSeq = 300
	e.MinLog = 5
	commit(t, l, &e)
	closeLog(t, l)
	content, err := sim.ReadFile(filepath.Join(testDir, manifestName(2)))
	if err != nil {
		t.Fatal(err)
	}
	checkExample(t, doc, "header", content[:headerSize])
	for i, name := range []string{"snapshot", "edit", "end"} {
		at := (1 + i) * blockSize
		checkExample(t, doc, name, content[at:at+recordHeaderSize+int(content[at])])
	}
	checkExample(t, doc, "clock", AppendEdit(nil, clockEdit()))
	checkExample(t, doc, "freeze", AppendEdit(nil, &Edit{Services: []ServiceChange{{3, Frozen, "moving"}}}))
	checkExample(t, doc, "cut", AppendEdit(nil, &Edit{Cuts: []uint64{3}}))
	var f Edit
	f.AddFile(1, 0, testFile(7, 1, 2, 100))
	checkExample(t, doc, "file", AppendEdit(nil, &f))
	var begun, closed Edit
	begun.NewestLog = LogEnd{Segment: 5}
	closed.NewestLog = LogEnd{Segment: 5, Offset: 3 * 4096, Records: 300, Chain: 0xFF}
	checkExample(t, doc, "log begun", AppendEdit(nil, &begun))
	checkExample(t, doc, "log closed", AppendEdit(nil, &closed))
	checkExample(t, doc, "kept log", AppendEdit(nil, &Edit{Keep: &LogKeeping{From: 5, Limit: 1 << 20, Noted: 2}}))
	external := Edit{External: &External{LogPoint: LogPoint{Index: 300, Seq: 900, Micros: 1_700_000_000_000_000, Fence: 7}, Highest: 310}}
	checkExample(t, doc, "external", AppendEdit(nil, &external))
	lineage := &ChangeLog{Of: 1, After: 100, Shards: Lineage{
		{ID: 1, After: 100}, {ID: 3, Parents: []uint64{1}, End: testKey(7, -1), After: 300}, {ID: 4, Parents: []uint64{1}, Start: testKey(7, -1), After: 300},
	}}
	checkExample(t, doc, "lineage", encode(nil, lineage.fields))
	current := strings.TrimSuffix(currentLine(manifestName(7)), "\n")
	if !strings.Contains(doc, current) {
		t.Errorf("CURRENT is %q, the documentation says something else", current)
	}
}

// checkExample finds the code block ```example NAME. The hexadecimal digits at the beginnings of
// its lines, up to two spaces in a row, must give the bytes.
func checkExample(t *testing.T, doc, name string, want []byte) {
	t.Helper()
	_, block, found := strings.Cut(doc, "```example "+name+"\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Errorf("no example %q; the code writes\n%x", name, want)
		return
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		text, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		digits.WriteString(strings.ReplaceAll(text, " ", ""))
	}
	if got := digits.String(); got != hex.EncodeToString(want) {
		t.Errorf("example %q is\n%s\nthe code writes\n%x", name, got, want)
	}
}
