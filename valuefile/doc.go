// Package valuefile writes and reads value files, which hold large values. Rewriting the 8-byte
// column beside a value of 2 MiB, or compacting the tables that hold both, then does not write
// the 2 MiB again. A cell of a table file holds a row.Reference instead of its value.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A flush or a compaction writes a value file once; it is immutable from then on. It knows
// nothing of the tables that refer to it. Package manifest counts which of its values are still
// referred to, and the compactions that meet references into a file with too much garbage move
// its values.
//
// # The file
//
//	offset 0                                     file size
//	┌────────┬────────┬─────┬────────┬──────────────────┐
//	│ record │ record │ ... │ record │ footer, 72 bytes │
//	└────────┴────────┴─────┴────────┴──────────────────┘
//
//	record   head      stored  4   length of what follows the head
//	                   raw     4   length of the value
//	                   kind    1   0 raw, 1 S2 block, of the value and 16 more bytes, 2 pieces
//	                   zero    3
//	                   checksum 8
//	         content   the value, or its compressed form
//	footer    0  16   unique id of the file
//	         16   8   number of records
//	         24   8   sum of the raw lengths
//	         32   8   file size
//	         40   8   xxhash64 of all heads in their order
//	         48   4   format version: 2; 1 had no pieces
//	         52   4   zero
//	         56   8   xxhash64 of bytes 0..55
//	         64   8   magic "flagVAL\n"
//
// Integers are little endian. A record's checksum is xxhash64 over: the first 12 bytes of its
// head, its content (of pieces only the directory, which has checksums of them), the unique id of
// the file (16 bytes), the offset of the record in the file (8 bytes). Id and offset bind the
// record to its place, as in table files. Records are adjacent and begin at offset 0.
//
// Values are packed in pieces, which are decoded and verified independently: see pieces.go. That
// costs a megabyte of text some hundredths of its compression.
//
// The hash of the heads covers, through their checksums, every byte of the file,
// without hashing large values twice; the manifest keeps the footer's checksum,
// which covers that hash.
//
// Rejected: an index in the file, by which a value could be moved without touching the tables
// that refer to it. Every read would pay for one more look-up, and only a compaction moves a
// value, which writes its reference anyway.
package valuefile
