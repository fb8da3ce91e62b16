// Package pressure applies back-pressure to writers. It keeps memtables within their budget and
// level 0 shallow. It slows writers in proportion to the work left undone, long before it would
// have to stop them.
//
// A writer passes the gate before it takes its latches (Pass), and reserves memory after it has them
// (Reserve). Once its write is applied it owes a pause (Owe), which it makes when the write is durable
// and it holds nothing that another one needs (Pause). The pressure is 0 while the store keeps up, and 1
// where writers stop, because memtables fill their budget or too many files overlap in level 0, or
// nearly stop, because compactions have too many bytes yet to merge.
package pressure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
)

const (
	// SlowdownDepth and stopDepth are how many files may overlap in level 0 before writers are
	// slowed and stopped.
	SlowdownDepth = 16
	stopDepth     = 40
	// memoryStart is the share of the memory budget from which writers are slowed: a
	// memtable that is being filled and one that is being flushed take half of it.
	memoryStart = 0.625
	// debtStart and debtStop are the bytes that compactions have yet to merge, in multiples of
	// the largest base level, from which writers are slowed, and at which they nearly stop.
	debtStart, debtStop = 4, 16
)

// Env is what a gate asks of the store. Its methods are called without the gate's
// locks.
type Env interface {
	// Writable returns nil, or why no write is accepted.
	Writable() error
	// FlushLargest rotates the largest memtable, or several small ones, to be flushed.
	FlushLargest()
	// Await waits for an event, as jobs.Jobs.Await does.
	Await(ctx context.Context, event <-chan struct{}) error
}

// Gate holds writers back. Its methods are safe for concurrent use.
type Gate struct {
	memory
	env     Env
	clock   clock.Clock
	debt    debt
	stalled atomic.Int64 // nanoseconds that writers have waited
	stall   stall
	// Events gets the stalls. It may be nil, and is set before the gate is used.
	Events *event.Source

	// trouble says that noLog is set or trees is not empty, so a writer must take mu and look.
	trouble atomic.Bool

	mu    sync.Mutex
	noLog error // why there is no room for more log
	stuck error // why the last flush failed
	trees map[any]backlog
	// uncompacted is why the last compaction of a tree failed.
	uncompacted map[any]error
}

// backlog is how far the compactions of a tree are behind.
type backlog struct {
	depth    int // files that overlap in level 0
	pressure float64
}

// NewGate returns a gate for memtables of budget bytes together.
func NewGate(env Env, c clock.Clock, budget int64) *Gate {
	g := &Gate{env: env, clock: c, trees: make(map[any]backlog), uncompacted: make(map[any]error)}
	g.budget, g.room = budget, make(chan struct{})
	return g
}

// Pass holds a writer back while memtables are over their budget or a level 0 is too deep. Errors
// are those of the context and of Env.Writable, and the failures of the log, of flushes and of
// compactions.
func (g *Gate) Pass(ctx context.Context) error {
	var w waiting
	defer w.end()
	for {
		if err := g.env.Writable(); err != nil || g.open() {
			return err
		}
		room := g.sleep()
		full := g.full()
		stop, err := g.obstacle(full)
		if err != nil || !stop {
			return err
		}
		w.begin(g, full)
		switch err := g.await(ctx, room); {
		case errors.Is(err, executor.ErrIdle):
			return nil // nothing will make more room
		case err != nil:
			return err
		}
	}
}

// open reports whether writers may go on, without a lock.
func (g *Gate) open() bool { return !g.full() && !g.trouble.Load() }

// obstacle reports whether a writer has to wait. An error says that waiting would not help.
func (g *Gate) obstacle(full bool) (stop bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.noLog != nil {
		return false, fmt.Errorf("the log cannot grow: %w", g.noLog)
	}
	var deepest any
	depth := 0
	for tree, b := range g.trees {
		if b.depth > depth {
			deepest, depth = tree, b.depth
		}
	}
	switch failure := g.uncompacted[deepest]; {
	case depth >= stopDepth && failure != nil:
		return false, fmt.Errorf("level 0 of a table has %d files and cannot be compacted: %w", depth, failure)
	case full && g.stuck != nil:
		return false, g.stuckError()
	}
	return full || depth >= stopDepth, nil
}

// stuckError is stuck for a caller, nil if it is nil. REQUIRES: mu is held.
func (g *Gate) stuckError() error {
	if g.stuck == nil {
		return nil
	}
	return fmt.Errorf("memtables are full and cannot be flushed: %w", g.stuck)
}

// Owe notes a write of so many bytes that was applied, and returns for how long its writer is to pause.
func (g *Gate) Owe(bytes int64) time.Duration {
	return g.debt.charge(bytes, g.pressure(), g.debt.ofFiles())
}

// Pause holds a writer back for what Owe has returned, while there is pressure. The end of ctx ends it,
// and is not an error: the write is in place. REQUIRES: the writer holds no latch.
func (g *Gate) Pause(ctx context.Context, owed time.Duration) {
	if owed <= 0 {
		return
	}
	g.debt.pausing.Add(1)
	defer g.debt.pausing.Add(-1)
	for ; owed > 0 && g.Pressure() > 0; owed -= payMost {
		over := make(chan struct{})
		stop := g.clock.AfterFunc(min(owed, payMost), func() { close(over) })
		err := g.await(ctx, over)
		stop()
		if err != nil {
			return
		}
	}
}

