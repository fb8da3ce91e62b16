package change

import (
	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Prepared is a change and what it writes. All of it is worked out from the newest state of the row,
// which no other writer can change meanwhile.
type Prepared struct {
	From   *Change
	Change *row.Change // with trims, if From needs some
	Size   int64       // upper bound, in memtable bytes
	// Before is what columns held before the change, for the change log BeforeFor; nil if they
	// held nothing or no stream records it.
	Before    []byte
	BeforeFor *table.Table
}

// Prepare checks a change made at now, in milliseconds, and works out what it writes. REQUIRES:
// no other writer can change the row.
func (c *Change) Prepare(now int64) (p Prepared, err error) {
	if err = c.check(now); err == nil {
		err = c.WorkOut(&p)
	}
	return p, err
}

// WorkOut is Prepare for a change that has been checked.
func (c *Change) WorkOut(p *Prepared) (err error) {
	p.From, p.BeforeFor = c, c.Table.Log.Load()
	if p.Change, err = c.withTrims(); err != nil {
		return err
	}
	p.Size = memtable.EstimateSize(p.Change)
	p.Before, err = c.Table.Before(p.BeforeFor, c.row.Key, c.Written)
	return err
}

// AddTo adds the mutation of a change to a write, and its stream record if the table has a stream.
func (p *Prepared) AddTo(w *commit.Write) error {
	log := p.From.Table.Log.Load()
	if log == nil {
		w.Add(p.Change, p.Size, (*placed)(p.From), nil)
		return nil
	}
	w.Add(p.Change, p.Size, (*placed)(p.From), &record{log, cdc.NewRecord(p.Change)})
	if len(p.Before) == 0 || p.BeforeFor != log {
		return nil
	}
	before, err := cdc.Carry(log.ID, p.Before)
	if err == nil {
		w.Add(before, 0, nil, &record{log, cdc.NewBefore(p.Before)})
	}
	return err
}

// placed is a change that finds its place in the log.
type placed Change

// Tree finds the tree of the change. It fails if the table was dropped, its era is not the one in which the
// change was worked out, or the tree takes no writes.
func (c *placed) Tree() (*partition.Tree, error) {
	if err := c.Table.Gone(); err != nil {
		return nil, err
	}
	if c.Table.Era.Load() != c.Era {
		return nil, table.ErrAltered
	}
	tree := c.home
	if now := c.Table.Partitions.Load(); now != c.partitions {
		tree = now.Find(c.row.Key)
	}
	if err := c.Table.Writable(tree); err != nil {
		return nil, err
	}
	return tree, nil
}

// record is an entry on its way into a change log: a derived mutation.
type record struct {
	log *table.Table
	cdc.Entry
}

func (r *record) Tree() *partition.Tree { return r.log.LogTree() }

// Change makes the change log's row of the mutation seq of a shard.
func (r *record) Change(shard, seq uint64, micros int64) *row.Change {
	return r.Entry.Change(r.log.ID, shard, seq, micros)
}
