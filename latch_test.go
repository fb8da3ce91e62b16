package flagstone

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestALatchIsNotWaitedForBeyondTheContext(t *testing.T) {
	var l latches
	held, err := l.lockAll(context.Background(), []uint32{7, 3, 7})
	if err != nil || len(held) != 2 {
		t.Fatalf("locked %v: %v", held, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, lock := range map[string]func() error{
		"one":        func() error { return l.stripes[7].lock(ended) },
		"several":    func() error { _, err := l.lockAll(ended, []uint32{1, 7}); return err },
		"each a bit": func() error { return l.pass(ended) },
	} {
		if err := lock(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.unlockAll(held)
	// What could not be locked as a whole was let go of in part.
	if err := l.pass(ended); err != nil {
		t.Errorf("each, once free: %v", err)
	}
}

func TestALatchExcludesAndWakesWhoeverWaits(t *testing.T) {
	var l latch
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
				if err := l.lock(ctx); err != nil {
					t.Error(err)
					return
				}
				total++
				l.unlock()
			}
		})
	}
	// Callers that give up meanwhile take no wake-up from others.
	for range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if l.lock(ctx) == nil {
				l.unlock()
			}
		})
		cancel()
	}
	all.Wait()
	if total != 8*rounds {
		t.Errorf("%d of %d", total, 8*rounds)
	}
}
