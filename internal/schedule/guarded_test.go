package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestReadersTouchNothingThatWasFreed reads rows while memtables are flushed, files are merged
// and blocks are evicted all the time. What is freed of their memory cannot be touched: the
// kernel ends a program that does.
func TestReadersTouchNothingThatWasFreed(t *testing.T) {
	const rows, readers, writes = 40, 4, 800
	for _, reads := range []flagstone.TableReads{flagstone.TableReadsDirect, flagstone.TableReadsMapped} {
		o := flagstone.Options{
			MemtableSize: 4 << 10, MemoryBudget: 64 << 10, TableFileSize: 8 << 10, WALSegmentSize: 64 << 10, CacheSize: 24 << 10,
			TableReads: reads, BlockSize: 400,
		}
		o.Seams = seams.Seams{
			FS: vfs.NewSim(vfs.SimOptions{}), Memory: offheaptest.New(t),
			ValueThreshold: 200, Levels: compaction.Config{L0Trigger: 2, LevelBase: 16 << 10},
		}
		store, err := flagstone.Open("/disk/store", o)
		must(t, err)
		table, err := store.CreateTable(t.Context(), flagstone.TableSpec{
			Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeInteger}},
		})
		must(t, err)
		value := func(n int, version int64) string {
			return fmt.Sprint(n, "@", version, strings.Repeat("x", int(version%300)))
		}
		check := func(r *flagstone.Row) {
			for i := range r.Cells() {
				c := &r.Cells()[i]
				if want := value(int(r.Key()[0].Int64()), c.Version-startMillis); string(c.Value) != want {
					t.Errorf("row %v has %.40q, want %.40q", r.Key(), c.Value, want)
				}
			}
		}
		var over atomic.Bool
		var wait sync.WaitGroup
		for range readers {
			wait.Go(func() {
				for !over.Load() && !t.Failed() {
					r, err := table.Get(t.Context(), flagstone.Key(rand.IntN(rows)), flagstone.ReadOptions{})
					if err != nil {
						t.Error(err)
					} else if r != nil {
						check(r)
					}
					if rand.IntN(10) == 0 {
						scan := table.Scan(t.Context(), nil, nil, flagstone.ScanOptions{Reverse: rand.IntN(2) == 0})
						for scan.Next() {
							check(scan.Row())
						}
						if err := scan.Err(); err != nil {
							t.Error(err)
						}
						scan.Close()
					}
				}
			})
		}
		for version := range int64(writes) {
			n := rand.IntN(rows)
			must(t, table.Put(t.Context(), flagstone.Key(n), "c", startMillis+version, row.String(value(n, version))))
		}
		over.Store(true)
		wait.Wait()
		must(t, store.Close())
		if s := o.Seams.Memory.Stats(); s.Allocations != 0 {
			t.Errorf("%d bytes in %d allocations were not freed", s.InUse, s.Allocations)
		}
	}
}
