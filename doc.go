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
// A table may have a stream, a change feed that returns every change of its rows once and in
// order: see StreamSpec and Stream.
//
// # Promises
//
// Writes are atomic: a mutation of a row is seen whole or not at all, and so is a Batch over any
// rows and tables. With SyncAlways, the default, a write is acknowledged and visible only once it
// is durable; with SyncNone it is both before that, and a crash keeps a prefix of the writes. An
// acknowledged write is visible to every later read. Operations on one row are linearizable. A
// scan, or all reads through one Snapshot, see one moment. Answers never depend on when a flush
// or a compaction ran. The rule-book in package mvcc decides what is visible, expired or deleted;
// docs/semantics.md explains it.
//
// # Rooms
//
// The root package orders writes and decides what is flushed and compacted. Below it,
// internal/commit makes commits visible in order, internal/pressure holds writers back, and
// internal/jobs runs background work. Package partition is one LSM tree; compaction and manifest
// are its shape, internal/tablefiles has its open files, mvcc has the rules, cdc the records of
// streams. Cells live in wal, memtable and sstable. Package row is the kernel: values, keys,
// cells, mutations.
package flagstone
