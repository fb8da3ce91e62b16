package flagstone

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// ReadOptions say what a read wants of a row. The zero value is everything that
// is visible now. The limits apply in this order: the table's Time To Live and
// Max Versions, the time range, MaxVersions, MaxColumns.
type ReadOptions struct {
	// Columns are the wanted columns; nil is all.
	Columns []string
	// StartColumn (inclusive) and EndColumn (exclusive) bound the column
	// names; empty is unbounded.
	StartColumn, EndColumn string
	// MaxColumns is the number of columns wanted, the first ones of those that
	// have a cell to show; 0 is no limit. With StartColumn it pages through wide
	// rows.
	MaxColumns int
	// MaxVersions is the number of newest versions wanted of each column; 0 is
	// all that the table keeps.
	MaxVersions int
	// MinVersion (inclusive) and MaxVersion (exclusive) bound the versions, in
	// milliseconds; a MaxVersion of 0 is unbounded.
	MinVersion, MaxVersion int64
	// Snapshot is the moment to read at; nil is now.
	Snapshot *Snapshot

	existsOnly bool // no cells are wanted
}

// selection translates the options. The column names go to the columns, which
// are used again, and share the memory of the options. Errors are ErrInvalid.
func (o *ReadOptions) selection(columns *[][]byte) (mvcc.Selection, error) {
	sel := mvcc.Selection{
		Start: nameBytes(o.StartColumn), End: nameBytes(o.EndColumn),
		MaxVersions: o.MaxVersions, MinVersion: o.MinVersion, MaxVersionExcl: o.MaxVersion,
		NoCells: o.existsOnly,
	}
	if o.MaxColumns < 0 || o.MaxVersions < 0 || o.MinVersion < 0 || o.MaxVersion < 0 {
		return sel, fmt.Errorf("%w: ReadOptions with a negative number", ErrInvalid)
	}
	if o.Columns == nil {
		return sel, nil
	}
	if len(o.Columns) == 0 {
		sel.NoCells = true
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

// nameBytes returns the bytes of a name, which nobody may change.
func nameBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// lookup is the working memory of a read of one row.
type lookup struct {
	columns [][]byte
	key     []byte // encoded
	row     Row
}

// lookups keeps working memory between reads: which one a read gets makes no
// difference.
var lookups = sync.Pool{New: func() any { return new(lookup) }}

// give takes working memory back, unless a rare large row grew it.
func (l *lookup) give() {
	const keep = 1 << 20
	if l.row.collector.Size() > keep {
		l.row = Row{}
	}
	clear(l.columns)
	lookups.Put(l)
}

// Get reads one row. The result is nil if the row does not exist; a row that
// exists without a selected cell is returned with no Cells.
func (t *Table) Get(ctx context.Context, key []row.Value, opts ReadOptions) (*Row, error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	found, err := t.getInto(key, &opts, l, &l.row)
	if err != nil || !found {
		return nil, err
	}
	return l.row.detach(), nil
}

// GetInto is Get into a row whose memory is used again, so that a caller who
// reads many rows, one after the other, has no memory allocated for each. It
// reports whether the row exists; if not, r has no Cells.
func (t *Table) GetInto(_ context.Context, key []row.Value, opts ReadOptions, r *Row) (bool, error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	return t.getInto(key, &opts, l, r)
}

func (t *Table) getInto(key []row.Value, opts *ReadOptions, l *lookup, r *Row) (bool, error) {
	var err error
	// Not in the row's memory: the caller may have made the key of the one that
	// the row has.
	if l.key, err = t.encodeKey(l.key[:0], key); err != nil {
		return false, err
	}
	if err := r.reset(l.key, t.columns); err != nil {
		return false, err
	}
	return t.readRow(r, opts, l, false, nil)
}

// getEncoded reads a row by its encoded key at the newest applied state,
// durable or not, and what a transaction has written above it, if not nil.
func (t *Table) getEncoded(key []byte, opts *ReadOptions, written *memtable.Memtable) (*Row, error) {
	l := lookups.Get().(*lookup)
	defer l.give()
	if err := l.row.reset(key, t.columns); err != nil {
		return nil, err
	}
	found, err := t.readRow(&l.row, opts, l, true, written)
	if err != nil || !found {
		return nil, err
	}
	return l.row.detach(), nil
}

// readRow reads the cells of the row whose key r has, at the options' snapshot,
// at the newest visible state, or, with undurable, at the newest applied state,
// above which lies what a transaction has written, if not nil.
func (t *Table) readRow(r *Row, opts *ReadOptions, l *lookup, undurable bool, written *memtable.Memtable) (exists bool, err error) {
	sel, err := opts.selection(&l.columns)
	if err != nil {
		return false, err
	}
	s := t.store
	if err := opts.Snapshot.usable(s); err != nil {
		return false, err
	}
	if err := t.gone(); err != nil {
		return false, err
	}
	g := t.partitions().Find(r.rowKey).NewGetter()
	defer g.Close()
	// The view is taken once the tree is pinned: the pinned state then holds
	// all that was visible before, and the watermark read afterwards covers
	// every drop that it has been through.
	view, known := t.view(opts.Snapshot, undurable)
	if !known {
		return false, fmt.Errorf("%w: %q", ErrTableNotFound, t.name)
	}
	g.Above(written)
	reader, err := g.Seek(r.rowKey, view, sel)
	if err == nil {
		exists = r.read(reader, opts.MaxColumns)
		err = reader.Error()
	}
	if err == nil {
		err = r.fetch(s.files)
	}
	if err != nil {
		return false, s.describe(err)
	}
	return exists, t.gone()
}

// view is what a read sees of the table: that of the snapshot, the newest
// visible state, or, with undurable, the newest applied state. It is false if
// the table is not there.
func (t *Table) view(sn *Snapshot, undurable bool) (mvcc.View, bool) {
	if sn != nil {
		return sn.view(t.id)
	}
	meta := t.meta()
	if meta == nil {
		return mvcc.View{}, false
	}
	seq := mvccLatest
	if !undurable {
		seq = t.store.pipeline.publication.visible.Load()
	}
	millis := int64(0)
	if meta.Options.TTLSeconds != NeverExpires {
		millis = t.store.clock.NowMillis() // costs a fifth of the get of a column
	}
	return viewOf(meta, seq, millis), true
}

// visibleVersions returns the versions of a column that the newest applied
// state shows, and what a transaction has written above it, newest first, and
// the table's limit of versions. Cells that a reader's clock hides but that are
// not beyond the expiry watermark count: the answer does not depend on the clock.
func (t *Table) visibleVersions(key, column []byte, written *memtable.Memtable) (versions []int64, limit int, err error) {
	meta := t.meta()
	if meta == nil {
		return nil, 0, fmt.Errorf("%w: %q was dropped", ErrTableNotFound, t.name)
	}
	versions, limit = []int64{}, int(meta.Options.MaxVersions)
	g := t.partitions().Find(key).NewGetter()
	defer g.Close()
	view := mvcc.View{Seq: mvccLatest, MaxVersions: limit, Cutoff: meta.Watermark}
	g.Above(written)
	reader, err := g.Seek(key, view, mvcc.Selection{Columns: [][]byte{column}})
	if err == nil {
		for reader.NextCell() {
			versions = append(versions, reader.Cell().Version)
		}
		err = reader.Error()
	}
	return versions, limit, t.store.describe(err)
}

// gone returns why a tree that was just pinned may have been empty: the store
// was closed, or the table dropped. An absent row must not be taken from it.
func (t *Table) gone() error {
	switch {
	case t.store.closed.Load():
		return ErrClosed
	case t.dropped.Load():
		return fmt.Errorf("%w: %q was dropped", ErrTableNotFound, t.name)
	}
	return nil
}

// ScanOptions say what a scan wants.
type ScanOptions struct {
	ReadOptions
	// Reverse walks downwards: from start, inclusive, to end, exclusive, with
	// start above end.
	Reverse bool
	// MaxExamined, if above 0, pauses the scan after about so many cells, if
	// they belong to rows that do not exist: see Rows.Paused. It bounds what a
	// page over deleted or expired data costs.
	MaxExamined int64
}

// Rows iterates over the rows of a scan. It sees one moment, however long it
// runs; close it. It is used by one goroutine at a time.
//
//	rows := table.Scan(ctx, start, end, flagstone.ScanOptions{})
//	defer rows.Close()
//	for rows.Next() {
//		use(rows.Row())
//	}
//	if err := rows.Err(); err != nil { ... }
type Rows struct {
	ctx      context.Context
	table    *Table
	snapshot *Snapshot
	own      bool         // the snapshot ends with the scan
	within   *Transaction // that the scan is part of; nil if of none
	sel      mvcc.Selection
	columns  [][]byte // of sel
	view     mvcc.View
	reverse  bool
	patience int64 // ScanOptions.MaxExamined

	maxColumns int // of each row; 0 is no limit

	low, high []byte            // low <= key < high; nil high is unbounded
	trees     []*partition.Tree // not yet visited, in the order of the scan
	it        *partition.Iterator
	before    bool // it is not positioned yet
	reader    mvcc.RowReader
	examined  int64 // by readers of trees that are done

	row    Row
	paused []row.Value
	err    error
	closed bool
}

// Scan iterates over the rows from start, inclusive, to end, exclusive, in key
// order, or downwards with Reverse. A bound is a key, or the beginning of one,
// and may hold row.Min and row.Max; an empty one is unbounded. Mistakes are
// reported by Rows.Err.
func (t *Table) Scan(ctx context.Context, start, end []row.Value, opts ScanOptions) *Rows {
	rows := &Rows{ctx: ctx, table: t, snapshot: opts.Snapshot, reverse: opts.Reverse, patience: opts.MaxExamined, maxColumns: opts.MaxColumns}
	if rows.err = rows.init(start, end, &opts); rows.err != nil {
		rows.err = t.store.describe(rows.err)
	}
	return rows
}

func (r *Rows) init(start, end []row.Value, opts *ScanOptions) (err error) {
	t := r.table
	if r.sel, err = opts.selection(&r.columns); err != nil {
		return err
	}
	if r.low, r.high, err = t.scanBounds(start, end, opts.Reverse); err != nil {
		return err
	}
	if err := r.snapshot.usable(t.store); err != nil {
		return err
	}
	trees := t.partitions().Between(r.low, r.high)
	if r.snapshot == nil && len(trees) == 1 {
		return r.pinOnly(trees[0])
	}
	if r.snapshot == nil {
		if r.snapshot, err = t.store.Snapshot(); err != nil {
			return err
		}
		r.own = true
	}
	if err := t.gone(); err != nil {
		return err
	}
	known := false
	if r.view, known = r.snapshot.view(t.id); !known || t.dropped.Load() {
		return fmt.Errorf("%w: %q", ErrTableNotFound, t.name)
	}
	r.trees = trees
	if r.reverse {
		r.trees = slices.Clone(trees)
		slices.Reverse(r.trees)
	}
	return nil
}

// pinOnly begins a scan of one tree. It takes its view as a point read does, and
// needs no snapshot to keep anything alive: what it pins is all it will read.
func (r *Rows) pinOnly(tree *partition.Tree) error {
	t := r.table
	if r.it = tree.NewIterator(); r.within != nil {
		r.it.Above(r.within.written)
	}
	err := t.gone()
	if err == nil {
		known := false
		if r.view, known = t.view(nil, r.within != nil); !known {
			err = fmt.Errorf("%w: %q", ErrTableNotFound, t.name)
		}
	}
	if err != nil {
		r.leaveTree()
		return err
	}
	r.reader.Reset(r.it, r.view, r.sel)
	r.before = true
	return nil
}

// initWithin is init for a scan in a transaction. It reads one tree, that of the
// partition key, at the newest applied state, as the transaction's other reads do.
func (r *Rows) initWithin(start, end []row.Value, opts *ScanOptions) (err error) {
	t, tx := r.table, r.within
	if opts.Snapshot != nil {
		return errSnapshotWithin
	}
	if r.sel, err = opts.selection(&r.columns); err != nil {
		return err
	}
	if r.low, r.high, err = t.scanBounds(start, end, opts.Reverse); err != nil {
		return err
	}
	if opts.Reverse {
		start, end = end, start
	}
	if len(start) == 0 {
		r.low = tx.prefix
	}
	if len(end) == 0 {
		r.high = tx.end
	}
	if bytes.Compare(r.low, tx.prefix) < 0 || bytes.Compare(r.high, tx.end) > 0 {
		return fmt.Errorf("%w: table %q", ErrOutOfPartition, t.name)
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	return r.pinOnly(t.partitions().Find(tx.prefix))
}

// gone returns why what was read must not be taken for an answer.
func (r *Rows) gone() error {
	if r.within != nil {
		if over := r.within.over.Load(); over != nil {
			return *over
		}
	}
	return r.table.gone()
}

// scanBounds encodes the bounds of a scan as low <= key < high. A reverse scan
// includes start and excludes end, so both move up by the least possible step.
func (t *Table) scanBounds(start, end []row.Value, reverse bool) (low, high []byte, err error) {
	first, err := t.encodeBound(nil, start)
	if err != nil {
		return nil, nil, err
	}
	last, err := t.encodeBound(nil, end)
	if err != nil {
		return nil, nil, err
	}
	if !reverse {
		if len(end) == 0 {
			return first, nil, nil
		}
		return first, last, nil
	}
	if len(end) > 0 {
		low = append(last, 0) // the smallest string above it
	}
	if len(start) > 0 {
		high = append(first, 0)
	}
	return low, high, nil
}

// Next moves to the next row; false at the end and on an error, see Err.
func (r *Rows) Next() bool {
	for r.err == nil && !r.closed && r.paused == nil {
		if !r.advance() {
			return false
		}
		r.reader.NextRow()
		if err := r.row.reset(r.it.RowKey(), r.table.columns); err != nil {
			r.fail(err)
			return false
		}
		exists := r.row.read(&r.reader, r.maxColumns)
		if err := r.reader.Error(); err != nil {
			r.fail(err)
			return false
		}
		if r.within != nil { // what came after it may be in what was read
			if err := r.gone(); err != nil {
				r.fail(err)
				return false
			}
		}
		if exists {
			r.fail(r.row.fetch(r.table.store.files))
			return r.err == nil
		}
		if r.patience > 0 && r.Examined() >= r.patience {
			r.pause()
			return false
		}
	}
	return false
}

// pause ends the scan before the next physical row, if there is one.
func (r *Rows) pause() {
	if !r.advance() {
		return
	}
	if err := r.row.reset(r.it.RowKey(), r.table.columns); err != nil {
		r.fail(err)
		return
	}
	r.paused = r.row.Key()
}

// Paused reports whether the scan ended because of ScanOptions.MaxExamined, and
// the key at which to go on: the inclusive start of another scan.
func (r *Rows) Paused() ([]row.Value, bool) { return r.paused, r.paused != nil }

// advance moves to the next physical row in range, whether it exists in the
// view or not.
func (r *Rows) advance() bool {
	if err := r.ctx.Err(); err != nil {
		r.fail(err)
		return false
	}
	for {
		ok := false
		switch {
		case r.it == nil:
			if len(r.trees) == 0 {
				return false
			}
			r.it = r.trees[0].NewIterator()
			r.trees = r.trees[1:]
			if err := r.table.gone(); err != nil {
				r.fail(err)
				return false
			}
			r.reader.Reset(r.it, r.view, r.sel)
			ok = r.seek()
		case r.before:
			r.before = false
			if err := r.table.gone(); err != nil {
				r.fail(err)
				return false
			}
			ok = r.seek()
		case r.reverse:
			ok = r.it.PrevRow() // rows are judged one by one: see Cells.Stretch
		default:
			ok = r.it.NextRow()
		}
		if ok && r.inRange(r.it.RowKey()) {
			return true
		}
		if err := r.it.Error(); err != nil {
			r.fail(err)
			return false
		}
		r.leaveTree()
	}
}

func (r *Rows) seek() bool {
	switch {
	case !r.reverse:
		return r.it.SeekRow(r.low)
	case r.high == nil:
		return r.it.Last()
	}
	return r.it.SeekRowBefore(r.high)
}

func (r *Rows) inRange(key []byte) bool {
	if r.reverse {
		return bytes.Compare(key, r.low) >= 0
	}
	return r.high == nil || bytes.Compare(key, r.high) < 0
}

func (r *Rows) leaveTree() {
	r.examined += int64(r.reader.Examined())
	r.fail(r.it.Close())
	r.it = nil
}

func (r *Rows) fail(err error) {
	if err != nil && r.err == nil {
		r.err = r.table.store.describe(err)
	}
}

// Row is the current row, valid until the next call of Next.
func (r *Rows) Row() *Row { return &r.row }

// Err is the error that ended the scan, nil at its plain end.
func (r *Rows) Err() error { return r.err }

// Examined is the number of cells looked at so far, visible or not. A caller
// that answers in pages uses it to end a page over dead data.
func (r *Rows) Examined() int64 {
	if r.it == nil {
		return r.examined
	}
	return r.examined + int64(r.reader.Examined())
}

// Close ends the scan and lets go of what it pins.
func (r *Rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.it != nil {
		r.leaveTree()
	}
	if r.own {
		r.snapshot.Close()
	}
	return nil
}
