package flagstone

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// halves is a rig with a table of ten rows that is split in the middle.
func halves(t *testing.T, opts Options) (*rig, *Table) {
	t.Helper()
	r := newRig(t, opts)
	table := r.table("t", TableOptions{MaxVersions: 2})
	for n := range 10 {
		put(t, table, partitionKey(n), 0, "c", startMillis, fmt.Sprint(n))
	}
	wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(5))), nil)
	return r, table
}

// upper is the last partition of a table.
func upper(table *Table) Partition {
	list := table.Partitions()
	return list[len(list)-1]
}

// writers are all ways to write row 7, of the upper half. Those that write two rows write row 2 too.
func writers(r *rig, table *Table) map[string]func() error {
	change := func(_ context.Context, tx *RowTx) error {
		tx.Put("c", startMillis+1, row.String("new"))
		return nil
	}
	high, low := Key(partitionKey(7), 0), Key(partitionKey(2), 0)
	waited := func(c *Commit, err error) error {
		if err == nil {
			err = c.Wait(ctx())
		}
		return err
	}
	batch := func() *Batch {
		b := r.store.NewBatch()
		for _, key := range [][]row.Value{low, high} {
			b.Row(table, key).Put("c", startMillis+1, row.String("new"))
		}
		return b
	}
	return map[string]func() error{
		"Put":         func() error { return table.Put(ctx(), high, "c", startMillis+1, row.String("new")) },
		"Delete":      func() error { return table.Delete(ctx(), high) },
		"Update":      func() error { return table.Update(ctx(), high, change) },
		"UpdateAsync": func() error { return waited(table.UpdateAsync(ctx(), high, change)) },
		"UpdateRowsAsync": func() error {
			return waited(table.UpdateRowsAsync(ctx(), [][]row.Value{low, high}, func(ctx context.Context, rows []*RowTx) error {
				return errors.Join(change(ctx, rows[0]), change(ctx, rows[1]))
			}))
		},
		"BulkLoad": func() error {
			w, err := table.BulkLoad(ctx(), BulkOptions{})
			if err != nil {
				return err
			}
			defer w.Abort()
			if err := w.Put(Key(partitionKey(7), 9), BulkCell{"c", startMillis, row.String("new")}); err != nil {
				return err
			}
			return w.Commit(ctx())
		},
		"Apply":      func() error { return r.store.Apply(ctx(), batch()) },
		"ApplyAsync": func() error { return waited(r.store.ApplyAsync(ctx(), batch())) },
		"Unlatch": func() error {
			return table.Update(ctx(), high, func(ctx context.Context, tx *RowTx) error {
				if err := tx.Unlatch(); err != nil {
					return err
				}
				return change(ctx, tx)
			})
		},
		"Transaction": func() error {
			tx, err := table.Begin(ctx(), high[0], TransactionOptions{})
			if err != nil {
				return err
			}
			defer tx.Abort()
			if err := tx.Update(ctx(), high, change); err != nil {
				return err
			}
			return tx.Commit(ctx())
		},
	}
}

// wantRows checks that every row of the table is as halves made it.
func wantRows(t *testing.T, table *Table) {
	t.Helper()
	for n := range 10 {
		if got, want := show(t, table, partitionKey(n), 0), fmt.Sprintf("c@%d=%d ", startMillis, n); got != want {
			t.Fatalf("row %d: %s, want %s", n, got, want)
		}
	}
}

