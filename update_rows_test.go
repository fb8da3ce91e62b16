package flagstone

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

func TestRowsUpdatedTogetherAreOneStep(t *testing.T) {
	ctx := context.Background()
	s, err := Open("/store", Options{Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{}), Clock: clocktest.NewManual(1_500_000_000_000)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table, err := s.CreateTable(ctx, TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	value := func(k int) int64 {
		r, err := table.Get(ctx, Key(k), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			return 0
		}
		v, _ := r.Value("n")
		return v.Int64()
	}
	update := func(fn func(_ context.Context, rows []*RowTx) error, keys ...int) error {
		tuples := make([][]row.Value, len(keys))
		for i, k := range keys {
			tuples[i] = Key(k)
		}
		c, err := table.UpdateRowsAsync(ctx, tuples, fn)
		if err != nil {
			return err
		}
		return c.Wait(ctx)
	}
	put := func(tx *RowTx, n int64) { tx.Put("n", s.NowMillis(), row.Integer(n)) }

	if err := update(func(_ context.Context, rows []*RowTx) error {
		if rows[0] != rows[2] || rows[0] == rows[1] {
			t.Error("the same row is not the same change")
		}
		put(rows[0], 1)
		put(rows[1], 2)
		put(rows[2], 10)
		return nil
	}, 1, 2, 1); err != nil || value(1) != 10 || value(2) != 2 {
		t.Errorf("%v; rows are %d and %d", err, value(1), value(2))
	}
	refusal := errors.New("refused")
	if err := update(func(_ context.Context, rows []*RowTx) error { put(rows[0], 7); return refusal }, 1, 2); !errors.Is(err, refusal) || value(1) != 10 {
		t.Errorf("%v; row is %d", err, value(1))
	}
	if err := update(func(_ context.Context, rows []*RowTx) error {
		put(rows[0], 7)
		rows[1].Put("n", 1, row.Min())
		return nil
	}, 1, 2); !errors.Is(err, ErrInvalid) || value(1) != 10 {
		t.Errorf("%v; row is %d", err, value(1))
	}
	if err := update(func(context.Context, []*RowTx) error { return nil }, 1, 2); err != nil {
		t.Error(err)
	}
	if err := update(func(context.Context, []*RowTx) error { return nil }); err != nil {
		t.Error("no rows: ", err)
	}
	if _, err := table.UpdateRowsAsync(ctx, [][]row.Value{Key(1), Key("x")}, nil); !errors.Is(err, ErrInvalid) {
		t.Error("a key of another type: ", err)
	}

	// Every step moves one from a row to another; the sum stays.
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 50 {
				from, to := (w+i)%4+1, (w*i+i)%4+1
				if from == to {
					continue
				}
				if err := update(func(_ context.Context, rows []*RowTx) error {
					for i, by := range []int64{-1, 1} {
						r, err := rows[i].Get(ReadOptions{})
						if err != nil {
							return err
						}
						n := by
						if r != nil {
							v, _ := r.Value("n")
							n += v.Int64()
						}
						put(rows[i], n)
					}
					return nil
				}, from, to); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sum := int64(0)
	for k := range 4 {
		sum += value(k + 1)
	}
	if sum != 12 {
		t.Errorf("the sum is %d, want 12", sum)
	}
}
