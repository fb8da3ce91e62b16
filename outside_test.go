package flagstone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/row"
)

// add is the function of an update that takes long: it adds one to a counter, and calls a
// function while no latch is held.
func add(t *testing.T, meanwhile func(run int)) func(ctx context.Context, tx *RowTx) error {
	runs := 0
	return func(_ context.Context, tx *RowTx) error {
		if err := tx.Unlatch(); err != nil {
			return err
		}
		found, err := tx.Get(ReadOptions{})
		if err != nil {
			return err
		}
		n := int64(0)
		if found != nil {
			v, _ := found.Value("n")
			n = v.Int64()
		}
		runs++
		meanwhile(runs)
		tx.Put("n", startMillis, row.Integer(n+1))
		return nil
	}
}

func TestALongUpdateHoldsUpNoWriterAndLosesNoWrite(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		r := newRig(t, Options{})
		table := r.table("t", TableOptions{})
		set := func(n int64) {
			wantError(t, "a put", table.Put(ctx(), Key("p", 1), "n", startMillis, row.Integer(n)), nil)
			if flushed {
				wantError(t, "Flush", r.store.Flush(ctx()), nil)
			}
		}
		value := func() int64 { return counter(t, table, 1) }
		set(10)
		runs := 0
		wantError(t, "alone", table.Update(ctx(), Key("p", 1), add(t, func(run int) { runs = run })), nil)
		if got := value(); runs != 1 || got != 11 {
			t.Errorf("after %d runs the row is %d", runs, got)
		}
		// The row changes twice, and then another row of the same latch.
		other := 0
		for stripeOfRow(table, "q", other) != stripeOfRow(table, "p", 1) {
			other++
		}
		wantError(t, "disturbed", table.Update(ctx(), Key("p", 1), add(t, func(run int) {
			if runs = run; run < 3 {
				set(int64(100 * run))
			} else if !flushed { // what was flushed may have been of the row
				wantError(t, "a put", table.Put(ctx(), Key("q", other), "n", startMillis, row.Integer(1)), nil)
			}
		})), nil)
		if got := value(); runs != 3 || got != 201 {
			t.Errorf("after %d runs the row is %d", runs, got)
		}
		refused := errors.New("refused")
		wantError(t, "a refusal that was out of date", table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
			if err := tx.Unlatch(); err != nil {
				return err
			}
			if runs++; runs == 4 {
				set(0)
				return refused
			}
			return nil
		}), nil)
		runs = 0
		wantError(t, "disturbed each time", table.Update(ctx(), Key("p", 1), add(t, func(run int) {
			runs = run
			set(int64(run))
		})), ErrConflict)
		if got := value(); runs != outsideAttempts || got != int64(runs) {
			t.Errorf("after %d runs the row is %d", runs, got)
		}
	}
}

// counter is what an add adds to.
func counter(t *testing.T, table *Table, n int) int64 {
	t.Helper()
	found, err := table.Get(ctx(), Key("p", n), ReadOptions{})
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	v, _ := found.Value("n")
	return v.Int64()
}

func stripeOfRow(table *Table, key ...any) uint32 {
	return commit.StripeOf(commit.RowHash(table.core.ID, must(table.core.EncodeKey(nil, Key(key...)))))
}

func TestALongUpdateOfSeveralRowsSeesNoneOfThemChange(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	runs := 0
	commit, err := table.UpdateRowsAsync(ctx(), [][]row.Value{Key("p", 1), Key("p", 2), Key("p", 1)}, func(_ context.Context, rows []*RowTx) error {
		if err := rows[1].Unlatch(); err != nil {
			return err
		}
		if runs++; runs == 1 {
			wantError(t, "a put", table.Put(ctx(), Key("p", 2), "n", startMillis, row.Integer(1)), nil)
		}
		exists, err := rows[1].Exists()
		if exists {
			rows[0].Put("n", startMillis, row.Integer(5))
		}
		return err
	})
	if err == nil {
		err = commit.Wait(ctx())
	}
	wantError(t, "UpdateRowsAsync", err, nil)
	if got := counter(t, table, 1); runs != 2 || got != 5 {
		t.Errorf("after %d runs the row is %d", runs, got)
	}
	tx := begin(t, table, "p", TransactionOptions{})
	defer tx.Abort()
	err = tx.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { return tx.Unlatch() })
	wantError(t, "a function that holds up nobody", err, nil)
}

