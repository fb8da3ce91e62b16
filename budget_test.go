package flagstone

import (
	"context"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

func TestP18_ManyLargeWritesAtOnceKeepTheMemoryBudget(t *testing.T) {
	const budget = 1 << 20
	s, err := Open("/store", Options{
		MemoryBudget: budget, WALSegmentSize: 4 << 20,
		Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	table, err := s.CreateTable(ctx, TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	value := row.Binary(make([]byte, 200<<10))
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := range 10 {
				err := table.Update(ctx, Key(w*100+i), func(_ context.Context, tx *RowTx) error {
					tx.Put("c", s.NowMillis(), value)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if m := s.Metrics(); m.MemoryBytes > budget {
					t.Errorf("memtables take %d bytes of a budget of %d", m.MemoryBytes, budget)
				}
			}
		})
	}
	writers.Wait()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	// A job may have flushed instead of Flush, and frees the memory when it ends.
	if err := s.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics(); m.MemoryBytes != 0 {
		t.Errorf("%d bytes are accounted for after everything was flushed", m.MemoryBytes)
	}
}

func TestAWriteLargerThanTheMemoryBudgetIsLetInAlone(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 64 << 10})
	table := r.table("t", TableOptions{})
	for i := range 3 {
		put(t, table, "p", i, "c", startMillis, string(make([]byte, 200<<10)))
	}
	if r, err := table.Get(context.Background(), Key("p", 1), ReadOptions{}); err != nil || len(r.Cells()[0].Value) != 200<<10 {
		t.Errorf("%v, %v", r, err)
	}
}
