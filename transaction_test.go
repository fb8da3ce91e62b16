package flagstone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/txn"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// begin begins a transaction of a partition key of the rig's tables.
func begin(t *testing.T, table *Table, pk string, opts TransactionOptions) *Transaction {
	t.Helper()
	tx, err := table.Begin(ctx(), row.String(pk), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Abort)
	return tx
}

// txPut puts one cell in a transaction.
func txPut(t *testing.T, tx *Transaction, pk string, n int, column string, version int64, value string) {
	t.Helper()
	if err := tx.Update(ctx(), Key(pk, n), func(_ context.Context, r *RowTx) error {
		r.Put(column, version, row.String(value))
		return nil
	}); err != nil {
		t.Fatalf("put %s %d: %v", pk, n, err)
	}
}

// txShow is show in a transaction.
func txShow(t *testing.T, tx *Transaction, pk string, n int) string {
	t.Helper()
	r, err := tx.Get(ctx(), Key(pk, n), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return "absent"
	}
	return cells(r)
}

// txScan shows the keys of a scan in a transaction.
func txScan(tx *Transaction, start, end []row.Value, reverse bool) (string, error) {
	rows := tx.Scan(ctx(), start, end, ScanOptions{Reverse: reverse})
	defer rows.Close()
	var keys []string
	for rows.Next() {
		keys = append(keys, rows.Row().Key()[1].String())
	}
	return strings.Join(keys, " "), rows.Err()
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestATransactionSeesItsOwnWritesAndOthersDoNot(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10})
	table := r.table("t", TableOptions{MaxVersions: 2})
	put(t, table, "p", 1, "c", 10, "old")
	put(t, table, "p", 2, "c", 10, "stays")
	put(t, table, "p", 4, "c", 10, "goes")
	put(t, table, "q", 1, "c", 10, "other")
	if err := r.store.Flush(ctx()); err != nil { // some of it in a file, some in a memtable
		t.Fatal(err)
	}
	put(t, table, "p", 2, "d", 11, "too")

	tx := begin(t, table, "p", TransactionOptions{})
	txPut(t, tx, "p", 1, "c", 20, "new")
	txPut(t, tx, "p", 3, "c", 20, "made")
	if err := tx.Update(ctx(), Key("p", 4), func(_ context.Context, r *RowTx) error { r.DeleteRow(); return nil }); err != nil {
		t.Fatal(err)
	}
	txPut(t, tx, "p", 1, "c", 30, "newer") // the second change of one row
	want(t, "own row", txShow(t, tx, "p", 1), "c@30=newer c@20=new ")
	want(t, "row untouched", txShow(t, tx, "p", 2), "c@10=stays d@11=too ")
	want(t, "row made", txShow(t, tx, "p", 3), "c@20=made ")
	want(t, "row deleted", txShow(t, tx, "p", 4), "absent")
	want(t, "own row, for others", show(t, table, "p", 1), "c@10=old ")
	want(t, "row made, for others", show(t, table, "p", 3), "absent")
	want(t, "row deleted, for others", show(t, table, "p", 4), "c@10=goes ")
	for _, c := range []struct {
		what       string
		start, end []row.Value
		reverse    bool
		want       string
		err        error
	}{
		{"all", nil, nil, false, "1 2 3", nil},
		{"all, downwards", nil, nil, true, "3 2 1", nil},
		{"a part", Key("p", 2), Key("p", 3), false, "2", nil},
		{"a part, downwards", Key("p", 3), Key("p", 1), true, "3 2", nil},
		{"to the end", Key("p", 2), Key("p", row.Max()), false, "2 3", nil},
		{"from the end", Key("p", row.Max()), Key("p", row.Min()), true, "3 2 1", nil},
		{"beyond", Key("p", 2), Key("q", 1), false, "", ErrOutOfPartition},
		{"before", Key("o"), Key("p", 2), false, "", ErrOutOfPartition},
		{"before, downwards", Key("p", 2), Key("o", 7), true, "", ErrOutOfPartition},
	} {
		got, err := txScan(tx, c.start, c.end, c.reverse)
		want(t, "scan, "+c.what, got, c.want)
		wantError(t, "scan, "+c.what, err, c.err)
	}
	_, err := tx.Get(ctx(), Key("q", 1), ReadOptions{})
	wantError(t, "get of another partition key", err, ErrOutOfPartition)
	wantError(t, "update of another partition key", tx.Update(ctx(), Key("pp", 1), func(_ context.Context, r *RowTx) error { t.Error("asked"); return nil }), ErrOutOfPartition)

	snapshot, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	_, err = tx.Get(ctx(), Key("p", 1), ReadOptions{Snapshot: snapshot})
	wantError(t, "a snapshot in a get", err, ErrInvalid)
	scan := tx.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: snapshot}})
	wantError(t, "a snapshot in a scan", scan.Err(), ErrInvalid)
	scan.Close()

	if err := tx.Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // as it is, flushed and merged, and after a restart
		want(t, "row, committed", show(t, table, "p", 1), "c@30=newer c@20=new ")
		want(t, "row made, committed", show(t, table, "p", 3), "c@20=made ")
		want(t, "row deleted, committed", show(t, table, "p", 4), "absent")
		before, err := table.Get(ctx(), Key("p", 1), ReadOptions{Snapshot: snapshot})
		if err == nil {
			want(t, "row, in a snapshot", cells(before), "c@10=old ")
		} else {
			wantError(t, "row, in a snapshot", err, ErrInvalid) // of the store that was closed
		}
		if err := table.Compact(ctx(), nil, nil); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		table = r.table("t", TableOptions{})
	}
	wantError(t, "commit again", tx.Commit(ctx()), ErrTransactionEnded)
}

