package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/scan"
	"github.com/flagstone-db/flagstone/row"
)

// ScanOptions say what a scan reads.
type ScanOptions struct {
	ReadOptions
	// Reverse walks downwards: from start, inclusive, to end, exclusive, with start above end. Since a
	// prefix lies below its rows, the rows with it are those from Key("h", row.Max()) to Key("h").
	Reverse bool
	// MaxExamined, if above 0, pauses the scan at a row that does not exist once about so many
	// cells were examined: see Rows.Paused. It bounds the cost of a page over deleted or expired
	// data.
	MaxExamined int64
}

// Rows are the rows of a scan, which sees one moment, however long it runs. A loop over All reads
// them:
//
//	for r, err := range table.Scan(ctx, start, end, flagstone.ScanOptions{}).All() {
//		if err != nil {
//			return err
//		}
//		fmt.Println(r)
//	}
//
// Next, Row, Err and Close are the steps of that loop, for callers that read several scans side
// by side. One goroutine uses Rows at a time.
type Rows struct {
	*scanning // nil once closed

	table    *Table
	paused   []row.Value
	err      error
	examined int64         // once closed
	began    time.Duration // see latency.Begin
}

// scanning is a scan under way. Its memory serves other scans when it is closed.
type scanning struct {
	walk     scan.Walk
	snapshot *Snapshot // that ends with the scan; nil if there is none
	row      Row       // the current one
	columns  [][]byte  // of the selection
	timed    latency.Sampler
}

// scans keeps memory between scans: which piece a scan gets makes no difference.
var scans = sync.Pool{New: func() any { return &scanning{timed: latency.NewSampler()} }}

// Scan iterates over the rows from start, inclusive, to end, exclusive, in key order, or
// downwards with Reverse. An empty bound is unbounded. Otherwise it is a key or a prefix of its values,
// and may hold row.Min and row.Max. A prefix sorts below all rows that begin with it, and one with
// row.Max behind it sorts above them: the rows of "h" in a table with the key (host, id) are those from
// Key("h") to Key("h", row.Max()). If the bounds lie the wrong way round, the scan ends with ErrInvalid.
// The caller must close the rows, as Rows.All does.
func (t *Table) Scan(ctx context.Context, start, end []row.Value, opts ScanOptions) *Rows {
	return t.scan(ctx, nil, start, end, &opts)
}

// scan is Scan, in a transaction if within is not nil.
func (t *Table) scan(ctx context.Context, within *Transaction, start, end []row.Value, opts *ScanOptions) *Rows {
	s := scans.Get().(*scanning)
	began := s.timed.Begin(t.store.clock)
	w := &s.walk
	w.Ctx, w.Table, w.Reverse, w.Patience, w.MaxColumns = ctx, t.core, opts.Reverse, opts.MaxExamined, opts.MaxColumns
	w.AtSnapshot = opts.Snapshot != nil
	var err error
	if w.Sel, err = opts.selection(&s.columns); err == nil && opts.MaxCells != 0 {
		err = fmt.Errorf("%w: a scan with a MaxCells of %d", ErrInvalid, opts.MaxCells)
	}
	if err == nil {
		err = w.Bound(start, end)
	}
	if err == nil && within != nil {
		err = s.beginWithin(within, opts.Snapshot)
	} else if err == nil {
		err = s.begin(t, opts.Snapshot)
	}
	return &Rows{scanning: s, table: t, began: began, err: t.store.describe(err)}
}

// begin begins a scan at a snapshot, or at the present moment if it is nil.
func (s *scanning) begin(t *Table, at *Snapshot) (err error) {
	if _, err := at.at(t.store); err != nil {
		return err
	}
	if at == nil {
		if pinned, err := s.walk.Pin(nil, false); pinned {
			return err
		}
		if at, err = t.store.Snapshot(); err != nil {
			return err
		}
		s.snapshot = at
	} else {
		s.walk.Over = at.over // what the walk has not pinned yet may go when the caller closes the snapshot
	}
	if err = t.core.Gone(); err == nil {
		s.walk.View, err = t.core.View(&at.moment, false)
	}
	s.walk.Visit()
	return err
}

