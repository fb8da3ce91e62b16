package flagstone

import "errors"

// Errors that callers can match with errors.Is. Errors that a Store returns
// wrap one of these, or the error of the context, or that of a function the
// caller passed in; their text names the table, the row, or the file and offset.
var (
	// ErrClosed: the store, snapshot or iterator was closed.
	ErrClosed = errors.New("flagstone: closed")
	// ErrReadOnly: the store was opened read-only.
	ErrReadOnly = errors.New("flagstone: the store is open read-only")
	// ErrTableNotFound: no table of that name, or it was dropped.
	ErrTableNotFound = errors.New("flagstone: table not found")
	// ErrTableExists: a table of that name exists.
	ErrTableExists = errors.New("flagstone: table exists")
	// ErrStreamNotFound: the table has no stream, it was disabled, or the stream
	// has no such shard.
	ErrStreamNotFound = errors.New("flagstone: stream not found")
	// ErrStreamExists: the table has a stream, which must be disabled before
	// another one is made.
	ErrStreamExists = errors.New("flagstone: the table has a stream")
	// ErrStreamTrimmed: records that were to be read may have expired.
	ErrStreamTrimmed = errors.New("flagstone: records of the stream have expired")
	// ErrInvalid: an argument that is never right, whatever the store holds.
	ErrInvalid = errors.New("flagstone: invalid argument")
	// ErrVersionOutOfRange: a cell's version lies at or above the time of the
	// write plus the table's Max Version Offset, or is expired because it is in
	// seconds instead of milliseconds.
	ErrVersionOutOfRange = errors.New("flagstone: cell version out of range")
	// ErrCorrupt: bytes on disk are not what was written. The text names the
	// file and, where it is known, the offset.
	ErrCorrupt = errors.New("flagstone: corrupt")
	// ErrPoisoned: a write or sync of the log or the manifest failed, so what
	// is durable is unknown. Reads go on, writes fail; close the store, see to
	// the disk, and open it again.
	ErrPoisoned = errors.New("flagstone: store is poisoned by a failed write")
	// ErrNoSpace: the disk is full. Nothing was lost; writes are accepted
	// again once there is space.
	ErrNoSpace = errors.New("flagstone: no space left on the disk")
	// ErrTooManyFiles: the process, or the machine, has as many files and
	// connections open as it may. Nothing was lost; it may be tried again.
	ErrTooManyFiles = errors.New("flagstone: too many open files")
	// ErrOutcomeUnknown: the caller's deadline passed, or there was no space, while a
	// write was on its way to the disk. It may still become durable and visible, as a
	// whole; after a restart it has, or never will. Errors match the context's too.
	ErrOutcomeUnknown = errors.New("flagstone: the outcome of the write is unknown")
	// ErrLocked: another process, or another Store of this one, has it open.
	ErrLocked = errors.New("flagstone: the store is in use")
	// ErrConflict: a transaction holds the partition key, or the rows changed each
	// time that a long update had read them. Nothing was written; the write may be
	// tried again, in the first case when that transaction has ended.
	ErrConflict = errors.New("flagstone: conflict with another writer")
	// ErrTransactionEnded: the transaction was committed or aborted, or has
	// outlived its Lifetime.
	ErrTransactionEnded = errors.New("flagstone: the transaction has ended")
	// ErrTransactionMemory: open transactions together hold as much as they may,
	// a quarter of Options.MemoryBudget, or those of one owner its share of it.
	ErrTransactionMemory = errors.New("flagstone: open transactions hold too much memory")
	// ErrOutOfPartition: a row of another partition key than the transaction's.
	ErrOutOfPartition = errors.New("flagstone: a row outside of the transaction's partition key")
	// ErrRowTooLarge: the selected cells of a row take more memory than
	// ReadOptions.MaxBytes allows.
	ErrRowTooLarge = errors.New("flagstone: the selected cells of a row are too large together")
	// ErrNotStore: the directory holds no store, or files of something else.
	ErrNotStore = errors.New("flagstone: not a store")
)
