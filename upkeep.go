package flagstone

// Which trees are being written to, and how callers and the pressure gate use background work.

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/partition"
)

// upkeep is what the background work of a store remembers.
type upkeep struct {
	// preparing is set from the request for the next log segment until its
	// preparation begins.
	preparing atomic.Bool
	// watching is set while a check of the device is due; hangs is the result of the last check.
	watching, hangs atomic.Bool

	mu sync.Mutex
	// watched holds the trees that are written to; the others are quiet.
	watched map[*partition.Tree]*watch
	// seen is what had been written to each tree when noteIdle last ran. idle holds the trees
	// without writes between its last two runs, and without a flush since.
	seen map[*partition.Tree]int64
	idle map[*partition.Tree]bool
}

// isQuiet reports whether the tree is not watched: little has been written to it lately.
func (u *upkeep) isQuiet(tree *partition.Tree) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.watched[tree] == nil
}

// noteIdle finds the trees that had no writes since its previous call.
func (u *upkeep) noteIdle(trees []*partition.Tree) {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := make(map[*partition.Tree]int64, len(trees))
	u.idle = make(map[*partition.Tree]bool)
	for _, tree := range trees {
		seen[tree] = tree.Written()
		if before, ok := u.seen[tree]; ok && before == seen[tree] {
			u.idle[tree] = true
		}
	}
	u.seen = seen
}

// activity says how much is written to the tree.
func (u *upkeep) activity(tree *partition.Tree) partition.Activity {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.watched[tree] != nil:
		return partition.Busy
	case u.idle[tree]:
		return partition.Idle
	}
	return partition.Quiet
}

const (
	// quietPeriod is how long a tree is watched before it counts as quiet.
	quietPeriod = 500 * time.Millisecond
	// quietShare divides MemtableSize: a tree that takes at most that much in a quietPeriod is
	// quiet.
	quietShare = 16
)

// watch belongs to a tree that was written to lately.
type watch struct{ written int64 } // Tree.Written at the last look

// watch observes writes to the tree until it is quiet; then the tree does the work that waited
// for this.
func (s *Store) watch(tree *partition.Tree) {
	w := &watch{tree.Written()}
	s.upkeep.mu.Lock()
	delete(s.upkeep.idle, tree)
	watched := s.upkeep.watched[tree] != nil
	if !watched {
		s.upkeep.watched[tree] = w
	}
	s.upkeep.mu.Unlock()
	if !watched {
		s.jobs.After(quietPeriod, func() { s.lookAgain(tree, w) })
	}
}

func (s *Store) lookAgain(tree *partition.Tree, w *watch) {
	s.upkeep.mu.Lock()
	current := s.upkeep.watched[tree] == w
	s.upkeep.mu.Unlock()
	if !current {
		return
	}
	before := w.written // only this timer uses it
	w.written = tree.Written()
	if w.written-before <= s.opts.MemtableSize/quietShare {
		s.rest(tree)
		return
	}
	s.jobs.After(quietPeriod, func() { s.lookAgain(tree, w) })
}

// rest makes a tree quiet and lets it do the work that waited for this.
func (s *Store) rest(tree *partition.Tree) {
	s.upkeep.mu.Lock()
	delete(s.upkeep.watched, tree)
	s.upkeep.mu.Unlock()
	s.scheduleCompaction(tree)
}

// Settle returns when no memtable waits to be flushed and no compaction is due. An error says why
// that cannot be reached now. Settle leaves the mutable memtables as they are: see Flush. While
// other goroutines write it may wait for long.
func (s *Store) Settle(ctx context.Context) error {
	// Trees count as quiet only once all is flushed: a compaction that begins before would have
	// to be done again.
	for {
		if err := s.waitForJobs(ctx, executor.Flush); err != nil {
			return err
		}
		trees := s.trees()
		for _, tree := range trees {
			s.rest(tree)
		}
		if err := s.waitForJobs(ctx, executor.Flush, executor.Compaction); err != nil {
			return err
		}
		if !slices.ContainsFunc(trees, func(t *partition.Tree) bool { return !s.upkeep.isQuiet(t) }) {
			return nil
		}
	}
}

// waitForJobs returns when no job of these classes is queued or running. It returns the error of
// flushes and compactions that failed.
func (s *Store) waitForJobs(ctx context.Context, classes ...executor.Class) error {
	for {
		if err := s.writable(); err != nil {
			return err
		}
		busy, ended := s.jobs.Busy(classes...)
		if !busy {
			return s.gate.Failure()
		}
		if err := s.jobs.Await(ctx, ended, nil); err != nil {
			return err
		}
	}
}

// trees returns the partitions of all tables.
func (s *Store) trees() (trees []*partition.Tree) {
	for _, t := range s.allTables() {
		trees = append(trees, t.partitions().Trees()...)
	}
	return trees
}

// beginWork begins work of a caller that changes files, unless the store takes no writes. Close
// waits for the work. The caller must call done at the end.
func (s *Store) beginWork() (done func(), err error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	if !s.jobs.Begin() {
		return nil, ErrClosed
	}
	return s.jobs.End, nil
}

// pressureEnv implements pressure.Env.
type pressureEnv struct{ *Store }

func (e pressureEnv) Writable() error { return e.writable() }

func (e pressureEnv) Await(ctx context.Context, event, other <-chan struct{}) error {
	return e.jobs.Await(ctx, event, other)
}

func (e pressureEnv) FlushLargest() {
	e.pipeline.order.Lock()
	defer e.pipeline.order.Unlock()
	if t := e.largestMemtable(); t != nil && e.writable() == nil {
		e.rotate(t, e.pipeline.nextSeq)
	}
}
