package flagstone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// TestAnAbsentRowMayBeAskedAnything: however it was read, and nil too.
func TestAnAbsentRowMayBeAskedAnything(t *testing.T) {
	_, table := scanned(t, 1)
	found, err := table.Get(ctx(), Key("absent"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var into Row
	for _, key := range []string{"k00000", "absent"} {
		exists, err := table.GetInto(ctx(), Key(key), ReadOptions{}, &into)
		if err != nil || exists != (key != "absent") || into.Exists() != exists {
			t.Errorf("GetInto of %s: %v, %v, exists is %v", key, exists, err, into.Exists())
		}
	}
	if _, err := table.GetInto(ctx(), Key("k00000"), ReadOptions{}, &into); err != nil || !into.Exists() {
		t.Fatalf("%v: %v", &into, err)
	}
	ended, cancel := context.WithCancel(ctx())
	cancel()
	if exists, err := table.GetInto(ended, Key("absent"), ReadOptions{}, &into); exists || !errors.Is(err, context.Canceled) {
		t.Errorf("GetInto with a context that has ended: %v, %v", exists, err)
	}
	rows := table.Scan(ctx(), nil, nil, ScanOptions{})
	rows.Close()
	for i, r := range []*Row{nil, found, &into, rows.Row(), found.Clone(), into.Clone()} {
		if _, ok := r.Value("a"); ok || r.Exists() || r.Key() != nil || len(r.Cells()) > 0 || fmt.Sprint(r) != "(no row)" ||
			r.Text("a") != "" || r.Bytes("a") != nil || r.Int64("a") != 0 || r.Float64("a") != 0 || r.Bool("a") {
			t.Errorf("row %d: %v", i, r)
		}
	}
}

// TestALoopOverAScanRunsOnce: what looks like the end of the table must be it.
func TestALoopOverAScanRunsOnce(t *testing.T) {
	_, table := scanned(t, 10)
	for _, steps := range []int{1, 100} {
		rows := table.Scan(ctx(), nil, nil, ScanOptions{})
		n := 0
		for _, err := range rows.All() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == steps {
				break
			}
		}
		for r, err := range rows.All() {
			if r.Exists() || err != ErrClosed {
				t.Errorf("a second loop, after %d rows: %v, %v", n, r, err)
			}
			n = -1
		}
		if n != -1 {
			t.Errorf("a second loop, after %d rows, ends without an error", n)
		}
	}
}

// TestAPrintedRowIsShortAndSafe: columns and values are the clients'.
func TestAPrintedRowIsShortAndSafe(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		tx.Put("a\n\x1b[2J x=1", Now, row.Integer(7))
		tx.Put("binary", Now, row.Binary(make([]byte, 1<<20)))
		tx.Put("text", Now, row.String(strings.Repeat("é", 1<<20)))
		for i := range 5000 {
			tx.Put(fmt.Sprintf("z%04d", i), Now, row.Integer(int64(i)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := got.String()
	if len(text) > 20<<10 || strings.ContainsAny(text, "\n\x1b") || !strings.HasPrefix(text, `["p" 1] "a\n\x1b[2J x=1"=7 binary=`) ||
		!strings.Contains(text, "... (2097152 bytes) z0000=0") || !strings.HasSuffix(text, " more cells)") {
		t.Errorf("%d bytes: %.300q ... %q", len(text), text, text[len(text)-60:])
	}
}

func TestARowAndItsColumnsReadAsAPersonWritesThem(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2})
	c := r.store.NewBatch()
	alice := c.Row(table, Key("alice", 7))
	alice.Put("city", 2000, row.String("Vienna"))
	alice.Put("city", 1000, row.String("Graz"))
	alice.Put("age", 1000, row.Integer(30))
	alice.Put("height", 1000, row.Double(1.75))
	alice.Put("member", 1000, row.Boolean(true))
	alice.Put("photo", 1000, row.Binary([]byte{1, 255}))
	c.Row(table, Key("bare", 1)).PutRow()
	if err := r.store.Apply(ctx(), c); err != nil {
		t.Fatal(err)
	}
	got, err := table.Get(ctx(), Key("alice", 7), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := `["alice" 7] age=30 city="Vienna"@2000 city="Graz"@1000 height=1.75 member=true photo=0x01ff`
	if s := fmt.Sprintf("%v", got); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if got.Text("city") != "Vienna" || got.Int64("age") != 30 || got.Float64("height") != 1.75 ||
		!got.Bool("member") || string(got.Bytes("photo")) != "\x01\xff" {
		t.Errorf("columns of %v", got)
	}
	if got.Int64("city") != 0 || got.Text("age") != "" || got.Float64("age") != 0 || got.Bool("age") {
		t.Error("a column gives values of other types")
	}
	if got, err := table.Get(ctx(), Key("bare", 1), ReadOptions{}); err != nil || !got.Exists() || got.String() != `["bare" 1]` {
		t.Errorf("a row without columns: %v, %v", got, err)
	}
}

func TestALoopOverAScanClosesIt(t *testing.T) {
	store, table := scanned(t, 100)
	for _, most := range []int{0, 1, 50, 100, 1000} {
		rows, n := table.Scan(ctx(), nil, nil, ScanOptions{}), 0
		for r, err := range rows.All() {
			if err != nil || r.Text("a") != fmt.Sprint("a", n) {
				t.Fatalf("row %d: %v, %v", n, r, err)
			}
			if n++; n >= most {
				break
			}
		}
		if n != min(max(most, 1), 100) || rows.scanning != nil {
			t.Errorf("%d rows, still open: %v", n, rows.scanning != nil)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
		if n++; !errors.Is(err, ErrClosed) || r.Exists() {
			t.Errorf("of a closed store: %v, %v", r, err)
		}
	}
	if n != 1 {
		t.Errorf("%d steps with an error", n)
	}
}

// TestALoopOverAScanAllocatesLittle: what a scan takes, and the loop.
func TestALoopOverAScanAllocatesLittle(t *testing.T) {
	_, table := scanned(t, 1000)
	cells := 0
	scan := func() {
		for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
			if err != nil {
				t.Fatal(err)
			}
			cells += len(r.Cells())
		}
	}
	if allocs := testing.AllocsPerRun(100, scan); allocs > 4 && !poolsForget {
		t.Errorf("%v allocations", allocs)
	}
}
