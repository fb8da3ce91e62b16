package flagstone

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// A row is paged through by its columns: with a limit on their number, from the
// first name above the last one seen. What cannot be seen does not fill pages.
func TestWideRowsAreReadInPages(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2})
	var want []string
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		for i := range 40 {
			name := fmt.Sprintf("c%02d", i)
			for version := range int64(3) { // one of them surplus
				tx.Put(name, startMillis+version, row.String(name))
			}
			if i%3 != 0 {
				want = append(want, name, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 40; i += 3 {
		err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
			tx.DeleteColumn(fmt.Sprintf("c%02d", i))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 4, 40} {
		var got, scanned []string
		for from := ""; ; {
			opts := ReadOptions{StartColumn: from, MaxColumns: limit}
			page, err := table.Get(ctx(), Key("p", 1), opts)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Cells()) > 2*limit {
				t.Fatalf("limit %d: a page of %d cells", limit, len(page.Cells()))
			}
			got = appendNames(got, page)
			rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: opts})
			for rows.Next() {
				scanned = appendNames(scanned, rows.Row())
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			if len(page.Cells()) == 0 {
				break
			}
			from = string(page.Cells()[len(page.Cells())-1].Column) + "\x00"
		}
		if !slices.Equal(got, want) || !slices.Equal(scanned, want) {
			t.Errorf("limit %d: pages show %v, scanned %v; want %v", limit, got, scanned, want)
		}
	}
	_, err = table.Get(ctx(), Key("p", 1), ReadOptions{MaxColumns: -1})
	wantError(t, "a negative limit", err, ErrInvalid)
}

func appendNames(names []string, r *Row) []string {
	for _, c := range r.Cells() {
		names = append(names, string(c.Column))
	}
	return names
}