// TestALargeReadOfAnUpdateIsMadeWithoutTheLatch reads rows of many cells, live and
// dead, and of many bytes, in memory and in files.
func TestALargeReadOfAnUpdateIsMadeWithoutTheLatch(t *testing.T) {
	for name, c := range map[string]struct {
		fill  func(tx *RowTx)
		times int // the function runs
	}{
		"small": {func(tx *RowTx) { tx.Put("c", 1, row.String(strings.Repeat("x", 100_000))) }, 1},
		"many cells": {func(tx *RowTx) {
			for i := range latchedCells + 1 {
				tx.Put(fmt.Sprint("c", i), 1, row.Integer(1))
			}
		}, 2},
		"many deletes": {func(tx *RowTx) {
			for i := range int64(latchedCells + 1) {
				tx.Put("c", i, row.Integer(1))
				tx.DeleteVersion("c", i)
			}
			tx.Put("d", 1, row.Integer(1))
		}, 2},
		"many bytes": {func(tx *RowTx) {
			for i := range 20 {
				tx.Put(fmt.Sprint("c", i), 1, row.String(strings.Repeat(fmt.Sprint(i), 50_000)))
			}
		}, 2},
	} {
		for _, flushed := range []bool{false, true} {
			r := newRig(t, Options{})
			table := r.table("t", TableOptions{MaxVersions: 1 << 30})
			wantError(t, name, table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { c.fill(tx); return nil }), nil)
			if flushed {
				wantError(t, name, r.store.Flush(ctx()), nil)
			}
			want := show(t, table, "p", 1)
			times, latched := 0, 0
			wantError(t, name, table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
				times++
				found, err := tx.Get(ReadOptions{})
				if err != nil {
					latched++
					return nil // the function runs again even if it returns no error
				}
				if got, err := table.Get(ctx(), Key("p", 1), ReadOptions{}); err != nil || len(found.Cells()) != len(got.Cells()) {
					t.Errorf("%s: %d cells, want %d: %v", name, len(found.Cells()), len(got.Cells()), err)
				}
				return nil
			}), nil)
			if flushed && name == "many deletes" {
				c.times = 1 // the flush left them out
			}
			if times != c.times || latched != c.times-1 {
				t.Errorf("%s, flushed %v: the function ran %d times, and %d times was its read refused", name, flushed, times, latched)
			}
			if got := show(t, table, "p", 1); got != want {
				t.Errorf("%s: the row changed", name)
			}
		}
	}
	// A read that exceeds the function's own bound fails, and does not run again.
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", 1, "xyz")
	wantError(t, "MaxBytes", table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		_, err := tx.Get(ReadOptions{MaxBytes: 50})
		return err
	}), ErrRowTooLarge)
}

// TestManyVersionsAreLookedAtWithoutTheLatch deletes one version of a column that has many: of a full one, whose
// surplus version must not come back, and of one that is not full.
func TestManyVersionsAreLookedAtWithoutTheLatch(t *testing.T) {
	const versions = latchedCells + 2
	for name, c := range map[string]struct {
		limit int64 // of versions
		want  int   // versions, after one was deleted
		runs  int
	}{
		"full":     {versions - 1, versions - 2, 2},
		"not full": {1 << 30, versions - 1, 2},
		"few":      {2, 1, 1},
	} {
		for _, flushed := range []bool{false, true} {
			r := newRig(t, Options{})
			table := r.table("t", TableOptions{MaxVersions: c.limit})
			wantError(t, name, table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
				for i := range int64(versions) {
					tx.Put("c", i, row.Integer(i))
				}
				return nil
			}), nil)
			if flushed {
				wantError(t, name, r.store.Flush(ctx()), nil)
			}
			runs := 0
			wantError(t, name, table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
				runs++
				tx.DeleteVersion("c", versions-1)
				return nil
			}), nil)
			found, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
			if err != nil || len(found.Cells()) != c.want || runs != c.runs {
				t.Errorf("%s, flushed %v: %d versions after %d runs, want %d after %d: %v", name, flushed, len(found.Cells()), runs, c.want, c.runs, err)
			}
		}
	}
}

// TestAReadLooksAtSoManyCells, visible or not.
func TestAReadLooksAtSoManyCells(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	wantError(t, "Update", table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		for i := range 100 {
			tx.Put(fmt.Sprint("c", i), 1, row.Integer(1))
		}
		return nil
	}), nil)
	for _, c := range []struct {
		opts ReadOptions
		want error
	}{
		{ReadOptions{MaxCells: 200}, nil},
		{ReadOptions{MaxCells: 50}, ErrRowTooLarge},
		{ReadOptions{MaxCells: 50, MinVersion: 2}, ErrRowTooLarge}, // none of them is wanted
		{ReadOptions{MaxCells: 50, Columns: []string{"c7"}}, nil},
		{ReadOptions{MaxCells: -1}, ErrInvalid},
	} {
		_, err := table.Get(ctx(), Key("p", 1), c.opts)
		wantError(t, fmt.Sprintf("%+v", c.opts), err, c.want)
	}
	// The markers of a row that was deleted are cells to look at, too.
	for second := range int64(100) {
		wantError(t, "Put", table.Put(ctx(), Key("p", 2), "c", 1000*second, row.Integer(1)), nil)
	}
	wantError(t, "Delete", table.Delete(ctx(), Key("p", 2)), nil)
	for most, want := range map[int]error{0: nil, 50: ErrRowTooLarge} {
		_, err := table.Get(ctx(), Key("p", 2), ReadOptions{MaxCells: most})
		wantError(t, fmt.Sprint("a deleted row, MaxCells ", most), err, want)
	}
	rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{MaxCells: 1}})
	defer rows.Close()
	wantError(t, "Scan", rows.Err(), ErrInvalid)
}

// TestADeleteOfAVersionRunsAgainIfTheRowChanges while it is made without the latch.
func TestADeleteOfAVersionRunsAgainIfTheRowChanges(t *testing.T) {
	const limit = latchedCells + 1
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: limit})
	wantError(t, "Update", table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		for i := range int64(limit + 1) {
			tx.Put("c", i, row.Integer(i))
		}
		return nil
	}), nil)
	runs := 0
	wantError(t, "Update", table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		if runs++; runs == 2 {
			put(t, table, "p", 1, "c", limit+1, "new")
		}
		tx.DeleteVersion("c", limit)
		tx.Put("a", Now, row.Integer(1))
		return nil
	}), nil)
	found, err := table.Get(ctx(), Key("p", 1), ReadOptions{Columns: []string{"c"}})
	if err != nil || runs != 3 || len(found.Cells()) != limit-1 {
		t.Errorf("%d versions after %d runs: %v", len(found.Cells()), runs, err)
	}
}
