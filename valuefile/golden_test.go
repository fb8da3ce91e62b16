package valuefile

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

var update = flag.Bool("update", false, "rewrite the worked example of the document and the golden file")

const (
	document = "../docs/format-values.md"
	golden   = "testdata/v1.hex"
)

// exampleValues are those of the document: one raw, one compressed.
func exampleValues() [][]byte {
	return [][]byte{[]byte("a large value"), bytes.Repeat([]byte("ab"), 40)}
}

// annotate describes every part of a file in the words of the document.
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
		for from := at + headSize; from < at+int(ref.Stored); from += 24 {
			line(from, min(from+24, at+int(ref.Stored)), "content")
		}
	}
	at := len(data) - footerSize
	for _, part := range []struct {
		size int
		what string
	}{
		{16, "footer: unique id"}, {8, "2 records"}, {8, "93 bytes of values"}, {8, fmt.Sprintf("file size %d", len(data))},
		{8, "hash of the heads"}, {4, "format version 1"}, {4, "zero"}, {8, "checksum"}, {8, "magic"},
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

// TestTheGoldenFileIsRead reads a file of version 1, kept for ever.
func TestTheGoldenFileIsRead(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, exampleValues()...)
	if *update {
		if err := os.WriteFile(golden, []byte(hex.EncodeToString(s.content(t))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