func TestATransactionKeepsOtherWritersOutOfItsPartitionKey(t *testing.T) {
	r := newRig(t, Options{})
	table, other := r.table("t", TableOptions{}), r.table("u", TableOptions{})
	tx := begin(t, table, "p", TransactionOptions{})
	update := func(table *Table, pk string) error {
		return table.Update(ctx(), Key(pk, 1), func(_ context.Context, r *RowTx) error { r.Put("c", 1, row.String("x")); return nil })
	}
	updateRows := func(pks ...string) error {
		var keys [][]row.Value
		for _, pk := range pks {
			keys = append(keys, Key(pk, 2))
		}
		c, err := table.UpdateRowsAsync(ctx(), keys, func(_ context.Context, rows []*RowTx) error {
			for _, r := range rows {
				r.Put("c", 1, row.String("x"))
			}
			return nil
		})
		if err != nil {
			return err
		}
		return c.Wait(ctx())
	}
	apply := func(pks ...string) error {
		b := r.store.NewBatch()
		for _, pk := range pks {
			b.Row(table, Key(pk, 3)).PutRow()
		}
		return r.store.Apply(ctx(), b)
	}
	again := func() error {
		tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
		if err == nil {
			tx.Abort()
		}
		return err
	}
	held := map[string]func() error{
		"update":        func() error { return update(table, "p") },
		"delete":        func() error { return table.Delete(ctx(), Key("p", 7)) },
		"rows together": func() error { return updateRows("o", "p") },
		"batch":         func() error { return apply("o", "p") },
		"transaction":   again,
	}
	for what, write := range held {
		wantError(t, what, write(), ErrConflict)
	}
	want(t, "the batch's other row", show(t, table, "o", 3), "absent")
	for what, err := range map[string]error{
		"a longer key":    update(table, "pp"),
		"a shorter key":   update(table, ""),
		"another table":   update(other, "p"),
		"rows of others":  updateRows("o", "q"),
		"batch of others": apply("o", "q"),
	} {
		wantError(t, what, err, nil)
	}
	tx.Abort()
	tx.Abort() // is nothing
	for what, write := range held {
		wantError(t, what+" after the end", write(), nil)
	}
	wantError(t, "an update after the end", tx.Update(ctx(), Key("p", 1), func(context.Context, *RowTx) error { return nil }), ErrTransactionEnded)
	_, err := tx.Get(ctx(), Key("p", 1), ReadOptions{})
	wantError(t, "a get after the end", err, ErrTransactionEnded)
	_, err = txScan(tx, nil, nil, false)
	wantError(t, "a scan after the end", err, ErrTransactionEnded)
}

