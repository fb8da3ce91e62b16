package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
)

// ErrRefused: what came from another store is not what it was said to be, or does not fit the store.
var ErrRefused = errors.New("transfer: refused")

var (
	// ErrUnfit: the store or its time do not allow what a fragment says, whatever its files are. It is an
	// ErrRefused.
	ErrUnfit = fmt.Errorf("%w: it does not fit the store", ErrRefused)
	// ErrNotStaged: a file of a fragment was not staged. It is an ErrRefused.
	ErrNotStaged = fmt.Errorf("%w: not staged", ErrRefused)
)

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnfit}, args...)...)
}

// maxLeadMillis is how far the clock of a store may be ahead whose rows are ingested: the clock of this one is
// raised to it.
const maxLeadMillis = 24 * 3600 * 1000

// Env is what a mover needs of its store.
type Env interface {
	// Change calls f while no table is made, changed or dropped.
	Change(ctx context.Context, f func() error) error
	// Work calls f, which changes files, unless the store takes no writes.
	Work(f func() error) error
	// Flushed flushes everything and returns a state that has what was written before one moment. Its files
	// stay until release is called.
	Flushed(ctx context.Context) (state *manifest.State, release func(), err error)
	// State is the present state of the manifest.
	State() *manifest.State
	// Find returns the table with a name, nil if there is none. It fails if no table may have that name.
	Find(name string) (*table.Table, error)
	// Create makes the table of an edit. Views below a sequence number do not show it. REQUIRES: within
	// Change.
	Create(e *manifest.Edit, since uint64) error
}

// Mover exports from a store and ingests into it. Its methods are safe for concurrent use.
type Mover struct {
	Env        Env
	Trees      *partition.Env
	Pipeline   *commit.Pipeline
	Rebalancer *rebalance.Rebalancer
	Issued     *storeclock.Issued

	partial atomic.Uint64 // staged files begun
}

// Timely refuses a fragment whose last write is far ahead of the wall clock, in milliseconds. Ingest does not: the
// replicas of a log, which all ingest what is in it, have different clocks.
func (m *Mover) Timely(f *manifest.Fragment, wall int64) error {
	if f.IssuedMillis > max(wall+maxLeadMillis, m.Issued.Last()) {
		return unfit("the last write of the fragment was made at %d ms, now is %d", f.IssuedMillis, wall)
	}
	return nil
}

// Ingest makes the rows of a fragment the store's, by one edit of the manifest, when all its files are staged. The
// table must not exist, or have the range detached. made is the time of a new table, and now the time by which
// data is expired, in milliseconds. Errors match ErrRefused; then nothing was changed.
func (m *Mover) Ingest(ctx context.Context, f *manifest.Fragment, made, now int64) error {
	load := partition.Load{Files: f.Files(), Values: f.Values}
	job := m.Trees.Events.Begin(event.Event{Kind: event.Ingest, Table: m.idOf(f), Files: len(load.Files), Input: load.Size()})
	err := m.ingest(ctx, f, made, now)
	job.Table = m.idOf(f)
	job.End(err)
	return err
}

// idOf is the id of the table to which a fragment goes, 0 if there is none.
func (m *Mover) idOf(f *manifest.Fragment) uint64 {
	if t, err := m.Env.Find(f.Table.Name); err == nil && t != nil {
		return t.ID
	}
	return 0
}

// ingest is Ingest without its events.
func (m *Mover) ingest(ctx context.Context, f *manifest.Fragment, made, now int64) error {
	return m.Env.Work(func() error {
		files, err := m.prepare(ctx, f, now)
		if err != nil {
			return err
		}
		err = m.Env.Change(ctx, func() error { return m.install(ctx, f, files, made, now) })
		if errors.Is(err, manifest.ErrInvalidEdit) {
			err = unfit("%w", err)
		}
		switch {
		case err == nil:
			_ = removeFiles(m.Trees.FS, m.staged(""), names(f)) // else the next Open does
		case m.Pipeline.Failed() == nil: // else the manifest may name the files
			files.discard()
		}
		return err
	})
}

// Verify returns the error that Ingest would return, and changes nothing.
func (m *Mover) Verify(ctx context.Context, f *manifest.Fragment, now int64) error {
	return m.Env.Work(func() error {
		files, err := m.prepare(ctx, f, now)
		if err == nil {
			files.discard()
		}
		return err
	})
}

