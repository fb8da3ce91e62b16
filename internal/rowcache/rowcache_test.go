package rowcache_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/row"
)

// newCache makes a cache that must free everything in the end, and take as much as it reported
// and at most its capacity and an eighth.
func newCache(t testing.TB, capacity int64) *rowcache.Cache {
	memory := offheaptest.New(t)
	var reserved int64
	c := rowcache.New(capacity, memory, func(bytes int64) { reserved += bytes })
	t.Cleanup(func() {
		if took := c.Stats().Bytes; took != reserved || took > capacity+capacity/8 {
			t.Errorf("a cache of %d bytes took %d and reserved %d", capacity, took, reserved)
		}
		c.Close()
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

var everything = rowcache.Wanted{MaxVersion: row.MaxVersion}

var moment = rowcache.Moment{State: 3, Newest: 20, Seq: 25, MaxVersions: 2, Oldest: 1000}

func cellsOf(columns, versions int, value string) (cells []row.Cell) {
	for i := range columns {
		for v := range versions {
			cells = append(cells, row.Cell{
				Column: fmt.Appendf(nil, "column%d", i), Version: int64(9000 - v*1000), Seq: uint64(20 - v),
				Kind: row.KindPut, Type: row.TypeBinary, Separate: i == 1, Packed: i == 2, Value: fmt.Appendf(nil, "%s-%d-%d", value, i, v),
			})
		}
	}
	return cells
}

func equal(a, b []row.Cell) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if row.CompareCells(x, y) != 0 || !bytes.Equal(x.Value, y.Value) || x.Type != y.Type || x.Separate != y.Separate || x.Packed != y.Packed {
			return false
		}
	}
	return true
}

// offer puts a row so often that the cache keeps it.
func offer(c *rowcache.Cache, hash uint64, key []byte, cells []row.Cell) {
	for range rowcache.Offers {
		c.Put(hash, key, &moment, cells, false)
	}
}

func TestARowIsKeptWhenItIsOfferedAgainAndAgain(t *testing.T) {
	c := newCache(t, 1<<20)
	key, cells := []byte("key"), cellsOf(3, 2, "value")
	var got row.Collector
	for n, want := range []bool{false, false, false, false, true, true} {
		if got.Reset(); c.Get(7<<40, key, &moment, &everything, &got) != want {
			t.Fatalf("after %d Puts: found is %v", n, !want)
		}
		c.Put(7<<40, key, &moment, cells, false)
	}
	if !equal(got.Cells, cells) {
		t.Errorf("got %v, want %v", got.Cells, cells)
	}
	if got.Reset(); c.Get(7<<40, []byte("kez"), &moment, &everything, &got) || len(got.Cells) > 0 {
		t.Error("another key of the same hash finds the row")
	}
}

func TestARowIsFoundOnlyWhileNothingHasChanged(t *testing.T) {
	c := newCache(t, 1<<20)
	key, cells := []byte("key"), cellsOf(3, 2, "value") // the oldest version is 8000
	offer(c, 1, key, cells)
	for _, test := range []struct {
		what   string
		change func(at *rowcache.Moment)
		want   bool
	}{
		{"the same", func(at *rowcache.Moment) {}, true},
		{"other runs", func(at *rowcache.Moment) { at.State = 4 }, false},
		{"a newer mutation", func(at *rowcache.Moment) { at.Newest = 21 }, false},
		{"no mutation in memtables", func(at *rowcache.Moment) { at.Newest = 0 }, false},
		{"a later view", func(at *rowcache.Moment) { at.Seq = 26 }, true},
		{"an earlier view", func(at *rowcache.Moment) { at.Seq = 24 }, false},
		{"more versions", func(at *rowcache.Moment) { at.MaxVersions = 3 }, false},
		{"fewer versions", func(at *rowcache.Moment) { at.MaxVersions = 1 }, false},
		{"an earlier clock", func(at *rowcache.Moment) { at.Oldest = 999 }, false},
		{"a later clock", func(at *rowcache.Moment) { at.Oldest = 8000 }, true},
		{"a cell has expired", func(at *rowcache.Moment) { at.Oldest = 8001 }, false},
	} {
		at := moment
		test.change(&at)
		var got row.Collector
		if found := c.Get(1, key, &at, &everything, &got); found != test.want {
			t.Errorf("%s: found is %v", test.what, found)
		}
	}
}

// selected applies a Wanted cell by cell.
func selected(cells []row.Cell, w *rowcache.Wanted) (out []row.Cell) {
	n := 0
	for i, c := range cells {
		if i == 0 || !bytes.Equal(c.Column, cells[i-1].Column) {
			n = 0
		}
		if w.NoCells || !w.Wants(c.Column) || c.Version < w.MinVersion || c.Version > w.MaxVersion {
			continue
		}
		if n++; w.Versions == 0 || n <= w.Versions {
			out = append(out, c)
		}
	}
	return out
}

func TestSelections(t *testing.T) {
	c := newCache(t, 1<<20)
	key, cells := []byte("key"), cellsOf(5, 3, "value")
	offer(c, 1, key, cells)
	rng := rand.New(rand.NewPCG(1, 2))
	name := func() []byte { return fmt.Appendf(nil, "column%d", rng.IntN(6)) }
	for range 2000 {
		w := everything
		if rng.IntN(2) == 0 {
			w.Columns = [][]byte{name(), name()}
		}
		if rng.IntN(3) == 0 {
			w.Start = name()
		}
		if rng.IntN(3) == 0 {
			w.End = name()
		}
		if rng.IntN(2) == 0 {
			w.Versions = 1 + rng.IntN(3)
		}
		if rng.IntN(3) == 0 {
			w.MinVersion = 6500 + rng.Int64N(3000)
		}
		if rng.IntN(3) == 0 {
			w.MaxVersion = 6500 + rng.Int64N(3000)
		}
		w.NoCells = rng.IntN(10) == 0
		var got row.Collector
		if !c.Get(1, key, &moment, &w, &got) {
			t.Fatal("the row is not there")
		}
		if want := selected(cells, &w); !equal(got.Cells, want) {
			t.Fatalf("%+v: got %v, want %v", w, got.Cells, want)
		}
	}
}

// TestRowsComeAndGo puts and gets rows of all sizes in caches of all sizes: each Get finds the
// last Put.
func TestRowsComeAndGo(t *testing.T) {
	for _, capacity := range []int64{0, 1, 300, 512, 2 << 10, 10 << 10, 100 << 10, 1 << 20} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			c := newCache(t, capacity)
			rng := rand.New(rand.NewPCG(uint64(capacity), 3))
			last, moments := map[uint64][]row.Cell{}, map[uint64]rowcache.Moment{}
			found := 0
			for n := range 30_000 {
				i := uint64(rng.ExpFloat64() * 30)
				hash := i * 0x9E3779B97F4A7C15 >> uint(i%3*20) // some begin with zeros
				key := binary.BigEndian.AppendUint64(nil, i)
				var got row.Collector
				at := moments[i]
				was := c.Get(hash, key, &at, &everything, &got)
				if was {
					found++
					if !equal(got.Cells, last[i]) {
						t.Fatalf("operation %d, row %d: got %v, want %v", n, i, got.Cells, last[i])
					}
				}
				if rng.IntN(3) == 0 {
					cells := cellsOf(1+rng.IntN(4), 1+rng.IntN(2), fmt.Sprint(n))
					large := rng.IntN(20) == 0
					if large {
						cells[0].Value = make([]byte, rng.IntN(20<<10))
					}
					at = moment
					at.Newest = uint64(n + 1)
					c.Put(hash, key, &at, cells, false)
					var now row.Collector
					if !c.Get(hash, key, &at, &everything, &now) {
						if was && !large && capacity >= 10<<10 {
							t.Fatalf("operation %d, row %d: a row that has changed is not put in place of what it was", n, i)
						}
						continue
					}
					if last[i], moments[i] = cells, at; !equal(now.Cells, cells) {
						t.Fatalf("operation %d, row %d: got %v, want %v", n, i, now.Cells, cells)
					}
				}
			}
			if enough := capacity >= 2<<10; enough && found < 1000 || capacity < 300 && found > 0 {
				t.Errorf("found %d rows", found)
			}
		})
	}
}

