package flagstone

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/row"
)

// versions returns the versions of the column c.
func versions(t *testing.T, table *Table, pk string) (found []int64) {
	t.Helper()
	r, err := table.Get(ctx(), Key(pk, 1), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cells() {
		found = append(found, c.Version)
	}
	return found
}

func TestNowIsTheTimeOfTheWrite(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	if err := table.Put(ctx(), Key("update", 1), "c", Now, row.Integer(1)); err != nil {
		t.Fatal(err)
	}
	tx, err := table.Begin(ctx(), row.String("transaction"), TransactionOptions{})
	if err == nil {
		err = tx.Update(ctx(), Key("transaction", 1), func(_ context.Context, tx *RowTx) error {
			tx.Put("c", Now, row.Integer(1))
			return nil
		})
	}
	if err := errors.Join(err, tx.Commit(ctx())); err != nil {
		t.Fatal(err)
	}
	for _, pk := range []string{"update", "transaction"} {
		if v := versions(t, table, pk); len(v) != 1 || v[0] != r.clock.NowMillis() {
			t.Errorf("%s: versions %d, now is %d", pk, v, r.clock.NowMillis())
		}
	}
	r.crash(0, 1) // everything is in the log
	table = r.table("t", TableOptions{})
	if v := versions(t, table, "update"); len(v) != 1 || v[0] != startMillis {
		t.Errorf("after recovery: versions %d", v)
	}
}

// TestABatchIsAsOldAsItsApplication: a batch that was gathered before another write, and applied
// after it, is not hidden by it. All its rows have one version, which a second attempt keeps.
func TestABatchIsAsOldAsItsApplication(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 100}})
	table := r.table("t", TableOptions{MaxVersions: 10})
	b := r.store.NewBatch()
	large := row.String(string(make([]byte, 1000))) // is packed
	b.Row(table, Key("a", 1)).Put("c", Now, large)
	b.Row(table, Key("a", 1)).Put("c", 5, row.Integer(5))
	b.Row(table, Key("b", 1)).Put("c", Now, row.Integer(1))
	r.clock.Advance(time.Minute)
	put(t, table, "a", 1, "c", Now, "earlier")
	r.clock.Advance(time.Minute)
	applied := r.clock.NowMillis()
	for range 2 {
		if err := r.store.Apply(ctx(), b); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(time.Minute)
	}
	got, err := table.Get(ctx(), Key("a", 1), ReadOptions{})
	if err != nil || got.Text("c") != large.Text() {
		t.Errorf("the newest value has %d bytes, %v", len(got.Bytes("c")), err)
	}
	if v := versions(t, table, "a"); len(v) != 3 || v[0] != applied || v[1] != startMillis+60_000 || v[2] != 5 {
		t.Errorf("versions %d, applied at %d", v, applied)
	}
	if v := versions(t, table, "b"); len(v) != 1 || v[0] != applied {
		t.Errorf("versions %d, applied at %d", v, applied)
	}
}

// TestNowOutsideOfLatchesIsStampedAtTheEnd: other writers may be faster than the function.
func TestNowOutsideOfLatchesIsStampedAtTheEnd(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	err := table.Update(ctx(), Key("a", 1), func(_ context.Context, tx *RowTx) error {
		tx.Put("c", Now, row.Integer(1))
		r.clock.Advance(time.Second)
		return tx.Unlatch()
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := versions(t, table, "a"); len(v) != 1 || v[0] != r.clock.NowMillis() {
		t.Errorf("versions %d, now is %d", v, r.clock.NowMillis())
	}
}

func TestNowIsNoVersionToDelete(t *testing.T) {
	r := newRig(t, Options{})
	err := r.table("t", TableOptions{}).Update(ctx(), Key("a", 1), func(_ context.Context, tx *RowTx) error {
		tx.DeleteVersion("c", Now)
		return nil
	})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestABatchThatFailedIsStampedAnew: nothing of it was written, so a write that comes before the
// next attempt must not hide it, and all its rows have one version.
func TestABatchThatFailedIsStampedAnew(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1, TTLSeconds: 3600})
	b := r.store.NewBatch()
	b.Row(table, Key("a", 1)).Put("c", Now, row.String("batch"))
	b.Row(table, Key("b", 1)).Put("c", math.MaxInt64-1, row.String("too far ahead"))
	wantError(t, "the first attempt", r.store.Apply(ctx(), b), ErrVersionOutOfRange)
	r.clock.Advance(time.Minute)
	put(t, table, "a", 1, "c", Now, "other")
	b.Row(table, Key("b", 1)).DeleteColumn("c")
	b.Row(table, Key("b", 1)).Put("c", Now, row.String("batch"))
	r.clock.Advance(2 * time.Hour)
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		got, err := table.Get(ctx(), Key(key, 1), ReadOptions{})
		if err != nil || got.Text("c") != "batch" || got.Cells()[0].Version != r.clock.NowMillis() {
			t.Errorf("row %s holds %v at %d: %v", key, got, r.clock.NowMillis(), err)
		}
	}
}

