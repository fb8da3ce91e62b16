package flagstone

// A store whose log belongs to another program, such as a library for consensus: see
// docs/replication.md.

import (
	"context"
	"errors"

	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/transfer"
	"github.com/flagstone-db/flagstone/manifest"
)

// External says that the log of a store belongs to another program, its owner. The store writes no
// log. Its content follows from the entries that the owner gives to Store.ApplyEntries, in the
// order of their indexes, so stores that get the same entries give the same answers. A new store is
// made so; an old one cannot change.
type External struct {
	// FirstAvailable is the lowest index of an entry that the owner can still give. Open fails with
	// ErrLogHole if the store needs an earlier one. 0 stands for 1.
	FirstAvailable uint64
	// Propose adds an entry with the payload to the log, once. It returns when the owner has applied the
	// entry to this store, and then with its result of ApplyEntries, unchanged. Any other error says
	// that the entry is not in the log and never will be, unless it matches ErrOutcomeUnknown or is
	// that of ctx; then the entry may still come. Several goroutines call Propose, which hold the latches
	// of the rows that they change. Of the store's methods, it may call ApplyEntries. It may keep the
	// payload. Store.Close waits for the calls of transactions, so an owner that stops lets all fail first. If
	// Propose is nil, writes fail with ErrFollower.
	Propose func(ctx context.Context, payload []byte) error
}

// Entry is a committed entry of an external log.
type Entry struct {
	Index uint64 // at least 1, and above that of the entry before it
	// Prev is the index of the entry before it that this store was to get; 0 if that is not known.
	// With it, the store finds out that entries are missing.
	Prev uint64
	// Payload is what was given to Propose. An empty one changes nothing but the index: give entries of the
	// owner itself so, if it cuts its log behind them.
	Payload []byte
}

var (
	// ErrExternal: the store has an external log and was opened without Options.External, or the
	// reverse, or a method is only for stores with the other kind of log.
	ErrExternal = external.ErrKind
	// ErrFollower: the store has an external log and no way to propose entries.
	ErrFollower = external.ErrFollower
	// ErrLogHole: entries of the external log that the store needs are missing.
	ErrLogHole = external.ErrHole
	// ErrNotStaged: a file of an export that is to be ingested was not staged; with an external log, on this
	// replica. Stage it, and apply the entry again.
	ErrNotStaged = transfer.ErrNotStaged
	// ErrEntry: an entry of the external log is damaged, or was made by a newer version. The store
	// takes no more entries.
	ErrEntry = external.ErrEntry
)

// ApplyEntries applies committed entries of the external log, and skips those that the store has.
// results are the answers of the entries, each nil or the error that Propose is to return. err says
// that not all were applied: results has one for each entry that was, and the call may be repeated
// with the others. It matches ErrPoisoned and ErrEntry if the store must be closed, ErrLogHole if an
// entry is missing, ErrNotStaged if an entry needs a file, and ErrInvalid for an index of 0 or above
// 2^56-1. The store copies what it keeps. Calls run one after the other.
func (s *Store) ApplyEntries(ctx context.Context, entries []Entry) (results []error, err error) {
	if s.external == nil {
		return nil, ErrExternal
	}
	if err := s.throttle(ctx); err != nil {
		for _, e := range entries {
			s.external.Miss(e.Index)
		}
		return nil, err
	}
	err = s.work(func() error {
		for _, e := range entries {
			result, err := s.external.Apply(ctx, e.Index, e.Prev, e.Payload)
			if err != nil {
				return err
			}
			results = append(results, s.describe(result))
		}
		return nil
	})
	s.pipeline.PauseForEntries(ctx)
	return results, err
}

// AppliedIndex is the index of the last entry of the external log that readers see; 0 if there is
// none. Right after Open it is DurableIndex. Reads are right from ConsistentIndex on.
func (s *Store) AppliedIndex() uint64 { return s.external.Applied() }

// ConsistentIndex is the AppliedIndex from which reads are right. When the store was opened, its files
// may have had parts of entries up to it; before that, readers see a later state of some rows. After
// Close, it is what AppliedIndex was then. After a crash, readers may have seen later entries, which the
// owner knows: see docs/replication.md. It does not change while the store is open.
func (s *Store) ConsistentIndex() uint64 { return s.external.Consistent() }

// DurableIndex is the index up to which all entries of the external log survive a loss of power:
// the owner may forget them. After Open, it gives the store those behind it again.
func (s *Store) DurableIndex() uint64 { return s.external.Durable() }

// FlushUpTo makes all entries of the external log up to an index durable. Errors match ErrInvalid
// if they were not applied.
func (s *Store) FlushUpTo(ctx context.Context, index uint64) error {
	if s.external == nil {
		return ErrExternal
	}
	return s.describe(s.external.FlushUpTo(ctx, index))
}

// externalEnv implements external.Env.
type externalEnv struct{ rebalanceEnv }

func (e externalEnv) Replayed() map[uint64]recovery.Table { return e.tables.current.Load().replayed() }

func (e externalEnv) State() *manifest.State { return e.state() }

func (e externalEnv) Ingest(ctx context.Context, f *manifest.Fragment, millis int64) (result, err error) {
	err = e.mover.Ingest(ctx, f, millis, millis)
	if errors.Is(err, transfer.ErrUnfit) {
		return err, nil
	}
	return nil, err
}

func (e externalEnv) Execute(ctx context.Context, kind external.Kind, edit *manifest.Edit) error {
	return e.change(ctx, func() error {
		_, err := e.execute(kind, edit)
		return err
	})
}
