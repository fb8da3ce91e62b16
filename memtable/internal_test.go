package memtable

// White-box tests: how much work a search does, and how the arena hands out memory.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/row"
)

const hotUpdates = 100_000

// ChangeOf encodes a mutation.
func ChangeOf(m *row.Mutation) *row.Change {
	c := new(row.Change)
	if err := c.Set(m); err != nil {
		panic(err)
	}
	return c
}

// A skiplist that keeps a quarter per level compares 4 cells per level, with 8.3 levels for
// 100,000 cells; the bounds leave room for bad luck.
const (
	meanComparisons = 45
	mostComparisons = 150
)

func TestARowUpdated100000TimesIsReadInLogarithmicTime(t *testing.T) {
	column := []byte("hot")
	shapes := []struct {
		name string
		cell func(i int) row.Cell
	}{
		{"one column, rising versions", func(i int) row.Cell { return row.Cell{Column: column, Version: int64(i), Kind: row.KindPut} }},
		{"one column, falling versions", func(i int) row.Cell {
			return row.Cell{Column: column, Version: int64(hotUpdates - i), Kind: row.KindPut}
		}},
		{"one column, one version", func(i int) row.Cell { return row.Cell{Column: column, Kind: row.KindPut} }},
		{"delete-rows", func(i int) row.Cell { return row.Cell{Version: row.MaxVersion, Kind: row.KindDeleteRow} }},
		{"many columns", func(i int) row.Cell {
			return row.Cell{Column: fmt.Appendf(nil, "%d", mix64(uint64(i))), Version: 1, Kind: row.KindPut}
		}},
	}
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			m := New(Options{Seed: 42})
			m.Apply(1, ChangeOf(&row.Mutation{Key: []byte("k"), PutRow: true}))
			_, n := m.findRow(m.hash.of([]byte("k")), []byte("k"))
			total, worst := 0, 0
			for i := range hotUpdates {
				var w indexWriter
				w.init(m, n, 1)
				c := shape.cell(i)
				c.Seq = uint64(i + 2)
				w.random, w.inserted = m.seed^mix64(c.Seq), 0
				w.insert(&c)
				total, worst = total+w.compared, max(worst, w.compared)
			}
			checkComparisons(t, "insertions", total, worst)

			random := rand.New(rand.NewPCG(1, 1))
			total, worst = 0, 0
			for range hotUpdates / 10 {
				i := random.IntN(hotUpdates)
				c := shape.cell(i)
				c.Seq = uint64(i + 2)
				l, compared := m.seekCell(link(n.index.Load()), &c)
				if l == 0 || m.cell(l).compare(&c) != 0 {
					t.Fatalf("cell %d is not found", i)
				}
				total, worst = total+10*compared, max(worst, compared)
			}
			checkComparisons(t, "searches", total, worst)
		})
	}
}

func checkComparisons(t *testing.T, what string, total, worst int) {
	t.Helper()
	if mean := float64(total) / hotUpdates; mean > meanComparisons || worst > mostComparisons {
		t.Errorf("%s compare %.1f cells on average and %d at worst, want at most %d and %d",
			what, mean, worst, meanComparisons, mostComparisons)
	}
}

func TestNeighbouringCellsOfAMutationAreInsertedFromPlaceToPlace(t *testing.T) {
	m := New(Options{Seed: 42})
	const columns = 20_000
	wide := &row.Mutation{Key: []byte("k")}
	for i := range columns {
		wide.Cells = append(wide.Cells, row.Cell{Column: fmt.Appendf(nil, "%06d", i), Version: 1, Kind: row.KindPut, Type: row.TypeBinary})
	}
	m.Apply(1, ChangeOf(&row.Mutation{Key: wide.Key, PutRow: true}))
	m.Apply(2, ChangeOf(wide))
	_, n := m.findRow(m.hash.of(wide.Key), wide.Key)
	w := indexWriter{random: 1}
	w.init(m, n, 1)
	for i := range wide.Cells {
		c := wide.Cells[i]
		c.Seq = 3
		w.insert(&c)
	}
	if mean := float64(w.compared) / columns; mean > 4.5 {
		t.Errorf("%.1f comparisons for each cell, want at most 4.5", mean)
	}
}

