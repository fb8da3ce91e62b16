package external

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrHole says that entries of the log are missing between those applied and the next one.
	ErrHole = errors.New("flagstone: entries of the external log are missing")
	// ErrKind says that a store's log is external and should not be, or the reverse.
	ErrKind = errors.New("flagstone: the store's log is external, or is not")
	// ErrFollower says that the store has no way to propose entries.
	ErrFollower = errors.New("flagstone: the store only follows an external log")
)

// Env is what a Log needs of its store.
type Env interface {
	// Change calls f while no table is made, changed or dropped.
	Change(ctx context.Context, f func() error) error
	// Tables are the tables that can be written.
	Tables() []*table.Table
	// Replayed describes the tables as they are, by id, change logs included.
	Replayed() map[uint64]recovery.Table
	// Execute carries out a command that makes, alters or drops a table. After an error that matches neither
	// table.ErrNotFound, commit.ErrInvalid nor manifest.ErrInvalidEdit, another call may carry it out.
	Execute(ctx context.Context, kind Kind, e *manifest.Edit) error
	// Ingest ingests a fragment at a time in milliseconds. result says why the state does not allow it; after
	// err, another call may carry it out.
	Ingest(ctx context.Context, f *manifest.Fragment, millis int64) (result, err error)
	// State is that of the manifest.
	State() *manifest.State
}

// Parts are what a log works with.
type Parts struct {
	Env        Env
	Pipeline   *commit.Pipeline
	Upkeep     *upkeep.Upkeep
	Rebalancer *rebalance.Rebalancer
	Issued     *storeclock.Issued
	// Propose hands a payload to the owner of the log, and returns when that has applied it; nil if
	// the store only follows. flagstone.External describes it.
	Propose func(ctx context.Context, payload []byte) error
}

// Log is an external log as a store sees it. Its methods are safe for concurrent use.
type Log struct {
	// First is the lowest index of an entry that the log can still give.
	First uint64

	Parts
	consistent uint64        // the largest index of which the store had something when it was opened
	writer     uint64        // in the entries of this store
	micros     atomic.Int64  // the time of the log, in microseconds, before readers see what has it
	command    atomic.Uint64 // index of the last command that was carried out, or is being
	applying   commit.Latch  // held while an entry is applied
	missed     atomic.Uint64 // index of the first entry that could not be applied; it says nothing once that is applied
	replay     recovery.Replay
}

// Check refuses a store that was made with another kind of log than it is opened with, or that needs an entry
// before the first one that the log has. l is nil if it is opened with its own log, and known is of the
// manifest. Errors match ErrKind and ErrHole, and name the directory.
func (l *Log) Check(dir string, known *manifest.External) error {
	switch {
	case known == nil && l != nil:
		return fmt.Errorf("%w: %s has its own log, Options.External is set", ErrKind, dir)
	case known != nil && l == nil:
		return fmt.Errorf("%w: %s has an external log, Options.External is not set", ErrKind, dir)
	case l != nil && known.Index+1 < l.First:
		return fmt.Errorf("%w: %s needs entry %d, the log begins with %d", ErrHole, dir, known.Index+1, l.First)
	}
	return nil
}

// Follow begins behind the last entry that is durable. REQUIRES: the pipeline is new.
func (l *Log) Follow(parts Parts, state *manifest.State) {
	var writer [8]byte
	rand.Read(writer[:])
	l.Parts, l.consistent, l.writer = parts, state.External.Highest, binary.LittleEndian.Uint64(writer[:])
	l.micros.Store(state.External.Micros)
	l.Pipeline.Recovered(state.LastSeq, state.External.Micros)
	l.Pipeline.Follow(state.External.LogPoint, commit.Owner{
		Propose: func(ctx context.Context, fence uint64, batch [][]byte) error {
			return l.send(ctx, AppendBatch(l.writer, fence, batch))
		},
		Fence: l.Advance,
	})
}