// prepare adopts the files of a fragment that fits the store.
func (m *Mover) prepare(ctx context.Context, f *manifest.Fragment, now int64) (*adoption, error) {
	if _, err := m.target(f, now); err != nil {
		return nil, err
	}
	return m.adopt(ctx, f)
}

// target finds the table to which a fragment goes at a time in milliseconds, nil if it is to be made.
func (m *Mover) target(f *manifest.Fragment, now int64) (*table.Table, error) {
	t, err := m.Env.Find(f.Table.Name)
	if err != nil || t == nil {
		return nil, err
	}
	meta := t.Meta()
	if meta == nil {
		return nil, t.Gone()
	}
	if !slices.Equal(meta.Key, f.Table.Key) || meta.Options != f.Table.Options {
		return nil, unfit("table %q has the key %v and the options %+v, the fragment has %v and %+v",
			t.Name, meta.Key, meta.Options, f.Table.Key, f.Table.Options)
	}
	for _, tree := range t.Partitions.Load().Between(f.Range()) {
		if held := tree.Held(); held == nil || held.Service != manifest.Detached {
			return nil, unfit("table %q: partition %d is not detached", t.Name, tree.ID())
		}
	}
	return t, checkWatermarks(meta, f, now)
}

// checkWatermarks refuses a fragment if the larger one of both expiry watermarks, which the table gets, could hide
// rows that the side with the smaller one shows. Versions that are expired at a time in milliseconds do not
// count. So it does not matter how far the compactions of a replica have raised its own watermark.
func checkWatermarks(t *manifest.Table, f *manifest.Fragment, now int64) error {
	expired := mvcc.CutoffAt(now, t.Options.TTLSeconds)
	own, other := max(t.Watermark, expired), max(f.Table.Watermark, expired)
	oldest := mvcc.View{Cutoff: own}.Oldest()
	served := func(p *manifest.Partition) bool { return p.Service != manifest.Detached }
	hidden := func(file *manifest.FileMeta) bool { return file.MinVersion < oldest }
	if own < other && slices.ContainsFunc(t.Partitions, served) || own > other && slices.ContainsFunc(f.Files(), hidden) {
		return unfit("the expiry watermark of table %q is %d, that of the fragment is %d: with the larger one, rows would vanish that are not expired",
			t.Name, t.Watermark, f.Table.Watermark)
	}
	return nil
}

// install makes adopted files those of partitions. REQUIRES: within Change.
func (m *Mover) install(ctx context.Context, f *manifest.Fragment, files *adoption, made, now int64) error {
	t, err := m.target(f, now)
	if err != nil {
		return err
	}
	// Readers of the new trees see all that is in the files, and later writes are newer.
	m.Issued.Raise(f.IssuedMillis)
	err = m.Pipeline.Cut(f.LastSeq, func(uint64) error { return nil }, func() {})
	if err == nil {
		_, _, err = m.Pipeline.Barrier(ctx, m.Issued.Micros())
	}
	if err != nil {
		return err
	}
	a := rebalance.Arrival{Partitions: files.partitions, Since: m.Pipeline.Visible()}
	state, from, id := m.Env.State(), f.Table, uint64(0)
	if t == nil {
		id = state.NextTable
		meta := *from
		meta.ID, meta.CreatedMillis = id, made
		meta.Partitions = a.Cover(state.NextPartition, f.LastSeq)
		a.Edit.Created = []*manifest.Table{&meta}
	} else {
		id = t.ID
		a.Edit = inherited(t.Meta(), from)
	}
	for _, v := range files.values {
		a.Edit.Values = append(a.Edit.Values, manifest.ValueAddition{Table: id, File: v})
	}
	if t == nil {
		return m.Env.Create(&a.Edit, a.Since)
	}
	return m.Rebalancer.Receive(t, &a)
}

// inherited is the edit by which a table takes over what holds for the rows of another one with the same
// options.
func inherited(t, from *manifest.Table) (e manifest.Edit) {
	if from.LargestOffset > t.LargestOffset { // it rises with an option that the table has for a moment
		larger := t.Options
		larger.MaxVersionOffsetSeconds = from.LargestOffset
		for _, o := range []manifest.TableOptions{larger, t.Options} {
			e.Altered = append(e.Altered, manifest.Alteration{Table: t.ID, Options: o, Annotations: t.Annotations})
		}
	}
	e.Watermarks = []manifest.Watermark{{Table: t.ID, Cutoff: from.Watermark}}
	for _, l := range from.PastLimits {
		e.PastLimits = append(e.PastLimits, manifest.TableLimit{Table: t.ID, PastLimit: l})
	}
	return e
}
