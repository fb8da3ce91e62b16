package flagstone

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/row"
)

// TestFilesAreThoseOfTheMetrics lists files before and after a split, which divides none of them, and after a compaction,
// which divides all.
func TestFilesAreThoseOfTheMetrics(t *testing.T) {
	r := newRig(t, Options{TableFileSize: 16 << 10})
	table := r.table("t", TableOptions{})
	for round := range 3 {
		for n := range 300 {
			put(t, table, fmt.Sprintf("%03d", n), round, "c", startMillis, fmt.Sprint("value", n*7919, round))
		}
		if err := table.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		if m := r.store.Metrics(); m.Tables[0].Rows != uint64(300*(round+1)) {
			t.Errorf("round %d: %d rows are in files", round, m.Tables[0].Rows)
		}
	}
	look := func(when string) []File {
		files, err := table.Files()
		if err != nil {
			t.Fatal(err)
		}
		m := r.store.Metrics().Tables[0]
		byLevel, rows := make([]int, len(m.Files)), uint64(0)
		for _, f := range files {
			byLevel[f.Level]++
			rows += f.Rows
			if f.Bytes <= 0 || len(f.First) == 0 || len(f.Last) == 0 || f.First[0].Text() > f.Last[0].Text() || f.CreatedMillis == 0 {
				t.Errorf("%s: %+v", when, f)
			}
		}
		if !slices.Equal(byLevel, m.Files) || rows != m.Rows {
			t.Errorf("%s: %v files with %d rows, want %v and %d", when, byLevel, rows, m.Files, m.Rows)
		}
		return files
	}
	if files := look("flushed"); len(files) == 0 || files[0].First[0].Text() != "000" || files[len(files)-1].Last[0].Text() != "299" {
		t.Errorf("flushed: %+v", files)
	}
	if err := table.Split(ctx(), row.String("150")); err != nil {
		t.Fatal(err)
	}
	numbers := map[uint64]int{}
	for _, f := range look("split") {
		numbers[f.Number]++
		if at := f.First[0].Text(); f.Partition == table.Partitions()[1].ID && at < "150" {
			t.Errorf("a file of the second partition begins at %s", at)
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(numbers)), 2) {
		t.Errorf("no file is in both partitions: %v", numbers)
	}
	if err := table.Compact(ctx(), nil, nil); err != nil {
		t.Fatal(err)
	}
	look("compacted")
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	_, err := table.Files()
	wantError(t, "dropped", err, ErrTableNotFound)
	wantError(t, "a flush of it", table.Flush(ctx()), ErrTableNotFound)
}

// TestLoadedKeysHaveTheLoadOfThePartitions reads one key often, and others rarely, in two partitions.
func TestLoadedKeysHaveTheLoadOfThePartitions(t *testing.T) {
	r := newRig(t, Options{})
	table := r.presplit("t", nil, "m")
	if keys := table.LoadedKeys(); len(keys) != 0 {
		t.Errorf("before any load: %+v", keys)
	}
	n := 0
	for range 20 {
		r.reads(table, 3000, func() string {
			n++
			return []string{"hot", "hot", "hot", fmt.Sprintf("cold-%03d", n%100), fmt.Sprintf("other-%04d", n%5000)}[n%5]
		})
	}
	var want, got float64
	partitions := table.Partitions()
	for _, p := range partitions {
		want += p.Units
	}
	if m := r.store.Metrics().Tables[0]; math.Abs(m.Units-want) > 1e-6*want || m.BusiestUnits != partitions[0].Units {
		t.Errorf("%.3f units a second, %.3f in the busiest partition; want %.3f and %.3f", m.Units, m.BusiestUnits, want, partitions[0].Units)
	}
	if p := partitions[0]; p.Busiest.Text() != "hot" || math.Abs(p.BusiestUnits-0.75*p.Units) > 0.2*p.Units {
		t.Errorf("three of four reads are of the hot key: %+v", p)
	}
	if p := partitions[1]; p.Busiest.Type() != row.TypeNone || p.BusiestUnits != 0 {
		t.Errorf("a thousandth of the load is nothing: %+v", p)
	}
	keys := table.LoadedKeys()
	hot := slices.IndexFunc(keys, func(k LoadedKey) bool { return k.Key.Text() == "hot" })
	if hot < 0 || !slices.IsSortedFunc(keys, func(a, b LoadedKey) int { return slices.Compare(a.Key.Bytes(), b.Key.Bytes()) }) {
		t.Fatalf("%+v", keys)
	}
	for i, k := range keys {
		got += k.Reads
		if k.Writes != 0 || i > 0 && k.Key.Equal(keys[i-1].Key) {
			t.Errorf("%+v", k)
		}
	}
	if want == 0 || math.Abs(got-want) > 0.01*want || math.Abs(keys[hot].Reads-0.6*want) > 0.2*want {
		t.Errorf("%.1f units a second, %.1f of them of the hot key; want %.1f", got, keys[hot].Reads, want)
	}
	put(t, table, "m", 1, "c", startMillis, "v")
	for range 200 {
		put(t, table, "written", 1, "c", startMillis, "v")
	}
	r.clock.Advance(balance.Interval)
	if keys = table.LoadedKeys(); !slices.ContainsFunc(keys, func(k LoadedKey) bool { return k.Key.Text() == "written" && k.Writes > 0 && k.Reads == 0 }) {
		t.Errorf("after writes: %+v", keys)
	}
}