func TestS10_AFrozenPartitionTakesNoWritesAndAnswersReads(t *testing.T) {
	r, table := halves(t, Options{})
	id, epoch := upper(table).ID, upper(table).Epoch
	tx, err := table.Begin(ctx(), row.String(partitionKey(8)), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	wantError(t, "Update", tx.Update(ctx(), Key(partitionKey(8), 1), func(_ context.Context, tx *RowTx) error {
		tx.Put("c", startMillis, row.String("tx"))
		return nil
	}), nil)
	release := blocked(t, table, func(_ context.Context, tx *RowTx) error {
		tx.Put("c", startMillis, row.String("late"))
		return nil
	}, partitionKey(7), 0)
	wantError(t, "Freeze", table.Freeze(ctx(), id, "it moves to rack 7"), nil)
	wantError(t, "an update that began before", release(), ErrFrozen)
	wantError(t, "Commit", tx.Commit(ctx()), ErrFrozen)
	for again := range 2 {
		for name, write := range writers(r, table) {
			err := write()
			wantError(t, name, err, ErrFrozen)
			for _, part := range []string{`table "t"`, partitionKey(5), "it moves to rack 7"} {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("%s: %v does not name %q", name, err, part)
				}
			}
		}
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(7))), ErrFrozen)
		wantError(t, "Merge", table.Merge(ctx(), row.String(partitionKey(5))), ErrFrozen)
		wantError(t, "Compact", r.store.Compact(ctx()), nil)
		wantError(t, "Alter", table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 2 + int64(again)}}), nil)
		wantError(t, "a checkpoint", r.store.Checkpoint(ctx(), fmt.Sprint("/copy", again)), nil)
		wantRows(t, table)
		if p := upper(table); p.ID != id || p.Epoch <= epoch || p.State != PartitionFrozen || p.Reason != "it moves to rack 7" {
			t.Errorf("the partition is %+v", p)
		}
		if again == 0 {
			wantError(t, "Commit again", tx.Commit(ctx()), ErrFrozen)
			r.reopen()
			table = r.table("t", TableOptions{})
		}
	}
	wantError(t, "a write to another partition", table.Put(ctx(), Key(partitionKey(2), 1), "c", startMillis, row.String("x")), nil)
	wantError(t, "Unfreeze", table.Unfreeze(ctx(), id), nil)
	for name, write := range writers(r, table) {
		wantError(t, name+" afterwards", write(), nil)
	}
	wantError(t, "Split afterwards", table.Split(ctx(), row.String(partitionKey(7))), nil)
	if p := upper(table); p.State != PartitionServing || p.Reason != "" {
		t.Errorf("the partition is %+v", p)
	}
}

// TestS10_ATransactionCommitsOnceItsPartitionServes has one that was refused.
func TestS10_ATransactionCommitsOnceItsPartitionServes(t *testing.T) {
	_, table := halves(t, Options{})
	tx, err := table.Begin(ctx(), row.String(partitionKey(8)), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	wantError(t, "Update", tx.Update(ctx(), Key(partitionKey(8), 1), func(_ context.Context, tx *RowTx) error {
		tx.Put("c", startMillis, row.String("tx"))
		return nil
	}), nil)
	id := upper(table).ID
	wantError(t, "Freeze", table.Freeze(ctx(), id, "x"), nil)
	wantError(t, "Commit", tx.Commit(ctx()), ErrFrozen)
	wantError(t, "Unfreeze", table.Unfreeze(ctx(), id), nil)
	wantError(t, "Commit again", tx.Commit(ctx()), nil)
	if got := show(t, table, partitionKey(8), 1); got != fmt.Sprintf("c@%d=tx ", startMillis) {
		t.Error(got)
	}
}

// TestS10_NoWriteSlipsInBehindFreeze has writers that go on until they are refused.
func TestS10_NoWriteSlipsInBehindFreeze(t *testing.T) {
	store, err := Open("/store", Options{Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
	wantError(t, "Open", err, nil)
	defer store.Close()
	table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}}})
	wantError(t, "CreateTable", err, nil)
	id, rounds := upper(table).ID, 50
	if testing.Short() {
		rounds = 10
	}
	read := func() map[string]string {
		values := map[string]string{}
		for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
			wantError(t, "Scan", err, nil)
			values[r.Key()[0].Text()] = string(r.Cells()[0].Value)
		}
		return values
	}
	for round := range rounds {
		var wait sync.WaitGroup
		written := make([]string, 4)
		for w := range written {
			wait.Go(func() {
				for n := 0; ; n++ {
					value := fmt.Sprint("=", round, "/", n)
					switch err := table.Put(ctx(), Key(fmt.Sprint(w)), "c", startMillis, row.String(value)); {
					case err == nil:
						written[w] = value
					case errors.Is(err, ErrFrozen) && n > 0:
						return
					case !errors.Is(err, ErrFrozen):
						t.Error(err)
						return
					}
				}
			})
		}
		runtime.Gosched()
		wantError(t, "Freeze", table.Freeze(ctx(), id, "x"), nil)
		then := read()
		wait.Wait()
		now := read()
		for w, value := range written {
			if key := fmt.Sprint(w); !strings.HasSuffix(now[key], value) || now[key] != then[key] {
				t.Fatalf("writer %d wrote %s last, the row had %s after Freeze, and has %s", w, value, then[key], now[key])
			}
		}
		wantError(t, "Unfreeze", table.Unfreeze(ctx(), id), nil)
	}
}

