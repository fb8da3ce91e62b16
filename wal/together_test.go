package wal

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestHandingOverBesideEverythingElse appends while other goroutines hand over, sync, flush and
// rotate, and while the log is closed, with memory that detects writes after free. A write may
// fail, or the power be cut: records that a Sync reported durable are there, and no record is
// there that was not appended, or out of its order.
func TestHandingOverBesideEverythingElse(t *testing.T) {
	for seed := range uint64(6) {
		handOverBesideEverything(t, seed, seed%3 == 1, seed%3 == 2)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func handOverBesideEverything(t *testing.T, seed uint64, failing, crashing bool) {
	const appenders, each = 3, 150
	rng := rand.New(rand.NewPCG(seed, 21))
	sim := newSim()
	var writes atomic.Int64
	failAt := int64(5 + rng.IntN(20))
	var broken atomic.Bool
	opts := testOptions(hookFS{sim, func(op, _ string) error {
		if op == "write" && broken.Load() && writes.Add(1) == failAt {
			return syscall.EIO
		}
		return nil
	}})
	gathered := make(chan struct{}, 1)
	opts.Sync, opts.SegmentSize = false, 1<<20
	opts.Gathered = func() {
		select {
		case gathered <- struct{}{}:
		default:
		}
	}
	opts.Memory = offheaptest.New(t)
	w, _ := mustOpen(t, opts, 0, &oracle{})
	broken.Store(failing)

	// accept reports whether an error is an expected one.
	accept := func(what string, err error) {
		if err != nil && !errors.Is(err, ErrClosed) && !(failing && errors.Is(err, ErrFailed)) {
			t.Errorf("seed %d: %s: %v", seed, what, err)
		}
	}
	var appending, others sync.WaitGroup
	var durable [appenders]atomic.Uint64 // positions that a Sync reported durable
	var appended [appenders]atomic.Uint64
	var syncing atomic.Pointer[vfs.Sim] // image of a power cut
	vouched := [appenders]uint64{}
	over := make(chan struct{})
	for a := range appenders {
		rng := rand.New(rand.NewPCG(seed, uint64(a)))
		appending.Go(func() {
			for position := uint64(1); position <= each; position++ {
				lsn, err := w.Append(uint32(a), position, testPayload(uint64(a)<<32|position, 8+rng.IntN(40_000)))
				accept("append", err)
				if err != nil {
					return
				}
				appended[a].Store(position)
				if rng.IntN(20) == 0 {
					err := w.Sync(lsn)
					accept("sync", err)
					if err == nil {
						durable[a].Store(position)
					}
				}
			}
		})
	}
	other := func(f func(*rand.Rand)) {
		rng := rand.New(rand.NewPCG(seed, rng.Uint64()))
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					f(rng)
					runtime.Gosched()
				}
			}
		})
	}
	for range 2 {
		other(func(*rand.Rand) {
			select {
			case <-gathered:
				accept("hand over", w.HandOver())
			default:
			}
		})
	}
	other(func(*rand.Rand) { accept("hand over", w.HandOver()) })
	other(func(rng *rand.Rand) {
		switch rng.IntN(400) {
		case 0:
			_, err := w.Rotate()
			accept("rotate", err)
		case 1:
			accept("flush", w.Flush())
		case 2:
			accept("prepare", w.PrepareNext())
		case 3:
			if crashing && syncing.Load() == nil && durable[0].Load() > 0 {
				for a := range vouched {
					vouched[a] = durable[a].Load()
				}
				syncing.Store(sim.Image(vfs.CrashLoseAll, seed))
			}
		}
	})
	if seed%2 == 0 {
		appending.Wait()
	} else {
		for appended[0].Load() < each/2 && !failing {
			runtime.Gosched()
		}
	}
	accept("close", w.Close())
	appending.Wait()
	close(over)
	others.Wait()
	if s := opts.Memory.Stats(); s.Allocations != 0 {
		t.Errorf("seed %d: %d bytes are left in %d allocations", seed, s.InUse, s.Allocations)
	}
	check := func(what string, sim *vfs.Sim, least func(a int) uint64) {
		opts := opts
		opts.FS = sim
		var last [appenders]uint64
		_, err := Recover(opts, 0, func(r Record) error {
			if r.Position != last[r.Stream]+1 {
				t.Errorf("seed %d, %s: stream %d: %d follows %d", seed, what, r.Stream, r.Position, last[r.Stream])
			}
			last[r.Stream] = r.Position
			if string(r.Payload) != string(testPayload(uint64(r.Stream)<<32|r.Position, len(r.Payload))) {
				t.Errorf("seed %d, %s: stream %d: record %d has another content", seed, what, r.Stream, r.Position)
			}
			return nil
		})
		if err != nil {
			t.Errorf("seed %d, %s: %v", seed, what, err)
		}
		for a, n := range last {
			if n < least(a) {
				t.Errorf("seed %d, %s: stream %d ends at %d, %d were acknowledged", seed, what, a, n, least(a))
			}
		}
	}
	check("at the end", sim, func(a int) uint64 {
		if failing {
			return durable[a].Load()
		}
		return appended[a].Load()
	})
	check("power cut at the end", sim.Image(vfs.CrashLoseAll, seed), func(a int) uint64 {
		if failing {
			return durable[a].Load()
		}
		return appended[a].Load()
	})
	if image := syncing.Load(); image != nil {
		check("power cut", image, func(a int) uint64 { return vouched[a] })
	}
}
