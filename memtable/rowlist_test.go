package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// insert inserts a row without cells.
func insert(m *Memtable, seq int, key []byte) {
	m.Apply(uint64(seq+1), ChangeOf(&row.Mutation{Key: key, PutRow: true}))
	m.OrderGroup()
}

// checkLevels checks that each level has exactly the rows whose towers reach it, in order.
func checkLevels(t *testing.T, m *Memtable, rows int) {
	t.Helper()
	m.order()
	var want [maxHeight]int
	for l := link(m.row(m.head).next(0).Load()); l != 0; l = link(m.row(l).next(0).Load()) {
		for level := range int(m.row(l).height) {
			want[level]++
		}
	}
	if want[0] != rows {
		t.Errorf("%d rows, want %d", want[0], rows)
	}
	for level := range maxHeight {
		got, last := 0, []byte(nil)
		for l := link(m.row(m.head).next(level).Load()); l != 0; l = link(m.row(l).next(level).Load()) {
			if key := m.row(l).key(); last != nil && bytes.Compare(last, key) >= 0 {
				t.Fatalf("level %d: row %q after %q", level, key, last)
			}
			last = m.row(l).key()
			got++
		}
		if got != want[level] {
			t.Errorf("level %d has %d rows, want %d", level, got, want[level])
		}
	}
}

// TestEveryLevelHasItsRowsWhateverTheirOrder has writers whose rows rise, fall and jump in turn, between those of
// the others.
func TestEveryLevelHasItsRowsWhateverTheirOrder(t *testing.T) {
	const perWriter = 1200
	for _, writers := range []int{1, 5} {
		for round := range 12 {
			m := New(Options{Seed: uint64(round + 1)})
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(round), uint64(w)))
					at, step := 0, 0
					for i := range perWriter {
						if random.IntN(30) == 0 {
							at, step = random.IntN(1<<40), random.IntN(3)-1
						}
						if at += step; step == 0 {
							at = random.IntN(1 << 40)
						}
						insert(m, i*writers+w, fmt.Appendf(nil, "%016d %d %d", at, w, i))
					}
				})
			}
			wg.Wait()
			checkLevels(t, m, writers*perWriter)
		}
	}
}

// TestRowsInOrderAreInsertedBehindEachOther checks that a row in order needs no descent, and that others do not
// make the next ones need it.
func TestRowsInOrderAreInsertedBehindEachOther(t *testing.T) {
	m := New(Options{Seed: 1})
	for i := range 300 {
		key := fmt.Appendf(nil, "%06d", i)
		insert(m, i, key)
		if l, _ := m.findRow(m.hash.of(key), key); i >= groupRows-1 && (!m.ordered.Load() || m.recent.prev[0] != l || link(m.last.Load()) != l) {
			t.Fatalf("the place behind row %d is not known", i)
		}
	}
	for i, c := range []struct {
		key     string
		ordered bool
	}{
		{"000100+", true}, {"000300", true}, {"000301", true}, // one row elsewhere
		{"000100+a", true}, {"000100+b", true}, {"000100+c", true}, {"000100+d", true}, // another run
		{"000007+", true}, {"000005+", true}, {"000003+", false},
	} {
		if insert(m, 300+i, []byte(c.key)); m.ordered.Load() != c.ordered {
			t.Errorf("rows come in order behind row %q: %v", c.key, !c.ordered)
		}
	}
	if listed(m) != 309 {
		t.Errorf("%d rows are in the list, want all but the one that ended the order", listed(m))
	}
	insert(m, 310, []byte("000003+a"))
	if m.order(); !m.ordered.Load() {
		t.Error("a row right behind the last one did not come in order")
	}
	checkLevels(t, m, 311)
}

// TestOnlyARowBetweenTheLastOneAndTheNextComesNext asks about the rows that are there, and about others.
func TestOnlyARowBetweenTheLastOneAndTheNextComesNext(t *testing.T) {
	m := New(Options{Seed: 1})
	if m.comesNext([]byte("a")) {
		t.Error("a row comes next in an empty memtable")
	}
	for i, key := range []string{"f", "b", "c"} { // c comes right behind b, and f is next
		insert(m, i, []byte(key))
	}
	m.order()
	for _, key := range []string{"", "a", "b", "bb", "c", "f", "g"} {
		if m.comesNext([]byte(key)) {
			t.Errorf("row %q comes next, behind c and before f", key)
		}
	}
	for _, key := range []string{"c+", "d", "e"} {
		if !m.comesNext([]byte(key)) {
			t.Errorf("row %q does not come next", key)
		}
	}
	last := m.last.Swap(inUse)
	if m.comesNext([]byte("d")) {
		t.Error("a row comes next while the last one is in use")
	}
	m.last.Store(last)
	m.pending.rows.Add(1)
	if m.comesNext([]byte("d")) {
		t.Error("a row comes next that may be pending")
	}
	m.pending.rows.Add(-1)
	for i, key := range []string{"a", "0", "ee"} {
		insert(m, 3+i, []byte(key))
	}
	if m.order(); m.comesNext([]byte("eee")) {
		t.Error("a row comes next behind three that did not")
	}
}

// TestRowsInOrderPassThoseOfWritersThatFoundThePlaceInUse inserts rows before and behind the last one in order,
// as writers do that do not note where.
func TestRowsInOrderPassThoseOfWritersThatFoundThePlaceInUse(t *testing.T) {
	m := New(Options{Seed: 1})
	const rounds = 300
	for i := range rounds {
		if insert(m, 3*i, fmt.Appendf(nil, "%06d", i)); i < groupRows-1 {
			continue
		}
		if !m.ordered.Load() {
			t.Fatalf("row %d did not come in order", i)
		}
		last := m.last.Swap(inUse)
		insert(m, 3*i+1, fmt.Appendf(nil, "%06d+", i-1))
		insert(m, 3*i+2, fmt.Appendf(nil, "%06d+", 2*rounds-i))
		m.last.Store(last)
	}
	checkLevels(t, m, 3*rounds-2*(groupRows-1))
}
