package table

import (
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// View is what a read sees of the table: what the snapshot at shows, or if at is nil, the newest
// visible state or, with undurable, the newest applied state. REQUIRES: what is read is pinned.
// Then the pinned state holds all that is visible in the view, and the watermark covers everything
// that was dropped from that state.
func (t *Table) View(at *views.Moment, undurable bool) (mvcc.View, error) {
	if at != nil {
		if view, known := at.View(t.ID); known {
			return view, nil
		}
		return mvcc.View{}, t.unknown()
	}
	meta := t.Meta()
	if meta == nil {
		return mvcc.View{}, t.unknown()
	}
	seq := uint64(views.Latest)
	if !undurable {
		seq = t.Pipeline.Visible()
	}
	millis := int64(0)
	if meta.Options.TTLSeconds != manifest.NeverExpires {
		millis = t.Clock.NowMillis() // costs a fifth of the get of a column
	}
	return views.Of(meta, seq, millis), nil
}

func (t *Table) unknown() error { return fmt.Errorf("%w: %q", ErrNotFound, t.Name) }

// ErrManyCells: a row has more cells than a read may look at.
var ErrManyCells = errors.New("flagstone: more cells than a read may look at")

// Versions returns the versions of a column in the newest applied state and in written above it,
// newest first, and the table's limit of versions. It counts cells that a reader's clock hides but
// that are not beyond the expiry watermark, so the answer does not depend on the clock. left, if not nil, is
// how many cells it may look at, those that are not visible included: it takes them from there, or returns ErrManyCells.
func (t *Table) Versions(key, column []byte, written *memtable.Memtable, left *int) (versions []int64, limit int, err error) {
	sel := mvcc.Selection{Columns: [][]byte{column}}
	if left != nil {
		if sel.MaxExamined = *left; *left <= 0 {
			return nil, 0, ErrManyCells
		}
	}
	g, view, err := t.latest(key, written, 0)
	if err != nil {
		return nil, 0, err
	}
	defer g.Close()
	reader, err := g.Seek(key, view, sel)
	if err != nil {
		return nil, 0, err
	}
	for len(versions) != view.MaxVersions && reader.NextCell() {
		versions = append(versions, reader.Cell().Version)
	}
	if left != nil {
		*left -= reader.Examined()
	}
	if reader.Cut() {
		return nil, 0, ErrManyCells
	}
	return versions, view.MaxVersions, reader.Error()
}

// Before encodes what the columns that the change log wants to know hold in the newest applied
// state and in written above it, nil if they hold nothing. It is the change log's entry of a change
// that is made next, since recovery could not read the old values again.
func (t *Table) Before(log *Table, key []byte, written *memtable.Memtable) ([]byte, error) {
	if log == nil || len(log.before) == 0 {
		return nil, nil
	}
	g, view, err := t.latest(key, written, t.Clock.NowMillis())
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var found row.Collector
	if _, err = g.Get(key, view, &mvcc.Selection{Columns: log.before, MaxVersions: 1}, &found, 0); err == nil {
		err = new(valuefetch.Values).Fetch(found.Cells, t.Files, 0)
	}
	if err == nil {
		err = t.Gone()
	}
	if err != nil || len(found.Cells) == 0 {
		return nil, err
	}
	return cdc.AppendBefore(nil, found.Cells)
}

// latest pins the tree of a row, with written above it, and returns the view of a reader with that
// clock of the newest applied state. The caller closes the getter.
func (t *Table) latest(key []byte, written *memtable.Memtable, millis int64) (*partition.Getter, mvcc.View, error) {
	g := t.NewGetter(key)
	meta, err := t.Meta(), t.Readable(g.Tree(), views.Latest)
	if meta == nil {
		err = t.unknown()
	}
	if err != nil {
		g.Close()
		return nil, mvcc.View{}, err
	}
	g.Above(written)
	return g, views.Of(meta, views.Latest, millis), nil
}
