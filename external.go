package flagstone

// A store whose log belongs to another program, such as a library for consensus: see
// docs/replication.md.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
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
	// payload. If Propose is nil, writes fail with ErrFollower.
	Propose func(ctx context.Context, payload []byte) error
}

// Entry is a committed entry of an external log.
type Entry struct {
	Index uint64 // at least 1, and above that of the entry before it
	// Prev is the index of the entry before it that this store was to get; 0 if that is not known.
	// With it, the store finds out that entries are missing.
	Prev    uint64
	Payload []byte // as it was given to Propose
}

var (
	// ErrExternal: the store has an external log and was opened without Options.External, or the
	// reverse, or a method is only for stores with an external log.
	ErrExternal = errors.New("flagstone: the store's log is external, or is not")
	// ErrFollower: the store has an external log and no way to propose entries.
	ErrFollower = errors.New("flagstone: the store only follows an external log")
	// ErrLogHole: entries of the external log that the store needs are missing.
	ErrLogHole = external.ErrHole
	// ErrEntry: an entry of the external log is damaged, or was made by a newer version. The store
	// takes no more entries.
	ErrEntry = external.ErrEntry
)

// ApplyEntries applies committed entries of the external log, and skips those that the store has.
// results are the answers of the entries, each nil or the error that Propose is to return. err says
// that not all were applied: results has one for each entry that was, and the call may be repeated
// with the others. It matches ErrPoisoned and ErrEntry if the store must be closed, and ErrLogHole
// if an entry is missing. The store copies what it keeps. Calls run one after the other.
func (s *Store) ApplyEntries(ctx context.Context, entries []Entry) (results []error, err error) {
	if s.opts.External == nil {
		return nil, ErrExternal
	}
	if err := s.throttle(ctx); err != nil {
		return nil, err
	}
	err = s.work(func() error {
		if err := s.applying.Lock(ctx); err != nil {
			return err
		}
		defer s.applying.Unlock()
		for _, e := range entries {
			result, err := s.followed.Apply(ctx, e.Index, e.Prev, e.Payload)
			if errors.Is(err, ErrEntry) {
				err = s.pipeline.Fail(err)
			}
			if err != nil {
				return err
			}
			results = append(results, s.describe(result))
		}
		return nil
	})
	return results, err
}

// AppliedIndex is the index of the last entry of the external log that readers see; 0 if there is
// none. Right after Open it is DurableIndex. Reads are right from ConsistentIndex on.
func (s *Store) AppliedIndex() uint64 {
	if s.opts.External == nil {
		return 0
	}
	return s.pipeline.AppliedIndex()
}

// ConsistentIndex is the AppliedIndex from which reads are right. When the store was opened, its files may have
// had parts of entries up to it, so before that readers see a later state of some rows. If the store was closed by
// Close, it is what AppliedIndex was then; after a crash, readers may have seen later entries, which the owner
// knows: see docs/replication.md. It does not change while the store is open.
func (s *Store) ConsistentIndex() uint64 { return s.consistent }

// DurableIndex is the index up to which all entries of the external log survive a loss of power:
// the owner may forget them. After Open, it gives the store those behind it again.
func (s *Store) DurableIndex() uint64 {
	if x := s.state().External; x != nil {
		return x.Index
	}
	return 0
}

// FlushUpTo makes all entries of the external log up to an index durable. Errors match ErrInvalid
// if they were not applied.
func (s *Store) FlushUpTo(ctx context.Context, index uint64) error {
	switch {
	case s.opts.External == nil:
		return ErrExternal
	case index <= s.DurableIndex():
		return nil
	case index > s.AppliedIndex():
		return fmt.Errorf("%w: FlushUpTo(%d), entries were applied up to %d", ErrInvalid, index, s.AppliedIndex())
	}
	return s.work(func() error { return s.upkeep.FlushUpTo(ctx, index) })
}

// checkExternal refuses a store that was made with another kind of log, or that needs what its log
// cannot give any more.
func (s *Store) checkExternal() error {
	x, opts := s.state().External, s.opts.External
	switch {
	case x == nil && opts == nil:
		return nil
	case opts == nil:
		return fmt.Errorf("%w: %s has an external log, Options.External is not set", ErrExternal, s.dir)
	case x == nil:
		return fmt.Errorf("%w: %s has its own log, Options.External is set", ErrExternal, s.dir)
	case x.Index+1 < opts.FirstAvailable:
		return fmt.Errorf("%w: %s needs entry %d, the log begins with %d", ErrLogHole, s.dir, x.Index+1, opts.FirstAvailable)
	}
	return nil
}

// follow begins behind the last entry that is durable.
func (s *Store) follow(state *manifest.State) {
	s.pipeline.Recovered(state.LastSeq, state.External.Micros)
	s.logMicros.Store(state.External.Micros)
	s.consistent = state.External.Highest
	var writer [8]byte
	rand.Read(writer[:])
	l := &s.followed
	*l = external.Log{
		Env: externalEnv{s}, Pipeline: s.pipeline, Issued: s.issued, Writer: binary.LittleEndian.Uint64(writer[:]), Micros: &s.logMicros,
	}
	s.pipeline.Follow(state.External.LogPoint, commit.Owner{
		Propose: func(ctx context.Context, fence uint64, batch [][]byte) error {
			return s.opts.External.send(ctx, external.AppendBatch(l.Writer, fence, batch))
		},
		Fence: func(ctx context.Context) error {
			return s.opts.External.send(ctx, external.AppendCommand(external.Fence, l.Writer, 0, s.issued.Micros(), new(manifest.Edit)))
		},
	})
}

