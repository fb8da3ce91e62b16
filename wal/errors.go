package wal

import (
	"errors"
	"fmt"
)

// Errors of this package; test for them with errors.Is.
var (
	// ErrCorrupt says that bytes known to have been durable are not what was
	// written, or that a segment is missing. The error is a *CorruptError.
	ErrCorrupt = errors.New("wal: corrupt")
	// ErrClosed says that the writer was closed.
	ErrClosed = errors.New("wal: closed")
	// ErrFailed says that the writer met a write or sync error and takes no more records. The
	// error is a *FailedError.
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

// CorruptError names the place of damage. It matches ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64 // bytes from the start of the file
	Reason string
}

// Error gives the file, the offset and what was expected there. It never shows content.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("wal: corrupt: %s at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// FailedError is the first write or sync error of a writer; every later call returns it. What the
// failed call left on the disk is unknown, and a later sync that succeeds would prove nothing
// about it (the kernel may have dropped the pages); only reopening the log finds out. It matches
// ErrFailed and what its cause matches.
type FailedError struct {
	Op   string // the operation that failed
	File string
	Err  error
}

// Error names operation, file and cause.
func (e *FailedError) Error() string {
	return fmt.Sprintf("wal: failed to %s %s, reopen to go on: %v", e.Op, e.File, e.Err)
}

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrFailed) hold.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }
