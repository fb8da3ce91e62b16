// Package cdc is change data capture: it derives the record of a change of one row, stores it as a
// row, and reads it. A record says what was done, when, and, on request, what some columns held
// before.
//
// The change log of a table is a second, hidden table with one row for each mutation of the first,
// under (shard, sequence number). Its files bring checksums, expiry and recovery. A commit writes a
// mutation to the log file only once: the row of the change log is derived when the mutation is
// applied, in the pipeline and again at recovery, from the batch and the change log's entry in the
// manifest alone. So a record exists exactly if its mutation does: both have one sequence number,
// become visible together, and are replayed unless the files of their trees hold them. Records
// expire as cells do, by their version, which is the time of their commit.
//
// A shard is a partition of the table, present or past. A split or merge decides, by sequence number,
// which mutations went to the old partitions, and the manifest keeps that (manifest.Lineage). So a
// record that is derived again at recovery gets the shard it had, and a split need not flush the
// change log. A row's changes are in its shard, before that in the parent of the shard, and so on.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A record is
//
//	format  1 byte, 2
//	time    8 bytes little endian: of the commit, microseconds since the epoch
//	flags   1 byte: bit 0 delete-row, bit 1 put-row, others zero
//	keyLen  uvarint, then the row key
//	count   uvarint, then that many cells, as in a batch (see package row)
//
// and what columns held before
//
//	format  1 byte, 2
//	count   uvarint, then that many puts
//
// Format 1 can still be read: in it no value is packed in pieces (package valuefile).
//
// docs/format-stream.md has a worked example.
package cdc
