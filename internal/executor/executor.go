// Package executor runs the engine's background work: flushes, compactions,
// clean-up. Production uses goroutines; tests use an executor that they step
// by hand, which makes a history with background work reproducible from a seed.
package executor

// Class orders work by urgency: each class has its own bound on how much of it
// runs at once.
type Class int

const (
	// Flush frees memory and log; writers wait for it.
	Flush Class = iota
	// Compaction merges tables.
	Compaction
	// Cleanup deletes obsolete files.
	Cleanup

	// Classes is the number of classes.
	Classes
)

// String names the class.
func (c Class) String() string { return [...]string{"flush", "compaction", "cleanup"}[c] }

// Executor runs jobs. Implementations are safe for concurrent use.
type Executor interface {
	// Go queues a job. Jobs of one class start in the order they were queued;
	// several may run at once. Go never blocks and never runs the job on the
	// caller's stack. After Close it drops the job and returns false.
	Go(class Class, name string, job func()) bool
	// Close drops queued jobs and returns when running ones have ended.
	Close()
}
