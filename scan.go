package flagstone

// Scans. Where a single run holds the next rows, a scan reads several at once, a chunk, and
// returns them one by one. It copies their keys; their values stay in the block, which is pinned
// until the scan has returned the whole chunk.

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// ScanOptions say what a scan reads.
type ScanOptions struct {
	ReadOptions
	// Reverse walks downwards: from start, inclusive, to end, exclusive, with
	// start above end.
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
	*scan // nil once closed

	paused   []row.Value
	err      error
	examined int64 // of rows that were returned, and by readers of trees that are done
}

// scan is a scan under way. Its memory serves other scans when it is closed.
type scan struct {
	ctx      context.Context
	table    *Table
	snapshot *Snapshot
	own      bool         // the snapshot ends with the scan
	within   *Transaction // the scan's transaction; nil if it has none
	view     mvcc.View
	sel      mvcc.Selection
	reverse  bool
	patience int64 // ScanOptions.MaxExamined

	maxColumns int  // of each row; 0 is no limit
	unfetched  bool // cells keep their references and packed values

	low, high []byte            // low <= key < high; nil high is unbounded
	trees     []*partition.Tree // not yet visited, in the order of the scan
	it        *partition.Iterator
	before    bool // it is not positioned yet
	next      int  // the first row of the chunk that was not returned

	scanMemory
}

// scanMemory is memory that later scans use again.
type scanMemory struct {
	reader  mvcc.RowReader
	chunk   row.Chunk
	row     Row      // the current one
	columns [][]byte // of the selection
	bounds  [2][]byte
}

// Sizes of chunks, in bytes. They begin small, since the caller may want few rows, and grow to
// what fits the CPU's first-level cache.
const (
	firstChunk = 1 << 10
	chunkGrows = 4
	maxChunk   = 16 << 10
)

// scans keeps memory between scans: which piece a scan gets makes no difference.
var scans = sync.Pool{New: func() any { return new(scan) }}

// give returns the memory to scans, without chunk and row if large rows grew them.
func (s *scan) give() {
	const keep = 1 << 20
	if s.chunk.Size()+s.row.collector.Size() > keep {
		s.chunk, s.row.collector = row.Chunk{}, row.Collector{}
	}
	s.reader.Reset(nil, mvcc.View{}, mvcc.Selection{})
	clear(s.columns)
	s.chunk.Reset()
	s.row.release()
	s.ctx, s.table, s.snapshot, s.own, s.within = nil, nil, nil, false, nil
	s.sel, s.low, s.high, s.trees, s.it, s.before, s.next, s.unfetched = mvcc.Selection{}, nil, nil, nil, nil, false, 0, false
	scans.Put(s)
}

// Scan iterates over the rows from start, inclusive, to end, exclusive, in key order, or
// downwards with Reverse. A bound is a key or a prefix of its values, and may hold row.Min and
// row.Max; an empty one is unbounded. The caller must close the rows, as Rows.All does.
func (t *Table) Scan(ctx context.Context, start, end []row.Value, opts ScanOptions) *Rows {
	return t.scan(ctx, nil, start, end, &opts)
}

// scan is Scan, in a transaction if within is not nil.
func (t *Table) scan(ctx context.Context, within *Transaction, start, end []row.Value, opts *ScanOptions) *Rows {
	s := scans.Get().(*scan)
	s.ctx, s.table, s.snapshot, s.within = ctx, t, opts.Snapshot, within
	s.reverse, s.patience, s.maxColumns = opts.Reverse, opts.MaxExamined, opts.MaxColumns
	s.chunk.Budget = firstChunk
	return &Rows{scan: s, err: t.store.describe(s.init(start, end, &opts.ReadOptions))}
}

func (s *scan) init(start, end []row.Value, opts *ReadOptions) (err error) {
	if s.within != nil && s.snapshot != nil {
		return errSnapshotWithin
	}
	if s.sel, err = opts.selection(&s.columns); err != nil {
		return err
	}
	if err = s.encodeBounds(start, end); err != nil {
		return err
	}
	if s.within != nil {
		return s.pinWithin(start, end)
	}
	t := s.table
	if err := s.snapshot.usable(t.store); err != nil {
		return err
	}
	trees := t.partitions().Between(s.low, s.high)
	if s.snapshot == nil && len(trees) == 1 {
		return s.pinOnly(trees[0])
	}
	if s.snapshot == nil {
		if s.snapshot, err = t.store.Snapshot(); err != nil {
			return err
		}
		s.own = true
	}
	if err := t.gone(); err != nil {
		return err
	}
	known := false
	if s.view, known = s.snapshot.moment.View(t.id); !known || t.dropped.Load() {
		return fmt.Errorf("%w: %q", ErrTableNotFound, t.name)
	}
	s.trees = trees
	if s.reverse {
		s.trees = slices.Clone(trees)
		slices.Reverse(s.trees)
	}
	return nil
}