// The key of a table with one column is a partition key of its own, and no
// prefix of another.
func TestATransactionOfATableWithOneKeyColumnIsOfOneRow(t *testing.T) {
	r := newRig(t, Options{})
	table, err := r.store.CreateTable(ctx(), TableSpec{Name: "one", Key: []KeyColumn{{Name: "k", Type: row.TypeString}}})
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(t, table, "a", TransactionOptions{})
	putRow := func(_ context.Context, r *RowTx) error { r.PutRow(); return nil }
	wantError(t, "the row", tx.Update(ctx(), Key("a"), putRow), nil)
	wantError(t, "a longer key", tx.Update(ctx(), Key("a\x00"), putRow), ErrOutOfPartition)
	wantError(t, "a longer key outside", table.Update(ctx(), Key("a\x00"), putRow), nil)
	scan := tx.Scan(ctx(), nil, nil, ScanOptions{})
	defer scan.Close()
	rows := 0
	for scan.Next() {
		rows++
	}
	want(t, "rows", rows, 1)
	_, err = table.Begin(ctx(), row.Integer(1), TransactionOptions{})
	wantError(t, "a partition key of another type", err, ErrInvalid)
	_, err = table.Begin(ctx(), row.Min(), TransactionOptions{})
	wantError(t, "no partition key", err, ErrInvalid)
}

func TestATransactionIsAbortedWhenItsTimeIsOver(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	timers := r.clock.Timers() // the store's own
	ended := 0
	options := TransactionOptions{Lifetime: time.Minute, Ended: func() { ended++ }}
	tx := begin(t, table, "p", options)
	r.clock.Advance(time.Minute - 1)
	txPut(t, tx, "p", 1, "c", 1, "x")
	want(t, "in the last moment", txShow(t, tx, "p", 1), "c@1=x ")
	scan := tx.Scan(ctx(), nil, nil, ScanOptions{})
	defer scan.Close()
	r.clock.Advance(1)
	want(t, "ended", ended, 1)
	_, err := tx.Get(ctx(), Key("p", 1), ReadOptions{})
	wantError(t, "a get", err, ErrTransactionEnded)
	wantError(t, "a commit", tx.Commit(ctx()), ErrTransactionEnded)
	if scan.Next() {
		t.Error("a scan goes on")
	}
	wantError(t, "a scan", scan.Err(), ErrTransactionEnded)
	want(t, "the row", show(t, table, "p", 1), "absent")
	put(t, table, "p", 1, "c", 1, "y") // it holds nothing

	tx = begin(t, table, "p", options)
	if err := tx.Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	want(t, "ended", ended, 2)
	r.clock.Advance(2 * time.Second) // the store has looked at its device
	want(t, "timers that wait", r.clock.Timers(), timers)
	r.clock.Advance(time.Hour)
	want(t, "ended", ended, 2)
	tx = begin(t, table, "p", TransactionOptions{}) // for ever
	r.clock.Advance(1000 * time.Hour)
	wantError(t, "without a lifetime", tx.Commit(ctx()), nil)
}

