package backup_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/row"
)

// A program that embeds a store backs up a checkpoint of it, and deletes that.
func Example() {
	ctx := context.Background()
	at, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(at)
	store, err := flagstone.Open(filepath.Join(at, "store"), flagstone.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	people, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}}})
	if err == nil {
		err = people.Put(ctx, flagstone.Key("alice"), "city", flagstone.Now, row.String("Vienna"))
	}
	if err != nil {
		log.Fatal(err)
	}

	repo, checkpoint := backup.NewFolder(nil, filepath.Join(at, "backups")), filepath.Join(at, "checkpoint")
	err = store.Checkpoint(ctx, checkpoint)
	if err == nil {
		_, err = backup.Create(ctx, repo, nil, checkpoint, backup.CreateOptions{})
	}
	if err == nil {
		err = os.RemoveAll(checkpoint)
	}
	if err != nil {
		log.Fatal(err)
	}

	archive, err := backup.Open(ctx, repo, nil)
	if err != nil {
		log.Fatal(err)
	}
	newest, err := archive.Find(ctx, "")
	if err == nil {
		err = archive.Restore(ctx, newest, nil, filepath.Join(at, "restored"), nil)
	}
	if err != nil {
		log.Fatal(err)
	}
	restored, err := flagstone.Open(filepath.Join(at, "restored"), flagstone.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	table, err := restored.Table("people")
	if err != nil {
		log.Fatal(err)
	}
	alice, err := table.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
	fmt.Println(alice.Text("city"), err)
	// Output: Vienna <nil>
}
