package flagstone

import (
	"context"
	"errors"
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

// TestBoundsThatLieTheWrongWayRoundAreRefused, in every kind of read that has bounds.
func TestBoundsThatLieTheWrongWayRoundAreRefused(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	for i := range 3 {
		put(t, table, "h", i, "c", startMillis, "v")
	}
	tx, err := table.Begin(ctx(), row.String("h"), TransactionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Abort()
	for _, c := range []struct {
		start, end []row.Value
		reverse    bool
		rows       int // -1: refused
	}{
		{Key("h"), Key("h", row.Max()), false, 3},
		{Key("h", row.Max()), Key("h"), true, 3},
		{Key("h", row.Max()), Key("h"), false, -1},
		{Key("h"), Key("h", row.Max()), true, -1},
		{Key("h", 1), Key("h", 1), false, 0},
		{Key("h", 1), Key("h", 1), true, 0},
		{Key("h", 2), Key("h", 0), true, 2},
		{Key("h", 2), Key("h", 1), false, -1},
		{Key("h", 1), Key("h", 2), true, -1},
	} {
		what := fmt.Sprintf("from %v to %v, reverse %t", c.start, c.end, c.reverse)
		found := make(map[string]int)
		errs := make(map[string]error)
		for kind, rows := range map[string]*Rows{
			"scan":                  table.Scan(ctx(), c.start, c.end, ScanOptions{Reverse: c.reverse}),
			"scan in a transaction": tx.Scan(ctx(), c.start, c.end, ScanOptions{Reverse: c.reverse}),
		} {
			for _, err := range rows.All() {
				if errs[kind] = err; err == nil {
					found[kind]++
				}
			}
		}
		if !c.reverse {
			const kind = "parallel scan"
			errs[kind] = table.ScanParallel(ctx(), ParallelScan{Start: c.start, End: c.end, Workers: 1}, func(int, *Row) error {
				found[kind]++
				return nil
			})
		}
		for kind, err := range errs {
			if want := max(c.rows, 0); found[kind] != want || errors.Is(err, ErrInvalid) != (c.rows < 0) || err != nil && c.rows >= 0 {
				t.Errorf("%s %s: %d rows, want %d; %v", kind, what, found[kind], want, err)
			}
		}
	}
	opts := ReadOptions{MinVersion: 10, MaxVersion: 5}
	_, err = table.Get(ctx(), Key("h", 1), opts)
	wantError(t, "a get of versions from 10 to 5", err, ErrInvalid)
	rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: opts})
	wantError(t, "a scan of versions from 10 to 5", rows.Err(), ErrInvalid)
	rows.Close()
	opts.MinVersion = opts.MaxVersion
	if found, err := table.Get(ctx(), Key("h", 1), opts); err != nil || len(found.Cells()) > 0 {
		t.Errorf("versions from 5 to 5: %v, %v", found, err)
	}
}

// TestAStoreClosesBesideOpenReads: what is open goes on to some end, and closes.
func TestAStoreClosesBesideOpenReads(t *testing.T) {
	for _, flush := range []bool{false, true} {
		r := newRig(t, Options{})
		table := r.table("t", TableOptions{})
		if err := table.Split(ctx(), row.String("q")); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			put(t, table, string("pq"[i%2]), i, "c", startMillis, fmt.Sprint(i))
		}
		if flush {
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
		}
		snapshot, err := r.store.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		rows := table.Scan(ctx(), nil, nil, ScanOptions{})
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = table.Get(ctx(), Key("p", 0), ReadOptions{Snapshot: snapshot})
		wantError(t, "a get at the snapshot", err, ErrClosed)
		snapshot.Close()
		n := 1
		for ; rows.Next(); n++ {
			if got, want := rows.Row().Text("c"), fmt.Sprint(2*n); got != want {
				t.Errorf("row %d: %q, want %q", n, got, want)
			}
		}
		if wantError(t, "the scan", rows.Err(), ErrClosed); n > 50 {
			t.Errorf("%d rows of the first partition", n)
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAScanOfASnapshotThatIsClosedMeanwhileSaysSo: compactions may drop what it would have read.
func TestAScanOfASnapshotThatIsClosedMeanwhileSaysSo(t *testing.T) {
	for read := range 3 { // rows before the snapshot is closed
		r := newRig(t, Options{})
		table := r.table("t", TableOptions{})
		for n := range 2 {
			put(t, table, "p", n, "c", 1, "old")
		}
		sn, err := r.store.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}})
		for range read {
			if !rows.Next() {
				t.Fatal(rows.Err())
			}
		}
		sn.Close()
		put(t, table, "p", 1, "c", 2, "new")
		wantError(t, "Flush", r.store.Flush(ctx()), nil)
		if rows.Next() {
			t.Errorf("after %d rows there is another one: %v", read, rows.Row())
		}
		wantError(t, fmt.Sprint("after ", read, " rows"), rows.Err(), ErrClosed)
		rows.Close()
	}
}
