package flagstone

// Smooth back-pressure: each write is charged with a delay that grows with what
// is left undone, and writers pay what has gathered in short sleeps.
//
// The pressure is 0 while the store keeps up and 1 where writers would have to
// be stopped: by memtables that fill their budget, by files over each other in
// level 0, or by the debt of compactions. At pressure p a write of n bytes owes
// n/rate * p/(1-p), where rate is what flushes achieved lately: writers that are
// faster than the flushes settle where they are as fast, and long before they
// would be stopped. Paying in sleeps of ten milliseconds costs few writes anything:
// a writer of a row each three microseconds that has to be slowed to two thirds
// of that pays once in six thousand rows. (With sleeps of three milliseconds 160
// of 300,000 rows paid, and were half of the slowest thousandth; with one of a
// millisecond they were more than that.) What is written during ten milliseconds
// is a few megabytes at most, which the budget of memtables has room for.

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/partition"
)

const (
	// paySlice is what has to be owed before a writer pays, and payMost what it
	// pays at once.
	paySlice = 10 * time.Millisecond
	payMost  = 15 * time.Millisecond
	// owedMost is what is owed at most, by about a factor of two. Large writes owe
	// more than payMost each time; without a bound, who writes when the pressure is
	// gone would go on paying for them, for a quarter of an hour after 10 GB.
	owedMost = time.Second
	// firstRate is the rate in bytes per second until a flush was measured.
	firstRate = 200 << 20
	// steepest bounds p/(1-p).
	steepest = 20
	// memoryPaceStart is the share of the memory budget from which writers are
	// slowed: a memtable being filled and one being flushed take half of it.
	memoryPaceStart = 0.625
	// debtPaceStart and debtPaceStop are the compaction debt, in multiples of
	// the largest base level, from which writers are slowed and at which they
	// are as good as stopped.
	debtPaceStart, debtPaceStop = 4, 16
)

// pacer charges writers.
type pacer struct {
	owed     atomic.Int64  // nanoseconds
	rate     atomic.Int64  // of flushes, bytes per second
	pressure atomic.Uint64 // of files and debt: bits of a float64
}

// flushed notes how long the flush of so many bytes took.
func (p *pacer) flushed(bytes int64, took time.Duration) {
	if bytes < 1<<20 || took <= 0 {
		return // too little to tell
	}
	rate := int64(float64(bytes) / took.Seconds())
	if before := p.rate.Load(); before > 0 {
		rate = (3*before + rate) / 4
	}
	p.rate.Store(max(rate, 1<<20))
}

// charge makes writers owe for a write at the pressure of memory.
func (p *pacer) charge(bytes int64, memory float64) {
	pressure := max(memory, math.Float64frombits(p.pressure.Load()))
	if pressure <= 0 {
		return
	}
	factor := float64(steepest)
	if pressure < 1 {
		factor = min(pressure/(1-pressure), steepest)
	}
	rate := p.rate.Load()
	if rate == 0 {
		rate = firstRate
	}
	if p.owed.Load() < int64(owedMost) {
		p.owed.Add(int64(min(float64(bytes)/float64(rate)*factor*1e9, float64(owedMost))))
	}
}

// take takes what is to be paid now, 0 if that is not worth a sleep.
func (p *pacer) take() time.Duration {
	for {
		owed := p.owed.Load()
		if owed < int64(paySlice) {
			return 0
		}
		pay := min(owed, int64(payMost))
		if p.owed.CompareAndSwap(owed, owed-pay) {
			return time.Duration(pay)
		}
	}
}

// pay lets a writer sleep for what writers owe. An executor that is stepped by
// hand would get nothing done meanwhile.
func (s *Store) pay(ctx context.Context) error {
	pay := s.pacer.take()
	if pay == 0 {
		return nil
	}
	if s.steppedByHand() {
		return nil
	}
	paid := make(chan struct{})
	stop := s.clock.AfterFunc(pay, func() { close(paid) })
	defer stop()
	began := s.clock.Elapsed()
	select {
	case <-paid:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
	s.stalled.Add(int64(s.clock.Elapsed() - began))
	return nil
}

// pressureOf is the pressure of a tree's files: how deep level 0 is, and how
// much merging is left undone.
func (s *Store) pressureOf(tree *partition.Tree, depth int) float64 {
	debt := float64(compaction.Debt(&tree.Meta().Levels, s.env.Compaction))
	base := float64(compaction.LargestBase(s.env.Compaction))
	return max(
		float64(depth-slowdownFiles+1)/(stopFiles-slowdownFiles),
		(debt/base-debtPaceStart)/(debtPaceStop-debtPaceStart),
	)
}
