package wal

import (
	"errors"
	"fmt"
)

// Errors of this package; test for them with errors.Is.
var (
	// ErrCorrupt says that bytes known to have been durable are not what was
	// written, or that a segment is missing. The error names the file, the offset in bytes and
	// what was expected there.
	ErrCorrupt = errors.New("wal: corrupt")
	// ErrClosed says that the writer was closed.
	ErrClosed = errors.New("wal: closed")
	// ErrFailed says that the writer met a write or sync error and takes no more records. The
	// error names the operation and the file, matches what its cause matches, and is what every
	// later call returns. What the failed call left on the disk is unknown, and a later sync that
	// succeeds would prove nothing about it (the kernel may have dropped the pages); only
	// reopening the log finds out.
	ErrFailed = errors.New("wal: failed")
	// errNewerFormat says that a later version of this program wrote the segment.
	errNewerFormat = errors.New("wal: unknown newer format version")
	// errWrongStore says that a segment belongs to another store.
	errWrongStore = errors.New("wal: segment of another store")
	// ErrTooLarge says that a record exceeds MaxRecordSize.
	ErrTooLarge = errors.New("wal: record too large")
	// ErrRoom says that there is no room for a record until a write or rotation has finished: see
	// Writer.MakeRoom.
	ErrRoom = errors.New("wal: no room yet")
	// errPosition says that a record's position is not above the last one of its stream.
	errPosition = errors.New("wal: position does not rise")
)

// corrupt is the error of damage at an offset of a file. It never shows content.
func corrupt(file string, offset int64, reason string) error {
	return fmt.Errorf("%w: %s at offset %d: %s", ErrCorrupt, file, offset, reason)
}
