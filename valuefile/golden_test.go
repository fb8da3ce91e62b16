package valuefile

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

var update = flag.Bool("update", false, "rewrite the worked example of the document and the golden file")

const (
	document = "../docs/format-values.md"
	golden   = "testdata/v2.hex"
	golden1  = "testdata/v1.hex" // of a version that is not written any more
)

// exampleValues are the values of the document: one raw, one packed.
func exampleValues() [][]byte {
	return [][]byte{[]byte("a large value"), bytes.Repeat([]byte("ab"), 40)}
}

// annotate describes every part of a file in the terms of the document.
func annotate(s *stored, data []byte) string {
	var b strings.Builder
	line := func(from, to int, what string) {
		fmt.Fprintf(&b, "%4d  %-48s  %s\n", from, hex.EncodeToString(data[from:to]), what)
	}
	for i, ref := range s.refs {
		at := int(ref.Offset)
		h, _ := parseHead(data[at:])
		line(at, at+4, fmt.Sprintf("record %d: stored length %d", i, h.stored))
		line(at+4, at+8, fmt.Sprintf("raw length %d", h.raw))
		line(at+8, at+12, fmt.Sprintf("kind %d", h.kind))
		line(at+12, at+20, "checksum")
		at, end := at+headSize, at+int(ref.Stored)
		if h.kind == kindPieces {
			p, _, _ := parsePieces(data[at:end])
			line(at, at+4, fmt.Sprintf("packed, in pieces: %d", p.len()))
			at += 4
			for i := range p.len() {
				to, content, run := p.ends(i)
				line(at, at+4, fmt.Sprintf("piece %d ends at %d", i, to))
				line(at+4, at+8, fmt.Sprintf("its content at %d, run %t", content, run))
				line(at+8, at+16, "its checksum")
				at += 16
			}
		}
		for ; at < end; at += 24 {
			line(at, min(at+24, end), "content")
		}
	}
	at := len(data) - footerSize
	for _, part := range []struct {
		size int
		what string
	}{
		{16, "footer: unique id"}, {8, "2 records"}, {8, "93 bytes of values"}, {8, fmt.Sprintf("file size %d", len(data))},
		{8, "hash of the heads"}, {4, "format version 2"}, {4, "zero"}, {8, "checksum"}, {8, "magic"},
	} {
		line(at, at+part.size, part.what)
		at += part.size
	}
	encoded := s.refs[1].Append(nil)
	fmt.Fprintf(&b, "\nThe reference to record 1, as a cell of a table file holds it (the file has number %d):\n\n", s.refs[1].File)
	for _, part := range []struct {
		from, to int
		what     string
	}{
		{0, 8, "file number"}, {8, 16, "offset"}, {16, 20, "length of the record"}, {20, 24, "length of the value"}, {24, 32, "checksum of the record"},
	} {
		fmt.Fprintf(&b, "%4d  %-48s  %s\n", part.from, hex.EncodeToString(encoded[part.from:part.to]), part.what)
	}
	return b.String()
}

func TestTheWorkedExampleOfTheDocumentIsWhatTheWriterWrites(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, exampleValues()...)
	if err := s.readAll(t); err != nil {
		t.Fatal(err)
	}
	example := "```\n" + annotate(s, s.content(t)) + "```\n"
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

// TestTheGoldenFilesAreRead reads a file of each version; these files must stay readable.
func TestTheGoldenFilesAreRead(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, exampleValues()...)
	if *update {
		if err := os.WriteFile(golden, []byte(hex.EncodeToString(s.content(t))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	readGolden(t, s, golden)
	for _, s.mapped = range []bool{false, true} {
		readGolden(t, goldenOfVersion1(s), golden1)
	}
}

// goldenOfVersion1 describes the example as version 1 wrote it.
func goldenOfVersion1(s *stored) *stored {
	old := *s
	old.refs = slices.Clone(s.refs)
	old.refs[1].Stored, old.refs[1].Checksum = 46, 0x64e1a0a8128c3ffc
	old.info.Size, old.info.Bytes, old.info.Checksum = 151, 151-footerSize, 0x5d778c169d294965
	return &old
}

// readGolden reads the values of s from a golden file.
func readGolden(t *testing.T, s *stored, golden string) {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s.replace(t, data)
	if err := s.readAll(t); err != nil {
		t.Fatal(err)
	}
}

func TestReferencesSurviveTheirEncoding(t *testing.T) {
	want := row.Reference{File: 1 << 40, Offset: 1 << 50, Stored: 12, Raw: 5 << 20, Checksum: 1<<64 - 2}
	got, err := row.ParseReference(want.Append(nil))
	if err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	encoded := want.Append(nil)
	for _, bad := range [][]byte{nil, encoded[:31], append(encoded, 0), make([]byte, row.ReferenceBytes)} {
		if _, err := row.ParseReference(bad); err == nil {
			t.Errorf("%x is taken for a reference", bad)
		}
	}
}