func TestWhatOpenTransactionsHoldIsBounded(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 4 * 10 * txn.Bytes})
	table := r.table("t", TableOptions{})
	var open []*Transaction
	for i := range 10 {
		open = append(open, begin(t, table, fmt.Sprint(i), TransactionOptions{}))
	}
	_, err := table.Begin(ctx(), row.String("x"), TransactionOptions{})
	wantError(t, "the eleventh", err, ErrTransactionMemory)
	write := func() error {
		return open[0].Update(ctx(), Key("0", 1), func(_ context.Context, r *RowTx) error { r.Put("c", 1, row.String("x")); return nil })
	}
	wantError(t, "a write", write(), ErrTransactionMemory)
	open[1].Abort()
	wantError(t, "a write when another has ended", write(), nil)
	wantError(t, "a large write", open[0].Update(ctx(), Key("0", 2), func(_ context.Context, r *RowTx) error {
		r.Put("c", 1, row.String(strings.Repeat("x", 8000)))
		return nil
	}), ErrTransactionMemory)
	want(t, "what was refused", txShow(t, open[0], "0", 2), "absent")
	wantError(t, "the commit", open[0].Commit(ctx()), nil)
	want(t, "what was written", show(t, table, "0", 1), "c@1=x ")
	want(t, "what was not", show(t, table, "0", 2), "absent")
	for _, tx := range open {
		tx.Abort()
	}
	want(t, "bytes held in the end", r.store.transactionMemory.Used(), int64(0))
	want(t, "held in the end", len(r.store.transactions.All()), 0)
}