func TestFindingARowComparesLogarithmicallyManyKeys(t *testing.T) {
	m := New(Options{Seed: 42})
	const rows = 50_000
	for i := range rows { // rising keys, as by a clock
		m.Apply(uint64(i+1), ChangeOf(&row.Mutation{Key: fmt.Appendf(nil, "%08d", i), PutRow: true}))
	}
	m.order()
	// The level sizes decide the length of a descent.
	want := float64(rows)
	for level := range int(m.height.Load()) {
		n := 0
		for l := link(m.row(m.head).next(level).Load()); l != 0; l = link(m.row(l).next(level).Load()) {
			n++
		}
		if f := float64(n); want > 1000 && (f < want*0.9 || f > want*1.1) {
			t.Errorf("level %d has %d rows, want about %.0f", level, n, want)
		}
		want /= 4
	}
	tables := 0
	for table := m.hash.newest.Load(); table != nil; table = table.older {
		tables++
	}
	if tables > 10 {
		t.Errorf("%d hash tables for %d rows", tables, rows)
	}
}

// insertAt links a row at a place that was found earlier.
func insertAt(m *Memtable, key string, s *rowSplice, height int) {
	c := ChangeOf(&row.Mutation{Key: []byte(key), PutRow: true})
	l, n := m.newRowNode(height, len(key))
	n.packed, _ = m.arena.alloc(&m.data, packedSize(c.Cells()))
	n.keyLen, n.height = uint16(len(key)), uint8(height)
	copy(n.key(), key)
	m.packedOf(n).fill(1, c, row.MaxVersion)
	m.linkRow(l, n, c.Key, s)
}

func TestARowIsInsertedRightlyAtAnOutdatedPlace(t *testing.T) {
	const height = 3
	for _, overtaken := range [][]string{{"c"}, {"e"}, {"c", "e"}, {"e", "c"}, {"b", "c", "e", "f"}, {"f", "e", "c", "b"}} {
		m := New(Options{})
		place := func(key string) *rowSplice {
			d := []descent{{key: []byte(key)}}
			m.descend(d)
			return &d[0].splice
		}
		for _, key := range []string{"a", "g"} {
			insertAt(m, key, place(key), height)
		}
		outdated := place("d")
		want := []string{"a", "d", "g"}
		for _, key := range overtaken {
			insertAt(m, key, place(key), height)
			want = append(want, key)
		}
		insertAt(m, "d", outdated, height)
		slices.Sort(want)
		for level := range height {
			var got []string
			for l := link(m.row(m.head).next(level).Load()); l != 0; l = link(m.row(l).next(level).Load()) {
				got = append(got, string(m.row(l).key()))
			}
			if !slices.Equal(got, want) {
				t.Errorf("overtaken by %q: level %d holds %q, want %q", overtaken, level, got, want)
			}
		}
		prev := m.head
		for l := link(m.row(m.head).next(0).Load()); l != 0; prev, l = l, link(m.row(l).next(0).Load()) {
			if back := link(m.row(l).prev.Load()); back != prev {
				t.Errorf("overtaken by %q: the back link of %q is not to its predecessor", overtaken, m.row(l).key())
			}
		}
	}
}

func TestABackLinkNeverMovesBack(t *testing.T) {
	// The writer of "b" is late: "c" was inserted behind it meanwhile.
	m := New(Options{})
	for i, key := range []string{"a", "b", "c", "d"} {
		m.Apply(uint64(i+1), ChangeOf(&row.Mutation{Key: []byte(key), PutRow: true}))
	}
	m.order()
	find := func(key string) (link, *rowNode) { return m.findRow(m.hash.of([]byte(key)), []byte(key)) }
	a, _ := find("a")
	b, _ := find("b")
	c, _ := find("c")
	_, d := find("d")
	m.advancePrev(d, a, b, []byte("b"))
	if link(d.prev.Load()) != c {
		t.Errorf("a late writer moved a back link to an earlier row")
	}
}

func TestSteppingBackFindsThePredecessorBehindAnOutdatedBackLink(t *testing.T) {
	m := New(Options{})
	for i := range 10 {
		m.Apply(uint64(i+1), ChangeOf(&row.Mutation{Key: []byte{'a' + byte(i)}, PutRow: true}))
	}
	it := m.NewIterator()
	it.Last()
	for _, outdated := range []link{m.head, link(m.row(m.head).next(0).Load())} {
		it.SeekRow([]byte("h"))
		it.node.prev.Store(uint32(outdated))
		if !it.PrevRow() || string(it.RowKey()) != "g" {
			t.Errorf("stepped back from h to %q", it.RowKey())
		}
	}
}

