// Package cdc encodes the records of change data capture: what was done to one
// row, when, and, on request, what some columns held before. It knows nothing of
// tables and of where records are kept: the engine keeps each in a row of its
// own, in a table beside the one whose changes it holds, and that table's files
// bring checksums, expiry and recovery.
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
//	count   uvarint, then so many cells, as in a batch (see package row)
//
// and what columns held before
//
//	format  1 byte, 2
//	count   uvarint, then so many puts
//
// Format 1 is still read: it differs in that no value is packed in pieces (package
// valuefile).
//
// docs/format-stream.md has a worked example.
package cdc
