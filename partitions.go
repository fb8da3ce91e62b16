package flagstone

// Partitions: a table's rows are cut into ranges by the first key column, and each range is an LSM
// tree of its own. This file lists them, and splits and merges them on request.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Partition describes a partition of a table. It holds the rows whose first key column is at least
// Start and below End; the zero Value is unbounded.
type Partition struct {
	ID         uint64 // never used again
	Start, End row.Value
	Bytes      int64 // about how many it has in memory, table files and value files
}

// Partitions lists the partitions of the table in key order.
func (t *Table) Partitions() []Partition {
	var list []Partition
	for _, tree := range t.core.Trees() {
		p := Partition{ID: tree.ID(), Bytes: tree.ApproximateSize()}
		start, end := tree.Bounds()
		p.Start, _ = row.PartitionValueAt(start, len(t.core.Key))
		p.End, _ = row.PartitionValueAt(end, len(t.core.Key))
		list = append(list, p)
	}
	return list
}

// Split cuts the partition that holds a value of the first key column in two, so that at begins a
// partition; if it does already, Split does nothing. It moves no data: both halves refer to the same
// files until compactions have rewritten them, and memtables are shared. Readers, writers, snapshots,
// transactions and streams go on. Errors match ErrInvalid if at is no value of the first key column.
func (t *Table) Split(ctx context.Context, at row.Value) error {
	key, err := t.boundary(at)
	if err != nil {
		return err
	}
	return t.store.change(ctx, func() error {
		tree := t.core.Find(key)
		if start, _ := tree.Bounds(); bytes.Equal(start, key) {
			return nil
		}
		return t.replace([]*partition.Tree{tree}, func(old []*manifest.Partition, id uint64) []*manifest.Partition {
			return old[0].Divide(key, id, id+1)
		})
	})
}

// boundary encodes a value of the first key column.
func (t *Table) boundary(at row.Value) ([]byte, error) {
	if !at.Type().IsKeyType() {
		return nil, fmt.Errorf("%w: table %q: a partition cannot begin at %s", ErrInvalid, t.core.Name, at)
	}
	return t.core.EncodeBound(nil, []row.Value{at})
}

// mergeAttempts is how often Merge prepares two partitions that writers change meanwhile.
const mergeAttempts = 8

// Merge joins the two partitions that meet at a value of the first key column; if none begins there,
// Merge does nothing. It first flushes both, and compacts them if an earlier split left them with files
// that only one of them has rewritten. Readers and writers go on. Errors match ErrInvalid if at is no
// value of the first key column, and ErrConflict if the partitions were written so much that they were
// never flushed at one moment.
func (t *Table) Merge(ctx context.Context, at row.Value) error {
	key, err := t.boundary(at)
	if err != nil {
		return err
	}
	for range mergeAttempts {
		if err := t.prepareMerge(ctx, key); err != nil {
			return err
		}
		if err := t.store.change(ctx, func() error { return t.merge(key) }); !errors.Is(err, errNotReady) {
			return err
		}
	}
	return fmt.Errorf("%w: the partitions of table %q that meet at %s are being written", ErrConflict, t.core.Name, at)
}

// errNotReady: two partitions cannot be merged yet.
var errNotReady = errors.New("flagstone: the partitions cannot be merged now")

// neighbours returns the partitions that meet at a key, nils if none begins there.
func (t *Table) neighbours(key []byte) (low, high *partition.Tree) {
	high = t.core.Find(key)
	if start, _ := high.Bounds(); len(key) == 0 || !bytes.Equal(start, key) {
		return nil, nil
	}
	return t.core.Partitions.Load().Below(key), high
}

// prepareMerge flushes the partitions that meet at a key, and rewrites files that reach outside of them.
func (t *Table) prepareMerge(ctx context.Context, key []byte) error {
	low, high := t.neighbours(key)
	if high == nil {
		return nil
	}
	return t.store.work(func() error {
		if err := t.store.upkeep.Flush(ctx, low, high); err != nil {
			return err
		}
		for _, tree := range []*partition.Tree{low, high} {
			if err := t.store.upkeep.Trim(ctx, tree); err != nil {
				return err
			}
		}
		return nil
	})
}