func TestTheArenaHandsOutAlignedZeroedDisjointMemory(t *testing.T) {
	type piece struct {
		l    link
		size int
		fill byte
	}
	var a arena
	regions := [2]region{{firstSize: minSlabSize}, {firstSize: 64 << 10}}
	pieces := make([][]piece, 4)
	var wg sync.WaitGroup
	for g := range pieces {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(g)))
			for i := range 4000 {
				size := 1 + random.IntN(300)
				if i%100 == 0 {
					size = 1 + random.IntN(1<<random.IntN(22))
				}
				l, p := a.alloc(&regions[i%2], size)
				if l == 0 || uintptr(p)%wordSize != 0 || a.at(l) != p {
					t.Errorf("allocation of %d bytes: link %d, address %p", size, l, p)
				}
				memory := unsafe.Slice((*byte)(p), size)
				for j := range memory {
					if memory[j] != 0 {
						t.Errorf("byte %d of %d is %d, want 0", j, size, memory[j])
						return
					}
					memory[j] = byte(g*50 + i%50 + 1)
				}
				pieces[g] = append(pieces[g], piece{l, size, byte(g*50 + i%50 + 1)})
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for _, list := range pieces {
		for _, p := range list {
			total += int64(p.size)
			for j, b := range unsafe.Slice((*byte)(a.at(p.l)), p.size) {
				if b != p.fill {
					t.Fatalf("byte %d of the %d at link %d was overwritten", j, p.size, p.l)
				}
			}
		}
	}
	used := regions[0].used() + regions[1].used()
	if used < total || a.reserved.Load() < used {
		t.Errorf("%d bytes taken, %d counted as used, %d as reserved", total, used, a.reserved.Load())
	}
}

func TestARegionOfLargeAllocationsBeginsToShareSlabs(t *testing.T) {
	var a arena
	r := region{firstSize: minSlabSize}
	for range 1000 {
		a.alloc(&r, 10_000)
	}
	if a.slabs > 60 {
		t.Errorf("10 MB in pieces of 10 KB took %d slabs", a.slabs)
	}
	if used := r.used(); used > 10_000*1000*5/4 {
		t.Errorf("10 MB in pieces of 10 KB used %d bytes", used)
	}
}

func TestLargeValuesShareBlocks(t *testing.T) {
	pool := offheap.New(offheap.Options{})
	a := arena{pool: pool}
	r := region{firstSize: minSlabSize}
	const pieces, size = 40, 1<<20 + 400
	var links [pieces]link
	for i := range links {
		l, p := a.alloc(&r, size)
		links[i] = l
		copy(unsafe.Slice((*byte)(p), size), bytes.Repeat([]byte{byte(i)}, size))
		if taken := pool.Stats().InUse; taken > 2*r.used()+1<<20 {
			t.Errorf("%d bytes of values take %d", r.used(), taken)
		}
	}
	for i, l := range links {
		if b := unsafe.Slice((*byte)(a.at(l)), size); b[0] != byte(i) || b[size-1] != byte(i) {
			t.Errorf("allocation %d was overwritten: %d to %d", i, b[0], b[size-1])
		}
	}
	const perBlock = blockSize / size
	if got, most := pool.Stats().Allocations, int64(blockFrom/size+2+pieces/perBlock+1); got > most {
		t.Errorf("%d pieces took %d allocations, want at most %d", pieces, got, most)
	}
	if used := r.used(); used != pieces*size {
		t.Errorf("%d bytes used, %d counted", pieces*size, used)
	}
	a.free()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFullHashTableIsFollowedByALargerOne(t *testing.T) {
	m := New(Options{})
	const rows = firstHashSlots * 8
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < rows; i += 4 {
				m.Apply(uint64(i+1), ChangeOf(&row.Mutation{Key: fmt.Appendf(nil, "%d", i), PutRow: true}))
			}
		})
	}
	wg.Wait()
	entered := 0
	for table := m.hash.newest.Load(); table != nil; table = table.older {
		n := 0
		for i := range table.slots {
			if table.slots[i].Load() != 0 {
				n++
			}
		}
		if n > len(table.slots)/2 {
			t.Errorf("table of %d slots holds %d rows", len(table.slots), n)
		}
		entered += n
	}
	if entered != rows {
		t.Errorf("%d rows in the hash, want %d", entered, rows)
	}
}
