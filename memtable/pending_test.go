package memtable

import (
	"fmt"
	"testing"
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

// TestWritersGoOnWhileAReaderHasTheLock has a reader that puts rows into the list for long.
func TestWritersGoOnWhileAReaderHasTheLock(t *testing.T) {
	m := New(Options{Seed: 1})
	m.pending.mu.Lock()
	for i := range mostPending - 1 {
		insert(m, i, fmt.Appendf(nil, "%06d", 10_000-i))
	}
	if got := listed(m); got != 0 {
		t.Fatalf("%d rows are in the list", got)
	}
	m.pending.mu.Unlock()
	insert(m, mostPending, []byte("last"))
	if got := listed(m); got != mostPending {
		t.Errorf("%d rows are in the list, want %d", got, mostPending)
	}
	checkLevels(t, m, mostPending)
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