// await is Env.Await, and counts the time.
func (g *Gate) await(ctx context.Context, event <-chan struct{}) error {
	began := g.clock.Elapsed()
	err := g.env.Await(ctx, event)
	g.stalled.Add(int64(g.clock.Elapsed() - began))
	return err
}

// Reserve waits until there is memory for a write, and takes it. The caller then frees what the write
// did not need, or all of it (Free). Pass lets writers wait before they take latches;
// Reserve keeps the budget, however many writers pass at once. Flushes need no latch, so a writer
// may wait here while it holds latches.
func (g *Gate) Reserve(ctx context.Context, bytes int64) error {
	var w waiting
	defer w.end()
	for !g.reserve(bytes) {
		room := g.sleep()
		if g.reserve(bytes) {
			return nil
		}
		if err := g.env.Writable(); err != nil {
			return err
		}
		if err := g.Stuck(); err != nil {
			return err
		}
		if g.waiting.Load() <= 0 {
			g.env.FlushLargest()
		}
		// All memory may be reserved by writers that have not applied their writes yet. Then
		// there was nothing to flush. Free wakes this writer, which looks again.
		w.begin(g, true)
		switch err := g.await(ctx, room); {
		case errors.Is(err, executor.ErrIdle):
			return fmt.Errorf("a write of %d bytes does not fit the memory budget: %w", bytes, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// Add takes memory without waiting, for log records at recovery.
func (g *Gate) Add(bytes int64) { g.total.Add(bytes) }

// Budget is the memory that memtables may take, in bytes.
func (g *Gate) Budget() int64 { return g.budget }

// Rotated notes that a memtable of so many bytes waits to be flushed.
func (g *Gate) Rotated(bytes int64) { g.waiting.Add(bytes) }

// Bytes is the memory of all memtables, and how much of it waits to be flushed.
func (g *Gate) Bytes() (total, waiting int64) { return g.total.Load(), g.waiting.Load() }

// Pressure is the pressure of memory and files on writers, from 0 (none) to 1 (they stop).
func (g *Gate) Pressure() float64 { return min(max(g.pressure(), g.debt.ofFiles(), 0), 1) }

// Stalled is the total time that writers have waited.
func (g *Gate) Stalled() time.Duration { return time.Duration(g.stalled.Load()) }

// Flushed notes how long a flush took.
func (g *Gate) Flushed(bytes int64, took time.Duration) { g.debt.flushed(bytes, took) }

// NoteLog keeps why there is no room for more log; nil if there is room.
func (g *Gate) NoteLog(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noLog = err
	g.noteTrouble()
}

// NoteFlush keeps why the last flush failed; nil if it did not.
func (g *Gate) NoteFlush(err error) {
	g.mu.Lock()
	g.stuck = err
	g.mu.Unlock()
	if err != nil {
		g.Wake()
	}
}

// Stuck returns why memtables cannot be flushed, nil if they can.
func (g *Gate) Stuck() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stuckError()
}

// Refusal returns why writes are refused although the store could take them later, nil if they are not.
func (g *Gate) Refusal() error {
	_, err := g.obstacle(g.full())
	return err
}

// NoteTree keeps how far the compactions of a tree are behind. look returns how many files
// overlap in level 0, and how many bytes are yet to be merged, in multiples of the largest base
// level. NoteTree calls it under a lock, so that the last caller has the newest figures.
func (g *Gate) NoteTree(tree any, look func() (depth int, debt float64)) {
	g.mu.Lock()
	depth, debt := look()
	if depth < SlowdownDepth {
		delete(g.uncompacted, tree)
	}
	p := max(float64(depth-SlowdownDepth+1)/(stopDepth-SlowdownDepth), (debt-debtStart)/(debtStop-debtStart))
	if p > 0 {
		g.trees[tree] = backlog{depth, p}
	} else {
		delete(g.trees, tree)
	}
	most := 0.0
	for _, b := range g.trees {
		most = max(most, b.pressure)
	}
	g.debt.files.Store(math.Float64bits(most))
	g.noteTrouble()
	g.mu.Unlock()
	g.Wake()
}

// NoteCompaction keeps why the last compaction of a tree failed; nil if it did not.
func (g *Gate) NoteCompaction(tree any, err error) {
	g.mu.Lock()
	if err == nil {
		delete(g.uncompacted, tree)
	} else {
		g.uncompacted[tree] = err
	}
	g.mu.Unlock()
	g.Wake()
}

// Failure returns why flushes and compactions failed the last time, nil if none did.
func (g *Gate) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	failure := g.stuck
	for _, err := range g.uncompacted {
		failure = errors.Join(failure, err)
	}
	return failure
}

// noteTrouble brings trouble up to date. REQUIRES: mu is held.
func (g *Gate) noteTrouble() { g.trouble.Store(g.noLog != nil || len(g.trees) > 0) }
