package flagstone

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// getHot reads a row five times, so that the row cache holds it if it may, and returns what the
// last read found.
func getHot(t *testing.T, table *Table, n int, opts ReadOptions) string {
	t.Helper()
	var into Row
	for range 5 {
		if _, err := table.GetInto(ctx(), Key("p", n), opts, &into); err != nil {
			t.Fatal(err)
		}
	}
	return cells(&into)
}

// TestWhatChangesARowReachesItsReaders: all that happens to a row between two reads
// that find it in the cache.
func TestWhatChangesARowReachesItsReaders(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2, TTLSeconds: 100})
	putColumns(t, table, "p", 1, 3, startMillis, true)
	flush := func() {
		t.Helper()
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
	}
	flush()
	put(t, table, "p", 1, "c01", startMillis+2000, "second")
	first := getHot(t, table, 1, ReadOptions{})
	if r.store.Metrics().RowHits == 0 {
		t.Fatal("the row was not found in the cache")
	}
	before, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	said := map[string]string{}
	changed := func(what string) {
		t.Helper()
		got := getHot(t, table, 1, ReadOptions{})
		if as := said[got]; as != "" {
			t.Errorf("after %s the row is as after %s: %s", what, as, got)
		}
		said[got] = what
		if got := getHot(t, table, 1, ReadOptions{Snapshot: before}); got != first {
			t.Errorf("after %s the snapshot shows %s, want %s", what, got, first)
		}
	}
	changed("the beginning")
	put(t, table, "p", 1, "c01", startMillis+3000, "third")
	changed("an update")
	put(t, table, "p", 1, "c01", startMillis+3000, "third again")
	changed("an update of a version")
	update := func(f func(tx *RowTx)) {
		t.Helper()
		if err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { f(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *RowTx) { tx.DeleteVersion("c01", startMillis+3000) })
	changed("a delete of a version")
	update(func(tx *RowTx) { tx.DeleteColumn("c02") })
	changed("a delete of a column")
	put(t, table, "p", 1, "c00", startMillis+4000, "flushed unread")
	flush()
	changed("an update and a flush")
	put(t, table, "p", 1, "c03", startMillis+5000, "newest")
	changed("an update of a flushed row")
	r.clock.Advance(103_000_000_000)
	changed("the end of some versions")
	fewer := TableOptions{MaxVersions: 1, TTLSeconds: 1000, MaxVersionOffsetSeconds: 86400}
	if err := table.Alter(ctx(), TableChange{Options: &fewer}); err != nil {
		t.Fatal(err)
	}
	changed("a longer Time To Live and one version")
	update(func(tx *RowTx) { tx.DeleteRow() })
	changed("a delete of the row")
}

// TestARowThatATableFileHoldsIsFoundInTheCache: from its fifth get on; a row that a memtable holds never is.
func TestARowThatATableFileHoldsIsFoundInTheCache(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	put(t, table, "p", 1, "a", startMillis, "value")
	hits := func(n int) uint64 {
		t.Helper()
		before := r.store.Metrics().RowHits
		if got := getHot(t, table, n, ReadOptions{}); got != fmt.Sprintf("a@%d=value ", startMillis) {
			t.Errorf("row %d has %s", n, got)
		}
		return r.store.Metrics().RowHits - before
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if first, then := hits(1), hits(1); first != 1 || then != 5 {
		t.Errorf("of five gets and five more the cache answered %d and %d, want 1 and 5", first, then)
	}
	put(t, table, "p", 2, "a", startMillis, "value")
	if found := hits(2); found != 0 {
		t.Errorf("of five gets of a row in a memtable the cache answered %d", found)
	}
}

// TestARowOfASnapshotIsNotTakenForThePresent: a snapshot does not show all that was flushed of a
// row.
func TestARowOfASnapshotIsNotTakenForThePresent(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	putFlushed := func(version int64, value string) {
		t.Helper()
		put(t, table, "p", 1, "a", version, value)
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	putFlushed(1, "first")
	putFlushed(2, "second")
	before, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	putFlushed(3, "third")
	for range 2 {
		if got := getHot(t, table, 1, ReadOptions{Snapshot: before}); got != "a@2=second " {
			t.Errorf("the snapshot shows %s", got)
		}
		if got := getHot(t, table, 1, ReadOptions{}); got != "a@3=third " {
			t.Errorf("after the snapshot was read the row is %s", got)
		}
	}
	if r.store.Metrics().RowHits == 0 {
		t.Error("the row was never found in the cache")
	}
}

// TestReadersSeeWhatWasAcknowledged updates, flushes and compacts rows while readers read them
// repeatedly: no reader sees less than was acknowledged before its read, or than it saw before.
func TestReadersSeeWhatWasAcknowledged(t *testing.T) {
	store, err := Open("/store", Options{
		MemtableSize: 32 << 10, MemoryBudget: 256 << 10, CacheSize: 1 << 20, Sync: SyncNone, Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.CreateTable(ctx(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}, Options: TableOptions{MaxVersions: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	const rows, updates = 3, 4000
	var acknowledged [rows]atomic.Int64
	var done atomic.Bool
	var wg, writers sync.WaitGroup
	for n := range rows {
		putColumns(t, table, "p", n, 8, 1, true)
		writers.Go(func() {
			for i := int64(2); i < updates; i++ {
				err := table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error {
					tx.Put("c03", i, row.Integer(i))
					tx.Put("c05", i, row.Integer(i))
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				acknowledged[n].Store(i)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			var seen [rows]int64
			var r Row
			for i := 0; !done.Load(); i++ {
				n := i % rows
				least := max(seen[n], acknowledged[n].Load())
				if ok, err := table.GetInto(ctx(), Key("p", n), ReadOptions{}, &r); err != nil || !ok || len(r.Cells()) != 8 {
					t.Errorf("row %d: %v, %v, %s", n, ok, err, cells(&r))
					return
				}
				if a, b := r.Cells()[3].Version, r.Cells()[5].Version; a != b || a < least {
					t.Errorf("row %d: columns of updates %d and %d after %d", n, a, b, least)
					return
				}
				seen[n] = r.Cells()[3].Version
			}
		})
	}
	writers.Wait()
	done.Store(true)
	wg.Wait()
	for n := range rows {
		if got := getHot(t, table, n, ReadOptions{Columns: []string{"c03"}}); got != fmt.Sprintf("c03@%d= ", updates-1) {
			t.Errorf("in the end row %d has %s", n, got)
		}
	}
	if store.Metrics().RowHits == 0 {
		t.Error("no row was found in the cache")
	}
}
