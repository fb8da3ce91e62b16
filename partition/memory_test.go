package partition

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// TestFlushedMemtablesAreNotKeptAlive: a flush must free its memtables at once, not at the next
// rotation.
func TestFlushedMemtablesAreNotKeptAlive(t *testing.T) {
	v := newVersion(nil, &manifest.Partition{})
	env := &Env{Random: counter()}
	flushed := env.newMemory(1)
	gone := weak.Make(flushed)
	old := newState([]*memory{flushed, env.newMemory(2)}, v)
	next := newState(slices.Clone(old.memories[1:]), v)
	old, flushed = nil, nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the memory is still reachable")
	}
	runtime.KeepAlive(next)
}

// TestBytesNotNeededAreGivenBackOnce applies mutations while their memtable is rotated out: the
// flush frees what Rotate moved, less what Apply gave back of it.
func TestBytesNotNeededAreGivenBackOnce(t *testing.T) {
	r := newRig(t)
	for round := range 50 {
		var moved, waiting, spare atomic.Int64
		var wg sync.WaitGroup
		const writers, size = 8, 1000
		for i := range writers {
			c := new(row.Change)
			must(t, c.Set(&row.Mutation{Table: testTable, Key: key("a", round*writers+i), Cells: []row.Cell{putCell("c", 1, "v")}}))
			r.seq++
			slot, seq := r.tree.Reserve(size, 1, 1), r.seq
			wg.Go(func() {
				unused, rotated := slot.Apply(seq, c)
				spare.Add(unused)
				waiting.Add(rotated)
				slot.Done()
			})
		}
		moved.Store(r.tree.Rotate(r.seq + 1))
		wg.Wait()
		freed, err := r.tree.Flush(row.MaxSequence, settled)
		must(t, err)
		if freed != writers*size-spare.Load() || freed != moved.Load()-waiting.Load() {
			t.Fatalf("moved %d, of which %d given back, %d in all; freed %d", moved.Load(), waiting.Load(), spare.Load(), freed)
		}
	}
}
