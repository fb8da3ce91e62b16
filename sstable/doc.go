// Package sstable writes and reads table files: immutable, sorted runs of
// rows. It knows rows, files and the block cache, and nothing of levels,
// visibility or other files.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
//
// A file is a sequence of blocks and a footer:
//
//	offset 0                                                       file size
//	┌────────────┬─────┬────────────┬────────┬───────┬────────────┬────────┐
//	│ data block │ ... │ data block │ filter │ index │ properties │ footer │
//	└────────────┴─────┴────────────┴────────┴───────┴────────────┴────────┘
//
//	data block   rows, or a fragment of one long row:    datablock.go
//	             a head, and their values in segments    segments.go
//	filter       one bloom filter over the row keys      filter.go
//	index        where each row key is                   index.go
//	properties   what the file holds, in numbers         properties.go
//	footer       unique id, lengths, version, magic      footer.go
//	all parts    compressed or not, then a trailer       blocktrailer.go
//
// # Rows are physical groups
//
// A row's key is stored, hashed and compared once, not once per cell. Inside a
// block everything that has one value per row or per cell is an array of
// integers whose width is chosen for the block (see uints.go), so that any
// element is found by arithmetic: a row by binary search over the keys, a cell
// by binary search over the column numbers of its row, a value by two entries
// of an array, without decoding what comes before.
//
// # Long rows
//
// A block holds either whole rows, or a fragment of exactly one row. A row
// that does not fit in a block has two or more blocks for itself, one after the
// other; the index knows at which (column, version) each of them begins, so a
// few columns of a row of a million cells are a few blocks away.
//
// # Corruption
//
// What is read of the file, by a call or through a mapping, is copied to memory of
// the reader; there its checksum is verified, whenever it is read, and the structure
// when it is parsed. After that, iteration needs no checks, and no change of the file
// is seen. (Scans may believe for a while that values are as they were when they were
// verified: see verified.go. What goes to the cache never is.)
// What fails either gives an error that matches ErrCorrupt and names the file
// and the offset. It never gives a wrong or missing row.
package sstable
