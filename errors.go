package flagstone

import (
	"errors"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/ingest"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/txn"
)

// Errors that callers can match with errors.Is. Errors of a Store wrap one of these, or the error
// of the context, of the file system, or of a function the caller passed in; their text names the
// table, the row, or the file and offset.
var (
	// ErrClosed: the store, snapshot or iterator was closed.
	ErrClosed = table.ErrClosed
	// ErrReadOnly: the store was opened read-only.
	ErrReadOnly = errors.New("flagstone: the store is open read-only")
	// ErrTableNotFound: no table of that name, or it was dropped.
	ErrTableNotFound = table.ErrNotFound
	// ErrTableExists: a table of that name exists.
	ErrTableExists = errors.New("flagstone: table exists")
	// ErrStreamNotFound: the table has no stream, it was disabled, or the stream
	// has no such shard.
	ErrStreamNotFound = errors.New("flagstone: stream not found")
	// ErrStreamExists: the table has a stream, which must be disabled before
	// another one is made, or before a bulk load.
	ErrStreamExists = ingest.ErrStream
	// ErrStreamTrimmed: records that were to be read may have expired.
	ErrStreamTrimmed = errors.New("flagstone: records of the stream have expired")
	// ErrInvalid: an argument that is wrong whatever the store holds.
	ErrInvalid = commit.ErrInvalid
	// ErrVersionOutOfRange: a cell's version lies at or above the time of the
	// write plus the table's Max Version Offset, or is expired because it is in
	// seconds instead of milliseconds.
	ErrVersionOutOfRange = change.ErrVersionOutOfRange
	// ErrCorrupt: bytes on disk are not what was written. The text names the
	// file and, where it is known, the offset.
	ErrCorrupt = errors.New("flagstone: corrupt")
	// ErrPoisoned: a write or sync of the log or the manifest failed, so what is durable is
	// unknown. Reads go on, writes fail; close the store, repair the disk, and open it again.
	ErrPoisoned = commit.ErrPoisoned
	// ErrNoSpace: the disk is full. Nothing was lost; writes are accepted
	// again once there is space.
	ErrNoSpace = errors.New("flagstone: no space left on the disk")
	// ErrTooManyFiles: the process or the machine has reached its limit of open files and
	// connections. Nothing was lost; the call may be tried again.
	ErrTooManyFiles = errors.New("flagstone: too many open files")
	// ErrOutcomeUnknown: the caller's deadline passed, or there was no space, while a write was
	// on its way to the disk. It may still become durable and visible, as a whole; after a
	// restart that is decided. If the deadline passed, the error also matches the context's.
	ErrOutcomeUnknown = commit.ErrOutcomeUnknown
	// ErrLocked: another process, or another Store of this process, has the store open.
	ErrLocked = errors.New("flagstone: the store is in use")
	// ErrConflict: a transaction holds the partition key, a bulk load is being committed whose range
	// has the row, the range of a bulk load has rows, or other writers changed the rows during
	// each attempt of a long update. Nothing was written; the write may be tried again, in the first
	// two cases when the other one has ended.
	ErrConflict = txn.ErrConflict
	// ErrFrozen: the partition takes no writes for now, see Table.Freeze. Nothing was written; the write may
	// be tried again.
	ErrFrozen = table.ErrFrozen
	// ErrDetached: the partition is held elsewhere, see Table.Detach, or it came here after the snapshot of
	// the read was made.
	ErrDetached = table.ErrDetached
	// ErrTransactionEnded: the transaction was committed or aborted, or has
	// outlived its Lifetime.
	ErrTransactionEnded = txn.ErrEnded
	// ErrTransactionMemory: open transactions together hold a quarter of Options.MemoryBudget, or
	// those of one owner hold its share of that.
	ErrTransactionMemory = txn.ErrMemory
	// ErrOutOfPartition: a row of another partition key than the transaction's.
	ErrOutOfPartition = txn.ErrOutOfPartition
	// ErrRowTooLarge: the selected cells of a row take more memory than ReadOptions.MaxBytes allows, or the read
	// looks at more cells than MaxCells.
	ErrRowTooLarge = errors.New("flagstone: the selected cells of a row are too large together")
	// ErrNotStore: the directory has files of a store, but nothing that says what they are.
	ErrNotStore = errors.New("flagstone: not a store")
)
