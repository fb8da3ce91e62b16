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
		tx.Put("city", store.NowMillis(), row.String("Vienna"))
		return nil
	})
	check(err)
	alice, err := people.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
	check(err)
	city, _ := alice.Value("city")
	fmt.Println(city.Text())
	// Output: Vienna
}

// A read-modify-write: nothing can change the row between the read and the
// write.
func ExampleTable_Update() {
	store, table := exampleTable()
	defer store.Close()
	ctx := context.Background()
	for range 3 {
		err := table.Update(ctx, flagstone.Key("visits"), func(_ context.Context, tx *flagstone.RowTx) error {
			var n int64
			if r, err := tx.Get(flagstone.ReadOptions{Columns: []string{"n"}, MaxVersions: 1}); err != nil {
				return err
			} else if r != nil {
				v, _ := r.Value("n")
				n = v.Int64()
			}
			tx.Put("n", store.NowMillis(), row.Integer(n+1))
			return nil
		})
		check(err)
	}
	r, err := table.Get(ctx, flagstone.Key("visits"), flagstone.ReadOptions{})
	check(err)
	n, _ := r.Value("n")
	fmt.Println(n)
	// Output: 3
}

// A batch is atomic over any rows and tables.
func ExampleStore_Apply() {
	store, table := exampleTable()
	defer store.Close()
	ctx := context.Background()

	b := store.NewBatch()
	now := store.NowMillis()
	b.Row(table, flagstone.Key("a")).Put("balance", now, row.Integer(-10))
	b.Row(table, flagstone.Key("b")).Put("balance", now, row.Integer(10))
	check(store.Apply(ctx, b))

	rows := table.Scan(ctx, nil, nil, flagstone.ScanOptions{})
	defer rows.Close()
	for rows.Next() {
		balance, _ := rows.Row().Value("balance")
		fmt.Println(rows.Row().Key()[0].Text(), balance)
	}
	check(rows.Err())
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
		r.Put("balance", store.NowMillis(), row.Integer(10))
		return nil
	}
	check(tx.Update(ctx, flagstone.Key("account"), deposit))
	fmt.Println(errors.Is(table.Update(ctx, flagstone.Key("account"), deposit), flagstone.ErrConflict))

	r, err := tx.Get(ctx, flagstone.Key("account"), flagstone.ReadOptions{})
	check(err)
	fmt.Println(r.Value("balance"))
	r, err = table.Get(ctx, flagstone.Key("account"), flagstone.ReadOptions{}) // what others see
	check(err)
	fmt.Println(r == nil)
	check(tx.Commit(ctx))
	// Output:
	// true
	// 10 true
	// true
}

func exampleTable() (*flagstone.Store, *flagstone.Table) {
	dir, err := os.MkdirTemp("", "flagstone")
	check(err)
	store, err := flagstone.Open(dir, flagstone.Options{})
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
	check(people.Put(ctx, flagstone.Key("alice"), "city", store.NowMillis(), row.String("Vienna")))
	check(people.Delete(ctx, flagstone.Key("alice")))

	stream := people.Stream()
	for _, shard := range stream.Shards() {
		position, err := stream.Oldest(ctx, shard.ID)
		check(err)
		for more := true; more; {
			page, err := stream.Read(ctx, position, flagstone.StreamLimits{Records: 100})
			check(err)
			for _, r := range page.Records {
				fmt.Println(r.Action == flagstone.StreamDelete, r.Key[0].Text(), len(r.Cells))
			}
			position, more = page.Next, page.More
		}
	}
	// Output:
	// false alice 1
	// true alice 0
}
