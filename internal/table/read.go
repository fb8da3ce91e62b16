package table

import (
	"fmt"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
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

// Versions returns the versions of a column in the newest applied state and in written above it,
// newest first, and the table's limit of versions. It counts cells that a reader's clock hides but
// that are not beyond the expiry watermark, so the answer does not depend on the clock.
func (t *Table) Versions(key, column []byte, written *memtable.Memtable) (versions []int64, limit int, err error) {
	var found row.Collector
	view, err := t.read(&found, key, written, 0, mvcc.Selection{Columns: [][]byte{column}})
	for i := range found.Cells {
		versions = append(versions, found.Cells[i].Version)
	}
	return versions, view.MaxVersions, err
}

// Before encodes what the columns that the change log wants to know hold in the newest applied
// state and in written above it, nil if they hold nothing. It is the change log's entry of a change
// that is made next, since recovery could not read the old values again.
func (t *Table) Before(log *Table, key []byte, written *memtable.Memtable) ([]byte, error) {
	if log == nil || len(log.before) == 0 {
		return nil, nil
	}
	var found row.Collector
	_, err := t.read(&found, key, written, t.Clock.NowMillis(), mvcc.Selection{Columns: log.before, MaxVersions: 1})
	if err == nil {
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

// read collects the selected cells of a row in the newest applied state and in written above it, as a
// reader with that clock sees them.
func (t *Table) read(dst *row.Collector, key []byte, written *memtable.Memtable, millis int64, sel mvcc.Selection) (view mvcc.View, err error) {
	g := t.Find(key).NewGetter()
	defer g.Close()
	meta := t.Meta()
	if meta == nil {
		return view, t.unknown()
	}
	view = views.Of(meta, views.Latest, millis)
	g.Above(written)
	_, err = g.Get(key, view, &sel, dst, 0)
	return view, err
}