// TestNowIsOneTimeInAnUpdate: how long the function takes, and whether it holds latches, makes no
// difference.
func TestNowIsOneTimeInAnUpdate(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 10})
	change := func(tx *RowTx) {
		tx.Put("c", Now, row.Integer(1))
		r.clock.Advance(time.Second)
		tx.Put("c", Now, row.Integer(2))
		tx.Put("d", Now, row.Integer(3))
	}
	err := table.Update(ctx(), Key("latched", 1), func(_ context.Context, tx *RowTx) error { change(tx); return nil })
	if err != nil {
		t.Fatal(err)
	}
	err = table.Update(ctx(), Key("unlatched", 1), func(_ context.Context, tx *RowTx) error {
		if err := tx.Unlatch(); err != nil {
			return err
		}
		change(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"latched", "unlatched"} {
		got, err := table.Get(ctx(), Key(key, 1), ReadOptions{})
		if cells := got.Cells(); err != nil || len(cells) != 2 || cells[0].Version != cells[1].Version || got.Int64("c") != 2 {
			t.Errorf("%s: %v: %v", key, got, err)
		}
	}
}

// TestNowIsNotReadBeforeTheLatches: an update of several rows waits for a writer of one of them,
// whose versions are later than the wait began. It is ordered after that writer, and hides it.
func TestNowIsNotReadBeforeTheLatches(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	waits, cancel := context.WithCancel(ctx()) // so that latches count it
	defer cancel()
	hash := commit.RowHash(table.core.ID, rowKey(t, table, "a"))
	second := make(chan error, 1)
	err := table.Update(ctx(), Key("a", 1), func(_ context.Context, tx *RowTx) error {
		go func() {
			c, err := table.UpdateRowsAsync(waits, [][]row.Value{Key("a", 1), Key("b", 1)}, func(_ context.Context, rows []*RowTx) error {
				for _, tx := range rows {
					tx.Put("c", Now, row.String("second"))
					r.clock.Advance(time.Second)
				}
				return nil
			})
			if err == nil {
				err = c.Wait(ctx())
			}
			second <- err
		}()
		for r.store.latches.Waiting(hash) == 0 {
			runtime.Gosched()
		}
		r.clock.Advance(time.Minute)
		tx.Put("c", Now, row.String("first"))
		return nil
	})
	if err := errors.Join(err, <-second); err != nil {
		t.Fatal(err)
	}
	a, b := versions(t, table, "a"), versions(t, table, "b")
	got, err := table.Get(ctx(), Key("a", 1), ReadOptions{})
	if err != nil || got.Text("c") != "second" || len(b) != 1 || a[0] != b[0] {
		t.Errorf("row a holds %v, versions %d and %d: %v", got, a, b, err)
	}
}

func rowKey(t *testing.T, table *Table, pk string) []byte {
	t.Helper()
	key, err := table.core.EncodeKey(nil, Key(pk, 1))
	if err != nil {
		t.Fatal(err)
	}
	return key
}