func TestAFailedUpdateLeavesTheTransactionAsItWas(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	tx := begin(t, table, "p", TransactionOptions{})
	txPut(t, tx, "p", 1, "c", 1, "x")
	refusal := errors.New("refused")
	wantError(t, "refused", tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error { r.DeleteRow(); return refusal }), refusal)
	wantError(t, "invalid", tx.UpdateRows(ctx(), [][]row.Value{Key("p", 1), Key("p", 2)}, func(_ context.Context, rows []*RowTx) error {
		rows[0].DeleteRow()
		rows[1].Put("", 1, row.String("no name"))
		return nil
	}), ErrInvalid)
	wantError(t, "a version too far ahead", tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error {
		r.Put("c", startMillis+86400_000, row.String("x"))
		return nil
	}), ErrVersionOutOfRange)
	wantError(t, "nothing", tx.Update(ctx(), Key("p", 1), func(context.Context, *RowTx) error { return nil }), nil)
	want(t, "the row", txShow(t, tx, "p", 1), "c@1=x ")
	if err := tx.UpdateRows(ctx(), [][]row.Value{Key("p", 1), Key("p", 2), Key("p", 1)}, func(_ context.Context, rows []*RowTx) error {
		if rows[0] != rows[2] {
			t.Error("one row is two")
		}
		found, err := rows[0].Get(ReadOptions{})
		if err != nil || cells(found) != "c@1=x " {
			t.Errorf("the update reads %v, %v", found, err)
		}
		rows[0].Put("c", 2, row.String("y"))
		rows[1].PutRow()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantError(t, "the commit", tx.Commit(ctx()), nil)
	want(t, "the row, committed", show(t, table, "p", 1), "c@2=y ")
	want(t, "the row without cells", show(t, table, "p", 2), "")
}

// Deleting a version of a full column must not bring back a surplus one, for any limit at the
// time of the transaction's write, and whether or not a compaction has dropped it.
func TestTrimsOfATransactionAreThoseOfTheOptionsAtItsCommit(t *testing.T) {
	for _, merged := range []bool{false, true} {
		r := newRig(t, Options{})
		table := r.table("t", TableOptions{MaxVersions: 3})
		for v := range 2 {
			put(t, table, "p", 1, "c", int64(v+1), "x")
		}
		tx := begin(t, table, "p", TransactionOptions{})
		if err := tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error { r.DeleteVersion("c", 2); return nil }); err != nil {
			t.Fatal(err)
		}
		want(t, "three kept", txShow(t, tx, "p", 1), "c@1=x ")
		if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 1}}); err != nil {
			t.Fatal(err)
		}
		want(t, "one kept", txShow(t, tx, "p", 1), "")
		if merged {
			if err := table.Compact(ctx(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		wantError(t, "commit", tx.Commit(ctx()), nil)
		want(t, fmt.Sprint("one kept, merged: ", merged), show(t, table, "p", 1), "")
	}
}

func TestATransactionEndsWithItsTableAndItsStore(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	timers := r.clock.Timers()
	tx := begin(t, table, "p", TransactionOptions{Lifetime: time.Minute})
	txPut(t, tx, "p", 1, "c", 1, "x")
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	wantError(t, "commit without the table", tx.Commit(ctx()), ErrTableNotFound)
	want(t, "open", len(r.store.transactions.All()), 0)
	_, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
	wantError(t, "begin without the table", err, ErrTableNotFound)

	table = r.table("t", TableOptions{})
	tx = begin(t, table, "p", TransactionOptions{Lifetime: time.Minute})
	txPut(t, tx, "p", 1, "c", 1, "x")
	r.reopen()
	want(t, "timers", r.clock.Timers(), timers)
	wantError(t, "commit without the store", tx.Commit(ctx()), ErrClosed)
	_, err = table.Begin(ctx(), row.String("p"), TransactionOptions{})
	wantError(t, "begin without the store", err, ErrClosed)
	want(t, "the row", show(t, r.table("t", TableOptions{}), "p", 1), "absent")
}

// A power cut before, during and after a commit leaves all of a transaction or
// nothing.
func TestACrashLeavesAllOfATransactionOrNothing(t *testing.T) {
	for seed := range uint64(60) {
		r := newRig(t, Options{})
		table := r.table("t", TableOptions{})
		put(t, table, "p", 0, "c", 1, "old")
		tx := begin(t, table, "p", TransactionOptions{})
		for n := range 20 {
			txPut(t, tx, "p", n, "c", 2, "new")
		}
		committed := seed%3 == 0
		if committed {
			wantError(t, "commit", tx.Commit(ctx()), nil)
		} else if seed%3 == 1 { // in the log's buffer, and perhaps on the disk
			if _, err := tx.CommitAsync(ctx()); err != nil {
				t.Fatal(err)
			}
		}
		r.crash(vfs.CrashPolicy(seed%4), seed)
		table = r.table("t", TableOptions{})
		first := show(t, table, "p", 0)
		if committed {
			want(t, "after a commit", first, "c@2=new ")
		}
		for n := 1; n < 20; n++ {
			got := show(t, table, "p", n)
			if (got == "c@2=new ") != (first == "c@2=new ") || got != "absent" && got != "c@2=new " {
				t.Fatalf("seed %d: row 0 is %q and row %d is %q", seed, first, n, got)
			}
		}
	}
}

// TestTransactionsAndOtherWritersMoveBetweenRows: the sum over a partition key
// stays, in every state that a reader may see, while transactions and rows
// updated together move amounts between its rows.
func TestTransactionsAndOtherWritersMoveBetweenRows(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Sync: SyncNone, MemtableSize: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	const rows, moves = 4, 300
	amount := func(r *Row) int64 {
		if r == nil {
			return 0
		}
		v, _ := r.Value("a")
		return v.Int64()
	}
	move := func(tx *RowTx, by int64) error {
		r, err := tx.Get(ReadOptions{})
		if err != nil {
			return err
		}
		tx.Put("a", s.NowMillis(), row.Integer(amount(r)+by))
		return nil
	}
	// Each of these moves by between two rows, and fails with ErrConflict if
	// another holds them.
	inTransaction := func(from, to int, by int64) error {
		tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
		if err != nil {
			return err
		}
		defer tx.Abort()
		for n, by := range map[int]int64{from: -by, to: by} {
			if err := tx.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error { return move(tx, by) }); err != nil {
				return err
			}
		}
		return tx.Commit(ctx())
	}
	together := func(from, to int, by int64) error {
		c, err := table.UpdateRowsAsync(ctx(), [][]row.Value{Key("p", from), Key("p", to)}, func(_ context.Context, r []*RowTx) error {
			return errors.Join(move(r[0], -by), move(r[1], by))
		})
		if err != nil {
			return err
		}
		return c.Wait(ctx())
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			do := inTransaction
			if w%2 == 0 {
				do = together
			}
			for i := 0; i < moves; {
				switch err := do((w+i)%rows, (w+i+1)%rows, int64(i%7)); {
				case err == nil:
					i++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			sum := int64(0)
			scan := table.Scan(context.Background(), nil, nil, ScanOptions{})
			for scan.Next() {
				sum += amount(scan.Row())
			}
			if err := errors.Join(scan.Err(), scan.Close()); err != nil || sum != 0 {
				t.Errorf("a reader sees a sum of %d, %v", sum, err)
				return
			}
		}
	})
	writers.Wait()
	close(done)
	readers.Wait()
}

