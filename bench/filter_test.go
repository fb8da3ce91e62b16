package bench

import (
	"context"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// filtered is a table of the Table Store layer: rows of one integer, which is
// the row's number, and ten columns of 100 bytes.
type filtered struct {
	engine *ots.Engine
	table  *flagstone.Table
}

const filteredRows = 50_000

func openFiltered(b *testing.B) *filtered {
	b.Helper()
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	b.Cleanup(func() { f.store.Close() })
	engine, err := ots.New(f.store, ots.Options{Instances: []string{"demo"}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, forever, one := context.Background(), int32(-1), int32(1)
	if err := engine.CreateTable(ctx, "demo", &ots.CreateTableRequest{
		Table: "rows", PrimaryKey: []ots.KeyColumn{{Name: "id", Type: row.TypeInteger}},
		Options: &ots.TableOptions{TimeToLive: &forever, MaxVersions: &one},
	}); err != nil {
		b.Fatal(err)
	}
	table, err := f.store.Table("demo/rows")
	if err != nil {
		b.Fatal(err)
	}
	for i := range filteredRows {
		err := table.Update(ctx, []row.Value{row.Integer(int64(i))}, func(_ context.Context, tx *flagstone.RowTx) error {
			tx.PutRow()
			now := f.store.NowMillis()
			for c := range columns {
				tx.Put(columnNames[c], now, row.Binary(f.vs[(i+c)%len(f.vs)]))
			}
			tx.Put("number", now, row.Integer(int64(i)))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := f.store.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	return &filtered{engine, table}
}

// scan walks the table with the engine and returns nothing.
func (f *filtered) scan(b *testing.B) {
	rows := f.table.Scan(context.Background(), nil, nil, flagstone.ScanOptions{ReadOptions: flagstone.ReadOptions{MaxVersions: 1}})
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil || n != filteredRows {
		b.Fatal(n, err)
	}
}

// query reads the table with GetRange, page by page.
func (f *filtered) query(b *testing.B, filter *ots.Filter, want int) {
	one := int32(1)
	req := &ots.GetRangeRequest{
		Table: "rows", Start: ots.Row{Key: []ots.KeyValue{{Name: "id", Value: row.Min()}}},
		End:       ots.Row{Key: []ots.KeyValue{{Name: "id", Value: row.Max()}}},
		Selection: ots.Selection{MaxVersions: &one, Filter: filter},
	}
	for n := 0; ; {
		page, err := f.engine.GetRange(context.Background(), "demo", req)
		if err != nil {
			b.Fatal(err)
		}
		n += len(page.Rows)
		if page.Next == nil {
			if n != want {
				b.Fatalf("%d rows, want %d", n, want)
			}
			return
		}
		req.Start.Key = page.Next
	}
}

// oneInAThousand keeps one row for each thousand, those with the lowest numbers.
func oneInAThousand() *ots.Filter {
	return &ots.Filter{
		Type: ots.FilterSingleColumn, Column: "number", Comparator: ots.CompareLess,
		Value: row.Integer(filteredRows / 1000), FilterIfMissing: true, LatestVersionOnly: true,
	}
}

// BenchmarkFilter compares a range that a filter thins out, 1 row of 1,000,
// with a scan of the same rows that returns none. The figures are per row
// scanned; "ratio" is the speed of the first by that of the second, measured
// in turns.
func BenchmarkFilter(b *testing.B) {
	f := openFiltered(b)
	perRow := func(b *testing.B, d time.Duration, name string) {
		b.ReportMetric(float64(d.Nanoseconds())/float64(b.N)/filteredRows, name)
	}
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.scan(b)
		}
		perRow(b, b.Elapsed(), "ns/row")
	})
	b.Run("everything", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.query(b, nil, filteredRows)
		}
		perRow(b, b.Elapsed(), "ns/row")
	})
	b.Run("keeps=1of1000", func(b *testing.B) {
		b.ReportAllocs()
		var scanned, queried time.Duration
		for b.Loop() {
			start := time.Now()
			f.scan(b)
			middle := time.Now()
			f.query(b, oneInAThousand(), filteredRows/1000)
			scanned += middle.Sub(start)
			queried += time.Since(middle)
		}
		perRow(b, queried, "ns/row")
		b.ReportMetric(scanned.Seconds()/queried.Seconds(), "ratio")
	})
}