// reader reads rows of a partition: those that the cache does not have it finds elsewhere and offers.
type reader struct {
	c             *rowcache.Cache
	at            rowcache.Moment
	cells         []row.Cell
	merged        bool
	lookups, hits int
}

func (r *reader) get(n uint64) {
	hash, key := n*0x9E3779B97F4A7C15, binary.BigEndian.AppendUint64(nil, n)
	if !r.c.Pays(hash, &r.at) {
		return
	}
	r.lookups++
	if r.c.Get(hash, key, &r.at, &everything, new(row.Collector)) {
		r.hits++
		return
	}
	r.c.Put(hash, key, &r.at, r.cells, r.merged)
}

// TestLookupsThatFindNothingEnd: readers of rows that are not there give up, but for one in some sixty, and
// look rows up again when they find them. Another partition, and rows of which memtables have something, do not matter.
func TestLookupsThatFindNothingEnd(t *testing.T) {
	c := newCache(t, 1<<20)
	r := &reader{c: c, at: rowcache.Moment{Tree: 1, State: 1, Seq: 25}, cells: cellsOf(3, 1, "value")}
	const many = 100_000
	for n := range uint64(many) {
		r.get(n)
	}
	if r.lookups < many/200 || r.lookups > many/20 {
		t.Errorf("%d of %d gets of different rows looked them up", r.lookups, many)
	}
	for what, at := range map[string]rowcache.Moment{
		"another partition": {Tree: 9, State: 2, Seq: 25}, "rows of memtables": {Tree: 1, State: 1, Seq: 25, Newest: 7},
	} {
		if !c.Pays(1, &at) {
			t.Errorf("lookups of %s ended with those of the rows that are not there", what)
		}
	}
	for _, hot := range []uint64{1, 100} {
		r.hits = 0
		for n := range uint64(many) {
			r.get(n % hot)
		}
		if r.hits < many/2 {
			t.Errorf("%d of %d gets of %d rows found them", r.hits, many, hot)
		}
		for n := range uint64(many) {
			r.get(n)
		}
	}
}

