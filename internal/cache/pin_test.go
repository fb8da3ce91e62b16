package cache

import (
	"runtime"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

// word fills blocks of eight bytes.
type word struct{ file *File[[0]byte] }

func (w word) FillBlock(b *Block[[0]byte]) error {
	w.file.Allocate(b, 8)
	return nil
}

// TestAPinThatComesTooLateDoesNotCount evicts a block after a reader has loaded its slot and
// before the reader pins the block, which is then free or another slot's.
func TestAPinThatComesTooLateDoesNotCount(t *testing.T) {
	memory := offheaptest.New(t)
	c := New[[0]byte](Options{Capacity: 1 << 20, Memory: memory})
	f := c.OpenFile(2)
	take := func(i int) *Block[[0]byte] {
		b, err := f.Get(i, word{f})
		if err != nil {
			t.Fatal(err)
		}
		f.Release(b)
		return b
	}
	seen := take(0)
	f.Evict(0)
	if f.slots[0].pin(seen, pin) {
		t.Fatal("the pin of an evicted block counts")
	}
	f.tooLate(seen)
	if other := take(1); other != seen {
		t.Fatal("the block was not used again")
	}
	if f.slots[0].pin(seen, pin) {
		t.Fatal("the pin of what is another block by now counts")
	}
	f.tooLate(seen)
	f.Close()
	c.Close()
	if err := memory.Close(); err != nil {
		t.Error(err)
	}
}

// TestAFileIsClosedWhilePartsLeave closes a file at the moment at which the clock takes the parts of
// its block away: the slot is empty then, and will not be. With a block that Close overlooks, the
// cache would later write where the slots of the file lay.
func TestAFileIsClosedWhilePartsLeave(t *testing.T) {
	c := New[[0]byte](Options{Capacity: 1 << 20})
	f := c.OpenFile(1)
	b, err := f.Get(0, word{f})
	if err != nil {
		t.Fatal(err)
	}
	f.Release(b)
	s, at := f.shard(0), b.slot
	s.mu.Lock()
	at.block.Store(nil)
	closed := make(chan struct{})
	go func() {
		f.Close()
		close(closed)
	}()
	for range 1000 {
		runtime.Gosched() // to Close, until that waits for the shard
	}
	select {
	case <-closed:
		t.Error("the file is closed, its block is not evicted")
	default:
		at.block.Store(b)
	}
	s.mu.Unlock()
	<-closed
	if n := c.Stats().Blocks; n != 0 {
		t.Errorf("%d blocks without a file", n)
	}
	c.Close()
}
