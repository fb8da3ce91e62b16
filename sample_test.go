package flagstone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// sampledTable makes a table of two key columns on a simulated disk.
func sampledTable(t *testing.T) (*Store, *Table) {
	t.Helper()
	store, err := Open("/store", Options{Compression: CompressionNone, Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(context.Background(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		Options: TableOptions{MaxVersionOffsetSeconds: 1 << 40},
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, table
}

// TestASampleIsSpreadOverTheBytesOfATable: one partition key in four has half of
// the bytes, in memory and on disk, in a table of few blocks and in one of many.
func TestASampleIsSpreadOverTheBytesOfATable(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what        string
		flushes     bool
		rows, wants int
	}{
		{"all in memory", false, 4000, 200},
		{"few blocks", true, 1000, 200},
		{"many blocks", true, 8000, 50},
	} {
		store, table := sampledTable(t)
		for i := range c.rows {
			p := "heavy"
			if i%2 == 1 {
				p = fmt.Sprintf("light-%d", i%6)
			}
			err := table.Update(ctx, Key(p, i), func(_ context.Context, tx *RowTx) error {
				tx.Put("c", startMillis+int64(i), row.String(strings.Repeat("x", 400)))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.flushes && i == c.rows/2 {
				if err := store.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if c.flushes {
			if err := store.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		sample, err := table.Sample(ctx, c.wants)
		if err != nil {
			t.Fatal(err)
		}
		var heavy, total int64
		last := ""
		for _, s := range sample {
			total += s.Bytes
			if s.Key[0].Text() == "heavy" {
				heavy += s.Bytes
			}
			if s.Version != startMillis+s.Key[1].Int64() {
				t.Errorf("%s: row %v has version %d", c.what, s.Key, s.Version)
			}
			key := fmt.Sprintf("%s %020d", s.Key[0].Text(), s.Key[1].Int64())
			if key < last {
				t.Errorf("%s: %s comes after %s", c.what, key, last)
			}
			last = key
		}
		part := float64(heavy) / float64(total)
		t.Logf("%s: %d rows, %.2f of %d bytes", c.what, len(sample), part, total)
		if len(sample) < c.wants*9/10 || part < 0.42 || part > 0.58 {
			t.Errorf("%s: %d rows, of which the heavy key has %.2f", c.what, len(sample), part)
		}
		if size := table.ApproximateSize(); total < size/2 || total > size*2 {
			t.Errorf("%s: the sample stands for %d bytes, the table has %d", c.what, total, size)
		}
	}
}

// TestASampleIsNoLoad: by any of its ways, and in memory as on disk.
func TestASampleIsNoLoad(t *testing.T) {
	r := newRig(t, Options{Compression: CompressionNone})
	table := r.presplit("t", nil)
	for i := range 1000 {
		put(t, table, "k", i, "c", startMillis, strings.Repeat("x", 5000))
	}
	units := func(look func() (int, error)) float64 {
		r.clock.Advance(time.Hour)
		before := table.Partitions()[0].Units
		if n, err := look(); err != nil || n == 0 {
			t.Fatalf("%d rows, %v", n, err)
		}
		r.clock.Advance(time.Second)
		return table.Partitions()[0].Units - before
	}
	for _, where := range []string{"memory", "disk"} {
		for _, n := range []int{10, 1000} {
			for what, sample := range map[string]func() ([]SampledRow, error){
				"Sample":    func() ([]SampledRow, error) { return table.Sample(ctx(), n) },
				"SampleKey": func() ([]SampledRow, error) { return table.SampleKey(ctx(), row.String("k"), n) },
			} {
				if u := units(func() (int, error) { rows, err := sample(); return len(rows), err }); u > 0 {
					t.Errorf("%s of %d rows in %s: %.1f units", what, n, where, u)
				}
			}
		}
		if u := units(func() (n int, err error) {
			for _, err = range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
				n++
			}
			return n, err
		}); u < 1 {
			t.Errorf("a scan of %s: %.1f units", where, u)
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASampleOfLittleOrNothing(t *testing.T) {
	ctx := context.Background()
	_, table := sampledTable(t)
	if sample, err := table.Sample(ctx, 10); err != nil || len(sample) != 0 {
		t.Errorf("of an empty table: %v, %v", sample, err)
	}
	for i := range 7 {
		if err := table.Update(ctx, Key("p", i), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Delete(ctx, Key("p", 3)); err != nil {
		t.Fatal(err)
	}
	sample, err := table.Sample(ctx, 100)
	if err != nil || len(sample) != 6 || sample[3].Key[1].Int64() != 4 || sample[0].Version != 0 {
		t.Errorf("of six rows: %v, %v", sample, err)
	}
	if _, err := table.Sample(ctx, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("of no rows: %v", err)
	}
}

// TestLargeValuesWeighWhatTheyTake: sixty rows of 256 KiB under one key have nearly all of the
// bytes, wherever the values lie and however many small rows there are.
func TestLargeValuesWeighWhatTheyTake(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		small, wants int
		flushed      bool
	}{
		{500, 2000, false}, {500, 2000, true}, // all rows
		{4000, 200, false}, {4000, 200, true}, // one of many
		{40_000, 20, false}, {40_000, 20, true}, // too many to look at
	} {
		store, table := sampledTable(t)
		value := row.String(strings.Repeat("x", 256<<10))
		var large, all int64
		for i := range c.small + 60 {
			p, v := fmt.Sprint(100+i%800), row.Integer(int64(i))
			if i%(c.small/60+1) == 0 {
				p, v = "heavy", value
				large += 256 << 10
			}
			all += int64(v.Size())
			err := table.Update(ctx, Key(p, i), func(_ context.Context, tx *RowTx) error {
				tx.Put("c", startMillis, v)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if c.flushed {
			if err := store.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		sample, err := table.Sample(ctx, c.wants)
		if err != nil {
			t.Fatal(err)
		}
		var heavy, total int64
		for i, s := range sample {
			own := s.Own
			if total += s.Bytes; s.Key[0].Text() == "heavy" {
				heavy += s.Bytes
				own -= 256 << 10 // however well the value compresses
			}
			if own < 1 || own > 64 {
				t.Errorf("%+v: a row of %s has %d bytes of its own", c, s.Key[0].Text(), s.Own)
			}
			if i > 0 && sample[i-1].Key[0].Text() > s.Key[0].Text() {
				t.Errorf("%+v: row %d is out of order", c, i)
			}
		}
		const keys = 17 // and the name of the column
		part, want := float64(heavy)/float64(total), float64(large)/float64(all+int64(c.small)*keys)
		t.Logf("%+v: %d rows, the heavy key has %.4f of %d bytes, %.4f would be right", c, len(sample), part, total, want)
		if part < want-0.05 || part > want+0.05 || c.small == 500 && part < 0.99 {
			t.Errorf("%+v: the heavy key has %.4f, want %.4f", c, part, want)
		}
		if c.small < c.wants && len(sample) < c.small {
			t.Errorf("%+v: only %d rows", c, len(sample))
		}
		if size := table.ApproximateSize(); total < size/2 || total > size*2 {
			t.Errorf("%+v: the sample stands for %d bytes, the table has %d", c, total, size)
		}
	}
}

// TestARowStandsForThoseAroundItTheRatherTheLargerItIs: each row has its own partition key, so a
// small row that represents a large neighbour would be charged with its bytes.
func TestARowStandsForThoseAroundItTheRatherTheLargerItIs(t *testing.T) {
	store, table := sampledTable(t)
	value := row.String(strings.Repeat("x", 64<<10))
	for i := range 1000 {
		v := row.String("small")
		if i%25 == 7 {
			v = value
		}
		if err := table.Put(ctx(), Key(fmt.Sprintf("%04d", i), i), "c", startMillis, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	sample, err := table.Sample(ctx(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var large, total int64
	for _, s := range sample {
		if total += s.Bytes; s.Key[1].Int64()%25 == 7 {
			large += s.Bytes
		}
	}
	if len(sample) > 200 || large < total*9/10 {
		t.Errorf("%d rows: the large ones have %d of %d bytes", len(sample), large, total)
	}
}

// TestVersionsThatAFlushDropsWeighNothing overwrites the rows of one key many times. Neither it nor its
// neighbours, which are sampled from its bytes, seem larger for that.
func TestVersionsThatAFlushDropsWeighNothing(t *testing.T) {
	_, table := sampledTable(t)
	value := row.String(strings.Repeat("x", 200))
	for i := range 4000 {
		if err := table.Put(ctx(), Key(fmt.Sprintf("%04d", i/4), i), "c", startMillis, value); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := table.Put(ctx(), Key("0500x", i%8), "c", startMillis+int64(i), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	sample, err := table.Sample(ctx(), 100)
	if err != nil {
		t.Fatal(err)
	}
	tenths, total := [10]int64{}, int64(0)
	for _, s := range sample {
		tenths[s.Key[0].Text()[1]-'0'] += s.Bytes
		total += s.Bytes
	}
	for i, size := range tenths {
		if size < total/20 || size > total*3/20 {
			t.Errorf("tenth %d has %d of %d bytes", i, size, total)
		}
	}
}

// TestASampleOfAKeyPassesABoundedNumberOfDeletedRows has 1000 of them between two rows.
func TestASampleOfAKeyPassesABoundedNumberOfDeletedRows(t *testing.T) {
	_, table := sampledTable(t)
	for i := range 1002 {
		if err := table.Put(ctx(), Key("p", i), "c", startMillis, row.Integer(1)); err != nil {
			t.Fatal(err)
		}
		if i%1001 == 0 {
			continue
		}
		if err := table.Delete(ctx(), Key("p", i)); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]int{2: 1, 100: 2} {
		sample, err := table.SampleKey(ctx(), row.String("p"), n)
		if err != nil || len(sample) != want || sample[0].Key[1].Int64() != 0 {
			t.Errorf("of %d rows: %v, %v", n, sample, err)
		}
	}
}
