// Package flagstone is a storage engine for wide, versioned rows.
//
// A store holds tables. A table's rows are sorted by a primary key of one to
// four columns; each row has any number of attribute columns, and each cell
// many versions, stamped in milliseconds. How many versions are kept (Max
// Versions) and for how long (Time To Live) are options of the table, and can
// change while it runs.
//
//	store, err := flagstone.Open(dir, flagstone.Options{})
//	table, err := store.CreateTable(ctx, flagstone.TableSpec{
//		Name: "people",
//		Key:  []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
//	})
//	err = table.Update(ctx, flagstone.Key("alice"), func(_ context.Context, tx *flagstone.RowTx) error {
//		tx.Put("city", store.NowMillis(), row.String("Vienna"))
//		return nil
//	})
//	person, err := table.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
//
// A table may have a stream, which tells every change of its rows, in order and
// once: see StreamSpec and Stream.
//
// # Promises
//
// Writes are atomic: a mutation of a row is seen whole or not at all, and so is
// a Batch over any rows and tables. A write that was acknowledged is durable
// (Options.Sync) and visible to every later read; nothing is visible before it
// is durable. Operations on one row are linearizable. A scan, or all reads
// through one Snapshot, see one moment. Answers never depend on when a flush or
// a compaction ran. What is visible, expired or deleted is decided by the
// rule-book in package mvcc, which docs/semantics.md tells in prose.
//
// # Rooms
//
// The root package orders writes and decides what is flushed and merged. Below it,
// internal/commit makes commits visible in their order, internal/pressure holds writers
// back, and internal/jobs runs background work. Package partition is one LSM tree,
// compaction and manifest are its shape, mvcc has the rules, cdc the records of
// streams; wal, memtable and sstable are the three places where cells live, and row is the
// kernel: values, keys, cells, mutations.
package flagstone
