package external

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/manifest"
)

func commandOf(kind Kind) *manifest.Edit {
	switch kind {
	case Create:
		return &manifest.Edit{Created: []*manifest.Table{{Name: "t"}}}
	case Alter:
		return &manifest.Edit{Altered: []manifest.Alteration{{Table: 3}}}
	case Drop:
		return &manifest.Edit{Dropped: []uint64{3}}
	}
	return &manifest.Edit{Replaced: []*manifest.Replacement{{Table: 3, New: []*manifest.Partition{{Start: []byte("k")}}}}}
}

func TestAPayloadIsReadAsItWasMade(t *testing.T) {
	p, err := decode(AppendBatch(5, 300, [][]byte{[]byte("ab"), []byte("c")}))
	if err != nil || p.kind != Batch || p.writer != 5 || p.fence != 300 || string(p.batch) != "abc" {
		t.Errorf("%+v, %v", p, err)
	}
	for kind := Create; kind <= Fence; kind++ {
		p, err := decode(AppendCommand(kind, 6, 7, -5, commandOf(kind)))
		if err != nil || p.kind != kind || p.writer != 6 || p.fence != 7 || p.micros != -5 {
			t.Errorf("kind %d: %+v, %v", kind, p, err)
		}
	}
	for _, kind := range []Kind{0, Create, Alter, Drop, Split, Merge, Fence + 1} {
		if _, err := decode(AppendCommand(kind, 6, 7, 1, new(manifest.Edit))); !errors.Is(err, ErrEntry) {
			t.Errorf("kind %d of nothing: %v", kind, err)
		}
	}
}

func TestTheDocumentedExamplesAreTrue(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format-external.md")
	if err != nil {
		t.Fatal(err)
	}
	const writer, micros = 0x0807060504030201, 1_700_000_000_000_000
	cut := &manifest.Replacement{Table: 3, New: []*manifest.Partition{{Start: []byte{5, 'm', 0}, Cut: true}}}
	for name, want := range map[string][]byte{
		"fence": AppendCommand(Fence, writer, 0, micros, new(manifest.Edit)),
		"split": AppendCommand(Split, writer, 12, micros, &manifest.Edit{Replaced: []*manifest.Replacement{cut}}),
	} {
		_, block, _ := strings.Cut(string(doc), "```example "+name+"\n")
		block, _, _ = strings.Cut(block, "```")
		var digits strings.Builder
		for line := range strings.Lines(block) {
			text, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
			digits.WriteString(strings.ReplaceAll(text, " ", ""))
		}
		if got := digits.String(); got != hex.EncodeToString(want) {
			t.Errorf("example %q is\n%s\nthe code writes\n%x", name, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(AppendBatch(5, 1, [][]byte{[]byte("ab")}))
	for kind := Create; kind <= Fence; kind++ {
		f.Add(AppendCommand(kind, 6, 7, 1, commandOf(kind)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = seal(b) // or the checksum would refuse everything
		p, err := decode(b)
		switch {
		case err != nil && !errors.Is(err, ErrEntry):
			t.Fatal(err)
		case err == nil && p.kind == Batch && !bytes.HasSuffix(b[:len(b)-checksumBytes], p.batch):
			t.Fatalf("%x is read as the batch %x", b, p.batch)
		}
	})
}
