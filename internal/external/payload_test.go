package external

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

func commandOf(kind Kind) []byte {
	var e manifest.Edit
	switch kind {
	case Create:
		e.Created = []*manifest.Table{{Name: "t"}}
	case Alter:
		e.Altered = []manifest.Alteration{{Table: 3}}
	case Drop:
		e.Dropped = []uint64{3}
	case Split, Merge:
		e.Replaced = []*manifest.Replacement{{Table: 3, New: []*manifest.Partition{{Start: []byte("k")}}}}
	case Serve:
		e.Services = []manifest.ServiceChange{{Partition: 3, Service: manifest.Frozen, Reason: "it moves"}}
	case Ingest:
		options := manifest.TableOptions{MaxVersions: 1, TTLSeconds: -1, MaxVersionOffsetSeconds: 1}
		f := manifest.Fragment{Table: &manifest.Table{
			ID: 1, Name: "t", Key: []manifest.KeyColumn{{Name: "k", Type: row.TypeString}}, Options: options,
			Watermark: manifest.NoWatermark, Partitions: []*manifest.Partition{{ID: 1}},
		}}
		return f.Append(nil)
	}
	return manifest.AppendEdit(nil, &e)
}

func TestAPayloadIsReadAsItWasMade(t *testing.T) {
	p, err := decode(AppendBatch(5, 300, [][]byte{[]byte("ab"), []byte("c")}))
	if err != nil || p.kind != Batch || p.writer != 5 || p.fence != 300 || string(p.batch) != "abc" {
		t.Errorf("%+v, %v", p, err)
	}
	for kind := Create; kind <= Ingest; kind++ {
		p, err := decode(AppendCommand(kind, 6, 7, -5, commandOf(kind)))
		if err != nil || p.kind != kind || p.writer != 6 || p.fence != 7 || p.micros != -5 {
			t.Errorf("kind %d: %+v, %v", kind, p, err)
		}
	}
	for _, kind := range []Kind{0, Create, Alter, Drop, Split, Merge, Serve, Ingest, Ingest + 1} {
		if _, err := decode(AppendCommand(kind, 6, 7, 1, manifest.AppendEdit(nil, new(manifest.Edit)))); !errors.Is(err, ErrEntry) {
			t.Errorf("kind %d of nothing: %v", kind, err)
		}
	}
}

func TestACommandDoesNothingBesidesItsKind(t *testing.T) {
	for kind := Create; kind <= Serve; kind++ {
		e, err := manifest.DecodeEdit(commandOf(kind))
		if err != nil {
			t.Fatal(err)
		}
		e.Watermarks = []manifest.Watermark{{Table: 3, Cutoff: 5}}
		if _, err := decode(AppendCommand(kind, 6, 7, 1, manifest.AppendEdit(nil, e))); !errors.Is(err, ErrEntry) {
			t.Errorf("kind %d: %v", kind, err)
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
		"fence":  AppendCommand(Fence, writer, 0, micros, manifest.AppendEdit(nil, new(manifest.Edit))),
		"split":  AppendCommand(Split, writer, 12, micros, manifest.AppendEdit(nil, &manifest.Edit{Replaced: []*manifest.Replacement{cut}})),
		"freeze": AppendCommand(Serve, writer, 12, micros, commandOf(Serve)),
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
	for kind := Create; kind <= Ingest; kind++ {
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
