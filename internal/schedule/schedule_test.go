package schedule

import (
	"context"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// holdRow changes the row through an update whose function waits until release is called, and so
// holds the row's latch.
func holdRow(r *rig, table *flagstone.Table, key []row.Value, version int64) (update *running, release func()) {
	door := make(chan struct{})
	update = r.run("update", func() error {
		return table.Update(r.t.Context(), key, func(_ context.Context, tx *flagstone.RowTx) error {
			<-door
			tx.Put("c", version, row.String("v"))
			return nil
		})
	})
	return update, func() { close(door) }
}

// TestATransactionBeginsWhenEarlierWritersAreThrough begins transactions while a
// writer that does not know of them has the latch of a row of theirs.
func TestATransactionBeginsWhenEarlierWritersAreThrough(t *testing.T) {
	r := newRig(t, flagstone.Options{})
	table := r.table("t", flagstone.TableOptions{MaxVersions: 10})
	for round := range 24 { // it is to be so every time
		pk := fmt.Sprint("p", round)
		key := flagstone.Key(pk, 1)
		must(t, table.Put(t.Context(), key, "c", startMillis, row.String("v")))
		update, release := holdRow(r, table, key, startMillis+1)
		var tx *flagstone.Transaction
		begin := r.run("begin", func() (err error) {
			tx, err = table.Begin(t.Context(), row.String(pk), flagstone.TransactionOptions{})
			return err
		})
		see := func() string {
			got, err := tx.Get(t.Context(), key, flagstone.ReadOptions{})
			return show(t, got, err)
		}
		first := ""
		if begin.done() {
			must(t, begin.err)
			first = see()
		}
		release()
		begin.wait()
		<-update.end
		if first == "" {
			first = see()
		}
		if again := see(); again != first {
			t.Fatalf("round %d: the transaction read %q, and then %q, which another writer wrote; the update: %v",
				round, first, again, update.err)
		}
		tx.Abort()
	}
}

// TestACommitMeetsTheOptionsOfItsMoment stops a commit after it worked out, by the limit
// of versions that it found, what its delete of a version hides; and alters the limit.
func TestACommitMeetsTheOptionsOfItsMoment(t *testing.T) {
	r := newRig(t, flagstone.Options{CacheSize: 1, TableReads: flagstone.TableReadsDirect})
	options := func(versions int64) flagstone.TableOptions { return flagstone.TableOptions{MaxVersions: versions} }
	alter := func(table *flagstone.Table, versions int64) error {
		o := options(versions)
		return table.Alter(t.Context(), flagstone.TableChange{Options: &o})
	}
	table := r.table("t", options(5))
	key := flagstone.Key("p", 1)
	for version := range int64(5) {
		must(t, table.Put(t.Context(), key, "c", startMillis+version, row.String("v")))
	}
	must(t, r.store.Flush(t.Context()))
	must(t, alter(table, 1))
	tx, err := table.Begin(t.Context(), row.String("p"), flagstone.TransactionOptions{})
	must(t, err)
	must(t, tx.Update(t.Context(), key, func(_ context.Context, tx *flagstone.RowTx) error {
		tx.DeleteVersion("c", startMillis+4)
		return nil
	}))
	must(t, alter(table, 2)) // so that the commit has to read the row

	release := r.hold(vfs.OpReadAt, "*.sst", 1)
	commit := r.run("commit", func() error { return tx.Commit(t.Context()) })
	if commit.done() {
		t.Fatal("the commit did not read the row")
	}
	raise := r.run("alter", func() error { return alter(table, 5) })
	first := "the commit"
	if raise.done() {
		// A reader is shown five versions now, so the delete hides one of them.
		first = "the change of options"
	}
	release()
	commit.wait()
	raise.wait()
	got, err := table.Get(t.Context(), key, flagstone.ReadOptions{})
	want := map[string]string{
		"the commit":            versions(3),
		"the change of options": versions(3, 2, 1, 0),
	}[first]
	if got := show(t, got, err); got != want {
		t.Errorf("%s was first, and then the row is %q, want %q", first, got, want)
	}
}

func versions(list ...int64) (s string) {
	for i, v := range list {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%d=v", startMillis+v)
	}
	return s
}

// TestACheckpointHoldsNothingThatWasWrittenLater stops a checkpoint between the
// flushes of two tables, writes to both of them, and flushes again.
func TestACheckpointHoldsNothingThatWasWrittenLater(t *testing.T) {
	r := newRig(t, flagstone.Options{})
	tables := []*flagstone.Table{r.table("a", flagstone.TableOptions{}), r.table("b", flagstone.TableOptions{})}
	key := flagstone.Key("p", 1)
	batch := func(value string) error {
		b := r.store.NewBatch()
		for _, table := range tables {
			b.Row(table, key).Put("c", startMillis, row.String(value))
		}
		return r.store.Apply(t.Context(), b)
	}
	must(t, batch("1"))
	// Of the files of tables a checkpoint makes the first two.
	release := r.hold(vfs.OpCreate, "*.sst", 2)
	releaseFlush := r.hold(vfs.OpCreate, "*.sst", 4)
	checkpoint := r.run("checkpoint", func() error { return r.store.Checkpoint(t.Context(), "/disk/copy") })
	if checkpoint.done() {
		t.Fatal("the checkpoint did not flush two tables")
	}
	write := r.run("batch", func() error { return batch("2") })
	flush := r.run("flush", func() error { return r.store.Flush(t.Context()) })
	release()
	checkpoint.wait()
	settle()
	releaseFlush()
	write.wait()
	flush.wait()

	copied, err := flagstone.Open("/disk/copy", flagstone.Options{ReadOnly: true, Seams: seams.Seams{FS: r.disk, Clock: r.clock, Executor: r.exec}})
	must(t, err)
	defer copied.Close()
	var got []string
	for _, name := range []string{"a", "b"} {
		table, err := copied.Table(name)
		must(t, err)
		row, err := table.Get(t.Context(), key, flagstone.ReadOptions{})
		got = append(got, show(t, row, err))
	}
	if got[0] != got[1] {
		t.Errorf("of two tables that were written by batches alone the checkpoint has %q and %q", got[0], got[1])
	}
}
