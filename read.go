package flagstone

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// ReadOptions say what a read returns of a row. The zero value selects everything that is visible
// now. The limits apply in this order: the table's Time To Live and Max Versions, the time range,
// MaxVersions, MaxColumns.
type ReadOptions struct {
	// Columns are the wanted columns; nil is all.
	Columns []string
	// StartColumn (inclusive) and EndColumn (exclusive) bound the column
	// names; empty is unbounded.
	StartColumn, EndColumn string
	// MaxColumns is how many columns with a selected cell are returned, the first ones; 0 is no
	// limit. With StartColumn it pages through wide rows.
	MaxColumns int
	// MaxVersions is the number of newest versions wanted of each column; 0 is
	// all that the table keeps.
	MaxVersions int
	// MinVersion (inclusive) and MaxVersion (exclusive) bound the versions, in milliseconds; a
	// MaxVersion of 0 is unbounded. A MinVersion above MaxVersion is ErrInvalid.
	MinVersion, MaxVersion int64
	// MaxBytes is the memory that the selected cells of one row may take, in bytes: names,
	// values, and about a hundred bytes for each cell. A read of a larger row fails with
	// ErrRowTooLarge before it takes much more than that. 0 is no limit.
	MaxBytes int64
	// Snapshot is the moment to read at; nil is now.
	Snapshot *Snapshot

	// MaxCells is about how many cells of one row a read looks at, hidden and deleted ones included.
	// A read that needs more fails with ErrRowTooLarge. 0 is no limit. Scans refuse it: see
	// ScanOptions.MaxExamined.
	MaxCells int

	existsOnly bool // no cells are wanted
}

// selection translates the options. It uses the memory of columns for the list of names; the
// names share the memory of the options. Errors are ErrInvalid.
func (o *ReadOptions) selection(columns *[][]byte) (mvcc.Selection, error) {
	sel := mvcc.Selection{
		Start: nameBytes(o.StartColumn), End: nameBytes(o.EndColumn),
		MaxVersions: o.MaxVersions, MinVersion: o.MinVersion, MaxVersionExcl: o.MaxVersion,
		NoCells: o.existsOnly || o.Columns != nil && len(o.Columns) == 0, MaxBytes: o.MaxBytes, MaxExamined: o.MaxCells,
	}
	if o.MaxColumns < 0 || o.MaxVersions < 0 || o.MinVersion < 0 || o.MaxVersion < 0 || o.MaxBytes < 0 || o.MaxCells < 0 {
		return sel, fmt.Errorf("%w: ReadOptions with a negative number", ErrInvalid)
	}
	if o.MaxVersion > 0 && o.MinVersion > o.MaxVersion {
		return sel, fmt.Errorf("%w: ReadOptions with a MinVersion of %d above the MaxVersion of %d", ErrInvalid, o.MinVersion, o.MaxVersion)
	}
	if o.Columns == nil {
		return sel, nil
	}
	names, sorted := (*columns)[:0], true
	for i, c := range o.Columns {
		names = append(names, nameBytes(c))
		sorted = sorted && (i == 0 || o.Columns[i-1] < c)
	}
	*columns = names
	if !sorted {
		slices.SortFunc(names, bytes.Compare)
		names = slices.CompactFunc(names, bytes.Equal)
	}
	sel.Columns = names
	return sel, nil
}

// nameBytes returns the bytes of a name, which must not be changed.
func nameBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// lookup is the working memory of a read of one row.
type lookup struct {
	getter  partition.Getter
	columns [][]byte
	key     []byte // encoded
	row     Row
	timed   latency.Sampler
}

// lookups keeps working memory between reads: which piece a read gets makes no difference.
var lookups = sync.Pool{New: func() any { return &lookup{timed: latency.NewSampler()} }}

// give returns working memory to lookups, without the row if a large one grew it.
func (l *lookup) give() {
	const keep = 1 << 20
	if l.row.collector.Size() > keep {
		l.row = Row{}
	}
	clear(l.columns)
	lookups.Put(l)
}

// Get reads one row. A row that does not exist is no error: see Row.Exists.
func (t *Table) Get(ctx context.Context, key []row.Value, opts ReadOptions) (*Row, error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	if found, err := t.getInto(ctx, key, &opts, l, &l.row); err != nil || !found {
		return nil, err
	}
	return l.row.detach(), nil
}

// GetInto is Get into a row whose memory is used again, so that a caller that reads many rows one
// after the other allocates nothing for each. It reports whether the row exists.
func (t *Table) GetInto(ctx context.Context, key []row.Value, opts ReadOptions, r *Row) (found bool, err error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	if found, err = t.getInto(ctx, key, &opts, l, r); !found {
		r.key, r.cells = nil, nil
	}
	return found, err
}

func (t *Table) getInto(ctx context.Context, key []row.Value, opts *ReadOptions, l *lookup, r *Row) (bool, error) {
	began := l.timed.Begin(t.store.clock)
	err := ctx.Err()
	if err == nil { // not in the row's memory: key may share the memory of r's present key
		l.key, err = t.core.EncodeKey(l.key[:0], key)
	}
	if err != nil {
		return false, err
	}
	exists, err := t.readRow(r, l.key, opts, l, false, nil)
	t.latencies.gets.End(t.store.clock, began)
	return exists, err
}

// getEncoded reads a row by its encoded key at the newest visible state, or, with undurable, at
// the newest applied state. written, if not nil, is what a transaction has written above it.
func (t *Table) getEncoded(key []byte, opts *ReadOptions, written *memtable.Memtable, undurable bool) (*Row, error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	if found, err := t.readRow(&l.row, key, opts, l, undurable, written); err != nil || !found {
		return nil, err
	}
	return l.row.detach(), nil
}

// readRow reads the row with an encoded key. It reads at the options' snapshot, else at
// the newest visible state, or, with undurable, at the newest applied state. written, if not nil,
// is what a transaction has written above it.
func (t *Table) readRow(r *Row, key []byte, opts *ReadOptions, l *lookup, undurable bool, written *memtable.Memtable) (exists bool, err error) {
	if err := r.reset(key, len(t.core.Key)); err != nil {
		return false, err
	}
	sel, err := opts.selection(&l.columns)
	if err != nil {
		return false, err
	}
	s := t.store
	at, err := opts.Snapshot.at(s)
	if err != nil {
		return false, err
	}
	if err := t.core.Gone(); err != nil {
		return false, err
	}
	g := &l.getter
	for !g.Pin(t.core.Find(r.rowKey)) { // until it is not one that was replaced just now
	}
	defer g.Unpin()
	if err := opts.Snapshot.over(); err != nil { // closed before the tree was pinned
		return false, err
	}
	view, err := t.core.View(at, undurable)
	if err == nil {
		err = t.core.Readable(g.Tree(), view.Seq)
	}
	if err != nil {
		return false, err
	}
	g.Above(written)
	exists, err = g.Get(r.rowKey, view, &sel, &r.collector, opts.MaxColumns)
	r.cells = r.collector.Cells
	if err == nil && g.Cut() {
		err = valuefetch.ErrTooLarge
	}
	if err == nil {
		err = r.fetched.Fetch(r.cells, s.files, sel.MaxBytes)
	}
	if err != nil {
		return false, s.describe(r.explain(err, &sel))
	}
	return exists, t.core.Gone()
}
