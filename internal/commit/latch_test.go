package commit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestALatchIsNotWaitedForBeyondTheContext(t *testing.T) {
	var l Latches
	held, err := l.LockAll(context.Background(), []uint32{7, 3, 7})
	if err != nil || len(held) != 2 {
		t.Fatalf("locked %v: %v", held, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, lock := range map[string]func() error{
		"one":        func() error { return l.stripes[7].Lock(ended) },
		"several":    func() error { _, err := l.LockAll(ended, []uint32{1, 7}); return err },
		"each a bit": func() error { return l.Pass(ended) },
	} {
		if err := lock(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.UnlockAll(held)
	// A LockAll that failed has unlocked what it had locked.
	if err := l.Pass(ended); err != nil {
		t.Errorf("each, once free: %v", err)
	}
}

func TestALatchExcludesAndWakesWhoeverWaits(t *testing.T) {
	var l Latch
	var total int // guarded by the latch
	var all sync.WaitGroup
	const rounds = 2000
	for i := range 8 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if i%3 == 0 {
			ctx = context.Background()
		}
		all.Go(func() {
			for range rounds {
				if err := l.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				total++
				l.Unlock()
			}
		})
	}
	// Callers that give up meanwhile take no wake-up from others.
	for range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if l.Lock(ctx) == nil {
				l.Unlock()
			}
		})
		cancel()
	}
	all.Wait()
	if total != 8*rounds {
		t.Errorf("%d of %d", total, 8*rounds)
	}
}

// TestPassingLatchesWaitsForTheirHolders calls Pass while others take the latch in turn: each
// caller that held it at the call has unlocked it when Pass returns.
func TestPassingLatchesWaitsForTheirHolders(t *testing.T) {
	var l Latches
	const rounds = 5000
	var began, ended [4]atomic.Uint64 // of each holder, how often it held the latch
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range began {
		all.Go(func() {
			for !stop.Load() {
				if err := l.stripes[5].Lock(context.Background()); err != nil {
					t.Error(err)
					return
				}
				began[i].Add(1)
				runtime.Gosched()
				ended[i].Add(1)
				l.stripes[5].Unlock()
			}
		})
	}
	for range rounds {
		var held [len(began)]uint64
		for i := range began {
			held[i] = began[i].Load()
		}
		if err := l.Pass(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range ended {
			if n := ended[i].Load(); n < held[i] {
				t.Fatalf("holder %d had the latch %d times when pass was called, and let go %d times when it returned", i, held[i], n)
			}
		}
	}
	stop.Store(true)
	all.Wait()
}

// TestPassingWaitsForPresentHoldersOnly has every latch held, and taken by a second
// holder as soon as the first has let go: nothing waits for the second ones.
func TestPassingWaitsForPresentHoldersOnly(t *testing.T) {
	var l Latches
	var all []uint32
	for i := range uint32(Stripes) {
		all = append(all, i)
	}
	if _, err := l.LockAll(context.Background(), all); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error)
	go func() { passed <- l.Pass(context.Background()) }()
	for _, i := range all {
		for l.stripes[i].waiting.Load() == 0 {
			runtime.Gosched()
		}
	}
	for _, i := range all {
		l.stripes[i].Unlock()
		if err := l.stripes[i].Lock(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
	l.UnlockAll(all)
	for i := range l.stripes {
		if n := l.stripes[i].waiting.Load(); n != 0 {
			t.Fatalf("%d callers are counted as waiting for latch %d", n, i)
		}
	}
}