// pinOnly begins a scan of one tree. It takes its view as a point read does, and needs no
// snapshot, because it pins everything that it will read.
func (s *scan) pinOnly(tree *partition.Tree) error {
	t := s.table
	if s.it = tree.NewIterator(); s.within != nil {
		s.it.Above(s.within.written)
	}
	err := t.gone()
	if err == nil {
		known := false
		if s.view, known = t.view(nil, s.within != nil); !known {
			err = fmt.Errorf("%w: %q", ErrTableNotFound, t.name)
		}
	}
	if err != nil {
		s.it.Close() // nothing was read
		s.it = nil
		return err
	}
	s.startReader()
	s.before = true
	return nil
}

// pinWithin begins a scan in a transaction. It reads one tree, that of the partition key, at the
// newest applied state, as the transaction's other reads do.
func (s *scan) pinWithin(start, end []row.Value) error {
	t, tx := s.table, s.within
	if s.reverse {
		start, end = end, start
	}
	if len(start) == 0 {
		s.low = tx.prefix
	}
	if len(end) == 0 {
		s.high = tx.end
	}
	if bytes.Compare(s.low, tx.prefix) < 0 || bytes.Compare(s.high, tx.end) > 0 {
		return fmt.Errorf("%w: table %q", ErrOutOfPartition, t.name)
	}
	if err := tx.enter(s.ctx); err != nil {
		return err
	}
	defer tx.mu.Unlock()
	if err := tx.ready(); err != nil {
		return err
	}
	return s.pinOnly(t.partitions().Find(tx.prefix))
}

// over returns why what was read must not be returned, nil if it may be: after a transaction has
// ended, its scan may see later writes.
func (s *scan) over() error {
	if s.within == nil {
		return nil
	}
	if over := s.within.over.Load(); over != nil {
		return *over
	}
	return s.table.gone()
}

// startReader resets the reader to read the iterator.
func (s *scan) startReader() {
	s.reader.Reset(s.it, s.view, s.sel)
	s.reader.Limit = s.high
	if s.high != nil && !s.reverse {
		s.it.Until(s.high)
	}
}

// encodeBounds encodes the bounds as low <= key < high. A reverse scan includes start and
// excludes end, so both bounds move up to the next possible key.
func (s *scan) encodeBounds(start, end []row.Value) error {
	for i, bound := range [][]row.Value{start, end} {
		b, err := s.table.encodeBound(s.bounds[i][:0], bound)
		if err != nil {
			return err
		}
		if s.reverse && len(bound) > 0 {
			b = append(b, 0) // the smallest string above it
		}
		s.bounds[i] = b
	}
	s.low, s.high = s.bounds[0], s.bounds[1]
	if s.reverse {
		s.low, s.high = s.high, s.low
		start, end = end, start
	}
	if len(end) == 0 {
		s.high = nil
	}
	return nil
}

// All returns the rows for one loop, and closes the scan at the end of the loop, however it ends. A
// row is valid until the next one: Row.Clone makes a copy that stays. An error comes last, with a
// row that does not exist; it is ErrClosed in a second loop. Paused and Examined may be called
// after the loop.
func (r *Rows) All() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		if r.scan == nil && r.err == nil {
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
	if r.scan == nil {
		return false
	}
	for r.next == r.chunk.Len() {
		if r.err != nil || r.paused != nil || !r.advance() {
			return false
		}
		r.reader.NextRow()
		if !r.reverse && r.readChunk() {
			break
		}
		exists, ok := r.readOne()
		if exists || !ok {
			return ok
		}
		if r.patience > 0 && r.Examined() >= r.patience {
			r.pause()
			return false
		}
	}
	return r.takeRow()
}

// readChunk reads the current row and the rows that can be read with it into the chunk.
func (r *Rows) readChunk() bool {
	s := r.scan
	s.next = 0
	s.chunk.Reset()
	if s.reader.CollectRows(&s.chunk) == 0 {
		return false
	}
	s.chunk.Budget = min(s.chunk.Budget*chunkGrows, maxChunk)
	return true
}