// merge merges the partitions that meet at a key. It returns errNotReady if they are not flushed up to
// one sequence number, or share files that one of them has rewritten. REQUIRES: tables is held.
func (t *Table) merge(key []byte) error {
	low, high := t.neighbours(key)
	switch {
	case high == nil:
		return nil
	case !low.Trimmed() || !high.Trimmed():
		return errNotReady
	}
	return t.replace([]*partition.Tree{low, high}, func(old []*manifest.Partition, id uint64) []*manifest.Partition {
		return []*manifest.Partition{manifest.Join(old[0], old[1], id)}
	})
}

// replace replaces neighbouring partitions by those that divide makes of their manifest entries, with ids
// from id on. REQUIRES: tables is held.
func (t *Table) replace(old []*partition.Tree, divide func(old []*manifest.Partition, id uint64) []*manifest.Partition) error {
	s := t.store
	var made []*partition.Tree
	var pause time.Duration
	err := t.core.Gone()
	if err == nil {
		err = partition.Alone(old, func() error {
			if err := s.level(old); err != nil {
				return err
			}
			err := s.pipeline.Cut(func(after uint64) (err error) {
				made, err = t.commitReplacement(old, after, divide)
				return err
			}, func() {
				began := s.clock.Elapsed()
				s.pipeline.Replace(old, made)
				t.core.Partitions.Store(t.core.Partitions.Load().With(old, made))
				pause = s.clock.Elapsed() - began
			})
			for _, tree := range old {
				if err == nil {
					tree.Close()
				}
			}
			return err
		})
	}
	for _, tree := range append(old, made...) {
		s.upkeep.NoteFiles(tree)
		s.upkeep.CompactionDue(tree) // of the old ones if that failed: compactions under way ended early
	}
	if err == nil {
		s.replaced.note(len(made) > len(old), pause)
		s.opts.Logger.Info("partitions replaced", "table", t.core.Name, "old", ids(old), "new", ids(made), "pause", pause)
	}
	return err
}

// replaced counts the partitions that were split and merged.
type replaced struct {
	splits, merges atomic.Int64
	pause          atomic.Int64 // the longest, in nanoseconds
}

// note counts a split or a merge. REQUIRES: it is the only one.
func (r *replaced) note(split bool, pause time.Duration) {
	if split {
		r.splits.Add(1)
	} else {
		r.merges.Add(1)
	}
	r.pause.Store(max(r.pause.Load(), int64(pause)))
}

// level raises the sequence numbers up to which the partitions' files are complete to the same one: the log
// must not bring back to a merged partition what its files hold. Partitions that are not flushed that far
// give errNotReady. REQUIRES: partition.Alone.
func (s *Store) level(trees []*partition.Tree) error {
	if len(trees) == 1 {
		return nil
	}
	complete, flushed := s.pipeline.LastSeq(), uint64(0)
	for _, tree := range trees {
		complete, flushed = min(complete, tree.Complete()), max(flushed, tree.FlushedSeq())
	}
	if complete < flushed {
		return errNotReady
	}
	for _, tree := range trees {
		if err := tree.NoteComplete(complete); err != nil {
			return err
		}
	}
	return nil
}

// commitReplacement makes the replacement of partitions durable, and makes the trees of the new ones.
func (t *Table) commitReplacement(old []*partition.Tree, after uint64, divide func([]*manifest.Partition, uint64) []*manifest.Partition) ([]*partition.Tree, error) {
	s := t.store
	state := s.state()
	r := &manifest.Replacement{Table: t.core.ID, Old: ids(old)}
	var were []*manifest.Partition
	for _, id := range r.Old {
		_, p := state.Partition(id)
		were = append(were, p)
	}
	r.New = divide(were, state.NextPartition)
	state, err := s.commitEdit(&manifest.Edit{Replaced: []*manifest.Replacement{r}, LastSeq: after})
	if err != nil {
		return nil, err
	}
	var made []*partition.Tree
	for _, p := range r.New {
		_, meta := state.Partition(p.ID)
		made = append(made, partition.NewTree(s.env, t.core.ID, meta))
	}
	return made, nil
}

func ids(trees []*partition.Tree) (list []uint64) {
	for _, tree := range trees {
		list = append(list, tree.ID())
	}
	return list
}
