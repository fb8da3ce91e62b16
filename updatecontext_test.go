package flagstone

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// changes are all calls that change a store, by name. Those that change a row change ("p", 1); tx
// is a transaction of another row.
func changes(r *rig, table *Table, tx *Transaction) map[string]func(ctx context.Context) error {
	put := func(_ context.Context, tx *RowTx) error { tx.Put("c", startMillis, row.String("x")); return nil }
	batch := func() *Batch {
		b := r.store.NewBatch()
		b.Row(table, Key("p", 1)).Put("c", startMillis, row.String("x"))
		return b
	}
	return map[string]func(ctx context.Context) error{
		"Put":    func(ctx context.Context) error { return table.Put(ctx, Key("p", 1), "c", startMillis, row.Integer(1)) },
		"Delete": func(ctx context.Context) error { return table.Delete(ctx, Key("p", 1)) },
		"Update": func(ctx context.Context) error { return table.Update(ctx, Key("p", 1), put) },
		"UpdateAsync": func(ctx context.Context) error {
			_, err := table.UpdateAsync(ctx, Key("p", 1), put)
			return err
		},
		"UpdateRowsAsync": func(ctx context.Context) error {
			_, err := table.UpdateRowsAsync(ctx, [][]row.Value{Key("p", 1)}, func(ctx context.Context, rows []*RowTx) error { return put(ctx, rows[0]) })
			return err
		},
		"Apply": func(ctx context.Context) error { return r.store.Apply(ctx, batch()) },
		"ApplyAsync": func(ctx context.Context) error {
			_, err := r.store.ApplyAsync(ctx, batch())
			return err
		},
		"Begin": func(ctx context.Context) error {
			_, err := table.Begin(ctx, row.String("other"), TransactionOptions{})
			return err
		},
		"Alter": func(ctx context.Context) error {
			return table.Alter(ctx, TableChange{Options: &TableOptions{MaxVersions: 2}})
		},
		"CreateTable": func(ctx context.Context) error {
			_, err := r.store.CreateTable(ctx, TableSpec{Name: "made", Key: table.Info().Key})
			return err
		},
		"DropTable":  func(ctx context.Context) error { return r.store.DropTable(ctx, "t") },
		"Checkpoint": func(ctx context.Context) error { return r.store.Checkpoint(ctx, "/copy") },
		"Transaction.Update": func(ctx context.Context) error {
			return tx.Update(ctx, Key("tx", 1), put)
		},
		"Transaction.Commit": func(ctx context.Context) error { return tx.Commit(ctx) },
	}
}

// reads are all calls that read, by name.
func reads(table *Table, tx *Transaction) map[string]func(ctx context.Context) error {
	scan := func(rows *Rows) error {
		defer rows.Close()
		rows.Next()
		return rows.Err()
	}
	return map[string]func(ctx context.Context) error{
		"Get": func(ctx context.Context) error {
			_, err := table.Get(ctx, Key("p", 1), ReadOptions{})
			return err
		},
		"GetInto": func(ctx context.Context) error {
			_, err := table.GetInto(ctx, Key("p", 1), ReadOptions{}, new(Row))
			return err
		},
		"Scan":             func(ctx context.Context) error { return scan(table.Scan(ctx, nil, nil, ScanOptions{})) },
		"Transaction.Scan": func(ctx context.Context) error { return scan(tx.Scan(ctx, nil, nil, ScanOptions{})) },
		"Transaction.Get": func(ctx context.Context) error {
			_, err := tx.Get(ctx, Key("tx", 1), ReadOptions{})
			return err
		},
		"Stream.Since": func(ctx context.Context) error {
			_, err := table.Stream().Since(ctx, table.Stream().Shards()[0].ID, 0)
			return err
		},
		"Stream.Read": func(ctx context.Context) error {
			_, err := table.Stream().Read(ctx, StreamPosition{Shard: table.Stream().Shards()[0].ID, AsOf: startMillis * 1000}, StreamLimits{})
			return err
		},
		"Sample": func(ctx context.Context) error {
			_, err := table.Sample(ctx, 3)
			return err
		},
		"SplitPoints": func(ctx context.Context) error {
			_, err := table.SplitPoints(ctx, 1<<20, 0)
			return err
		},
	}
}

// contextRig has a table with a row and a stream, and an open transaction.
func contextRig(t *testing.T) (*rig, *Table, *Transaction) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "x")
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 100}}}); err != nil {
		t.Fatal(err)
	}
	return r, table, begin(t, table, "tx", TransactionOptions{})
}

func TestNothingIsBegunWithAContextThatHasEnded(t *testing.T) {
	r, table, tx := contextRig(t)
	ended, cancel := context.WithCancel(ctx())
	cancel()
	for _, calls := range []map[string]func(context.Context) error{changes(r, table, tx), reads(table, tx)} {
		for name, call := range calls {
			wantError(t, name, call(ended), context.Canceled)
		}
	}
	if !tx.Open() || show(t, table, "p", 1) != fmt.Sprintf("c@%d=x ", startMillis) {
		t.Error("something was changed")
	}
}