// TestAFewMergedRowsPayForTheLookupsOfOthers: one get in twenty is of a few rows that had to be put together.
func TestAFewMergedRowsPayForTheLookupsOfOthers(t *testing.T) {
	at := rowcache.Moment{Tree: 1, State: 1, Seq: 25}
	c := newCache(t, 1<<20)
	cold := &reader{c: c, at: at, cells: cellsOf(3, 1, "value")}
	hot := &reader{c: c, at: at, cells: cellsOf(3, 1, "value"), merged: true}
	const many = 400_000
	for n := range uint64(many) {
		if n%20 == 0 {
			hot.get(n / 20 % 50)
		} else {
			cold.get(1000 + n)
		}
	}
	if hot.hits < many/20/2 {
		t.Errorf("%d of %d gets of fifty rows found them", hot.hits, many/20)
	}
}

// TestARowThatIsThereIsNotWrittenAgain: a reader that met another one in the cache, and so read the row elsewhere.
func TestARowThatIsThereIsNotWrittenAgain(t *testing.T) {
	c := newCache(t, 64<<10)
	cells := cellsOf(10, 1, string(make([]byte, 100)))
	for n := range uint64(10) {
		offer(c, n<<40|n, []byte{byte(n)}, cells)
	}
	for range 1000 {
		c.Put(3<<40|3, []byte{3}, &moment, cells, false)
	}
	for n := range uint64(10) {
		if !c.Get(n<<40|n, []byte{byte(n)}, &moment, &everything, new(row.Collector)) {
			t.Errorf("row %d is gone", n)
		}
	}
}

// TestRowsInUseStay reads some rows again and again beside a stream of rows that are read once.
func TestRowsInUseStay(t *testing.T) {
	c := newCache(t, 100<<10)
	cells := cellsOf(10, 1, string(make([]byte, 100)))
	key := func(i uint64) (uint64, []byte) {
		return (i + 1) * 0x9E3779B97F4A7C15, binary.BigEndian.AppendUint64(nil, i)
	}
	missed := 0
	for i := range uint64(10_000) {
		h, k := key(i % 4)
		if !c.Get(h, k, &moment, &everything, new(row.Collector)) {
			missed++
			c.Put(h, k, &moment, cells, false)
		}
		h, k = key(4 + i)
		offer(c, h, k, cells)
	}
	if missed > 100 {
		t.Errorf("rows in use were missed %d times of 10,000", missed)
	}
}

func TestManyReaders(t *testing.T) {
	c := newCache(t, 8<<10)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 4))
			var got row.Collector
			for range 5000 {
				i := rng.Uint64N(20)
				key := binary.BigEndian.AppendUint64(nil, i)
				want := cellsOf(int(1+i%5), 1, fmt.Sprint(i))
				if got.Reset(); !c.Get(i<<40|i, key, &moment, &everything, &got) {
					c.Put(i<<40|i, key, &moment, want, false)
				} else if !equal(got.Cells, want) {
					t.Errorf("row %d: got %v, want %v", i, got.Cells, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if c.Stats().Hits == 0 {
		t.Error("nothing was found")
	}
}

// TestReadersMayOutlastTheCache: a store that is closed does not wait for its readers.
func TestReadersMayOutlastTheCache(t *testing.T) {
	memory := offheaptest.New(t)
	c := rowcache.New(1<<20, memory, func(int64) {})
	key, cells := []byte("key"), cellsOf(3, 2, "value")
	put := func() { offer(c, 7<<40, key, cells) }
	put()
	var readers sync.WaitGroup
	var begun sync.WaitGroup
	var ended atomic.Bool
	for range 2 {
		begun.Add(1)
		readers.Go(func() {
			var got row.Collector
			for !c.Get(7<<40, key, &moment, &everything, &got) { // the other one may be there just now
				runtime.Gosched()
			}
			begun.Done()
			for !ended.Load() {
				got.Reset()
				if c.Get(7<<40, key, &moment, &everything, &got) && !equal(got.Cells, cells) {
					t.Errorf("got %v, want %v", got.Cells, cells)
				}
			}
			put()
			if got.Reset(); c.Get(7<<40, key, &moment, &everything, &got) {
				t.Error("a cache that is closed has a row")
			}
		})
	}
	begun.Wait()
	c.Close()
	ended.Store(true)
	readers.Wait()
	if err := memory.Close(); err != nil {
		t.Error(err)
	}
}
