// Package mvcc decides what is visible, and what no reader can need any more.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A row is stored as cells in several runs (memtables, table files). Every
// cell carries the sequence number of the mutation that wrote it. A View is a
// moment of the store: a sequence number, the number of versions that the
// table shows, and the cutoff below which versions are expired. This package
// answers two questions about the cells of one row:
//
//   - Which of them does a view show? RowReader, for reads.
//   - Which of them does no view show, now or later? Pruner, for flush and
//     compaction.
//
// Both ask the same judge (rules.go), one per view, so that they cannot
// disagree. MergeIterator and RowMerge put the runs of a row into one order.
//
// # The rules
//
// At a view with sequence number S, limit M and cutoff C:
//
//  1. Cells above S do not exist.
//  2. A delete-row at sequence d hides what is below d; cells of the same
//     mutation survive. A trim at (version V, sequence s) hides the cells of
//     its column with version at most V and sequence below s. A delete-version
//     hides what is below it at exactly its version. Deletes act by sequence,
//     never by version alone: a later write of an older version is visible.
//  3. Among the cells of one (column, version) the highest sequence number wins.
//  4. Of what remains, the M largest versions of a column are visible.
//  5. Versions whose whole seconds lie before C are expired and invisible.
//  6. What a view shows does not depend on whether anything was pruned.
//  7. Raising M or the time to live may bring back what was invisible and is not
//     pruned yet, but never what was deleted or overwritten.
//
// A row exists in a view that sees a marker at or above d that is not expired. A row
// with visible cells always exists, because every mutation that puts cells leaves a
// marker of their largest version.
//
// # Runs
//
// A newer run holds only larger sequence numbers of a row than an older run, and all
// cells of a mutation are in one run. All proofs of Pruner rest on this order. So
// compaction merges only neighbours: a newer run of a row goes along only if all
// older runs do, down to where the result is put.
package mvcc
