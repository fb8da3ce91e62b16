package sstable

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestAChunkIsAskedForAtItsFirstMissAndNotSoonAgain(t *testing.T) {
	var a missPrefetch
	a.missed(0, 1) // requests nothing
	var asked []string
	a.open(2*chunkBytes+100, func(offset, n int64) { asked = append(asked, fmt.Sprint(offset, n)) })
	want := func(what ...string) {
		t.Helper()
		if fmt.Sprint(asked) != fmt.Sprint(what) {
			t.Errorf("asked for %v, want %v", asked, what)
		}
		asked = nil
	}
	a.missed(5000, 0)
	want(fmt.Sprint(0, chunkBytes))
	a.missed(0, 1)
	a.missed(chunkBytes-1, askAgain-1)
	want()
	a.missed(2*chunkBytes+99, 7)
	want(fmt.Sprint(2*chunkBytes, 100))
	a.missed(3*chunkBytes, 7) // after the data
	want()
	a.missed(1, askAgain)
	want(fmt.Sprint(0, chunkBytes))
	a.missed(1, askAgain+1)
	want()
}

// Of many chunks a share is asked for, a few at a time, the same ones each time, and other ones of each file.
func TestChunksAreAskedForAsFarAsThePageCacheKeepsThem(t *testing.T) {
	const chunks = 1000
	ask := func(seed uint64, keep uint32, times int) (asked []int64) {
		a := missPrefetch{}
		a.open(chunks*chunkBytes, func(offset, n int64) { asked = append(asked, offset/chunkBytes) })
		a.keep, a.seed = new(atomic.Uint32), seed
		a.keep.Store(keep)
		for i := range chunks {
			for range times {
				a.missed(int64(i)*chunkBytes, time.Duration(i))
			}
		}
		return asked
	}
	for _, c := range []struct {
		keep  uint32
		times int // that each chunk is missed
		want  int
	}{
		{0, askRarely, 0},
		{KeepAll / 4, 1, chunks / 4 / (1 + askRarely*3/4)},
		{KeepAll / 4, 1 + askRarely*3/4, chunks / 4},
		{KeepAll / 4, 10 * askRarely, chunks / 4},
		{KeepAll - KeepAll/8, 1, chunks * 7 / 8 / (1 + askRarely/8)},
		{KeepAll, 1, chunks},
	} {
		asked := ask(12345, c.keep, c.times)
		if n := len(asked); n < c.want-c.want/50 || n > c.want+c.want/50 {
			t.Errorf("%+v: asked for %d chunks of %d", c, n, chunks)
		}
		if again := ask(12345, c.keep, c.times); !slices.Equal(again, asked) {
			t.Errorf("%+v: asked for other chunks the second time", c)
		}
		if c.want == chunks/4 && slices.Equal(ask(99999, c.keep, c.times), asked) {
			t.Error("another file asks for the same chunks")
		}
	}
}

// slowReads is a file that moves a clock when it is read.
type slowReads struct {
	vfs.File
	now  *time.Duration
	took time.Duration

	willNeed func(offset, n int64)
}

func (f *slowReads) WillNeed(offset, n int64) { f.willNeed(offset, n) }

func (f *slowReads) ReadAt(p []byte, off int64) (int, error) {
	*f.now += f.took
	return f.File.ReadAt(p, off)
}

func (f *slowReads) Map(size int64) (*vfs.Mapping, error) { return f.File.Map(size) }

// Gets that wait for the device request what lies around, each chunk once. Gets that do not
// wait, scans and compactions request nothing.
func TestGetsThatMissThePageCacheAskForWhatLiesAround(t *testing.T) {
	model := sortedBenchTable(4_000)
	file := &memFile{}
	model.write(t, file, WriterOptions{Compression: CompressNone})
	for _, c := range []struct {
		name string
		took time.Duration
		opts IterOptions
		scan bool
		call bool // the file is not mapped
		keep uint32
		asks bool
	}{
		{name: "cold gets", took: 100 * time.Microsecond, asks: true},
		{name: "cold gets by calls", took: 100 * time.Microsecond, call: true, keep: KeepAll, asks: true},
		{name: "cold gets that the page cache cannot keep", took: 100 * time.Microsecond, call: true},
		{name: "warm gets by calls", took: time.Microsecond, call: true},
		{name: "warm gets", took: time.Microsecond},
		{name: "gets of a merge", took: 100 * time.Microsecond, opts: IterOptions{NoCacheFill: true}},
		{name: "cold scan", took: 100 * time.Microsecond, scan: true},
	} {
		now := time.Duration(1)
		slow := &slowReads{File: file, now: &now}
		asked := map[int64]int{}
		slow.willNeed = func(offset, _ int64) { asked[offset]++ }
		keep := new(atomic.Uint32)
		keep.Store(c.keep)
		r, err := Open(slow, ReaderOptions{
			Keep:   keep,
			Mapped: !c.call, Elapsed: func() time.Duration { return now },
			Cache: NewBlockCache(cache.Options{Capacity: 64 << 10}),
		})
		if err != nil {
			t.Fatal(err)
		}
		slow.took = c.took
		r.residency.misses.Store(missStreak)
		if !c.call {
			r.prefetch.open(r.footer.dataLength, slow.willNeed) // what a mapping asks for cannot be seen
			r.prefetch.keep = nil
		}
		it := r.NewIterator(c.opts)
		if c.scan {
			it.SeekRowExact(model[1].key)
			clear(asked) // the request for its first block
			for range 3_000 {
				it.NextRow()
			}
			delete(asked, 0)
		}
		for i := 0; i < len(model) && !c.scan; i += 7 {
			r.residency.misses.Store(missStreak)
			if !it.SeekRowExact(model[i*1009%len(model)].key) {
				t.Fatal(it.Error())
			}
		}
		if it.Error() != nil {
			t.Fatal(it.Error())
		}
		it.Close()
		chunks := int((r.footer.dataLength + chunkBytes - 1) / chunkBytes)
		if chunks < 3 {
			t.Fatalf("%d chunks", chunks)
		}
		for offset, times := range asked {
			if times != 1 {
				t.Errorf("%s: %d requests for the chunk at %d", c.name, times, offset)
			}
		}
		if c.asks && len(asked) != chunks || !c.asks && len(asked) != 0 {
			t.Errorf("%s: asked for %d of %d chunks", c.name, len(asked), chunks)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestColdFilesAreReadByCallsAndWarmOnesThroughTheMapping(t *testing.T) {
	now := time.Duration(1)
	w := residency{elapsed: func() time.Duration { return now }}
	access := func(took time.Duration) {
		began := w.begin(0)
		now += took
		w.end(began, 5000)
	}
	access(10 * time.Microsecond)
	if !w.resident() {
		t.Fatal("cold after a fast access")
	}
	if w.begin(1<<12) != 0 {
		t.Fatal("every access is measured")
	}
	access(100 * time.Microsecond)
	for i := range missStreak {
		if w.resident() {
			t.Fatalf("warm after %d fast accesses", i)
		}
		access(3 * time.Microsecond)
	}
	if !w.resident() {
		t.Fatal("cold for ever")
	}
	access(100 * time.Microsecond)
	for range 3 * missStreak {
		access(100 * time.Microsecond)
		if w.resident() {
			t.Fatal("warm though nothing is")
		}
	}
	if w.begin(1<<12) == 0 {
		t.Fatal("not every access is measured while the file is cold")
	}
}
