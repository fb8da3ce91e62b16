package flagstone

import (
	"context"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// Changes so large that quadratic work would take minutes.

func TestMistakesThatDeletesUndoAreLinear(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	const columns = 200_000
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		for i := range columns {
			tx.Put(fmt.Sprint("c", i), -1, row.Integer(1)) // no version
		}
		for i := columns - 1; i >= 0; i-- {
			tx.DeleteColumn(fmt.Sprint("c", i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		tx.DeleteColumn("c")
		tx.Put("c", -1, row.Integer(1)) // after the delete, which does not undo it
		tx.Put("d", -2, row.Integer(1))
		return nil
	})
	wantError(t, "a put of no version", err, ErrInvalid)
}

func TestDeletesOfVersionsThatAreNotThereAreLinear(t *testing.T) {
	const versions = 1_000_000
	visible := make([]int64, versions)
	for i := range visible {
		visible[i] = int64(2 * (versions - i))
	}
	for i := range int64(versions) {
		if _, ok := mvcc.TrimForDelete(visible, 2*i+3, versions); ok {
			t.Fatalf("a delete of version %d, which is not there, has a trim", 2*i+3)
		}
	}
	if threshold, ok := mvcc.TrimForDelete(visible, 4, versions); !ok || threshold != 1 {
		t.Errorf("the trim of a delete is %d, %v", threshold, ok)
	}
}

// TestWhatManyRowsHeldBeforeIsLinear changes rows of a table whose stream records what columns
// held before.
func TestWhatManyRowsHeldBeforeIsLinear(t *testing.T) {
	rows := 100_000
	if testing.Short() {
		rows /= 4
	}
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{Before: []string{"c"}})
	for round := range int64(2) {
		b := r.store.NewBatch()
		for i := range rows {
			b.Row(table, Key("p", i)).Put("c", startMillis+round, row.Integer(round))
		}
		if err := r.store.Apply(ctx(), b); err != nil {
			t.Fatal(err)
		}
	}
	records, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{})
	if len(records) != 2*rows {
		t.Fatalf("%d records", len(records))
	}
	for i := range records {
		if before := len(records[i].Before); before != i/rows {
			t.Fatalf("record %d tells of %d cells before", i, before)
		}
	}
}
