// Package sstable writes and reads table files: immutable, sorted runs of rows. It
// knows rows, files and the block cache. It knows nothing of levels, visibility or
// other files.
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
// A row's key is stored, hashed and compared once, not once per cell. Inside a block,
// everything that has one value per row or per cell is an array of integers, whose
// width is chosen for the block (see uints.go). So any element is found by arithmetic,
// without decoding what comes before: a row by binary search over the keys, a cell by
// binary search over the column numbers of its row, a value by two array entries.
//
// # Long rows
//
// A block holds either whole rows, or a fragment of exactly one row. A row that does
// not fit in a block takes two or more blocks, one after the other. The index has the
// (column, version) at which each begins, so a reader of a few columns in a row of a
// million cells needs only a few blocks.
//
// # Reading
//
//	Iterator      the cursor: rows and cells                 iterator.go
//	              whole rows, and several at once            wholerow.go, rowchunk.go
//	blockReader   "give me this block, I read like this"     blockreader.go
//	              and the values of these rows               segmentreader.go
//	              blocks that helpers load ahead             readahead.go
//	              what need not be verified again            verified.go
//	byteReader    ranges of the file, windows, the mapping   bytereader.go
//	              what the page cache has                    pagecache.go
//
// The iterator tells its block reader whether it scans, and whether what it reads is wanted
// again (IterOptions). The block reader decides what comes from the cache, goes there, is
// verified and read ahead.
//
// # Corruption
//
// Bytes of the file, from a call or a mapping, are copied to memory of the reader. Block
// heads, values that a get reads, and what goes to the cache are verified whenever they are
// read from the file; a scan may trust values that were verified within the interval (see
// verified.go). The structure is checked when a block is parsed; after that, iteration needs no
// checks and sees no change of the file. Bytes that fail give an error that matches ErrCorrupt and
// names the file and the offset. They never give a wrong or missing row.
package sstable
