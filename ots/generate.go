package ots

// This file generates the values of auto-increment key columns (PROTOCOL 6.6).
//
// A table has one counter, in memory. A durable ceiling in the table's annotations lies above
// all values given out: it is raised by generatedBlock at a time, before the counter passes it.
// After a restart the counter continues at the ceiling. So no value is given out twice, even if
// the row with it was deleted, and whatever the clock does. The clock is read only for a
// table's first value (microseconds since the epoch). So rows copied into another table keep
// their keys and do not collide with new ones.
//
// Values of one partition key are generated, and their rows ordered in the log, by one request after the
// other. So new rows of a partition key appear in ascending order, and a client that reads along misses none.

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

// generatedBlock is the step of the durable ceiling. Once in 100,000 values a caller waits for
// a sync of the manifest, and a restart skips at most as many values.
const generatedBlock = 100_000

// generators holds the counters of all tables.
type generators struct {
	tables sync.Map // table id -> *generator
	// partitions order the generation within a partition key. Two keys may share one.
	partitions [256]exclusive
}

// generator is the counter of one table.
type generator struct {
	turn    exclusive
	next    int64
	ceiling int64 // durable; values below it may be given out
}

// generatedColumn returns the index of the placeholder in a key, or -1.
func generatedColumn(key []KeyValue) int {
	return slices.IndexFunc(key, func(k KeyValue) bool { return k.AutoIncrement })
}

// generation admits those that generate values for a partition key.
func (e *Engine) generation(t *table, partition row.Value) exclusive {
	id := e.partitionOf(t, partition)
	return e.generators.partitions[(id.hash^id.table)%uint64(len(e.generators.partitions))]
}

// errTaken says that a client has already written a row under the generated key.
var errTaken = errors.New("ots: the generated key is taken")

// startGenerated completes the key of a change and applies it. It tries the next value until no
// row has the key.
func (e *Engine) startGenerated(ctx context.Context, w *pendingWrite, column int) {
	t := w.table
	generation := e.generation(t, w.key[0].Value)
	if w.err = generation.enter(ctx); w.err != nil {
		return
	}
	defer generation.leave()
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
		if !taken { // otherwise w holds errTaken, which clients must not see
			return
		}
		w.commit, w.err = nil, nil
	}
}

// generate returns the key with the next value in place of the placeholder. REQUIRES: the caller is
// in the generation of the partition key.
func (e *Engine) generate(ctx context.Context, t *table, key []KeyValue, column int) ([]KeyValue, *Error) {
	counter, _ := e.generators.tables.LoadOrStore(t.info.ID, &generator{turn: newExclusive()})
	g := counter.(*generator)
	if bad := g.turn.enter(ctx); bad != nil {
		return nil, bad
	}
	defer g.turn.leave()
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

// raiseCeiling durably reserves the next block of values. REQUIRES: it is the caller's turn.
func (e *Engine) raiseCeiling(ctx context.Context, t *table, g *generator) error {
	if bad := e.tableOps.enter(ctx); bad != nil {
		return bad
	}
	defer e.tableOps.leave()
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