// TestWhatColumnsHeldBeforeCountsAsMemory changes a row with a large value in a
// transaction: each change keeps that value for the table's stream.
func TestWhatColumnsHeldBeforeCountsAsMemory(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 400 << 10})
	table := r.streamed("t", StreamSpec{Before: []string{"large"}})
	put(t, table, "p", 1, "large", startMillis, strings.Repeat("x", 10_000))
	tx := begin(t, table, "p", TransactionOptions{})
	var err error
	for changes := 0; err == nil; changes++ {
		if changes == 10 {
			t.Fatalf("%d changes hold %d bytes, of at most %d", changes, r.store.transactionMemory.Used(), r.store.transactionMemory.Total())
		}
		err = tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error { r.Put("c", startMillis, row.Integer(1)); return nil })
	}
	wantError(t, "a change too many", err, ErrTransactionMemory)
	wantError(t, "the commit", tx.Commit(ctx()), nil)

	// A stream that begins while the transaction is open needs these values for all changes.
	wantError(t, "disable", table.Alter(ctx(), TableChange{Stream: &StreamChange{}}), nil)
	tx = begin(t, table, "p", TransactionOptions{})
	for range 15 {
		wantError(t, "a change", tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error { r.Put("c", startMillis, row.Integer(1)); return nil }), nil)
	}
	spec := &StreamSpec{RetentionSeconds: 60, Before: []string{"large"}}
	wantError(t, "enable", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: spec}}), nil)
	wantError(t, "the commit of too many", tx.Commit(ctx()), ErrTransactionMemory)
	tx.Abort()
	want(t, "bytes held in the end", r.store.transactionMemory.Used(), int64(0))
}

func TestATransactionThatEndsInItsFunctionIsLetGoOfAfterIt(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	ended := 0
	opts := TransactionOptions{Lifetime: time.Minute, Ended: func() { ended++ }}
	for name, end := range map[string]func(tx *Transaction){
		"abort":           (*Transaction).Abort,
		"abort elsewhere": func(tx *Transaction) { done := make(chan int); go func() { tx.Abort(); close(done) }(); <-done },
		"time":            func(*Transaction) { r.clock.Advance(2 * time.Minute) },
	} {
		for _, refusal := range []error{nil, errors.New("refused")} {
			ended = 0
			tx := begin(t, table, "p", opts)
			err := tx.Update(ctx(), Key("p", 1), func(_ context.Context, change *RowTx) error {
				change.Put("c", startMillis, row.String("x"))
				end(tx)
				if tx.Open() || ended != 0 {
					t.Errorf("%s: open %v, ended %d times in the function", name, tx.Open(), ended)
				}
				return refusal
			})
			if want := refusal; want != nil {
				wantError(t, name, err, want)
			} else {
				wantError(t, name, err, ErrTransactionEnded)
			}
			wantError(t, name, tx.Commit(ctx()), ErrTransactionEnded)
			if ended != 1 || show(t, table, "p", 1) != "absent" {
				t.Errorf("%s: ended %d times, the row: %q", name, ended, show(t, table, "p", 1))
			}
			begin(t, table, "p", TransactionOptions{}).Abort() // nothing is held any more
		}
	}
}

func TestCloseDoesNotWaitForTheFunctionOfATransaction(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	tx := begin(t, table, "p", TransactionOptions{})
	err := tx.Update(ctx(), Key("p", 1), func(_ context.Context, change *RowTx) error {
		change.Put("c", startMillis, row.String("x"))
		return r.store.Close()
	})
	wantError(t, "the update", err, ErrClosed)
}
