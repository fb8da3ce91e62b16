//go:build unix

package offheaptest

import (
	"runtime/debug"
	"testing"
)

// TestGuardedMemoryIsNotUsedAgainSoon touches freed memory after the same size was allocated
// many times.
func TestGuardedMemoryIsNotUsedAgainSoon(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	p := New(t)
	for _, n := range []int{1, 100, 9000, 1 << 20} {
		b := p.Alloc(n)
		if b[0] != garbage || b[n-1] != garbage {
			t.Errorf("%d bytes begin with %#x and end with %#x", n, b[0], b[n-1])
		}
		b[0] = 1
		if Freed(b) {
			t.Errorf("%d bytes in use count as freed", n)
		}
		p.Free(b)
		if !Freed(b) {
			t.Errorf("%d freed bytes count as in use", n)
		}
		var later [][]byte
		for range 50 {
			later = append(later, p.Alloc(n))
		}
		var read byte
		mustPanic(t, "a read after Free", func() { read += b[0] })
		mustPanic(t, "a write after Free", func() { b[n-1] = 1 })
		for _, b := range later {
			p.Free(b)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
