package external

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// ErrHole says that entries of the log are missing between those applied and the next one.
var ErrHole = errors.New("flagstone: entries of the external log are missing")

// Env is what a Log needs of its store.
type Env interface {
	// Tables describes the tables as they are, by id, change logs included.
	Tables() map[uint64]recovery.Table
	// Execute carries out a command, the entry with an index. result is what it answers, the same on
	// every replica; after err, another call may carry it out.
	Execute(ctx context.Context, index uint64, kind Kind, e *manifest.Edit) (result, err error)
	// Highest is the largest index of an entry of which files or catalogue may have something.
	Highest() uint64
}

// Log applies the entries of an external log. One goroutine uses it at a time.
type Log struct {
	Env      Env
	Pipeline *commit.Pipeline
	Issued   *storeclock.Issued
	Writer   uint64        // in the entries of this store
	Micros   *atomic.Int64 // the time of the log, in microseconds, before readers see what has it

	replay recovery.Replay
}

// Apply applies an entry. prev is the index of the entry before it that this store was to get, 0 if that is not
// known. It skips entries that were applied. result is the answer of the entry; err says that it was not applied,
// and matches ErrEntry if the store cannot go on, and ErrHole.
func (l *Log) Apply(ctx context.Context, index, prev uint64, data []byte) (result, err error) {
	at := l.Pipeline.At()
	switch {
	case index <= at.Index:
		return nil, nil
	case prev != 0 && prev != at.Index:
		return nil, fmt.Errorf("%w: entry %d follows entry %d, the store has applied up to %d", ErrHole, index, prev, at.Index)
	}
	p, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	to := at
	to.Index = index
	switch {
	case p.kind != Fence && p.fence != at.Fence: // worked out before a fence that is in force now
		l.Pipeline.End(to, l.foreign(&p))
		return table.ErrAltered, nil
	case p.kind == Batch:
		return nil, l.batch(ctx, to, &p, int64(len(data)))
	}
	return l.command(ctx, to, &p)
}

func (l *Log) foreign(p *payload) bool { return p.writer != l.Writer }

// reach moves the time of the log to that of an entry.
func (l *Log) reach(to *manifest.LogPoint, micros int64) {
	to.Micros = max(to.Micros, micros)
	l.Micros.Store(to.Micros)
	l.Issued.Raise(to.Micros / 1000)
}

// batch applies a batch.
func (l *Log) batch(ctx context.Context, to manifest.LogPoint, p *payload, bytes int64) error {
	batch, err := row.NewBatchReader(p.batch)
	if err != nil {
		return fmt.Errorf("entry %d: %w: %w", to.Index, ErrEntry, err)
	}
	if l.replay.Tables == nil {
		l.replay = recovery.Replay{Tables: l.Env.Tables(), Corrupt: ErrEntry}
	}
	l.reach(&to, batch.Time())
	all, last, err := l.replay.Insertions(&batch, to.Seq+1, to.Micros)
	if err != nil {
		return fmt.Errorf("entry %d: %w: %w", to.Index, ErrEntry, err)
	}
	to.Seq = last
	return l.Pipeline.Enter(ctx, to, l.foreign(p), bytes, all)
}

// command carries out a command, which takes one sequence number. What the catalogue has of it already is
// skipped.
func (l *Log) command(ctx context.Context, to manifest.LogPoint, p *payload) (result, err error) {
	to.Seq, to.Fence = to.Seq+1, to.Index
	l.reach(&to, p.micros)
	l.Pipeline.Begin(to)
	if to.Index > l.Env.Highest() {
		if result, err = l.Env.Execute(ctx, to.Index, p.kind, p.edit); err != nil {
			return nil, fmt.Errorf("entry %d: %w", to.Index, err)
		}
	}
	l.Pipeline.End(to, l.foreign(p))
	l.replay.Tables = nil
	return result, nil
}
