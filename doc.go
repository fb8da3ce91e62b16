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
//		tx.Put("city", flagstone.Now, row.String("Vienna"))
//		return nil
//	})
//	alice, err := table.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
//	fmt.Println(alice.Exists(), alice.Text("city"), alice) // true Vienna ["alice"] city="Vienna"
//	for r, err := range table.Scan(ctx, nil, nil, flagstone.ScanOptions{}).All() { ... }
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
// The root package is the API, and wires the rooms below it:
// internal/change checks and completes the change of a row, internal/txn gathers changes to a
// transaction, internal/scan walks over rows, and internal/table is what all three know of a table.
// internal/upkeep decides what is flushed and compacted when, internal/commit makes writes durable
// and visible in one order, internal/pressure holds writers back, and internal/jobs runs background
// work. internal/recovery replays the log, internal/check verifies a closed store. internal/views decides
// what readers see and compactions keep, internal/storeclock tells the time, cdc has the records of
// streams. internal/load measures partitions, internal/balance decides which of them are split and merged,
// and internal/rebalance does it. internal/ingest adds table files of sorted rows, internal/transfer
// those of another store, and internal/spread writes rows in any order by several workers.
// internal/external applies a log that another program keeps. Package partition is one LSM tree; compaction
// and manifest are its shape, internal/tablefiles has its open files, mvcc has the rules. Cells live in wal,
// memtable, sstable and valuefile. Package row is the kernel: values, keys, cells, mutations; its values are part of
// the API.
//
// The files of this package read well in this order: options.go and errors.go; store.go, which
// opens and closes a store, with recovery.go, treeenv.go and background.go; the tables in table.go,
// catalog.go, droptable.go, partitions.go and moving.go; a write in change.go, update.go, outside.go,
// batch.go, parallelwrite.go, bulk.go and transaction.go; a read in row.go, read.go, snapshot.go,
// scan.go and parallel.go; the streams in stream.go and readstream.go; and what users rarely call
// in sample.go, metrics.go, checkpoint.go, check.go, copy.go and
// external.go.
package flagstone
