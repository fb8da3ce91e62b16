package pressure

import (
	"testing"
	"time"
)

// load is writers that write without end, in simulated time. Flushes free a memtable at a time.
type load struct {
	debt
	sizes []int64         // of the write of each writer
	took  time.Duration   // a write, by one processor
	free  []time.Duration // when each writer goes on
	now   time.Duration

	total, flushing, most int64 // bytes in memtables
	flushed               time.Duration
	written               []int64 // by each writer, in bytes
	paused                []bool
}

const (
	loadBudget   = 256 << 20
	loadMemtable = 64 << 20
)

// step lets the writer that is free first write, and pause for what it owes.
func (l *load) step() {
	w := 0
	for i, at := range l.free {
		if at < l.free[w] {
			w = i
		}
	}
	l.now = max(l.now, l.free[w])
	if l.paused[w] {
		l.paused[w] = false
		l.pausing.Add(-1)
	}
	if l.flushing > 0 && l.now >= l.flushed {
		l.total -= l.flushing
		l.flushing = 0
	}
	if l.flushing == 0 && l.total >= loadMemtable {
		l.flushing, l.flushed = loadMemtable, l.now+time.Duration(loadMemtable*int64(time.Second)/l.rate.Load())
	}
	l.now += l.took
	l.total += l.sizes[w]
	l.written[w] += l.sizes[w]
	l.most = max(l.most, l.total)
	p := 0.0
	if l.flushing > 0 {
		p = (float64(l.total)/loadBudget - memoryStart) / (1 - memoryStart)
	}
	pause := l.charge(l.sizes[w], p, 0)
	l.free[w] = l.now + pause
	if pause > 0 {
		l.paused[w] = true
		l.pausing.Add(1)
	}
}

// run is the load of writers of some sizes for ten seconds.
func run(sizes ...int64) *load {
	n := len(sizes)
	l := &load{sizes: sizes, took: 5 * time.Microsecond, free: make([]time.Duration, n), written: make([]int64, n), paused: make([]bool, n)}
	l.rate.Store(100 << 20)
	for l.now < 10*time.Second {
		l.step()
	}
	return l
}

// same is n writers of 1 KiB.
func same(n int) []int64 {
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = 1 << 10
	}
	return sizes
}

// TestAnyNumberOfWritersSlowsDownToTheFlushes: none of them is stopped by the end of the budget, and
// the flushes never wait for them.
func TestAnyNumberOfWritersSlowsDownToTheFlushes(t *testing.T) {
	for _, n := range []int{1, 2, 8, 32, 100} {
		l := run(same(n)...)
		var written int64
		for _, w := range l.written {
			written += w
		}
		rate := float64(written) / l.now.Seconds() / float64(l.rate.Load())
		t.Logf("%d writers: at most %d MiB of %d, %.2f of the rate of flushes", n, l.most>>20, loadBudget>>20, rate)
		if l.most >= loadBudget || rate < 0.95 {
			t.Errorf("%d writers took up to %d MiB of %d, and made %.2f of the rate of flushes", n, l.most>>20, loadBudget>>20, rate)
		}
	}
}

// TestALargeWriteIsPaidByItsWriter: small writers are not held to the few writes of a large one.
func TestALargeWriteIsPaidByItsWriter(t *testing.T) {
	l := run(append(same(7), 1<<20)...)
	small, large := l.written[0], l.written[7]
	t.Logf("a writer of 1 KiB wrote %d MiB beside %d MiB of one of 1 MiB", small>>20, large>>20)
	if l.most >= loadBudget || small*4 < large {
		t.Errorf("a writer of 1 KiB wrote %d MiB beside %d MiB of one of 1 MiB; memtables took up to %d MiB of %d",
			small>>20, large>>20, l.most>>20, loadBudget>>20)
	}
}

// TestALongCompactionDoesNotStopWriters has a stream of writes of 120 MB a second while one compaction takes level 0, which
// was deep when it began, and so nothing leaves level 0 for 20 s.
func TestALongCompactionDoesNotStopWriters(t *testing.T) {
	const row, flush = 1 << 10, 64 << 20
	var d debt
	d.rate.Store(400 << 20)
	depth, filled := 30, int64(0)
	var now time.Duration
	for now < 20*time.Second {
		now += 8500 * time.Nanosecond
		now += d.charge(row, 0, float64(depth-SlowdownDepth+1)/(stopDepth-SlowdownDepth))
		if filled += row; filled >= flush {
			depth, filled = depth+1, 0
		}
		if depth == stopDepth {
			t.Fatalf("writers stop after %v", now)
		}
	}
	t.Logf("depth %d", depth)
}
