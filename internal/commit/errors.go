package commit

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/wal"
)

var (
	// ErrPoisoned: a write or sync of the log or the manifest failed, so what is durable is
	// unknown. No write is accepted any more.
	ErrPoisoned = errors.New("flagstone: store is poisoned by a failed write")
	// ErrOutcomeUnknown: the caller's deadline passed, or there was no space, while a write was
	// on its way to the disk. It may still become durable and visible, as a whole.
	ErrOutcomeUnknown = errors.New("flagstone: the outcome of the write is unknown")
	// ErrInvalid: a write that can never be taken: it exceeds the log or the memory budget.
	ErrInvalid = errors.New("flagstone: invalid argument")
)

// Fail records the first error of the log or the manifest and returns the error that every write
// gets from then on; it matches ErrPoisoned.
func (p *Pipeline) Fail(cause error) error {
	wrapped := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	if p.failed.CompareAndSwap(nil, &wrapped) {
		p.opts.Logger.Error("store poisoned: writes fail until it is reopened", "cause", cause)
		p.gate.Wake()
		// Not here: a lock of the pipeline may be held.
		p.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "report of a failure"}, func() error {
			p.opts.Events.Note(event.Event{Kind: event.Failure, Reason: "writing", Err: wrapped})
			return nil
		})
	}
	return p.Failed()
}

// Failed returns the error of Fail, nil if it was never called.
func (p *Pipeline) Failed() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Writable returns nil, or the reason why no write is accepted.
func (p *Pipeline) Writable() error {
	if err := p.Failed(); err != nil {
		return err
	}
	return p.env.Refuses()
}

// refused maps the error of a log that took no record.
func (p *Pipeline) refused(err error) error {
	switch {
	case errors.Is(err, wal.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, wal.ErrFailed):
		return p.Fail(err)
	case errors.Is(err, wal.ErrClosed):
		if closed := p.Writable(); closed != nil {
			return closed
		}
	}
	return err // no space, or the caller gave up waiting for room: nothing happened
}

// logged maps the error of a call that writes the log. A call that found no space can be repeated
// later; any other error poisons the store.
func (p *Pipeline) logged(err error) error {
	if err == nil || vfs.IsNoSpace(err) && !errors.Is(err, wal.ErrFailed) {
		return err
	}
	return p.Fail(err)
}

// notSynced is the error of a commit whose record is not durable. If it can still become durable,
// a background job finishes it.
func (p *Pipeline) notSynced(ctx context.Context, err error) error {
	if errors.Is(err, wal.ErrFailed) || !vfs.IsNoSpace(err) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return p.Fail(err)
	}
	p.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "finishing writes"}, p.Sync)
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}
