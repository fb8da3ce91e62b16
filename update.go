package flagstone

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// mvccLatest is the sequence number at which a reader sees everything that is
// applied, durable or not.
const mvccLatest = row.MaxSequence

// RowTx is a read-modify-write of one row: what Update's function reads
// through it is the newest state of the row, and nothing can change the row
// until the changes made through it are in place.
type RowTx struct {
	RowChange
}

// Get reads the row as it is before this change; nil if it does not exist.
// ReadOptions.Snapshot must be nil.
func (tx *RowTx) Get(opts ReadOptions) (*Row, error) {
	if tx.err != nil {
		return nil, tx.err
	}
	if opts.Snapshot != nil {
		return nil, fmt.Errorf("%w: a read in an update cannot use a snapshot", ErrInvalid)
	}
	return tx.table.getEncoded(tx.mutation.Key, &opts)
}

// Exists reports whether the row exists.
func (tx *RowTx) Exists() (bool, error) {
	r, err := tx.Get(ReadOptions{existsOnly: true})
	return r != nil, err
}

// Update changes one row. fn reads, if it needs to, and says what is to be
// done; it runs once, while no other change of the row can begin, and must not
// write to the store itself. An error of fn is returned and nothing is
// written. When Update returns nil the change is durable (with SyncAlways) and
// visible to every later read. An fn that reads nothing is a blind write and
// costs no read.
func (t *Table) Update(ctx context.Context, key []row.Value, fn func(tx *RowTx) error) error {
	c, err := t.UpdateAsync(ctx, key, fn)
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

// UpdateAsync is Update without the wait for durability. The change is ordered
// before every write that is begun later; Commit.Wait must be called. The error
// of an fn that refused is returned by Wait, since what it read may not be
// durable yet.
func (t *Table) UpdateAsync(ctx context.Context, key []row.Value, fn func(tx *RowTx) error) (*Commit, error) {
	s := t.store
	if err := s.throttle(ctx); err != nil {
		return nil, err
	}
	var tx RowTx
	if tx.init(t, key); tx.err != nil {
		return nil, tx.err
	}
	latch := latchOf(t.id, tx.mutation.Key)
	s.latches.stripes[latch].Lock()
	defer s.latches.stripes[latch].Unlock()
	if err := fn(&tx); err != nil {
		return s.refuse(err), nil
	}
	if tx.err == nil && tx.empty() {
		return s.refuse(nil), nil
	}
	return s.writeChanges(ctx, []*RowChange{&tx.RowChange})
}

// writeChanges writes changes of different rows as one batch. REQUIRES: the
// latches of the rows are held.
func (s *Store) writeChanges(ctx context.Context, changes []*RowChange) (*Commit, error) {
	now := s.issued.now()
	b := takeBatch()
	defer giveBatch(b) // log and memtables have copies
	mutations := make([]row.Mutation, len(changes))
	for i, c := range changes {
		if err := c.check(now); err != nil {
			return nil, err
		}
		m := &mutations[i]
		*m = c.mutation
		m.Cells = slices.Clip(m.Cells) // a batch that fails may be applied again
		if err := c.addTrims(m); err != nil {
			return nil, err
		}
		if err := b.Add(m); err != nil {
			return nil, fmt.Errorf("%w: table %q: %w", ErrInvalid, c.table.name, err)
		}
	}
	return s.write(ctx, b, mutations)
}

// batches keeps encoding buffers between writes. It is a cache of scratch
// memory only: which buffer a write gets makes no difference.
var batches = sync.Pool{New: func() any { return new(row.Batch) }}

func takeBatch() *row.Batch { return batches.Get().(*row.Batch) }

func giveBatch(b *row.Batch) {
	const keep = 1 << 20 // a rare large batch must not stay in memory
	if b.Cap() <= keep {
		b.Reset()
		batches.Put(b)
	}
}

// addTrims adds the trims that deletes of single versions need (rule 6 of the
// rule-book): a column that shows its full number of versions may have surplus
// ones on disk, or may have had them pruned; a trim hides them, so that what
// moves up does not depend on which. It is computed here, under the latch, and
// travels in the batch.
func (c *RowChange) addTrims(m *row.Mutation) error {
	if m.DeleteRow {
		return nil // everything older is hidden anyway
	}
	cells := m.Cells
	for from := 0; from < len(cells); {
		to := from + 1
		for to < len(cells) && string(cells[to].Column) == string(cells[from].Column) {
			to++
		}
		if err := c.addTrim(m, cells[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// addTrim adds the trim that the deletes among the cells of one column need.
func (c *RowChange) addTrim(m *row.Mutation, cells []row.Cell) error {
	var visible []int64
	maxVersions := 0
	for i := range cells {
		if cells[i].Kind != row.KindDeleteVersion {
			continue
		}
		if visible == nil {
			var err error
			if visible, maxVersions, err = c.table.visibleVersions(m.Key, cells[i].Column); err != nil {
				return err
			}
		}
		if threshold, ok := mvcc.TrimForDelete(visible, cells[i].Version, maxVersions); ok {
			m.Cells = append(m.Cells, row.Cell{
				Column: cells[i].Column, Version: threshold, Kind: row.KindTrim,
			})
			return nil // one per column: the answers agree
		}
	}
	return nil
}
