package commit

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/wal"
)

// Refuse makes the commit of a write that changes nothing. Its Wait returns refusal (nil for a
// change without effect) once everything that is applied now is durable and visible: a caller that
// is told that a row exists must be able to read it.
func (p *Pipeline) Refuse(refusal error) Commit {
	lsn, seq := p.queue.lastBelow(math.MaxUint64)
	return Commit{pipeline: p, lsn: lsn, seq: seq, refusal: refusal}
}

// await returns when everything up to seq, whose record is lsn, is durable (with Options.Sync)
// and visible.
func (p *Pipeline) await(ctx context.Context, lsn wal.LSN, seq uint64) error {
	if p.Visible() >= seq {
		return nil
	}
	if p.opts.Sync {
		p.watchDevice()
		if err := p.log.SyncContext(ctx, lsn); err != nil {
			return p.notSynced(ctx, err)
		}
		// One call publishes the whole group.
		if p.Visible() < seq {
			p.queue.publish(p.publishable())
		}
		if p.Visible() >= seq {
			return nil
		}
	}
	// An earlier commit is durable but not applied yet. Its writer will publish both, and soon:
	// applying waits for nothing.
	if err := p.queue.wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// publishable is the last log record whose commit readers may see.
func (p *Pipeline) publishable() wal.LSN {
	if p.opts.Sync {
		return p.log.DurableLSN()
	}
	return math.MaxUint64
}

// Sync makes every write that was ordered durable, and visible once it is applied. An error either
// matches ErrPoisoned or says that the disk is full; then Sync may be called again later.
func (p *Pipeline) Sync() error { return p.SyncContext(context.Background()) }

// SyncContext is Sync for a caller that waits no longer than the context, whose error it then returns.
func (p *Pipeline) SyncContext(ctx context.Context) error {
	if p.log == nil { // the owner of the log makes entries durable
		return nil
	}
	p.order.Lock()
	lsn := p.lastLSN
	p.order.Unlock()
	err := p.log.SyncContext(ctx, lsn)
	p.queue.publish(p.publishable()) // the writer may not be waiting; nor is it after an error
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return p.logged(err)
}

// SyncVisible makes durable what is visible: a crash must not lose what was returned to a reader
// who will act on it later.
func (p *Pipeline) SyncVisible() error {
	if p.opts.Sync || p.log == nil {
		return nil
	}
	return p.Sync()
}

// Barrier returns the last sequence number, once everything up to it is durable and visible, and
// a time in microseconds; no later commit has an earlier time. The time is at least micros, unless
// the store takes no writes.
func (p *Pipeline) Barrier(ctx context.Context, micros int64) (seq uint64, at int64, err error) {
	p.order.Lock()
	if p.log != nil {
		p.lastMicros = max(p.lastMicros, micros)
	}
	seq, at = p.nextSeq-1, p.lastMicros
	lsn := p.lastLSN
	p.order.Unlock()
	if err := p.await(ctx, lsn, seq); err != nil {
		return 0, 0, err
	}
	return seq, at, p.SyncVisible()
}

// Settle returns when every write below endSeq is visible. durable returns when a crash after the
// flush keeps a prefix of the writes. A flush waits for both: compactions rely on seeing only
// visible writes, and a table file in the manifest must not outlive earlier writes that the log
// could still lose. holders is called once all is visible, with the segment before which the log is
// durable. It reports whether the flush, and whether other memtables, hold some of the writes that lie there
// or later. If only one side does, the log need not be durable, unless it is kept: its reader would miss
// what the flush has. Else the log is synced, without Options.Sync beside, as executor.Executor.Beside does,
// while the files are written.
func (p *Pipeline) Settle(
	endSeq uint64, holders func(segment uint64) (flush, others bool), beside func(func() error) (wait func() error),
) (durable func() error, err error) {
	if p.opts.Sync {
		if err := p.Sync(); err != nil {
			return nil, err
		}
	}
	_, last := p.queue.lastBelow(endSeq)
	if err := p.queue.wait(context.Background(), last); err != nil {
		return nil, err
	}
	if !p.opts.Sync && p.log != nil {
		if flush, others := holders(p.log.NewestOnDisk()); flush && (others || p.log.Kept()) {
			return beside(p.Sync), nil
		}
	}
	return func() error { return nil }, nil
}
