package cache

import (
	"testing"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

func TestTheLinesOfABufferAreTold(t *testing.T) {
	memory := make([]byte, 4096)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) & (cacheLine - 1))
	line := memory[skip:]
	first := uintptr(unsafe.Pointer(unsafe.SliceData(line)))
	for _, test := range []struct{ from, to, lines int }{
		{0, 0, 0}, {0, 1, 1}, {0, 64, 1}, {0, 65, 2}, {63, 64, 1}, {63, 65, 2}, {1, 700, 11}, {0, 3000, aheadLines},
	} {
		if got := linesOf(line[test.from:test.to]); got != first|uintptr(test.lines) {
			t.Errorf("bytes %d to %d of a line: %#x, want %#x and %d lines", test.from, test.to, got, first, test.lines)
		}
	}
}

// TestMemoryThatIsGoneMayBeAskedFor: an evicted block's buffer may even be unmapped.
func TestMemoryThatIsGoneMayBeAskedFor(t *testing.T) {
	pool := offheaptest.New(t)
	buffer := pool.Alloc(700)
	lines := linesOf(buffer)
	pool.Free(buffer)
	prefetchLines(lines)
	prefetchLines(linesOf(nil))
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestASlotSaysWhereTheBufferOfItsBlockLies: the next Get prefetches what the slot says.
func TestASlotSaysWhereTheBufferOfItsBlockLies(t *testing.T) {
	c := New[[]byte](Options{Capacity: 1 << 20})
	f := c.OpenFile(2)
	for range 2 {
		b, err := f.Get(1, (*buffered)(f))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.slots[1].ahead.Load(); got != linesOf(b.buffer) || got == 0 {
			t.Errorf("%#x, want %#x", got, linesOf(b.buffer))
		}
		f.Release(b)
		f.Evict(1)
	}
	f.Close()
	c.Close()
}

type buffered File[[]byte]

func (f *buffered) FillBlock(b *Block[[]byte]) error {
	b.Value = (*File[[]byte])(f).Allocate(b, 100)
	return nil
}
