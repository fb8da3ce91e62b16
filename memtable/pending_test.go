package memtable

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// listed counts the rows that are in the row list.
func listed(m *Memtable) (rows int) {
	for l := link(m.row(m.head).next(0).Load()); l != 0; l = link(m.row(l).next(0).Load()) {
		rows++
	}
	return rows
}

func TestRowsComeIntoTheListInGroups(t *testing.T) {
	m := New(Options{Seed: 1})
	for i := range 3 * groupRows {
		key := fmt.Appendf(nil, "%06d", 1000-i)
		insert(m, i, key)
		if got, want := listed(m), (i+1)/groupRows*groupRows; got != want {
			t.Fatalf("%d rows of %d are in the list, want %d", got, i+1, want)
		}
		if _, n := m.findRow(m.hash.of(key), key); n == nil {
			t.Fatalf("row %q is not found at once", key)
		}
	}
	checkLevels(t, m, 3*groupRows)
}

// TestAWriterPutsRowsIntoTheListItself applies rows without OrderGroup, as a batch and a transaction do.
func TestAWriterPutsRowsIntoTheListItself(t *testing.T) {
	m := New(Options{Seed: 1})
	for i := range 3*mostStacked + 1 {
		m.Apply(uint64(i+1), ChangeOf(&row.Mutation{Key: fmt.Appendf(nil, "%06d", 10_000-i), PutRow: true}))
		if got, want := listed(m), (i+1)/mostStacked*mostStacked; got != want {
			t.Fatalf("%d rows of %d are in the list, want %d", got, i+1, want)
		}
	}
	checkLevels(t, m, 3*mostStacked+1)
}

// TestAReadWaitsForRowsThatAWriterPutsIntoTheList has a writer that took a row off the stack and is slow.
func TestAReadWaitsForRowsThatAWriterPutsIntoTheList(t *testing.T) {
	m := New(Options{Seed: 1})
	insert(m, 1, []byte("row"))
	m.pending.mu.RLock()
	taken := link(m.pending.stack.Swap(0))
	found := make(chan bool)
	go func() { found <- m.NewIterator().SeekRow([]byte("row")) }()
	for m.pending.mu.TryRLock() { // until the reader waits for the lock
		m.pending.mu.RUnlock()
		select {
		case ok := <-found:
			t.Fatalf("the read has ended: %v", ok)
		default:
		}
		runtime.Gosched()
	}
	m.linkGroup(taken, 0)
	m.pending.mu.RUnlock()
	if !<-found {
		t.Error("the row was not found")
	}
}

// TestRowsThatPendAreNotForgottenWhileOthersComeInOrder has few of them, which are no group.
func TestRowsThatPendAreNotForgottenWhileOthersComeInOrder(t *testing.T) {
	m := New(Options{Seed: 1})
	insert(m, 1, []byte("row"))
	m.ordered.Store(true)
	m.OrderGroup()
	if n := listed(m); n != 1 {
		t.Errorf("%d rows are in the list", n)
	}
}

func TestOrderedReadsSeeWhatIsPending(t *testing.T) {
	for name, finds := range map[string]func(it *Iterator) bool{
		"First":         (*Iterator).First,
		"Last":          (*Iterator).Last,
		"SeekRow":       func(it *Iterator) bool { return it.SeekRow([]byte("a")) },
		"SeekRowBefore": func(it *Iterator) bool { return it.SeekRowBefore([]byte("z")) },
		"Sample": func(it *Iterator) (found bool) {
			it.m.Sample(1, 0, func([]byte, int64) { found = true })
			return found
		},
	} {
		m := New(Options{Seed: 1})
		insert(m, 1, []byte("row"))
		if listed(m) != 0 || !finds(m.NewIterator()) {
			t.Errorf("%s does not find a row that was pending", name)
		}
	}
}