func (x *External) send(ctx context.Context, payload []byte) error {
	if x.Propose == nil {
		return ErrFollower
	}
	err := x.Propose(ctx, payload)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// propose proposes the command that work makes of the present catalogue. It does so again if
// another command came first.
func (s *Store) propose(ctx context.Context, kind external.Kind, work func() (*manifest.Edit, error)) error {
	for {
		if err := errors.Join(s.mayChange(ctx), s.pipeline.Writable()); err != nil {
			return err
		}
		if err := s.tables.Lock(ctx); err != nil {
			return err
		}
		fence := s.pipeline.At().Fence
		e, err := work()
		s.tables.Unlock()
		if err == nil {
			err = s.opts.External.send(ctx, external.AppendCommand(kind, s.followed.Writer, fence, s.issued.Micros(), e))
		}
		if !errors.Is(err, table.ErrAltered) {
			return s.describe(err)
		}
	}
}

// proposeReplacement is rebalance.Parts.Propose.
func (s *Store) proposeReplacement(ctx context.Context, t *table.Table, c rebalance.Cut) error {
	kind := external.Split
	if c.Merge {
		kind = external.Merge
	}
	return s.propose(ctx, kind, func() (*manifest.Edit, error) {
		cut := &manifest.Replacement{Table: t.ID, New: []*manifest.Partition{{Start: c.At, Cut: c.Asked}}}
		return &manifest.Edit{Replaced: []*manifest.Replacement{cut}}, t.Gone()
	})
}

// externalEnv implements external.Env.
type externalEnv struct{ *Store }

func (s externalEnv) Tables() map[uint64]recovery.Table { return s.tables.current.Load().replayed() }

func (s externalEnv) Highest() uint64 { return s.state().External.Highest }

// Execute carries out a command.
func (s externalEnv) Execute(ctx context.Context, index uint64, kind external.Kind, e *manifest.Edit) (result, err error) {
	s.command.Store(index)
	switch kind {
	case external.Fence:
		s.pipeline.Between(func() {
			for _, t := range s.tables.current.Load().byID {
				t.core.NewEra()
			}
		})
	case external.Create:
		err = s.change(ctx, func() error {
			_, err := s.createTable(e.Created)
			return err
		})
	case external.Alter:
		err = s.withTable(e.Altered[0].Table, func(t *Table) error {
			return s.change(ctx, func() error { return t.alter(e) })
		})
	case external.Drop:
		err = s.withTable(e.Dropped[0], func(t *Table) error {
			return s.change(ctx, func() error { return s.dropTable(t) })
		})
	case external.Split, external.Merge:
		err = s.withTable(e.Replaced[0].Table, func(t *Table) error {
			at := e.Replaced[0].New[0]
			return s.replacePartitions(ctx, t, rebalance.Cut{At: at.Start, Asked: at.Cut, Merge: kind == external.Merge})
		})
	}
	for _, final := range []error{ErrTableNotFound, ErrInvalid, manifest.ErrInvalidEdit} {
		if errors.Is(err, final) {
			return err, nil
		}
	}
	return nil, err
}

// withTable calls f with the table of an id.
func (s externalEnv) withTable(id uint64, f func(t *Table) error) error {
	t := s.tables.current.Load().byID[id]
	if t == nil {
		return fmt.Errorf("%w: id %d", ErrTableNotFound, id)
	}
	return f(t)
}

// replacePartitions splits or merges partitions of a table.
func (s externalEnv) replacePartitions(ctx context.Context, t *Table, c rebalance.Cut) error {
	for {
		// Nothing is written meanwhile, so this ends.
		if err := s.rebalancer.CarryOut(ctx, t.core, c); !errors.Is(err, rebalance.ErrBusy) {
			return err
		}
	}
}

// noteEntries adds to an edit up to which entry of an external log its effects go. A change of the
// catalogue is that of the command that is being carried out.
func (s *Store) noteEntries(e *manifest.Edit) {
	x := manifest.External{Highest: s.pipeline.At().Index}
	if e.External != nil {
		x.LogPoint = e.External.LogPoint
	}
	if len(e.Created)+len(e.Altered)+len(e.Dropped)+len(e.Replaced)+len(e.Cuts) > 0 {
		x.Highest = max(x.Highest, s.command.Load())
	}
	e.External = &x
}

// logClock is a clock that is not behind the time of an external log. So readers of every replica whose clock
// says the same see the same of what expires, whatever its compactions have dropped.
type logClock struct {
	clock.Clock
	micros *atomic.Int64 // the time of the log
}

func (c logClock) NowMillis() int64 { return max(c.Clock.NowMillis(), c.micros.Load()/1000) }

func (c logClock) NowMicros() int64 { return max(c.Clock.NowMicros(), c.micros.Load()) }

// millisToDrop is the time by which expired data may be dropped. With an external log it is the
// log's time, the same on every replica at an entry.
func (s *Store) millisToDrop() int64 {
	if s.opts.External != nil {
		return s.logMicros.Load() / 1000
	}
	return s.trusted.Look().Millis
}

// millisOfChange is the time of a change of the catalogue.
func (s *Store) millisOfChange() int64 {
	if s.opts.External != nil {
		return s.logMicros.Load() / 1000
	}
	return s.issued.Millis()
}

// levelWatermarks raises the watermark of a table of a store with an external log, in the edit that
// changes its Time To Live: replicas may have dropped different parts of what has expired, and from
// then on all show nothing of it.
func (s *Store) levelWatermarks(e *manifest.Edit, id uint64, before, after int64) {
	if cutoff := mvcc.CutoffAt(s.millisToDrop(), before); s.opts.External != nil && before != after && cutoff != mvcc.NoExpiry {
		e.Watermarks = append(e.Watermarks, manifest.Watermark{Table: id, Cutoff: cutoff})
	}
}
