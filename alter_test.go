package flagstone

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// blocked runs an update of one row until release is called, and returns when its
// function runs.
func blocked(t *testing.T, table *Table, fn func(ctx context.Context, tx *RowTx) error, key ...any) (release func() error) {
	t.Helper()
	running, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var first sync.Once
	go func() {
		ended <- table.Update(context.Background(), Key(key...), func(ctx context.Context, tx *RowTx) error {
			err := fn(ctx, tx)
			first.Do(func() {
				close(running)
				<-goOn
			})
			return err
		})
	}()
	<-running
	return func() error {
		close(goOn)
		return <-ended
	}
}

// waitsFor returns when n callers wait for the latch of a row.
func (s *Store) waitsFor(table *Table, callers int32, key ...any) {
	encoded, err := table.core.EncodeKey(nil, Key(key...))
	if err != nil {
		panic(err)
	}
	for int32(s.latches.Waiting(commit.RowHash(table.core.ID, encoded))) < callers {
		runtime.Gosched()
	}
}

// TestNoWriterWaitsForAnAlterOrABeginThatWaits holds one latch with an update, and writes to rows
// of all others.
func TestNoWriterWaitsForAnAlterOrABeginThatWaits(t *testing.T) {
	r := newRig(t, Options{})
	table, other := r.table("t", TableOptions{}), r.table("other", TableOptions{})
	release := blocked(t, table, func(context.Context, *RowTx) error { return nil }, "blocked", 0)
	cancelled, cancel := context.WithCancel(context.Background())
	limited, stop := context.WithTimeout(context.Background(), time.Minute) // of a test that fails
	defer stop()
	ended := make(chan error, 2)
	alter := func(ctx context.Context) {
		ended <- table.Alter(ctx, TableChange{Options: &TableOptions{MaxVersions: 3}})
	}
	begin := func(ctx context.Context) {
		tx, err := table.Begin(ctx, row.String("p"), TransactionOptions{})
		if err == nil {
			tx.Abort()
		}
		ended <- err
	}
	go alter(cancelled)
	go begin(cancelled)
	r.store.waitsFor(table, 2, "blocked", 0)
	cancel()
	for range 2 {
		wantError(t, "what waits, cancelled", <-ended, context.Canceled)
	}
	go alter(limited)
	go begin(limited)
	r.store.waitsFor(table, 2, "blocked", 0)
	held := commit.StripeOf(commit.RowHash(table.core.ID, must(table.core.EncodeKey(nil, Key("blocked", 0)))))
	for n := range 4 * commit.Stripes {
		for _, to := range []*Table{table, other} {
			if commit.StripeOf(commit.RowHash(to.core.ID, must(to.core.EncodeKey(nil, Key("q", n))))) != held {
				wantError(t, "a put", to.Put(limited, Key("q", n), "c", startMillis, row.Integer(1)), nil)
			}
		}
	}
	wantError(t, "an alteration of another table", other.Alter(limited, TableChange{Annotations: []byte("x")}), nil)
	wantError(t, "what was blocked", release(), nil)
	for range 2 {
		wantError(t, "what waited", <-ended, nil)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestAnUpdateRunsAgainIfItsTableIsAlteredMeanwhile checks that an update reads and deletes by
// the options under which it is written.
func TestAnUpdateRunsAgainIfItsTableIsAlteredMeanwhile(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	for v := range int64(3) {
		put(t, table, "p", 1, "c", startMillis+v, fmt.Sprint(v))
	}
	var seen []int
	release := blocked(t, table, func(_ context.Context, tx *RowTx) error {
		found, err := tx.Get(ReadOptions{})
		if err == nil {
			seen = append(seen, len(found.Cells()))
			tx.DeleteVersion("c", startMillis+2)
		}
		return err
	}, "p", 1)
	// An alteration that began to wait before the update would let it finish.
	err := r.store.change(ctx(), func() error {
		e, err := table.alteration(&TableChange{Options: &TableOptions{MaxVersions: 2}})
		if err != nil {
			return err
		}
		return table.alter(e)
	})
	wantError(t, "Alter", err, nil)
	wantError(t, "Update", release(), nil)
	if fmt.Sprint(seen) != "[1 2]" {
		t.Errorf("the update saw so many cells: %v", seen)
	}
	// Under the old limit the delete would have hidden the older versions.
	if got := show(t, table, "p", 1); got != "c@1700000000001=1 " {
		t.Errorf("row is %s", got)
	}
}

// TestWritersAndAlterationsOfOneTable runs all kinds of writers while the limit of versions and
// the stream change all the time.
func TestWritersAndAlterationsOfOneTable(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2})
	const rounds = 200
	var writers sync.WaitGroup
	check := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	increment := func(_ context.Context, tx *RowTx) error {
		found, err := tx.Get(ReadOptions{MaxVersions: 1})
		if err != nil {
			return err
		}
		n := int64(0)
		if found != nil {
			v, _ := found.Value("n")
			n = v.Int64()
		}
		tx.Put("n", startMillis+n, row.Integer(n+1))
		return nil
	}
	for range 2 {
		writers.Go(func() {
			for range rounds {
				check("Update", table.Update(ctx(), Key("update", 0), increment))
			}
		})
		writers.Go(func() {
			for range rounds {
				c, err := table.UpdateRowsAsync(ctx(), [][]row.Value{Key("rows", 0), Key("rows", 1)}, func(ctx context.Context, rows []*RowTx) error {
					return errors.Join(increment(ctx, rows[0]), increment(ctx, rows[1]))
				})
				if err == nil {
					err = c.Wait(ctx())
				}
				check("UpdateRowsAsync", err)
			}
		})
	}
	writers.Go(func() {
		for n := range rounds {
			b := r.store.NewBatch()
			b.Row(table, Key("batch", 0)).Put("n", startMillis+int64(n), row.Integer(int64(n+1)))
			check("Apply", r.store.Apply(ctx(), b))
		}
	})
	writers.Go(func() {
		for range rounds {
			tx, err := table.Begin(ctx(), row.String("tx"), TransactionOptions{})
			if err == nil {
				err = errors.Join(tx.Update(ctx(), Key("tx", 0), increment), tx.Commit(ctx()))
			}
			check("Transaction", err)
		}
	})
	over, alterations := make(chan struct{}), sync.WaitGroup{}
	alterations.Go(func() {
		for n := int64(0); ; n++ {
			select {
			case <-over:
				return
			default:
			}
			change := TableChange{Options: &TableOptions{MaxVersions: 1 + n%3}, Stream: &StreamChange{}}
			if n%2 == 0 {
				change.Stream.Enable = &StreamSpec{RetentionSeconds: 3600, Before: []string{"n"}}
			}
			check("Alter", table.Alter(ctx(), change))
		}
	})
	writers.Wait()
	close(over)
	alterations.Wait()
	for key, want := range map[string]int64{"update": 2 * rounds, "rows": 2 * rounds, "batch": rounds, "tx": rounds} {
		found, err := table.Get(ctx(), Key(key, 0), ReadOptions{MaxVersions: 1})
		if err != nil || found == nil {
			t.Fatalf("%s: %v, %v", key, found, err)
		}
		if v, _ := found.Value("n"); v.Int64() != want {
			t.Errorf("%s: %d writes, %d are there", key, want, v.Int64())
		}
	}
}