// Advance proposes a fence, which moves the time of the log to the present.
func (l *Log) Advance(ctx context.Context) error {
	return l.send(ctx, AppendCommand(Fence, l.writer, 0, l.Issued.Micros(), manifest.AppendEdit(nil, new(manifest.Edit))))
}

func (l *Log) send(ctx context.Context, payload []byte) error {
	if l.Propose == nil {
		return ErrFollower
	}
	err := l.Propose(ctx, payload)
	if err != nil && !errors.Is(err, commit.ErrAgain) {
		l.Pipeline.Doubt()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", commit.ErrOutcomeUnknown, err)
	}
	return err
}

// Command proposes the command that describe makes of the present catalogue, which does not change meanwhile. It
// does so again if another command came first.
func (l *Log) Command(ctx context.Context, kind Kind, describe func() (*manifest.Edit, error)) error {
	return l.propose(ctx, kind, func() ([]byte, error) {
		e, err := describe()
		if err != nil {
			return nil, err
		}
		return manifest.AppendEdit(nil, e), nil
	})
}

// Ingest proposes to ingest a fragment, which is sound.
func (l *Log) Ingest(ctx context.Context, fragment []byte) error {
	return l.propose(ctx, Ingest, func() ([]byte, error) { return fragment, nil })
}

func (l *Log) propose(ctx context.Context, kind Kind, describe func() (body []byte, err error)) error {
	for {
		var payload []byte
		err := l.Env.Change(ctx, func() error {
			fence := l.Pipeline.At().Fence
			body, err := describe()
			if err == nil {
				payload = AppendCommand(kind, l.writer, fence, l.Issued.Micros(), body)
			}
			return err
		})
		if err == nil {
			err = l.send(ctx, payload)
		}
		if !errors.Is(err, commit.ErrAgain) {
			return err
		}
	}
}

// Rebalance proposes a change of a table's partitions.
func (l *Log) Rebalance(ctx context.Context, t *table.Table, c rebalance.Change) error {
	kind := Split
	switch {
	case c.Serve != nil:
		kind = Serve
	case c.Merge:
		kind = Merge
	}
	return l.Command(ctx, kind, func() (*manifest.Edit, error) {
		if c.Serve != nil {
			return &manifest.Edit{Services: []manifest.ServiceChange{*c.Serve}}, t.Gone()
		}
		cut := &manifest.Replacement{Table: t.ID, New: []*manifest.Partition{{Start: c.At, Cut: c.Asked}}}
		return &manifest.Edit{Replaced: []*manifest.Replacement{cut}}, t.Gone()
	})
}

// Applied is the index of the last entry that readers see, 0 if l is nil.
func (l *Log) Applied() uint64 {
	if l == nil {
		return 0
	}
	return l.Pipeline.AppliedIndex()
}

// Consistent is the largest index of which the store had something when it was opened, 0 if l is nil.
func (l *Log) Consistent() uint64 {
	if l == nil {
		return 0
	}
	return l.consistent
}

// Durable is the index up to which the table files hold everything, 0 if l is nil.
func (l *Log) Durable() uint64 {
	if l == nil {
		return 0
	}
	return l.Env.State().External.Index
}

// FlushUpTo makes all entries up to an index durable. Errors match commit.ErrInvalid if they were not applied,
// or are those of the flush.
func (l *Log) FlushUpTo(ctx context.Context, index uint64) error {
	switch {
	case index <= l.Durable():
		return nil
	case index > l.Applied():
		return fmt.Errorf("%w: FlushUpTo(%d), entries were applied up to %d", commit.ErrInvalid, index, l.Applied())
	}
	// A table that is being dropped would hold the log back.
	return l.Env.Change(ctx, func() error { return l.Upkeep.FlushUpTo(ctx, index) })
}

