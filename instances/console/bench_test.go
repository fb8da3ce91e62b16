package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkWatching has 200 tables with five partitions each, all of them used. "figures" is what an open page asks for
// every two seconds, "record" what the heat map costs every ten, and "heat", "files" and "partitions" are what pages of
// one table ask for every one to five.
func BenchmarkWatching(b *testing.B) {
	ctx := context.Background()
	limits := ots.Documented()
	limits.Tables = 1000
	home, err := instances.Open(b.TempDir(), instances.Options{Limits: limits, Store: flagstone.Options{Sync: flagstone.SyncNone, CacheSize: 1 << 20}})
	if err != nil {
		b.Fatal(err)
	}
	defer home.Close()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	const tables, partitions, operations = 200, 5, 2000
	for i := range tables {
		name := fmt.Sprintf("table%03d", i)
		must(home.CreateTable(ctx, "demo", &instances.NewTable{Name: name, Key: []instances.KeyColumn{{Name: "k", Type: "string"}}}))
		for p := 1; p < partitions; p++ {
			must(home.Split(ctx, "demo", name, fmt.Sprint(p)))
		}
		engine, instance, _ := home.Service("demo")
		table, err := engine.Table(instance, name)
		must(err)
		for n := range operations {
			must(table.Put(ctx, flagstone.Key(fmt.Sprint(n%partitions, "-customer-", n)), "c", flagstone.Now, row.Integer(int64(n))))
		}
	}
	feed := NewFeed()
	for range heatSlices {
		feed.Record(home.LoadedKeys())
	}
	write := func(v any, err error) {
		must(err)
		must(json.NewEncoder(io.Discard).Encode(v))
	}
	for what, f := range map[string]func(){
		"figures":    func() { write(home.Figures(ctx)) },
		"record":     func() { feed.Record(home.LoadedKeys()) },
		"heat":       func() { write(feed.picture("demo/table000"), nil) },
		"files":      func() { write(home.Files(ctx, "demo", "table000")) },
		"partitions": func() { write(home.Partitions(ctx, "demo", "table000")) },
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				f()
			}
		})
	}
}
