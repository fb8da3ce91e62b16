package flagstone

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// scanned is a table of small rows, flushed.
func scanned(t *testing.T, rows int) (*Store, *Table) {
	t.Helper()
	store, err := Open(t.TempDir(), Options{Sync: SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "id", Type: row.TypeString}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		err := table.Update(ctx(), Key(fmt.Sprintf("k%05d", i)), func(_ context.Context, tx *RowTx) error {
			tx.PutRow()
			tx.Put("a", startMillis, row.String(fmt.Sprint("a", i)))
			tx.Put("b", startMillis, row.String(fmt.Sprint("b", i)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	return store, table
}

func TestAShortScanTakesTwoAllocations(t *testing.T) {
	_, table := scanned(t, 1000)
	start := Key("k00400")
	scan := func() {
		rows := table.Scan(ctx(), start, nil, ScanOptions{})
		for n := 0; n < 100 && rows.Next(); n++ {
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
	if allocs := testing.AllocsPerRun(500, scan); allocs > 2 && !poolsForget {
		t.Errorf("%v allocations", allocs)
	}
}

// TestAClosedScanHasNoRow: its memory is another scan's.
func TestAClosedScanHasNoRow(t *testing.T) {
	_, table := scanned(t, 200)
	for _, reverse := range []bool{false, true} {
		rows := table.Scan(ctx(), nil, nil, ScanOptions{Reverse: reverse})
		var kept []*Row
		for len(kept) < 30 && rows.Next() {
			kept = append(kept, rows.Row().Clone())
		}
		current := rows.Row()
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if rows.Next() || rows.Err() != nil || len(current.Cells()) > 0 || len(current.Key()) > 0 || rows.Close() != nil {
			t.Errorf("a closed scan goes on: %v, %v", current, rows.Err())
		}
		other := table.Scan(ctx(), Key("k00100"), nil, ScanOptions{})
		for other.Next() {
		}
		other.Close()
		for n, r := range kept {
			i := n
			if reverse {
				i = 199 - n
			}
			a, _ := r.Value("a")
			b, _ := r.Value("b")
			if r.Key()[0].Text() != fmt.Sprintf("k%05d", i) || a.Text() != fmt.Sprint("a", i) || b.Text() != fmt.Sprint("b", i) {
				t.Errorf("the copy of row %d changed: %v %v %v", i, r.Key(), a, b)
			}
		}
	}
}

// TestScansEndWhereTheirRangeDoes: also if rows are read in chunks, and with a limit of columns.
func TestScansEndWhereTheirRangeDoes(t *testing.T) {
	_, table := scanned(t, 300)
	for from := 0; from < 300; from += 7 {
		for _, n := range []int{1, 2, 5, 30, 250} {
			to := min(from+n, 300)
			rows := table.Scan(ctx(), Key(fmt.Sprintf("k%05d", from)), Key(fmt.Sprintf("k%05d", to)),
				ScanOptions{ReadOptions: ReadOptions{MaxColumns: 1 + from%2}})
			var got []string
			for rows.Next() {
				r := rows.Row()
				if len(r.Cells()) != 1+from%2 {
					t.Fatalf("%d cells", len(r.Cells()))
				}
				got = append(got, r.Key()[0].Text())
			}
			if want := int64(3 * len(got)); rows.Err() != nil || rows.Examined() != want {
				t.Fatalf("%v, %d cells examined, want %d", rows.Err(), rows.Examined(), want)
			}
			rows.Close()
			var want []string
			for i := from; i < to; i++ {
				want = append(want, fmt.Sprintf("k%05d", i))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("from %d to %d: %q", from, to, got)
			}
		}
	}
}