// beginWithin begins a scan in a transaction. It reads one tree, that of the partition key, at the
// newest applied state, as the transaction's other reads do.
func (s *scanning) beginWithin(tx *Transaction, at *Snapshot) error {
	if at != nil {
		return errSnapshotWithin
	}
	var err error
	if s.walk.Low, s.walk.High, err = tx.of.Within(s.walk.Low, s.walk.High); err != nil {
		return err
	}
	if err := tx.enter(s.walk.Ctx); err != nil {
		return err
	}
	defer tx.of.Leave()
	written, err := tx.of.Written()
	if err != nil {
		return err
	}
	s.walk.Over = tx.of.Over
	_, err = s.walk.Pin(written, true)
	return err
}

// All returns the rows for one loop, and closes the scan at the end of the loop, however it ends. A
// row is valid until the next one: Row.Clone makes a copy that stays. An error comes last, with a
// row that does not exist; it is ErrClosed in a second loop. Paused and Examined may be called
// after the loop.
func (r *Rows) All() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		if r.scanning == nil && r.err == nil {
			yield(nil, ErrClosed)
			return
		}
		defer r.Close()
		for r.Next() {
			if !yield(r.Row(), nil) {
				return
			}
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

// Next moves to the next row; false at the end and on an error, see Err.
func (r *Rows) Next() bool {
	if r.scanning == nil || r.err != nil {
		return false
	}
	w := &r.walk
	if !w.Next() {
		return r.end()
	}
	err := r.row.show(w.Key, w.Cells, len(w.Table.Key))
	if err == nil && !w.Sampling {
		err = r.row.fetched.Fetch(r.row.cells, r.table.store.files, w.Sel.MaxBytes)
	}
	if err != nil {
		r.err = r.table.store.describe(r.row.explain(err, &w.Sel))
	}
	return err == nil
}

// end notes why the walk has ended.
func (r *Rows) end() bool {
	w := &r.walk
	r.row.cells = nil // their memory may be gone
	err := w.Err
	if err == nil && w.AtSnapshot && w.Over != nil {
		err = w.Over() // rows may be missing
	}
	if err == nil && w.PausedAt != nil {
		r.paused, err = decodeKey(nil, w.PausedAt, len(w.Table.Key))
	}
	if err != nil && len(w.Key) > 0 {
		_ = r.row.show(w.Key, nil, len(w.Table.Key)) // err says more
	}
	r.err = r.table.store.describe(err)
	return false
}

// Paused reports whether the scan ended because of ScanOptions.MaxExamined, and the key at which
// another scan goes on, as its inclusive start.
func (r *Rows) Paused() ([]row.Value, bool) { return r.paused, r.paused != nil }

// Row is the current row, valid until the next call of Next or Close; Row.Clone makes a copy that
// stays. Its values may lie in memory of the store and must not be changed. When the scan ended
// with ErrRowTooLarge, it has the key of the row that is too large.
func (r *Rows) Row() *Row {
	if r.scanning == nil {
		return nil
	}
	return &r.scanning.row
}

// Err is the error that ended the scan, nil if there was none.
func (r *Rows) Err() error { return r.err }

// Examined is the number of cells examined so far, visible or not. A caller that answers in pages
// uses it to end a page over dead data.
func (r *Rows) Examined() int64 {
	if r.scanning == nil {
		return r.examined
	}
	return r.walk.Examined()
}

// Close ends the scan and releases what it pins.
func (r *Rows) Close() error {
	s := r.scanning
	if s == nil {
		return nil
	}
	r.examined = s.walk.Examined()
	r.err = cmp.Or(r.err, r.table.store.describe(s.walk.Release()))
	if s.snapshot != nil {
		s.snapshot.Close()
	}
	clear(s.columns)
	s.row.release()
	s.snapshot, r.scanning = nil, nil
	scans.Put(s)
	r.table.latencies.scans.End(r.table.store.clock, r.began)
	return nil
}
