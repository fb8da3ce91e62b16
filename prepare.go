package flagstone

// Preparing a change to be written: it is checked, gets the trims it needs, and what a stream
// records of it. All of this reads the newest state of the row, which no other writer can change
// meanwhile.

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// prepared is a change and what it writes.
type prepared struct {
	from   *RowChange
	change *row.Change // with trims, if from needs some
	size   int64       // upper bound, in memtable bytes
	// before is what columns held before the change, for the change log beforeFor; nil if they
	// held nothing or no stream records it.
	before    []byte
	beforeFor *Table
}

// write prepares, orders and applies a write. REQUIRES: its changes are of different rows, and
// the caller holds their latches.
func (s *Store) write(ctx context.Context, w *write) error {
	micros, before := s.issued.Micros(), 0
	for _, c := range w.changes {
		p, err := c.prepare(micros / 1000)
		if err != nil {
			return err
		}
		// The log would refuse it too, but only with all of it in memory.
		if before += len(p.before); before > wal.MaxRecordSize {
			return fmt.Errorf("%w: table %q: what columns held before the changes exceeds %d bytes",
				ErrInvalid, c.table.name, wal.MaxRecordSize)
		}
		if err := w.addPrepared(&p); err != nil {
			return err
		}
	}
	if err := s.pipeline.Write(ctx, &w.out, micros); err != nil {
		return s.describe(err)
	}
	for _, c := range w.changes {
		c.keepStamp()
	}
	return nil
}

// prepare checks a change made at now, in milliseconds, and works out what it writes. REQUIRES:
// no other writer can change the row.
func (c *RowChange) prepare(now int64) (p prepared, err error) {
	if err := c.check(now); err != nil {
		return prepared{}, err
	}
	err = c.workOut(&p)
	return p, err
}

// workOut is prepare for a change that has been checked.
func (c *RowChange) workOut(p *prepared) (err error) {
	p.from = c
	if p.change, err = c.withTrims(); err != nil {
		return err
	}
	p.size = memtable.EstimateSize(p.change)
	return p.readBefore()
}

// addPrepared adds the mutation of a change, and its stream record if the table has a stream.
func (w *write) addPrepared(p *prepared) error {
	log := p.from.table.log.Load()
	if log == nil {
		w.out.Add(p.change, p.size, (*placed)(p.from), nil)
		return nil
	}
	w.out.Add(p.change, p.size, (*placed)(p.from), &record{log, cdc.NewRecord(p.change)})
	if len(p.before) == 0 || p.beforeFor != log {
		return nil
	}
	before, err := cdc.Carry(log.id, p.before)
	if err != nil {
		return err
	}
	w.out.Add(before, 0, nil, &record{log, cdc.NewBefore(p.before)})
	return nil
}

// placed is a change that finds its place in the log.
type placed RowChange

// Tree finds the tree of the change. It fails if the table's era is not the one in which the
// change was worked out.
func (c *placed) Tree() (*partition.Tree, error) {
	switch {
	case c.table.dropped.Load():
		return nil, fmt.Errorf("%w: it was dropped", ErrTableNotFound)
	case c.table.era.Load() != c.era:
		return nil, errAltered
	}
	return c.table.partitions().Find(c.change.Key), nil
}
