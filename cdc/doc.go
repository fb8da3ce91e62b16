// Package cdc encodes the records of change data capture: what was done to one row, when, and, on
// request, what some columns held before. It does not know tables, nor where records are kept.
// The engine keeps each record in its own row of a second table beside the changed one; the files
// of that table bring checksums, expiry and recovery.
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