// Note adds to an edit up to which entry its effects go. A change of the catalogue is that of the command that
// is being carried out.
func (l *Log) Note(e *manifest.Edit) {
	x := manifest.External{Highest: l.Pipeline.At().Index}
	if e.External != nil {
		x.LogPoint = e.External.LogPoint
	}
	if len(e.Created)+len(e.Altered)+len(e.Dropped)+len(e.Replaced)+len(e.Cuts)+len(e.Services) > 0 {
		x.Highest = max(x.Highest, l.command.Load())
	}
	e.External = &x
}

// Millis is the time of the log, in milliseconds. It may be that of an entry that is being applied.
func (l *Log) Millis() int64 { return l.micros.Load() / 1000 }

// MillisToDrop is the time by which expired data may be dropped. It is that of the entries that are applied: Note
// says of an edit that it has nothing of later ones.
func (l *Log) MillisToDrop() int64 { return l.Pipeline.At().Micros / 1000 }

// logClock is a clock that is not behind the time of a log.
type logClock struct {
	clock.Clock
	log *Log
}

// Clock returns a clock for readers that is not behind the time of the log. So readers of every replica whose
// clock says the same see the same of what expires, whatever its compactions have dropped.
func (l *Log) Clock(of clock.Clock) clock.Clock { return logClock{of, l} }

func (c logClock) NowMillis() int64 { return max(c.Clock.NowMillis(), c.log.Millis()) }

func (c logClock) NowMicros() int64 { return max(c.Clock.NowMicros(), c.log.micros.Load()) }

// logTime is a clock that has the time of a log.
type logTime struct{ logClock }

// Time returns a clock with the time of the log, by which the records of streams expire: a reader's position, which
// has that time, does not expire while nothing is written.
func (l *Log) Time(of clock.Clock) clock.Clock { return logTime{logClock{of, l}} }

func (c logTime) NowMillis() int64 { return c.log.Millis() }

func (c logTime) NowMicros() int64 { return c.log.micros.Load() }

// Apply applies an entry. prev is the index of the entry before it that this store was to get, 0 if that is not
// known. It skips entries that were applied. result is the answer of the entry, the same on every replica; err
// says that it was not applied, and matches ErrHole, or ErrEntry and commit.ErrPoisoned, or another call may
// apply the entry.
func (l *Log) Apply(ctx context.Context, index, prev uint64, data []byte) (result, err error) {
	if err := l.applying.Lock(ctx); err != nil {
		l.Miss(index)
		return nil, err
	}
	defer l.applying.Unlock()
	at, missed := l.Pipeline.At(), l.missed.Load()
	switch {
	case index == 0 || index > row.MaxSequence:
		return nil, fmt.Errorf("%w: an entry at index %d", commit.ErrInvalid, index)
	case index <= at.Index:
		return nil, nil
	case missed > at.Index && index > missed:
		return nil, fmt.Errorf("%w: entry %d follows entry %d, which could not be applied", ErrHole, index, missed)
	case prev != 0 && prev != at.Index:
		l.Miss(index)
		return nil, fmt.Errorf("%w: entry %d follows entry %d, the store has applied up to %d", ErrHole, index, prev, at.Index)
	}
	to := at
	to.Index = index
	if len(data) == 0 { // of the owner itself
		l.Pipeline.End(to, false, 0)
		return nil, nil
	}
	p, err := decode(data)
	switch {
	case err != nil:
	case p.kind != Fence && p.fence != at.Fence: // worked out before a fence that is in force now
		l.Pipeline.End(to, l.foreign(&p), int64(len(data)))
		return table.ErrAltered, nil
	case p.kind == Batch:
		err = l.batch(ctx, to, &p, int64(len(data)))
	default:
		result, err = l.carryOut(ctx, to, &p, int64(len(data)))
	}
	if err != nil {
		l.Miss(index)
		err = fmt.Errorf("entry %d: %w", index, err)
	}
	if errors.Is(err, ErrEntry) {
		err = l.Pipeline.Fail(err)
	}
	return result, err
}

