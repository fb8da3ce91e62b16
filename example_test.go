package flagstone_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// Embedding Flagstone: open a store, make a table, write a row, read it back.
func Example() {
	dir, err := os.MkdirTemp("", "flagstone")
	check(err)
	defer os.RemoveAll(dir)

	ctx := context.Background()
	store, err := flagstone.Open(dir, flagstone.Options{})
	check(err)
	defer store.Close()
	people, err := store.CreateTable(ctx, flagstone.TableSpec{
		Name: "people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
	})
	check(err)
	err = people.Update(ctx, flagstone.Key("alice"), func(_ context.Context, tx *flagstone.RowTx) error {
		tx.Put("city", flagstone.Now, row.String("Vienna"))
		tx.Put("age", flagstone.Now, row.Integer(30))
		return nil
	})
	check(err)
	alice, err := people.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(alice)
	fmt.Println(alice.Text("city"), alice.Int64("age"))
	bob, err := people.Get(ctx, flagstone.Key("bob"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(bob.Exists(), bob.Int64("age"))
	// Output:
	// ["alice"] age=30 city="Vienna"
	// Vienna 30
	// false 0
}

// A listener is called for what a store does in the background.
func ExampleEvent() {
	store, table := exampleTableWith(flagstone.Options{OnEvent: func(e flagstone.Event) {
		if e.Kind == flagstone.EventFlush && !e.Begun {
			fmt.Println("flushed", e.Table, e.Written > 0, e.Err)
		}
	}})
	defer store.Close()
	ctx := context.Background()
	check(table.Put(ctx, flagstone.Key("alice"), "city", flagstone.Now, row.String("Vienna")))
	check(store.Flush(ctx))
	// Output: flushed examples true <nil>
}

// A read-modify-write: nothing can change the row between the read and the
// write.
func ExampleTable_Update() {
	store, table := exampleTable()
	defer store.Close()
	ctx := context.Background()
	for range 3 {
		err := table.Update(ctx, flagstone.Key("visits"), func(_ context.Context, tx *flagstone.RowTx) error {
			r, err := tx.Get(flagstone.ReadOptions{Columns: []string{"n"}, MaxVersions: 1})
			if err != nil {
				return err
			}
			tx.Put("n", flagstone.Now, row.Integer(r.Int64("n")+1)) // an absent column is 0
			return nil
		})
		check(err)
	}
	r, err := table.Get(ctx, flagstone.Key("visits"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(r.Int64("n"))
	// Output: 3
}

// A batch is atomic over any rows and tables.
func ExampleStore_Apply() {
	store, table := exampleTable()
	defer store.Close()
	ctx := context.Background()

	b := store.NewBatch()
	b.Row(table, flagstone.Key("a")).Put("balance", flagstone.Now, row.Integer(-10))
	b.Row(table, flagstone.Key("b")).Put("balance", flagstone.Now, row.Integer(10))
	check(store.Apply(ctx, b))

	for r, err := range table.Scan(ctx, nil, nil, flagstone.ScanOptions{}).All() {
		check(err)
		fmt.Println(r.Key()[0].Text(), r.Int64("balance"))
	}
	// Output:
	// a -10
	// b 10
}

// A transaction reads and changes rows of one partition key over several calls,
// and is applied as a whole.
func ExampleTable_Begin() {
	store, table := exampleTable()
	defer store.Close()
	ctx := context.Background()

	tx, err := table.Begin(ctx, row.String("account"), flagstone.TransactionOptions{Lifetime: time.Minute})
	check(err)
	defer tx.Abort() // does nothing once it is committed
	deposit := func(_ context.Context, r *flagstone.RowTx) error {
		r.Put("balance", flagstone.Now, row.Integer(10))
		return nil
	}
	check(tx.Update(ctx, flagstone.Key("account"), deposit))
	fmt.Println(errors.Is(table.Update(ctx, flagstone.Key("account"), deposit), flagstone.ErrConflict))

	r, err := tx.Get(ctx, flagstone.Key("account"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(r.Int64("balance"))
	r, err = table.Get(ctx, flagstone.Key("account"), flagstone.ReadOptions{}) // what others see
	check(err)
	fmt.Println(r.Exists())
	check(tx.Commit(ctx))
	// Output:
	// true
	// 10
	// false
}

// A column keeps several versions, each stamped in milliseconds. A read selects some of them.
func ExampleRow_Versions() {
	store, rooms := exampleTable()
	defer store.Close()
	ctx := context.Background()
	check(rooms.Alter(ctx, flagstone.TableChange{Options: &flagstone.TableOptions{MaxVersions: 10}}))
	for i, degrees := range []float64{20.5, 21, 22.5, 24} {
		check(rooms.Put(ctx, flagstone.Key("kitchen"), "degrees", int64(1000*i), row.Double(degrees)))
	}

	// The versions of a range, MaxVersion exclusive; the newest comes first.
	r, err := rooms.Get(ctx, flagstone.Key("kitchen"), flagstone.ReadOptions{MinVersion: 1000, MaxVersion: 3000})
	check(err)
	for version, value := range r.Versions("degrees") {
		fmt.Println(version, value.Float64())
	}
	// The newest two of any time, deleted as one column.
	check(rooms.Update(ctx, flagstone.Key("kitchen"), func(_ context.Context, tx *flagstone.RowTx) error {
		r, err := tx.Get(flagstone.ReadOptions{MaxVersions: 2})
		fmt.Println(r)
		tx.DeleteColumn("degrees")
		return err
	}))
	r, err = rooms.Get(ctx, flagstone.Key("kitchen"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(r.Exists(), len(r.Cells()))
	// Output:
	// 2000 22.5
	// 1000 21
	// ["kitchen"] degrees=24@3000 degrees=22.5@2000
	// true 0
}

// A snapshot is one moment. The newest rows of a prefix are read by a scan downwards from its end.
func ExampleSnapshot() {
	store, _ := exampleTable()
	defer store.Close()
	ctx := context.Background()
	log, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "log", Key: []flagstone.KeyColumn{
		{Name: "host", Type: row.TypeString}, {Name: "id", Type: row.TypeInteger},
	}})
	check(err)
	write := func(host string, id int) {
		check(log.Put(ctx, flagstone.Key(host, id), "line", flagstone.Now, row.String(fmt.Sprint("line ", id))))
	}
	for id := range 4 {
		write("h", id)
		write("i", id)
	}

	then, err := store.Snapshot()
	check(err)
	defer then.Close()
	write("h", 4) // not seen at the snapshot

	latest := flagstone.ScanOptions{Reverse: true}
	latest.Snapshot = then
	for r, err := range log.Scan(ctx, flagstone.Key("h", row.Max()), flagstone.Key("h", 1), latest).All() {
		check(err)
		write("h", 10+int(r.Key()[1].Int64())) // nor is this
		fmt.Println(r)
	}
	now, err := log.Get(ctx, flagstone.Key("h", 13), flagstone.ReadOptions{})
	check(err)
	fmt.Println(now)
	// Output:
	// ["h" 3] line="line 3"
	// ["h" 2] line="line 2"
	// ["h" 13] line="line 13"
}

func exampleTable() (*flagstone.Store, *flagstone.Table) {
	return exampleTableWith(flagstone.Options{})
}

func exampleTableWith(opts flagstone.Options) (*flagstone.Store, *flagstone.Table) {
	dir, err := os.MkdirTemp("", "flagstone")
	check(err)
	store, err := flagstone.Open(dir, opts)
	check(err)
	table, err := store.CreateTable(context.Background(), flagstone.TableSpec{
		Name: "examples", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
	})
	check(err)
	return store, table
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A stream returns the changes of a table. A consumer keeps its position.
func ExampleTable_Stream() {
	dir, err := os.MkdirTemp("", "flagstone")
	check(err)
	defer os.RemoveAll(dir)

	ctx := context.Background()
	store, err := flagstone.Open(dir, flagstone.Options{})
	check(err)
	defer store.Close()
	people, err := store.CreateTable(ctx, flagstone.TableSpec{
		Name: "people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
		Stream: &flagstone.StreamSpec{RetentionSeconds: 24 * 3600},
	})
	check(err)
	check(people.Put(ctx, flagstone.Key("alice"), "city", flagstone.Now, row.String("Vienna")))
	check(people.Delete(ctx, flagstone.Key("alice")))

	stream := people.Stream()
	for _, shard := range stream.Shards() {
		position, err := stream.Oldest(ctx, shard.ID)
		check(err)
		for r, err := range stream.Records(ctx, &position) {
			check(err)
			fmt.Println(r.Action == flagstone.StreamDelete, r.Key[0].Text(), len(r.Cells))
		}
	}
	// Output:
	// false alice 1
	// true alice 0
}

// A parallel scan reads a table with several goroutines, each of which keeps what it needs for itself.
func ExampleTable_ScanParallel() {
	dir, err := os.MkdirTemp("", "flagstone")
	check(err)
	defer os.RemoveAll(dir)

	ctx := context.Background()
	store, err := flagstone.Open(dir, flagstone.Options{})
	check(err)
	defer store.Close()
	people, err := store.CreateTable(ctx, flagstone.TableSpec{
		Name: "people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeInteger}},
	})
	check(err)
	batch := store.NewBatch()
	for id := range 1000 {
		batch.Row(people, flagstone.Key(id)).Put("city", flagstone.Now, row.String("Vienna"))
	}
	check(store.Apply(ctx, batch))

	const workers = 4
	var counts [workers]int
	whole := false
	check(people.ScanParallel(ctx, flagstone.ParallelScan{
		Workers:  workers,
		Progress: func(done, total int64) { whole = done == total },
	}, func(worker int, r *flagstone.Row) error {
		counts[worker]++
		return nil
	}))
	fmt.Println(counts[0]+counts[1]+counts[2]+counts[3], whole)
	// Output: 1000 true
}
