package flagstone

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// boundedReads are the ways to read one row within ReadOptions.MaxBytes.
func boundedReads(t *testing.T, table *Table, n int, most int64) map[string]func() (*Row, error) {
	opts := ReadOptions{MaxBytes: most}
	scan := func(from, to int, reverse bool) (*Row, error) {
		rows := table.Scan(ctx(), Key("p", from), Key("p", to), ScanOptions{ReadOptions: opts, Reverse: reverse})
		defer rows.Close()
		if rows.Next() {
			return rows.Row().Clone(), nil
		}
		return nil, rows.Err()
	}
	return map[string]func() (*Row, error){
		"get":     func() (*Row, error) { return table.Get(ctx(), Key("p", n), opts) },
		"forward": func() (*Row, error) { return scan(n, n+1, false) },
		"reverse": func() (*Row, error) { return scan(n, n-1, true) },
		"update": func() (r *Row, err error) {
			err = table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error { r, err = tx.Get(opts); return err })
			return r, err
		},
		"transaction": func() (*Row, error) {
			tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Abort()
			return tx.Get(ctx(), Key("p", n), opts)
		},
	}
}

// TestARowIsReadWithinItsBoundOrNotAtAll checks the bound to the byte: for rows in memory, in
// files and in both, with values in their cells, in value files, and packed.
func TestARowIsReadWithinItsBoundOrNotAtAll(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
	table := r.table("t", TableOptions{MaxVersions: 3})
	rows := []struct {
		cells, size int
		like        func(c int) byte
	}{
		{1200, 10, func(c int) byte { return byte(c) }},
		{40, 8 << 10, func(int) byte { return 0 }}, // what compresses
		{0, 0, nil},
		{1, 1, func(int) byte { return 1 }},
	}
	write := func(version int64) {
		for n, w := range rows {
			for from := 0; from == 0 || from < w.cells; from += 500 {
				err := table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error {
					if version == startMillis && from == 0 {
						tx.PutRow()
					}
					for c := from; c < min(from+500, w.cells); c++ {
						value := make([]byte, w.size)
						for i := range value {
							value[i] = w.like(c)
						}
						tx.Put(fmt.Sprintf("c%05d", c), version, row.Binary(value))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	check := func(where string) {
		for n := range rows {
			whole, err := table.Get(ctx(), Key("p", n), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for i := range whole.Cells() {
				size += whole.Cells()[i].Memory()
			}
			// Packed values also count before they are unpacked.
			for how, read := range boundedReads(t, table, n, 2*size+1) {
				if got, err := read(); err != nil || cells(got) != cells(whole) {
					t.Errorf("%s: row %d by %s: %v", where, n, how, err)
				}
			}
			if size == 0 {
				continue
			}
			for how, read := range boundedReads(t, table, n, size-1) {
				if _, err := read(); !isErr(err, ErrRowTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf(`row ["p" %d]`, n)) {
					t.Errorf("%s: row %d of %d bytes by %s: %v", where, n, size, how, err)
				}
			}
			// A read that was cut short left nothing behind.
			if again, err := table.Get(ctx(), Key("p", n), ReadOptions{}); err != nil || cells(again) != cells(whole) {
				t.Errorf("%s: row %d reads otherwise afterwards: %v", where, n, err)
			}
		}
	}
	write(startMillis)
	check("memory")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	check("files")
	write(startMillis + 1)
	check("both")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	check("two files")
}

func TestARowThatIsTooLargeTakesLittleMemory(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
	table := r.table("t", TableOptions{})
	const columns, most = 40, 1 << 20
	for c := range columns {
		put(t, table, "p", 1, fmt.Sprintf("c%02d", c), startMillis, string(make([]byte, 1<<20)))
	}
	for _, where := range []string{"memory", "files"} {
		for how, read := range boundedReads(t, table, 1, most) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := read(); !isErr(err, ErrRowTooLarge) {
				t.Errorf("%s: %s: %v", where, how, err)
			}
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 8*most && !raced {
				t.Errorf("%s: %s took %d bytes for a row of %d MiB, of which %d may be read", where, how, taken, columns, most)
			}
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
}