func TestS10_WhatCannotBeFrozenOrDetached(t *testing.T) {
	_, table := halves(t, Options{})
	id := upper(table).ID
	wantError(t, "an unknown partition", table.Freeze(ctx(), 99, ""), ErrInvalid)
	wantError(t, "a long reason", table.Freeze(ctx(), id, strings.Repeat("x", 513)), ErrInvalid)
	wantError(t, "Detach without Freeze", table.Detach(ctx(), id, ""), ErrInvalid)
	wantRows(t, table)
	for name, write := range writers(nil, table) {
		if !strings.HasPrefix(name, "Apply") {
			wantError(t, name, write(), nil)
		}
	}
}

// TestS9_ADetachedPartitionAnswersNothing detaches the upper half while a scan reads it, a snapshot sees it
// and a transaction holds one of its rows.
func TestS9_ADetachedPartitionAnswersNothing(t *testing.T) {
	r, table := halves(t, Options{})
	wantError(t, "Compact", r.store.Compact(ctx()), nil)
	snapshot, err := r.store.Snapshot()
	wantError(t, "Snapshot", err, nil)
	defer snapshot.Close()
	scan := table.Scan(ctx(), Key(partitionKey(5)), nil, ScanOptions{})
	if !scan.Next() {
		t.Fatal(scan.Err())
	}
	tx, err := table.Begin(ctx(), row.String(partitionKey(8)), TransactionOptions{})
	wantError(t, "Begin", err, nil)

	id := upper(table).ID
	wantError(t, "Freeze", table.Freeze(ctx(), id, "moves"), nil)
	wantError(t, "Detach", table.Detach(ctx(), id, "it is in rack 7"), nil)
	n := 1
	for scan.Next() {
		n++
	}
	if wantError(t, "a scan that had begun", scan.Close(), nil); n != 5 {
		t.Errorf("it saw %d rows", n)
	}
	_, err = tx.Get(ctx(), Key(partitionKey(8), 0), ReadOptions{})
	wantError(t, "a transaction", err, ErrDetached)

	for again := range 2 {
		for name, write := range writers(r, table) {
			wantError(t, name, write(), ErrDetached)
		}
		reads := []ReadOptions{{}, {Columns: []string{}}}
		if again == 0 {
			reads = append(reads, ReadOptions{Snapshot: snapshot})
		}
		for _, opts := range reads {
			_, err := table.Get(ctx(), Key(partitionKey(7), 0), opts)
			wantError(t, "Get", err, ErrDetached)
			for _, reverse := range []bool{false, true} {
				var err error
				n := 0
				for _, failed := range table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: opts, Reverse: reverse}).All() {
					if err = failed; err == nil {
						n++
					}
				}
				wantError(t, "Scan", err, ErrDetached)
				if want := 5; !reverse && n != want || reverse && n != 0 {
					t.Errorf("the scan returned %d rows, reverse %v", n, reverse)
				}
			}
			_, err = table.Get(ctx(), Key(partitionKey(2), 0), opts)
			wantError(t, "Get of another partition", err, nil)
		}
		wantError(t, "an update that reads", table.Update(ctx(), Key(partitionKey(7), 0), func(_ context.Context, tx *RowTx) error {
			_, err := tx.Get(ReadOptions{})
			return err
		}), ErrDetached)
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(7))), ErrDetached)
		wantError(t, "Merge", table.Merge(ctx(), row.String(partitionKey(5))), ErrDetached)
		wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, "x"), ErrDetached)
		wantError(t, "Compact", r.store.Compact(ctx()), nil)
		if p := upper(table); p.ID == id || p.State != PartitionDetached || p.Reason != "it is in rack 7" || p.Bytes > 1000 {
			t.Errorf("the partition is %+v", p)
		}
		if again == 0 {
			r.reopen()
			table = r.table("t", TableOptions{})
		}
	}
	r.wantSound()
}

// wantSound closes the store and checks that every byte of it is sound and no file is left over.
func (r *rig) wantSound() {
	r.t.Helper()
	r.exec.RunAll() // also what deletes files
	wantError(r.t, "Close", r.store.Close(), nil)
	opts := r.opts
	opts.Seams.FS, opts.Seams.Clock = r.fs, r.clock
	report, err := Check(ctx(), "/store", opts, nil)
	if err != nil || len(report.Problems) > 0 || len(report.Orphans) > 0 {
		r.t.Errorf("%v, %+v", err, report)
	}
}