func TestTheFunctionOfAnUpdateIsRefusedChangesWithItsContext(t *testing.T) {
	type key struct{}
	for _, outer := range []context.Context{ctx(), context.WithValue(ctx(), key{}, "of the caller")} {
		r, table, tx := contextRig(t)
		try := func(inner context.Context) {
			t.Helper()
			if got, want := inner.Value(key{}), outer.Value(key{}); got != want {
				t.Errorf("the context has the value %v, want %v", got, want)
			}
			below, cancel := context.WithCancel(inner)
			defer cancel()
			for name, change := range changes(r, table, tx) {
				wantError(t, name, change(inner), ErrInvalid)
				wantError(t, name, change(below), ErrInvalid)
			}
		}
		for name, update := range map[string]func() error{
			"Update": func() error {
				return table.Update(outer, Key("p", 1), func(ctx context.Context, _ *RowTx) error { try(ctx); return nil })
			},
			"UpdateRowsAsync": func() error {
				_, err := table.UpdateRowsAsync(outer, [][]row.Value{Key("p", 1)}, func(ctx context.Context, _ []*RowTx) error { try(ctx); return nil })
				return err
			},
			"Transaction.Update": func() error {
				return tx.Update(outer, Key("tx", 1), func(ctx context.Context, _ *RowTx) error {
					try(ctx)
					for _, name := range []string{"Transaction.Get", "Transaction.Scan"} {
						err := reads(table, tx)[name](ctx)
						if wantError(t, name, err, ErrInvalid); !strings.Contains(err.Error(), "RowTx.Get") {
							t.Errorf("%s: %v does not say what to use", name, err)
						}
					}
					return nil
				})
			},
		} {
			if err := update(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// Reads are not refused, nor are changes of another store.
		other := newRig(t, Options{})
		err := table.Update(outer, Key("p", 1), func(ctx context.Context, _ *RowTx) error {
			for name, read := range reads(table, tx) {
				if err := read(ctx); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return other.table("t", TableOptions{}).Put(ctx, Key("p", 1), "c", startMillis, row.Integer(1))
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// With any other context a change in the function of an update waits for the
// update, and the update for it: until that context ends.
func TestAChangeWithinAnUpdateEndsAtItsDeadline(t *testing.T) {
	for _, name := range []string{"Put", "Delete", "Update", "UpdateAsync", "UpdateRowsAsync", "Apply", "ApplyAsync", "Begin", "Alter"} {
		synctest.Test(t, func(t *testing.T) {
			r, table, tx := contextRig(t)
			err := table.Update(ctx(), Key("p", 1), func(_ context.Context, change *RowTx) error {
				other, cancel := context.WithTimeout(ctx(), time.Second)
				defer cancel()
				wantError(t, name, changes(r, table, tx)[name](other), context.DeadlineExceeded)
				change.Put("c", startMillis, row.String("through the update"))
				return nil
			})
			if err != nil || show(t, table, "p", 1) != fmt.Sprintf("c@%d=through the update ", startMillis) {
				t.Errorf("%s: the update: %v, the row: %s", name, err, show(t, table, "p", 1))
			}
			// Nothing is held any more.
			again, err := table.Begin(ctx(), row.String("other"), TransactionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			again.Abort()
			tx.Abort()
			if err := changes(r, table, tx)[name](ctx()); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
			r.store.Close()
		})
	}
}

// A change of options that waits for an update holds up no other change of the
// catalogue.
func TestAnAlterationThatWaitsHoldsUpNoOtherChangeOfTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, table, tx := contextRig(t)
		release, waits := make(chan struct{}), make(chan struct{})
		altered := make(chan error, 1)
		go func() {
			_ = table.Update(ctx(), Key("p", 1), func(context.Context, *RowTx) error { close(waits); <-release; return nil })
		}()
		<-waits
		patient, end := context.WithCancel(ctx()) // one that cannot end would not let the time of the test pass
		defer end()
		go func() { altered <- changes(r, table, tx)["Alter"](patient) }()
		synctest.Wait()
		other, cancel := context.WithTimeout(ctx(), time.Second)
		defer cancel()
		for _, name := range []string{"CreateTable", "Checkpoint"} {
			wantError(t, name, changes(r, table, tx)[name](other), nil)
		}
		wantError(t, "new annotations", table.Alter(other, TableChange{Annotations: []byte("y")}), nil)
		wantError(t, "another one that waits", changes(r, table, tx)["Alter"](other), context.DeadlineExceeded)
		close(release)
		if err := <-altered; err != nil {
			t.Error(err)
		}
		r.store.Close()
	})
}

func TestATransactionIsNotWaitedForBeyondTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, table, tx := contextRig(t)
		err := tx.Update(ctx(), Key("tx", 1), func(context.Context, *RowTx) error {
			for _, calls := range []map[string]func(context.Context) error{changes(r, table, tx), reads(table, tx)} {
				for _, name := range []string{"Transaction.Update", "Transaction.Commit", "Transaction.Get", "Transaction.Scan"} {
					if call := calls[name]; call != nil {
						other, cancel := context.WithTimeout(ctx(), time.Second)
						wantError(t, name, call(other), context.DeadlineExceeded)
						cancel()
					}
				}
			}
			return nil
		})
		if err != nil || !tx.Open() {
			t.Errorf("open %v: %v", tx.Open(), err)
		}
		r.store.Close()
	})
}
