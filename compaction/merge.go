package compaction

// The merge loop: it reads the cells of the inputs, drops what package mvcc lets go, and cuts
// the output into tables between rows. A flush is a merge of memtables.

import (
	"bytes"
	"runtime"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// TableWriter writes one table. The calls are those of sstable.Writer.
type TableWriter interface {
	// StartRow begins a row; keys ascend.
	StartRow(key []byte) error
	// AddCell adds a cell to the row, in cell order. It copies what it keeps.
	AddCell(c *row.Cell) error
	// NoteStored says how another table stores the values of exactly the cells of the last row.
	NoteStored(s row.Stored)
	// EstimatedSize is the size of the file so far, in bytes.
	EstimatedSize() int64
	// Finish completes the table.
	Finish() error
	// Abandon is called instead of Finish when the merge fails.
	Abandon()
}

// Policy is what a merge may drop.
type Policy = mvcc.Policy

// Job is one merge.
type Job struct {
	// Inputs are the runs to merge, newest first: for each row, a run holds only larger sequence
	// numbers than those after it. Run closes them.
	Inputs []mvcc.Iterator
	// Start and End bound the row keys that are merged, End excluded; nil is unbounded. Rows
	// outside belong to other partitions or parts.
	Start, End []byte
	Policy     Policy
	// Below says what older runs may hold of a row. It is called in ascending key order.
	Below func(key []byte) mvcc.Below
	// TargetSize is the size in bytes at which a table is cut; 0 never cuts.
	TargetSize int64
	// Grandparents are the files of the level below the output, in key order. A table that
	// overlaps too many bytes of them is cut early, because compacting it will have to read them
	// all.
	Grandparents []*manifest.FileMeta
	// Pieces, if not 0, is for flushes. It cuts a table at that many bytes, and between two of
	// Grandparents where it has passed that many of their bytes, and behind the last.
	// Compactions of level 0 can then take parts of the key range, several at once.
	Pieces int64
	// NewTable makes a table to write to.
	NewTable func() (TableWriter, error)
	// Cancelled and Yield are called one after the other now and then. An error of Cancelled ends
	// the merge; Yield lets the owner do more urgent work on this goroutine.
	Cancelled func() error
	Yield     func()
}

// Stats counts what a merge did.
type Stats struct {
	// CellsIn does not count cells that were skipped unread.
	CellsIn, CellsOut uint64
}

// slice is how much a merge handles before it gives its processor back, in bytes of values, with
// perCell for each row and cell beside them: 20 to 50 microseconds' work.
const (
	slice   = 16 << 10
	perCell = 64
)

// Run does the job. It returns the first error of an input, the output or Cancelled. After an
// error the table under way is abandoned, and the caller deletes the finished ones.
func Run(job Job) (Stats, error) {
	m := merger{
		job:    job,
		it:     mvcc.NewMergeIterator(job.Inputs),
		pruner: mvcc.NewPruner(job.Policy),
		cut:    cutter{target: job.TargetSize, pieces: job.Pieces, grandparents: job.Grandparents},
	}
	err := m.run()
	if closeErr := m.it.Close(); err == nil {
		err = closeErr
	}
	if err != nil && m.table != nil {
		m.table.Abandon()
	}
	return m.stats, err
}

type merger struct {
	job    Job
	it     *mvcc.MergeIterator
	pruner *mvcc.Pruner
	cut    cutter
	table  TableWriter // nil between tables
	stats  Stats
	worked int           // of the present slice
	inRow  bool          // the current row was begun in table
	cells  row.Collector // scratch: a row
	extent row.Extent    // scratch: what is known of the row
	all    row.Projection
}

// wholeRow is how many cells a row may have to be copied whole. In larger rows the cells take
// longer than the work for each row.
const wholeRow = 128

func (m *merger) run() error {
	for ok := m.it.SeekRow(m.job.Start); ok; ok = m.it.NextRow() {
		key := m.it.RowKey()
		if m.job.End != nil && bytes.Compare(key, m.job.End) >= 0 {
			break
		}
		if err := m.mergeRow(key); err != nil {
			return err
		}
	}
	if err := m.it.Error(); err != nil {
		return err
	}
	return m.finishTable()
}

func (m *merger) mergeRow(key []byte) error {
	m.inRow = false
	below := m.job.Below(key)
	if err := m.tick(0); err != nil {
		return err
	}
	if done, err := m.copyRow(key, below); done || err != nil {
		return err
	}
	m.pruner.StartRow(below)
	for ok := m.it.FirstCell(); ok; ok = m.it.NextCell() {
		c := m.it.Cell()
		if err := m.tick(len(c.Value)); err != nil {
			return err
		}
		m.stats.CellsIn++
		trim, keep := m.pruner.Add(c)
		if trim != nil {
			if err := m.write(key, trim); err != nil {
				return err
			}
		}
		if keep {
			if err := m.write(key, c); err != nil {
				return err
			}
		}
	}
	return m.it.Error()
}

// copyRow writes a row whole, without looking at each cell. It does so if the newest input that
// holds the row has nothing to drop but a delete-row, and no other input has anything to keep:
// they do not hold the row, or the delete-row hides it. Most rows of most merges are such.
func (m *merger) copyRow(key []byte, below mvcc.Below) (done bool, err error) {
	newest, alone := m.it.Newest()
	e := &m.extent
	if newest == nil {
		return false, nil
	}
	if _, ok := newest.Extent(row.Ask{}, e); !ok || e.Cells > wholeRow {
		return false, nil
	}
	spent, ok := m.pruner.Plain(e, alone, below)
	if !ok {
		return false, nil
	}
	m.cells.Reset()
	m.cells.Borrow = true
	e.AddRowLevel(&m.cells)
	newest.Collect(&m.cells, &m.all)
	m.stats.CellsIn += uint64(len(m.cells.Cells))
	kept := m.cells.Cells
	if spent {
		kept = kept[1:]
	}
	for i := range kept {
		if err := m.write(key, &kept[i]); err != nil {
			return false, err
		}
		if err := m.tick(len(kept[i].Value)); err != nil {
			return false, err
		}
	}
	if table, ok := newest.(interface{ Stored() row.Stored }); ok {
		m.table.NoteStored(table.Stored())
	}
	return true, nil
}

// tick counts a row, or a cell with a value of that size. At the end of a slice other goroutines go first.
func (m *merger) tick(size int) error {
	if m.worked += perCell + size; m.worked < slice {
		return nil
	}
	m.worked = 0
	// Without this, a merge would keep its processor for ten milliseconds while a writer or
	// reader waits for it.
	runtime.Gosched()
	if err := m.job.Cancelled(); err != nil {
		return err
	}
	m.job.Yield()
	return nil
}

// write adds a cell of the row. The row begins with its first kept cell, so a row without kept
// cells leaves no trace.
func (m *merger) write(key []byte, c *row.Cell) error {
	if !m.inRow {
		if err := m.prepareTable(key); err != nil {
			return err
		}
		if err := m.table.StartRow(key); err != nil {
			return err
		}
		m.inRow = true
	}
	m.stats.CellsOut++
	return m.table.AddCell(c)
}

// prepareTable ends the table if it should end before the row, and begins one if there is none.
func (m *merger) prepareTable(key []byte) error {
	if m.table != nil && m.cut.before(key, m.table.EstimatedSize()) {
		if err := m.finishTable(); err != nil {
			return err
		}
	}
	if m.table == nil {
		table, err := m.job.NewTable()
		if err != nil {
			return err
		}
		m.table = table
		m.cut.start(key)
	}
	return nil
}

func (m *merger) finishTable() error {
	if m.table == nil {
		return nil
	}
	if err := m.table.Finish(); err != nil {
		return err
	}
	m.table = nil
	return nil
}

// leastPiece: a table is cut at a grandparent only if it has at least Pieces divided by this.
// Files of a megabyte are not worth their descriptors.
const leastPiece = 16

// cutter decides between which rows a table ends.
type cutter struct {
	target       int64
	pieces       int64
	grandparents []*manifest.FileMeta // not passed yet
	overlap      int64                // bytes of grandparents that the table has passed
}

// start notes the first row of a table.
func (c *cutter) start(key []byte) {
	c.pass(key)
	c.overlap = 0
}

// before reports whether a table of that size should end before the row.
func (c *cutter) before(key []byte, size int64) bool {
	switch {
	case c.target > 0:
		c.pass(key)
		return size >= c.target || c.overlap > maxOverlapFactor*c.target
	case c.pieces > 0:
		passed := c.pass(key)
		return size >= c.pieces ||
			passed && size >= c.pieces/leastPiece && (c.overlap >= c.pieces || len(c.grandparents) == 0)
	}
	return false
}

// pass reports whether the row lies behind a grandparent that the row before it did not lie
// behind.
func (c *cutter) pass(key []byte) (passed bool) {
	for len(c.grandparents) > 0 && bytes.Compare(c.grandparents[0].Largest, key) < 0 {
		c.overlap += c.grandparents[0].Size
		c.grandparents = c.grandparents[1:]
		passed = true
	}
	return passed
}
