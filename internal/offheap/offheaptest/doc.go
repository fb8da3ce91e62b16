// Package offheaptest offers pools that find the mistakes of their users: memory that is used after
// it was freed, or beyond its end.
package offheaptest

import (
	"runtime/debug"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap"
)

// New returns a pool that maps every allocation on its own, ending at an inaccessible page. The
// memory is filled with garbage. Freed memory becomes inaccessible, and its addresses are not
// reused until quarantine others were freed. So a use after Free, or beyond the end, is a fault.
// Where memory cannot be protected, freed memory is filled with garbage again, and a write to it
// panics later. The end of the test unmaps what was freed.
func New(t testing.TB) *offheap.Pool {
	s := newSource()
	t.Cleanup(s.close)
	return offheap.New(offheap.Options{Source: s})
}

// quarantine is how many freed allocations a pool keeps. The kernel bounds the mappings of a
// process (65,530 on Linux).
const quarantine = 1 << 10

// Freed reports whether memory of such a pool was freed. Content that is all garbage counts as freed.
func Freed(b []byte) (freed bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { freed = recover() != nil || freed }()
	return firstOther(b) == len(b)
}

const garbage = 0xDB

// firstOther returns the index of the first byte that is not garbage.
func firstOther(b []byte) int {
	for i, x := range b {
		if x != garbage {
			return i
		}
	}
	return len(b)
}

func fill(b []byte) {
	for i := range b {
		b[i] = garbage
	}
}
