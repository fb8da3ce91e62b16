package ots

import (
	"sync/atomic"
	"testing"
)

func TestWorkIsDoneOnceEachAndItsPanicsAreTheCallers(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4, 8, 31, 200} {
		done := make([]atomic.Int32, n)
		inParallel(n, false, func() func(int) { return func(i int) { done[i].Add(1) } })
		for i := range done {
			if done[i].Load() != 1 {
				t.Errorf("item %d of %d was done %d times", i, n, done[i].Load())
			}
		}
		caught := func() (p any) {
			defer func() { p = recover() }()
			inParallel(n, false, func() func(int) {
				return func(i int) {
					if i == n-1 {
						panic("broken")
					}
				}
			})
			return nil
		}()
		if (caught != nil) != (n > 0) {
			t.Errorf("%d items: caught %v", n, caught)
		}
	}
}
