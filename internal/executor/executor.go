// Package executor runs the engine's background work: flushes, compactions, clean-up. Production
// uses goroutines; tests step an executor by hand, which makes a history with background work
// reproducible from a seed.
package executor

import (
	"context"
	"errors"
)

// Class is a class of work: each has its own bound on how much of it runs at once.
type Class int

const (
	// Flush frees memory and log; writers wait for it.
	Flush Class = iota
	// Compaction merges tables.
	Compaction
	// Log hands the log's buffer to the system and prepares its next segment; writers wait for it.
	Log
	// Cleanup is everything else, mostly deleting obsolete files: a compaction leaves hundreds.
	Cleanup

	// Classes is the number of classes.
	Classes
)

// String names the class.
func (c Class) String() string { return [...]string{"flush", "compaction", "log", "cleanup"}[c] }

// Executor runs jobs. Implementations are safe for concurrent use.
type Executor interface {
	// Go queues a job. Jobs of one class start in the order they were queued;
	// several may run at once. Go never blocks and never runs the job on the
	// caller's stack. After Close it drops the job and returns false.
	Go(class Class, name string, job func()) bool
	// Spare is Go for a part of a running job, which does that part itself if no goroutine
	// becomes free. It returns false if none ever will.
	Spare(class Class, name string, part func()) bool
	// Beside runs f while the caller does something else; wait returns its error. The
	// caller must call wait.
	Beside(f func() error) (wait func() error)
	// Await returns when one of the channels is closed or has an element, or with the
	// context's error. Channels may be nil. An executor whose jobs do not run by themselves
	// runs one instead, and returns ErrIdle if none is queued.
	Await(ctx context.Context, event, end <-chan struct{}) error
	// Close drops queued jobs and returns when running ones have ended.
	Close()
}

// ErrIdle says that no work is left that a caller could wait for.
var ErrIdle = errors.New("executor: no job is queued")