// Miss notes that the owner gave an entry that was not applied. It must give it again before later ones, unless the
// store has it.
func (l *Log) Miss(index uint64) {
	for {
		missed, at := l.missed.Load(), l.Pipeline.At().Index
		if index <= at || missed > at && missed <= index || l.missed.CompareAndSwap(missed, index) {
			return
		}
	}
}

func (l *Log) foreign(p *payload) bool { return p.writer != l.writer }

// reach moves the time of the log to that of an entry.
func (l *Log) reach(to *manifest.LogPoint, micros int64) {
	to.Micros = max(to.Micros, micros)
	l.micros.Store(to.Micros)
	l.Issued.Raise(to.Micros / 1000)
}

// batch applies a batch.
func (l *Log) batch(ctx context.Context, to manifest.LogPoint, p *payload, bytes int64) error {
	batch, err := row.NewBatchReader(p.batch)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	if l.replay.Tables == nil {
		l.replay = recovery.Replay{Tables: l.Env.Replayed(), Corrupt: ErrEntry}
	}
	l.reach(&to, batch.Time())
	all, last, err := l.replay.Insertions(&batch, to.Seq+1, to.Micros)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	to.Seq = last
	return l.Pipeline.Enter(ctx, to, l.foreign(p), bytes, all)
}

// carryOut carries out a command, which takes one sequence number. What the catalogue has of it already is
// skipped.
func (l *Log) carryOut(ctx context.Context, to manifest.LogPoint, p *payload, bytes int64) (result, err error) {
	to.Seq, to.Fence = to.Seq+1, to.Index
	if f := p.fragment; f != nil { // its rows keep their sequence numbers
		to.Seq = max(to.Seq, f.LastSeq+1)
	}
	l.reach(&to, p.micros)
	l.Pipeline.Begin(to)
	if to.Index > l.Env.State().External.Highest {
		l.command.Store(to.Index)
		result, err = l.execute(ctx, p)
	}
	if err == nil {
		l.Pipeline.End(to, l.foreign(p), bytes)
		l.replay.Tables = nil
	}
	return result, err
}

func (l *Log) execute(ctx context.Context, p *payload) (result, err error) {
	if p.kind == Ingest {
		return l.Env.Ingest(ctx, p.fragment, l.Millis())
	}
	err = l.change(ctx, p)
	for _, final := range []error{table.ErrNotFound, table.ErrFrozen, table.ErrDetached, commit.ErrInvalid, manifest.ErrInvalidEdit} {
		if errors.Is(err, final) {
			return err, nil
		}
	}
	return nil, err
}

// change carries out a command that is an edit.
func (l *Log) change(ctx context.Context, p *payload) error {
	switch p.kind {
	case Split, Merge:
		r := p.edit.Replaced[0]
		return l.rebalance(ctx, r.Table, rebalance.Change{At: r.New[0].Start, Asked: r.New[0].Cut, Merge: p.kind == Merge})
	case Serve:
		c := p.edit.Services[0]
		t, _ := l.Env.State().Partition(c.Partition)
		if t == nil {
			return fmt.Errorf("%w: there is no partition %d", commit.ErrInvalid, c.Partition)
		}
		return l.rebalance(ctx, t.ID, rebalance.Change{Serve: &c})
	case Fence:
		l.Pipeline.Between(func() {
			for _, t := range l.Env.Tables() {
				t.NewEra()
			}
		})
		return nil
	}
	return l.Env.Execute(ctx, p.kind, p.edit)
}

// rebalance changes partitions of a table.
func (l *Log) rebalance(ctx context.Context, id uint64, c rebalance.Change) error {
	for _, t := range l.Env.Tables() {
		for t.ID == id {
			// Nothing is written meanwhile, so this ends.
			if err := l.Rebalancer.CarryOut(ctx, t, c); !errors.Is(err, rebalance.ErrBusy) {
				return err
			}
		}
	}
	return fmt.Errorf("%w: id %d", table.ErrNotFound, id)
}