// takeRow makes the next row of the chunk the current one.
func (r *Rows) takeRow() bool {
	if err := r.over(); err != nil {
		r.fail(err)
		return false
	}
	key, cells := r.chunk.Row(r.next)
	r.next++
	r.examined += 1 + int64(len(cells))
	if r.maxColumns > 0 {
		cells = mvcc.FirstColumns(cells, r.maxColumns)
	}
	if err := r.row.show(key, cells, r.table.columns); err != nil {
		r.fail(err)
		return false
	}
	if r.unfetched || r.sel.MaxBytes == 0 && valuefetch.Plain(r.row.cells) {
		r.row.fetched.Forget()
		return true
	}
	if err := r.row.fetch(r.table.store.files, r.sel.MaxBytes); err != nil {
		r.fail(err)
		return false
	}
	return true
}

// readOne reads the current row alone. ok is false if that fails.
func (r *Rows) readOne() (exists, ok bool) {
	if err := r.row.reset(r.it.RowKey(), r.table.columns); err != nil {
		r.fail(err)
		return false, false
	}
	exists = r.row.read(&r.reader, r.maxColumns)
	err := r.reader.Error()
	if err == nil {
		err = r.over()
	}
	if err == nil && exists && !r.unfetched {
		err = r.row.fetch(r.table.store.files, r.sel.MaxBytes)
	}
	r.fail(err)
	return exists, r.err == nil
}

// pause ends the scan before the next physical row, if there is one.
func (r *Rows) pause() {
	if !r.advance() {
		return
	}
	// A copy, since it is used after the scan is closed.
	key, err := row.DecodeKey(bytes.Clone(r.it.RowKey()), r.table.columns)
	if err != nil {
		r.fail(fmt.Errorf("%w: stored row key %x: %w", ErrCorrupt, r.it.RowKey(), err))
		return
	}
	r.paused = key
}

// Paused reports whether the scan ended because of ScanOptions.MaxExamined, and the key at which
// another scan goes on, as its inclusive start.
func (r *Rows) Paused() ([]row.Value, bool) { return r.paused, r.paused != nil }

// advance moves to the next physical row in range, visible or not.
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
			r.startReader()
			ok = r.seek()
		case r.before:
			r.before = false
			if err := r.table.gone(); err != nil {
				r.fail(err)
				return false
			}
			ok = r.seek()
		case r.reverse:
			ok = r.it.PrevRow() // row by row: a run describes only rows that follow
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

func (s *scan) seek() bool {
	switch {
	case !s.reverse:
		return s.it.SeekRow(s.low)
	case s.high == nil:
		return s.it.Last()
	}
	return s.it.SeekRowBefore(s.high)
}

func (s *scan) inRange(key []byte) bool {
	if s.reverse {
		return bytes.Compare(key, s.low) >= 0
	}
	return s.high == nil || bytes.Compare(key, s.high) < 0
}

func (r *Rows) leaveTree() {
	r.examined += int64(r.reader.Examined())
	r.fail(r.it.Close())
	r.it = nil
}

// fail ends the scan if err is not nil.
func (r *Rows) fail(err error) {
	if err == nil {
		return
	}
	r.next = r.chunk.Len()
	if r.err == nil {
		r.err = r.table.store.describe(err)
	}
}

// Row is the current row, valid until the next call of Next or Close; Row.Clone makes a copy that
// stays. Its values may lie in memory of the store and must not be changed. When the scan ended
// with ErrRowTooLarge, it has the key of the row that is too large.
func (r *Rows) Row() *Row {
	if r.scan == nil {
		return nil
	}
	return &r.scan.row
}

// Err is the error that ended the scan, nil if there was none.
func (r *Rows) Err() error { return r.err }

// Examined is the number of cells examined so far, visible or not. A caller that answers in pages
// uses it to end a page over dead data.
func (r *Rows) Examined() int64 {
	if r.scan == nil || r.it == nil {
		return r.examined
	}
	return r.examined + int64(r.reader.Examined())
}

// Close ends the scan and releases what it pins.
func (r *Rows) Close() error {
	s := r.scan
	if s == nil {
		return nil
	}
	if s.it != nil {
		r.leaveTree()
	}
	if s.own {
		s.snapshot.Close()
	}
	r.scan = nil
	s.give()
	return nil
}
