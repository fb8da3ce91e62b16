package flagstone

// Values that are packed before they are logged, as a caller of the store sees
// them: not at all.

import (
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestAPackedValueIsReadWhereverItIs: in a memtable, as a row's first value or a
// later one, in the log that a crash leaves, in a value file, and in a table file
// of a store that has no value files any more.
func TestAPackedValueIsReadWhereverItIs(t *testing.T) {
	r := newRig(t, Options{
		MemtableSize: 256 << 10, MemoryBudget: 1 << 20, TableFileSize: 32 << 10, WALSegmentSize: 256 << 10,
		Seams: Seams{ValueThreshold: valueSize / 2},
	})
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 30
	write := func(round int) {
		t.Helper()
		for i := range rows {
			put(t, table, "p", i, "large", startMillis, large(i, round))
			put(t, table, "p", i, "small", startMillis, "s")
		}
	}
	write(0)
	checkLarge(t, table, nil, rows, 0)
	write(1)
	checkLarge(t, table, nil, rows, 1)
	if took := r.store.Metrics().MemoryBytes; took > 2*rows*valueSize/2 {
		t.Errorf("memtables have %d bytes for values of %d", took, 2*rows*valueSize)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	checkLarge(t, table, nil, rows, 1)
	if len(valueFiles(r.fs)) > 0 {
		t.Fatal("a value file before there was a flush")
	}
	flushAll(t, r)
	if len(valueFiles(r.fs)) == 0 {
		t.Fatal("no value file after a flush")
	}
	checkLarge(t, table, nil, rows, 1)

	write(2)
	r.crash(vfs.CrashLoseAll, 2)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.opts.Seams.ValueThreshold = -1
	r.open()
	table = r.table("t", TableOptions{})
	files := len(valueFiles(r.fs))
	flushAll(t, r)
	if n := len(valueFiles(r.fs)); n > files {
		t.Errorf("%d value files, %d before", n, files)
	}
	checkLarge(t, table, nil, rows, 2)
	checkStore(t, r)
}

// TestAPackedValueIsUpdatedAndCompared: a read-modify-write sees the value, and
// what is written at its version replaces it.
func TestAPackedValueIsUpdatedAndCompared(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 100}})
	table := r.table("t", TableOptions{MaxVersions: 3})
	long := strings.Repeat("long ", 100)
	put(t, table, "p", 1, "c", startMillis, long)
	err := table.Update(ctx(), Key("p", 1), func(tx *RowTx) error {
		old, err := tx.Get(ReadOptions{})
		if err != nil {
			return err
		}
		v, _ := old.Value("c")
		tx.Put("d", startMillis, row.String(v.Text()+"!"))
		tx.Put("c", startMillis+1, row.String(long+"?"))
		tx.DeleteVersion("c", startMillis)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil || len(got.Cells) != 2 {
		t.Fatal(got, err)
	}
	c, _ := got.Value("c")
	d, _ := got.Value("d")
	if c.Text() != long+"?" || d.Text() != long+"!" {
		t.Errorf("%q, %q", c.Text(), d.Text())
	}
}