// TestATransactionWorksOutItsTrimsInOneEra has a transaction delete a version while an
// alteration that lowers Max Versions is in the manifest and has not taken effect, and
// Max Versions raised again before the transaction commits.
func TestATransactionWorksOutItsTrimsInOneEra(t *testing.T) {
	r := newRig(t, Options{})
	three := TableOptions{TTLSeconds: NeverExpires, MaxVersionOffsetSeconds: defaultOffset}
	three.MaxVersions = 3
	table := r.table("t", three)
	for v := range int64(3) {
		put(t, table, "p", 1, "c", startMillis+v, "v")
	}
	tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one := manifest.TableOptions(three)
	one.MaxVersions = 1
	begin := table.core.EndEra()
	var e manifest.Edit
	e.Altered = []manifest.Alteration{{Table: table.core.ID, Options: one}}
	limit := manifest.PastLimit{MaxVersions: three.MaxVersions, LastSeq: r.store.pipeline.LastSeq()}
	e.PastLimits = []manifest.TableLimit{{Table: table.core.ID, PastLimit: limit}}
	if _, err := r.store.commitEdit(&e); err != nil {
		t.Fatal(err)
	}
	if err := tx.Update(ctx(), Key("p", 1), func(_ context.Context, row *RowTx) error {
		row.DeleteVersion("c", startMillis+2)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	begin()
	if err := table.Alter(ctx(), TableChange{Options: &three}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	found, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil || found == nil || len(found.Cells()) != 2 {
		t.Errorf("%v, %v; want the two versions that were not deleted", found, err)
	}
}
