package salvage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// TestARecordOfAStreamComesBackWholeOrNotAtAll loses the second part of row c and the first one of row e, and
// meets row b and a cell of row g that are out of place, and a reference that is none.
func TestARecordOfAStreamComesBackWholeOrNotAtAll(t *testing.T) {
	for _, c := range []struct {
		log  *manifest.ChangeLog
		want string
	}{
		{new(manifest.ChangeLog), "a.1 a.2 f.1 "},
		{nil, "a.1 a.2 c.1 e.2 f.1 g.2 "},
	} {
		fsys := vfs.NewSim(vfs.SimOptions{})
		file, err := fsys.Create("new", vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := &source{File: &tablefiles.File{Meta: &manifest.FileMeta{Number: 1, Largest: []byte("z")}}, table: &manifest.Table{Log: c.log}, uses: make([]manifest.Deletion, 1)}
		v := &salvager{Store: Store{FS: fsys, State: new(manifest.State)}, ctx: context.Background()}
		w := rewriter{salvager: v, source: s, out: sstable.NewWriter(file, sstable.WriterOptions{UniqueID: [16]byte{1}}), gone: map[uint64]*Loss{}}
		cell := func(key, column string) {
			if err := w.cell([]byte(key), &row.Cell{Kind: row.KindPut, Type: row.TypeString, Column: []byte(column), Version: 1, Seq: 1}); err != nil {
				t.Fatal(err)
			}
		}
		lost := func(from, to string) {
			w.block(sstable.Loss{From: []byte(from), To: []byte(to), Partial: true, Err: fmt.Errorf("%w: test", sstable.ErrCorrupt)})
		}
		cell("a", "1")
		cell("a", "2")
		cell("c", "1")
		lost("c", "d")
		lost("e", "f")
		cell("e", "2")
		cell("f", "1")
		cell("b", "1")
		cell("g", "2")
		cell("g", "1")
		if err := w.cell([]byte("g"), &row.Cell{Kind: row.KindPut, Type: row.TypeString, Column: []byte("3"), Value: make([]byte, row.ReferenceBytes), Separate: true}); err != nil {
			t.Fatal(err)
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		props, err := w.out.Finish()
		if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
			t.Fatal(err)
		}
		in, err := fsys.Open("new", vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := sstable.Open(in, sstable.ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		err = r.Salvage(func(key []byte, c *row.Cell) error {
			fmt.Fprintf(&got, "%s.%s ", key, c.Column)
			return nil
		}, func(l sstable.Loss) { t.Error(l) })
		if err = errors.Join(err, r.Close()); err != nil || got.String() != c.want || props.Rows == 0 {
			t.Errorf("log %v: %q, want %q; %v", c.log != nil, got.String(), c.want, err)
		}
		if l := w.gone[0]; l == nil || l.Cells != 3 || string(l.From) != "b" || string(l.To) != "g" || len(v.report.Losses) != 2 {
			t.Errorf("the losses are %+v and %v", l, v.report.Losses)
		}
	}
}
