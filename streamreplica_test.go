package flagstone

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// dump shows all rows of a table with all versions.
func dump(t *testing.T, table *Table) string {
	t.Helper()
	rows := table.Scan(ctx(), nil, nil, ScanOptions{})
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		fmt.Fprintf(&b, "%v %s\n", rows.Row().Key(), digest(rows.Row().Cells()))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func digest(cells []row.Cell) string {
	var b strings.Builder
	for i := range cells {
		c := &cells[i]
		v := string(c.Value)
		if len(v) > 40 {
			v = fmt.Sprint(len(v), v[:20], v[len(v)-10:])
		}
		fmt.Fprintf(&b, " %s@%d=%q", c.Column, c.Version, v)
	}
	return b.String()
}

// TestTransactionsAreReproducedFromTheStream applies the records of a table, which is
// changed by transactions, batches, and single updates across power cuts, to another one.
func TestTransactionsAreReproducedFromTheStream(t *testing.T) {
	for range 5 {
		reproduce(t, rand.Uint64())
	}
}

// readPartition shows a partition key as scans and gets see it.
func readPartition(t *testing.T, from interface {
	Get(context.Context, []row.Value, ReadOptions) (*Row, error)
	Scan(context.Context, []row.Value, []row.Value, ScanOptions) *Rows
}, pk string, opts ScanOptions) string {
	t.Helper()
	start, end := Key(pk, row.Min()), Key(pk, row.Max())
	if opts.Reverse {
		start, end = end, start
	}
	rows := from.Scan(ctx(), start, end, opts)
	defer rows.Close()
	var scanned, got strings.Builder
	for rows.Next() {
		fmt.Fprintf(&scanned, "%v %s\n", rows.Row().Key(), digest(rows.Row().Cells()))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if opts.Reverse {
			i = 3 - i
		}
		found, err := from.Get(ctx(), Key(pk, i), opts.ReadOptions)
		if err != nil {
			t.Fatal(err)
		}
		if found != nil {
			fmt.Fprintf(&got, "%v %s\n", found.Key(), digest(found.Cells()))
		}
	}
	if scanned.String() != got.String() {
		t.Errorf("%s is scanned as\n%s\nand got as\n%s", pk, scanned.String(), got.String())
	}
	return got.String()
}

func reproduce(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	sync := SyncAlways
	if random.IntN(3) == 0 {
		sync = SyncNone
	}
	r := newRig(t, Options{Sync: sync, MemtableSize: 64 << 10, MemoryBudget: 4 << 20})
	defer func() { r.store.Close() }()
	table := r.streamed("t", StreamSpec{RetentionSeconds: 1e6, Before: []string{"a", "big", "c"}})
	to := newRig(t, Options{})
	limit := int64(3)
	replica := to.table("t", TableOptions{MaxVersions: limit})
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: limit}}); err != nil {
		t.Fatal(err)
	}
	pos := oldest(t, table.Stream())
	version := func() int64 { return startMillis + random.Int64N(6) }
	value := func() row.Value {
		switch random.IntN(6) {
		case 0:
			return row.String(strings.Repeat(fmt.Sprint(random.Uint64()), 2000)) // packed
		case 1:
			b := make([]byte, 20_000)
			for i := range b {
				b[i] = byte(random.Uint64())
			}
			return row.Binary(b)
		case 2:
			return row.Integer(random.Int64N(100))
		}
		return row.String(fmt.Sprint(random.Uint64()))
	}
	columns := []string{"a", "b", "big", "c"}
	mutate := func(c *RowChange) {
		if random.IntN(6) == 0 {
			c.PutRow()
		}
		if random.IntN(8) == 0 {
			c.DeleteRow()
		}
		for range random.IntN(4) {
			col := columns[random.IntN(4)]
			switch random.IntN(6) {
			case 0:
				c.DeleteVersion(col, version())
			case 1:
				c.DeleteColumn(col)
			default:
				c.Put(col, version(), value())
			}
		}
	}
	consume := func() {
		st := table.Stream()
		for {
			page, err := st.Read(ctx(), pos, StreamLimits{Records: 1 + random.IntN(20)})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i := range page.Records {
				rec := &page.Records[i]
				found, err := replica.Get(ctx(), rec.Key, ReadOptions{Columns: []string{"a", "big", "c"}, MaxVersions: 1})
				if err != nil {
					t.Fatal(err)
				}
				before := ""
				if found != nil {
					before = digest(found.Cells())
				}
				if got := digest(rec.Before); got != before {
					t.Fatalf("seed %d: record %d: before %s, want %s", seed, rec.Sequence, got, before)
				}
				if err := replica.Update(ctx(), rec.Key, func(_ context.Context, tx *RowTx) error {
					switch rec.Action {
					case StreamPut:
						tx.PutRow()
					case StreamDelete:
						tx.DeleteRow()
					}
					for j := range rec.Cells {
						c := &rec.Cells[j]
						switch c.Kind {
						case row.KindTrim:
							tx.DeleteColumn(string(c.Column))
						case row.KindDeleteVersion:
							tx.DeleteVersion(string(c.Column), c.Version)
						default:
							v, err := row.PayloadValue(c.Type, c.Value)
							if err != nil {
								return err
							}
							tx.Put(string(c.Column), c.Version, v)
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			pos = page.Next
			if !page.More {
				return
			}
		}
	}
	compare := func(what string) {
		consume()
		if got, want := dump(t, replica), dump(t, table); got != want {
			t.Fatalf("seed %d: %s: the replica is\n%s\nthe table\n%s", seed, what, got, want)
		}
	}
	open := map[string]*Transaction{}
	for step := range 400 {
		pk := fmt.Sprint("p", random.IntN(3))
		key := Key(pk, random.IntN(4))
		switch n := random.IntN(100); {
		case n < 40:
			tx := open[pk]
			if tx == nil {
				err := table.Update(ctx(), key, func(_ context.Context, tx *RowTx) error { mutate(&tx.RowChange); return nil })
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				continue
			}
			if err := tx.Update(ctx(), key, func(_ context.Context, tx *RowTx) error { mutate(&tx.RowChange); return nil }); err != nil && !isErr(err, ErrTransactionMemory) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		case n < 50 && open[pk] == nil:
			tx, err := table.Begin(ctx(), row.String(pk), TransactionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			open[pk] = tx
		case n < 62 && open[pk] != nil:
			tx := open[pk]
			delete(open, pk)
			if random.IntN(4) == 0 {
				tx.Abort()
				continue
			}
			opts := ScanOptions{Reverse: random.IntN(2) == 0}
			switch random.IntN(3) {
			case 0:
				opts.Columns, opts.MaxVersions = []string{"c", "a"}, 1
			case 1:
				opts.StartColumn, opts.MaxColumns = "b", 1
			}
			inside := readPartition(t, tx, pk, opts)
			if err := tx.Commit(ctx()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			outside := readPartition(t, table, pk, opts)
			if inside != outside {
				t.Fatalf("seed %d: the transaction saw\n%s\nand left\n%s", seed, inside, outside)
			}
		case n < 70:
			b := r.store.NewBatch()
			for range 5 {
				mutate(b.Row(table, Key(fmt.Sprint("p", random.IntN(3)), random.IntN(4))))
			}
			if err := r.store.Apply(ctx(), b); err != nil && !isErr(err, ErrConflict) {
				t.Fatal(err)
			}
		case n < 80:
			r.exec.RunAll()
		case n < 84:
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
		case n < 86:
			if err := r.store.Compact(ctx()); err != nil {
				t.Fatal(err)
			}
		case n < 90:
			r.clock.Advance(time.Second)
			consume()
		case n < 94:
			compare(fmt.Sprint("step ", step))
		case n == 94 && limit > 1 && step > 100:
			consume()
			limit--
			for _, table := range []*Table{table, replica} {
				if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: limit}}); err != nil {
					t.Fatal(err)
				}
			}
		case n < 97:
			clear(open)
			if sync == SyncNone && random.IntN(2) == 0 {
				// what was consumed must be there still
			} else if sync == SyncNone {
				consume()
			}
			r.crash(vfs.CrashPolicy(random.IntN(4)), seed+uint64(step))
			table = r.table("t", TableOptions{})
			compare("after a crash")
		}
	}
	compare("in the end")
}
