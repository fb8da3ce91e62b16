package flagstone

// Reclaiming space without a call: how much compactions rewrite for it.

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/row"
)

// fillExpiring puts rows of 200 bytes at the present time, a hundred in each
// second of the clock, until so many are written.
func fillExpiring(t *testing.T, r *rig, table *Table, keys []int) {
	t.Helper()
	for i, n := range keys {
		err := table.Update(context.Background(), Key("p", n), func(_ context.Context, tx *RowTx) error {
			tx.PutRow()
			tx.Put("c", r.store.NowMillis(), row.String(strings.Repeat("x", 200)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			r.clock.Advance(time.Second)
		}
	}
	if err := r.store.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	settle(t, r)
}

func settle(t *testing.T, r *rig) {
	t.Helper()
	if err := r.store.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func tableBytes(r *rig) (total int64) {
	for _, n := range r.store.Metrics().Tables[0].Bytes {
		total += n
	}
	return total
}

func inOrder(n int) []int {
	keys := make([]int, n)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

// TestExpiryInOrderOfKeysRewritesAlmostNothing: 70% of rows written in key order expire. Their
// files are dropped unread, including tombstones of PutRow, although by the version offset a
// tombstone of that age could still hide something.
func TestExpiryInOrderOfKeysRewritesAlmostNothing(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 32 << 10, TableFileSize: 32 << 10, Compression: CompressionNone})
	believeClock(r.clock)
	table := r.table("t", TableOptions{MaxVersions: 1, TTLSeconds: 1000, MaxVersionOffsetSeconds: 86400})
	const rows = 10_000
	fillExpiring(t, r, table, inOrder(rows))
	before, loaded := r.store.Metrics(), tableBytes(r)
	r.clock.Advance(1000*time.Second - 30*time.Second)            // of 100 s of rows, 70 are older than 1000 s
	if err := r.store.Compact(context.Background()); err != nil { // no more than the store does by itself
		t.Fatal(err)
	}
	settle(t, r)
	after, left := r.store.Metrics(), tableBytes(r)
	rewritten := after.CompactedOut - before.CompactedOut
	if left > loaded*35/100 {
		t.Errorf("%d of %d bytes are left", left, loaded)
	}
	if rewritten > loaded/10 {
		t.Errorf("%d of %d bytes were rewritten to reclaim them", rewritten, loaded)
	}
	if dropped := after.DroppedBytes - before.DroppedBytes; dropped < loaded*60/100 {
		t.Errorf("%d of %d bytes went unread", dropped, loaded)
	}
}

// TestExpiryAtRandomRewritesWhatStays: the same with keys in random order. Expired rows are
// reclaimed, and no more is written than stays.
func TestExpiryAtRandomRewritesWhatStays(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 32 << 10, TableFileSize: 32 << 10, Compression: CompressionNone})
	believeClock(r.clock)
	table := r.table("t", TableOptions{MaxVersions: 1, TTLSeconds: 1000, MaxVersionOffsetSeconds: 86400})
	fillExpiring(t, r, table, rand.New(rand.NewPCG(1, 2)).Perm(10_000))
	if err := r.store.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	before, loaded := r.store.Metrics(), tableBytes(r)
	r.clock.Advance(1000*time.Second - 30*time.Second)
	if reclaimable := r.store.Metrics().Tables[0].Reclaimable; reclaimable != 0 {
		t.Errorf("%d bytes are reclaimable before the watermark was raised", reclaimable)
	}
	for _, tree := range table.core.Trees() {
		r.store.upkeep.CompactionDue(tree)
	}
	settle(t, r)
	after, left := r.store.Metrics(), tableBytes(r)
	if left > loaded*35/100 {
		t.Errorf("%d of %d bytes are left", left, loaded)
	}
	if rewritten := after.CompactedOut - before.CompactedOut; rewritten > loaded*35/100 {
		t.Errorf("%d of %d bytes were rewritten to reclaim them", rewritten, loaded)
	}
}

// TestSurplusVersionsGoWhenTheStoreRests: 20 versions are written of each cell,
// one or ten are kept.
func TestSurplusVersionsGoWhenTheStoreRests(t *testing.T) {
	for _, keep := range []int64{1, 10} {
		r := newRig(t, Options{MemtableSize: 32 << 10, TableFileSize: 32 << 10, Compression: CompressionNone})
		table := r.table("t", TableOptions{MaxVersions: keep})
		const cells = 500
		for version := range 20 {
			for n := range cells {
				put(t, table, "p", n, "c", startMillis+int64(version), strings.Repeat("x", 200))
			}
		}
		if err := r.store.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		settle(t, r)
		// The versions that are kept, and a flush that is too small beside them to be compacted
		// yet.
		if left, most := tableBytes(r), keep*cells*220*5/4+64<<10; left > most {
			t.Errorf("%d versions kept: %d bytes are left, want at most %d", keep, left, most)
		}
	}
}

// TestCompactDropsVersionsThatAreNotKeptAnyMore: also from a file that overlaps no other, and
// could move down unchanged.
func TestCompactDropsVersionsThatAreNotKeptAnyMore(t *testing.T) {
	r := newRig(t, Options{Compression: CompressionNone})
	table := r.table("t", TableOptions{MaxVersions: 10})
	for version := range 10 {
		for n := range 100 {
			put(t, table, "p", n, "c", startMillis+int64(version), strings.Repeat("x", 200))
		}
	}
	options := table.Info().Options
	options.MaxVersions = 1
	if err := r.store.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	before := tableBytes(r)
	if err := table.Alter(context.Background(), TableChange{Options: &options}); err != nil {
		t.Fatal(err)
	}
	if err := table.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if after := tableBytes(r); after > before/5 {
		t.Errorf("%d of %d bytes are left of one version of ten", after, before)
	}
}

// TestLevel0IsMergedForWhoeverReads: a few flushes stay in level 0 until gets or scans have lost
// more to them than a compaction costs, or until there were no writes for a minute.
func TestLevel0IsMergedForWhoeverReads(t *testing.T) {
	const rows = 200
	get := func(t *testing.T, table *Table) {
		for n := range rows {
			if got := show(t, table, "p", n); got == "absent" {
				t.Fatalf("row %d is absent", n)
			}
		}
	}
	scan := func(t *testing.T, table *Table) {
		if n := count(t, table, ScanOptions{}); n != rows {
			t.Fatalf("%d rows", n)
		}
	}
	for name, read := range map[string]func(*testing.T, *Table){"get": get, "scan": scan, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			// There is no room for a row cache, from which gets lose nothing to level 0.
			r := newRig(t, Options{MemtableSize: 1 << 20, MemoryBudget: 4 << 20, CacheSize: 4 << 10})
			table := r.table("t", TableOptions{})
			for flush := range 3 {
				for n := range rows {
					if n%3 == flush || n < 2 {
						put(t, table, "p", n, "c", startMillis+int64(flush), strings.Repeat("x", 100))
					}
				}
				if err := r.store.Flush(ctx()); err != nil {
					t.Fatal(err)
				}
				settle(t, r)
			}
			tree := table.core.Trees()[0]
			depth := func() int { return compaction.Depth(tree.Meta().Levels[0]) }
			if got := depth(); got != 3 {
				t.Fatalf("level 0 is %d deep after three flushes", got)
			}
			if read == nil {
				r.clock.Advance(upkeep.IdlePeriod) // the first look does not know since when
				r.exec.RunAll()
				if got := depth(); got != 3 {
					t.Fatalf("level 0 is %d deep although nobody read", got)
				}
				r.clock.Advance(upkeep.IdlePeriod)
				r.exec.RunAll()
			} else {
				for reads := 0; len(r.exec.Pending()) == 0; reads++ {
					if reads == 10_000 {
						t.Fatal("no merge is asked for")
					}
					read(t, table)
				}
				r.exec.RunAll()
			}
			if got := depth(); got != 0 {
				t.Errorf("level 0 is %d deep", got)
			}
		})
	}
}

// TestReadsOfAReadOnlyStoreAskForNoMerge: the store must not change a file, however much its
// reads lose to level 0.
func TestReadsOfAReadOnlyStoreAskForNoMerge(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 20, MemoryBudget: 4 << 20})
	table := r.table("t", TableOptions{})
	for range 3 {
		for n := range 50 {
			put(t, table, "p", n, "c", startMillis, "x")
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		settle(t, r)
	}
	r.opts.ReadOnly = true
	r.reopen()
	table = r.table("t", TableOptions{})
	if got := compaction.Depth(table.core.Trees()[0].Meta().Levels[0]); got < 2 {
		t.Fatalf("level 0 is %d deep", got)
	}
	for range 1000 { // several times as many as it takes where merges are allowed
		if n := count(t, table, ScanOptions{}); n != 50 {
			t.Fatalf("%d rows", n)
		}
	}
	if jobs := r.exec.Pending(); len(jobs) > 0 {
		t.Errorf("%v are to be done", jobs)
	}
}
