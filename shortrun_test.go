package flagstone

// What many short runs of a store leave behind.

import (
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestShortRunsDoNotPileUpTheLog opens a store many times for one row: each run begins a log
// segment.
func TestShortRunsDoNotPileUpTheLog(t *testing.T) {
	const budget, segment, runs = 1 << 20, 256 << 10, 40
	fsys := vfs.NewSim(vfs.SimOptions{})
	for i := range runs {
		s, err := Open("/store", Options{MemoryBudget: budget, WALSegmentSize: segment, Seams: Seams{FS: fsys}})
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.Table("t")
		if i == 0 {
			table, err = s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
		}
		if err == nil {
			err = table.Put(ctx(), Key(i), "c", s.NowMillis(), row.Integer(1))
		}
		if err == nil {
			err = s.Settle(ctx())
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := count(t, table, ScanOptions{}); n != i+1 {
			t.Fatalf("run %d: %d rows", i, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := fsys.List("/store/wal")
	if most := logFactor*budget/segment + 4; err != nil || len(names) > most {
		t.Errorf("%d files of the log, want at most %d (%v)", len(names), most, err)
	}
}
