package ycsb

// This file loads a table and has workers put a load on it.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/zipf"
)

// Options are the shape of the rows and of the load.
type Options struct {
	// Rows are loaded before anything is measured.
	Rows int64
	// Columns of ValueSize bytes has each row.
	Columns, ValueSize int
	// Workers are how many operations are under way at most.
	Workers int
	// Duration is how long a workload runs.
	Duration time.Duration
	// Rate is how many operations should begin in a second; 0 is a closed loop.
	Rate float64
	// Progress, if not nil, is called once a second with what is done so far.
	Progress func(what string, done int64)
}

// Bench loads a table and runs workloads on it, one after the other.
type Bench struct {
	table Table
	o     Options
	ranks *zipf.Ranks // of the loaded rows
	next  int64       // number of the next new row
}

// New prepares a bench of an empty table. REQUIRES: Rows, Columns, ValueSize and Workers are positive.
func New(table Table, o Options) *Bench {
	return &Bench{table: table, o: o, ranks: zipf.New(int(o.Rows)), next: o.Rows}
}

// A call of Table.Put loads at most loadRows rows, and not many more bytes than loadBytes.
const (
	loadRows  = 100
	loadBytes = 1 << 20
)

// Load puts the rows into the table, and returns how long that took. Errors are the table's, and the context's.
func (b *Bench) Load(ctx context.Context) (time.Duration, error) {
	size := int64(min(max(loadBytes/(b.o.Columns*b.o.ValueSize), 1), loadRows))
	var taken, done atomic.Int64
	defer b.watch("load", done.Load)()
	began := time.Now()
	err := b.each(ctx, func(ctx context.Context, id int) error {
		rng, rows := b.random(id), make([]Row, size)
		for i := range rows {
			rows[i].Values = b.values(b.o.Columns)
		}
		for ctx.Err() == nil {
			first := taken.Add(size) - size
			n := min(size, b.o.Rows-first)
			if n <= 0 {
				return nil
			}
			for i := range rows[:n] {
				rows[i].Key = keyOf(first + int64(i))
				fill(rng, rows[i].Values)
			}
			if err := b.table.Put(ctx, rows[:n]); err != nil {
				return fmt.Errorf("load: %w", err)
			}
			done.Add(n)
		}
		return ctx.Err()
	})
	return time.Since(began), err
}

// Run measures a workload on the table as the one before has left it. If ctx ends, the result is what was measured until
// then. Errors are the table's; that a row is missing is one.
func (b *Bench) Run(ctx context.Context, load Workload) (*Result, error) {
	r := b.newRun(load)
	unwatch := b.watch(load.Name, r.done)
	r.began = time.Now()
	err := b.each(ctx, func(ctx context.Context, id int) error { return r.workers[id].work(ctx) })
	took, stopped := time.Since(r.began), ctx.Err() != nil
	unwatch()
	if !stopped { // the last operation of a timetable may have been over before
		took = max(took, b.o.Duration)
	}
	if err != nil && !(stopped && errors.Is(err, context.Cause(ctx))) {
		return nil, fmt.Errorf("workload %s: %w", load.Name, err)
	}
	for _, w := range r.workers {
		b.next = max(b.next, w.newRow()) // numbers below that were not taken stay without a row
	}
	return r.result(took, stopped), nil
}

// each calls f for each worker and waits for all. The first error ends the context of the others, and is returned.
func (b *Bench) each(ctx context.Context, f func(ctx context.Context, id int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for id := range b.o.Workers {
		wg.Go(func() {
			if err := f(ctx, id); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// watch reports progress until it is told to end.
func (b *Bench) watch(what string, done func() int64) (end func()) {
	if b.o.Progress == nil {
		return func() {}
	}
	ticker, over := time.NewTicker(time.Second), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ticker.C:
				b.o.Progress(what, done())
			case <-over:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(over)
		wg.Wait()
	}
}

// random returns a worker's random numbers, which are the same in every bench with the same history.
func (b *Bench) random(id int) *rand.Rand { return rand.New(rand.NewPCG(uint64(id), uint64(b.next))) }

// values returns memory for n values.
func (b *Bench) values(n int) [][]byte {
	values := make([][]byte, n)
	for i := range values {
		values[i] = make([]byte, b.o.ValueSize)
	}
	return values
}

// fill fills values with random letters.
func fill(rng *rand.Rand, values [][]byte) {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	for _, v := range values {
		for x, i := uint64(0), 0; i < len(v); x, i = x>>6, i+1 {
			if i%10 == 0 {
				x = rng.Uint64()
			}
			v[i] = alphabet[x&63]
		}
	}
}