// TestTheLoadCountsValuesAsTheyWerePut: values that are packed, and then kept in value files, are read and written as
// large as ever.
func TestTheLoadCountsValuesAsTheyWerePut(t *testing.T) {
	const size, ops, halfLife = 256 << 10, 40, 20 * time.Second
	r := newRig(t, Options{})
	table := r.presplit("t", nil)
	value := row.String(strings.Repeat("compressible ", size/13))
	rise := func(what string, do func() error) {
		before := table.Partitions()[0]
		for range ops {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		r.clock.Advance(halfLife)
		p := table.Partitions()[0]
		// What was is worth half of itself now.
		per := ops / 2 / halfLife.Seconds()
		if bytes := (p.ByteRate - before.ByteRate/2) / per; bytes < size || bytes > size*1.01 {
			t.Errorf("%s: %.0f bytes", what, bytes)
		}
		if units := (p.Units - before.Units/2) / per; units < 63 || units > 66 {
			t.Errorf("%s: %.1f units", what, units)
		}
	}
	get := func() error { _, err := table.Get(ctx(), Key("k", 1), ReadOptions{}); return err }
	rise("put", func() error { return table.Put(ctx(), Key("k", 1), "c", startMillis, value) })
	half := row.String(value.Text()[:size/2+13])
	rise("put of columns in any order", func() error {
		return table.Update(ctx(), Key("k", 2), func(_ context.Context, tx *RowTx) error {
			tx.Put("b", startMillis, half)
			tx.Put("a", startMillis, half)
			return nil
		})
	})
	rise("put of which a part is overridden", func() error {
		return table.Update(ctx(), Key("k", 2), func(_ context.Context, tx *RowTx) error {
			tx.Put("a", startMillis, half)
			tx.Put("a", startMillis, value)
			return nil
		})
	})
	batch := r.store.NewBatch()
	rise("put in a batch without a version", func() error {
		batch.Reset()
		batch.Row(table, Key("k", 3)).Put("c", Now, value)
		return r.store.Apply(ctx(), batch)
	})
	rise("get from memory", get)
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	rise("get of a value in a value file", get)
}

// TestAScanIsTheSameLoadInMemoryAndOnDisk: what scans return counts, in any direction and however the rows are read.
func TestAScanIsTheSameLoadInMemoryAndOnDisk(t *testing.T) {
	const rows, ops, halfLife = 404, 10, 20 * time.Second
	r := newRig(t, Options{})
	table := r.presplit("t", nil)
	for n := range rows {
		put(t, table, fmt.Sprintf("key-%03d", n), 1, "c", startMillis, strings.Repeat("x", 300))
	}
	for _, where := range []string{"memory", "disk"} {
		for _, c := range []struct {
			limit       int
			reverse     bool
			least, most float64 // units
		}{{rows, false, 31, 33}, {rows, true, 31, 33}, {5, false, 1, 1}, {30, true, 3, 3}, {0, false, 0, 0}} {
			r.clock.Advance(time.Hour)
			table.Partitions()
			for range ops {
				scan := table.Scan(ctx(), nil, nil, ScanOptions{Reverse: c.reverse})
				for n := 0; n < c.limit && scan.Next(); n++ {
				}
				if err := scan.Close(); err != nil {
					t.Fatal(err)
				}
			}
			r.clock.Advance(halfLife)
			p, per := table.Partitions()[0], ops/2/halfLife.Seconds()
			if got, units := p.Reads/per, p.Units/per; math.Abs(got-float64(c.limit)) > 0.01 || units < c.least-0.01 || units > c.most+0.01 {
				t.Errorf("%d rows in %s, reverse %t: %.2f rows, %.2f units; want %.0f to %.0f", c.limit, where, c.reverse, got, units, c.least, c.most)
			}
		}
		if err := table.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysThatScansReturnAreLoaded scans the same hundred keys again and again, in memory and from files.
func TestKeysThatScansReturnAreLoaded(t *testing.T) {
	r := newRig(t, Options{})
	table := r.presplit("t", nil)
	for n := range 1000 {
		put(t, table, fmt.Sprintf("key-%04d", n), 1, "c", startMillis, strings.Repeat("x", 30))
	}
	for _, where := range []string{"memory", "disk"} {
		for range 3000 {
			for _, err := range table.Scan(ctx(), Key("key-0400"), Key("key-0500"), ScanOptions{}).All() {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		r.clock.Advance(balance.Interval)
		var all, low, outside float64
		for _, k := range table.LoadedKeys() {
			switch at := k.Key.Text(); {
			case at < "key-0400" || at >= "key-0500":
				outside += k.Reads
			case at < "key-0450":
				low += k.Reads
			}
			all += k.Reads
		}
		if all == 0 || outside > 0 || low < 0.25*all || low > 0.75*all {
			t.Errorf("%s: %.1f units a second, %.1f of them in the lower half, %.1f elsewhere", where, all, low, outside)
		}
		if err := table.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(time.Hour)
	}
}
