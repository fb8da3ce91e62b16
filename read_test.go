package flagstone

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func putColumns(t *testing.T, table *Table, pk string, n, columns int, version int64, whole bool) {
	t.Helper()
	err := table.Update(context.Background(), Key(pk, n), func(_ context.Context, tx *RowTx) error {
		if whole {
			tx.PutRow()
		}
		for c := range columns {
			tx.Put(fmt.Sprintf("c%02d", c), version, row.String(fmt.Sprintf("%d.%d.%s", n, c, strings.Repeat("v", c))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAGetAllocatesTwiceAndIntoARowNever(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	ctx := context.Background()
	const inFile, inMemory, inBoth = 1, 2, 3
	putColumns(t, table, "p", inFile, 10, startMillis, true)
	putColumns(t, table, "p", inBoth, 10, startMillis, true)
	r.exec.RunAll()
	if err := r.store.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	putColumns(t, table, "p", inMemory, 10, startMillis, true)
	putColumns(t, table, "p", inBoth, 3, startMillis+1, false)
	var into Row
	for name, n := range map[string]int{"file": inFile, "memory": inMemory, "both": inBoth} {
		for _, columns := range [][]string{nil, {"c07"}, {"c09", "c02", "c09"}} {
			key, opts := Key("p", n), ReadOptions{Columns: columns}
			var kept *Row
			get := func() { kept, _ = table.Get(ctx, key, opts) }
			getInto := func() {
				if ok, err := table.GetInto(ctx, key, opts, &into); err != nil || !ok {
					t.Error(ok, err)
				}
			}
			getInto()
			if got := testing.AllocsPerRun(100, getInto); got > 0 && !raced {
				t.Errorf("row in %s, columns %q: GetInto allocates %v times", name, columns, got)
			}
			if got := testing.AllocsPerRun(100, get); got > 2 && !raced {
				t.Errorf("row in %s, columns %q: Get allocates %v times", name, columns, got)
			}
			if cells(kept) != cells(&into) || kept.Key()[1].Int64() != int64(n) || into.Key()[0].Text() != "p" {
				t.Errorf("row in %s, columns %q: Get found %s, GetInto %s", name, columns, cells(kept), cells(&into))
			}
		}
	}
}

func TestARowThatGetReturnedOutlivesReadsThatFollow(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 3})
	var rows []*Row
	var want []string
	for n := range 60 {
		for version := range int64(1 + n%3) {
			putColumns(t, table, "p", n, n, startMillis+version, false)
		}
		found, err := table.Get(context.Background(), Key("p", n), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found == nil {
			found = &Row{}
		}
		rows, want = append(rows, found), append(want, fmt.Sprint(found.Key())+cells(found))
	}
	for n := range rows {
		if got := fmt.Sprint(rows[n].Key()) + cells(rows[n]); got != want[n] {
			t.Errorf("row %d was %s, became %s", n, want[n], got)
		}
		clone := rows[n].Clone()
		rows[n].reset([]byte("xxxxxxxxxxxxxxxxxxxxxxxxx"), 1)
		if got := fmt.Sprint(clone.Key()) + cells(clone); got != want[n] {
			t.Errorf("row %d: its clone is %s, want %s", n, got, want[n])
		}
	}
}

// A row that Get returned has key and cells in one allocation.
func TestARowThatGetReturnedIsReadIntoAgain(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 3})
	ctx := context.Background()
	const rows = 12
	for n := range rows {
		for version := range int64(1 + n%3) {
			putColumns(t, table, "key", n, n, startMillis+version, false)
		}
	}
	for n := range rows {
		for m := 1; m < rows; m++ {
			into, err := table.Get(ctx, Key("key", n), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if into == nil { // it was given no columns
				into = &Row{}
			}
			want, err := table.Get(ctx, Key("key", m), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := table.GetInto(ctx, Key("key", m), ReadOptions{}, into); err != nil || !ok {
				t.Fatal(ok, err)
			}
			for _, got := range []*Row{into, into.Clone()} {
				if g, w := fmt.Sprint(got.Key())+cells(got), fmt.Sprint(want.Key())+cells(want); g != w {
					t.Errorf("row %d read into row %d is %s, want %s", m, n, g, w)
				}
			}
		}
	}
}

// A key made of the key that the row has, which gives its place to the new one.
func TestARowIsReadIntoByAPartOfItsOwnKey(t *testing.T) {
	r := newRig(t, Options{})
	table, err := r.store.CreateTable(context.Background(), TableSpec{Name: "t", Key: []KeyColumn{
		{Name: "group", Type: row.TypeString}, {Name: "name", Type: row.TypeString},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"a", "another"} {
		if err := table.Put(context.Background(), Key(group, "name"), "c", startMillis, row.String(group)); err != nil {
			t.Fatal(err)
		}
	}
	var into Row
	for _, key := range [][]row.Value{Key("a", "name"), nil} {
		if key == nil {
			key = []row.Value{row.String("another"), into.Key()[1]}
		}
		if ok, err := table.GetInto(context.Background(), key, ReadOptions{}, &into); err != nil || !ok {
			t.Fatalf("row %v: %t, %v", key, ok, err)
		}
	}
	if got := fmt.Sprint(into.Key()) + cells(&into); got != fmt.Sprint(Key("another", "name"))+"c@1700000000000=another " {
		t.Errorf("found %s", got)
	}
}

func TestGetIntoSaysWhetherARowExists(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "x")
	var into Row
	for n, want := range []bool{false, true, false} {
		ok, err := table.GetInto(context.Background(), Key("p", n), ReadOptions{}, &into)
		if err != nil || ok != want || len(into.Cells()) > 0 != want {
			t.Errorf("row %d: %v, %v, %d cells", n, ok, err, len(into.Cells()))
		}
	}
	if _, err := table.GetInto(context.Background(), Key("p"), ReadOptions{}, &into); err == nil {
		t.Error("half a key is no error")
	}
}

func TestAMissingRowCanBeAskedForItsColumns(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	got, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil || got != nil {
		t.Fatalf("a missing row is %v, %v", got, err)
	}
	if v, ok := got.Value("c"); ok || v.Type() != row.TypeNone {
		t.Errorf("it has the value %v", v)
	}
	if key, clone := got.Key(), got.Clone(); key != nil || clone != nil {
		t.Errorf("it has the key %v and the clone %v", key, clone)
	}
}
