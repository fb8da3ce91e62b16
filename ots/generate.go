package ots

// This file generates the values of auto-increment key columns (PROTOCOL 6.6).
//
// A table has one counter. It is in memory, and what is durable is a ceiling
// that no value has reached: it is raised in the table's annotations, by
// generatedBlock at a time, before a value above the old one is given out. A
// restart goes on at the ceiling, so a value is never given out twice, also if
// the row that had it was deleted, and whatever the clock does. The clock is
// asked once, where a table's first value comes from (microseconds since the
// epoch): so rows that are copied into another table keep their keys and do not
// stand in the way of new ones.
//
// Values of one partition key are generated and ordered in the log under one
// lock: who reads along a partition key never finds a row below one that he
// has seen already.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// generatedBlock is how far the durable ceiling is raised at a time. A caller that
// needs a value meanwhile waits for the manifest to be synced: once in 100,000 values
// that is nothing, and a restart skips at most as many.
const generatedBlock = 100_000

// generators holds the counters of all tables.
type generators struct {
	tables sync.Map // table id -> *generator
	// partitions order the generation within a partition key; two may share
	// one.
	partitions [256]sync.Mutex
}

// generator is the counter of one table.
type generator struct {
	mu      sync.Mutex
	next    int64
	ceiling int64 // durable; values below it may be given out
}

// generatedColumn is the index of the placeholder in a key, or -1.
func generatedColumn(key []KeyValue) int {
	return slices.IndexFunc(key, func(k KeyValue) bool { return k.AutoIncrement })
}

// lockPartition locks the generation for a partition key.
func (e *Engine) lockPartition(t *table, partition row.Value) *sync.Mutex {
	id := e.partitionOf(t, partition)
	lock := &e.generators.partitions[(id.hash^id.table)%uint64(len(e.generators.partitions))]
	lock.Lock()
	return lock
}

// errTaken says that a client has put a row under the key that was generated.
var errTaken = errors.New("ots: the generated key is taken")

// startGenerated applies a change of a row whose key it completes. The change
// expects nothing of the row; what is looked up is that there is none.
func (e *Engine) startGenerated(ctx context.Context, w *pendingWrite, column int) {
	t := w.table
	defer e.lockPartition(t, w.key[0].Value).Unlock()
	for {
		if w.key, w.err = e.generate(ctx, t, w.change.Row.Key, column); w.err != nil {
			return
		}
		taken := false
		w.update(ctx, e, keyTuple(w.key), func(ctx context.Context, tx *flagstone.RowTx) error {
			exists, err := tx.Exists()
			if taken = exists; taken {
				return errTaken
			}
			if err != nil {
				return err
			}
			return w.apply(ctx, e, tx, e.store.NowMillis())
		})
		if !taken { // otherwise what was noted is a refusal, and nobody is told
			return
		}
		w.commit, w.err = nil, nil
	}
}

// generate returns the key with the next value in place of the placeholder.
// REQUIRES: the partition's lock is held.
func (e *Engine) generate(ctx context.Context, t *table, key []KeyValue, column int) ([]KeyValue, *Error) {
	counter, _ := e.generators.tables.LoadOrStore(t.info.ID, new(generator))
	g := counter.(*generator)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next >= g.ceiling {
		if err := e.raiseCeiling(ctx, t, g); err != nil {
			return nil, e.asError(err, "generate key", t.name, false)
		}
	}
	complete := slices.Clone(key)
	complete[column] = KeyValue{Name: key[column].Name, Value: row.Integer(g.next)}
	g.next++
	return complete, nil
}

// raiseCeiling makes room for more values, durably. REQUIRES: g.mu is held.
func (e *Engine) raiseCeiling(ctx context.Context, t *table, g *generator) error {
	e.tableOps.Lock()
	defer e.tableOps.Unlock()
	info := t.engine.Info()
	if info.ID == 0 { // dropped
		return tableMissing()
	}
	attrs, err := e.attributesOf(&info)
	if err != nil {
		return err
	}
	start := max(attrs.GeneratedCeiling, g.next)
	if start == 0 {
		start = max(1, e.store.NowMillis()*1000)
	}
	if start > math.MaxInt64-generatedBlock {
		return fmt.Errorf("ots: the generated keys of table %q are used up", t.name)
	}
	attrs.GeneratedCeiling = start + generatedBlock
	if err := t.engine.Alter(ctx, flagstone.TableChange{Annotations: attrs.encode()}); err != nil {
		return err
	}
	g.next, g.ceiling = start, attrs.GeneratedCeiling
	return nil
}
