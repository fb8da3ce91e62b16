package upkeep

// Which trees are being written to. Some compactions wait until a tree is quiet.

import (
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/partition"
)

const (
	// quietPeriod is how long a tree is watched before it counts as quiet.
	quietPeriod = 500 * time.Millisecond
	// quietShare divides MemtableSize: a tree that takes at most that much in a quietPeriod is
	// quiet.
	quietShare = 16
)

// quiet remembers how much is written to which tree.
type quiet struct {
	mu sync.Mutex
	// watched holds the trees that are written to; the others are quiet.
	watched map[*partition.Tree]*watch
	// seen is what had been written to each tree when noteIdle last ran. idle holds the trees
	// without writes between its last two runs, and without a flush since.
	seen map[*partition.Tree]int64
	idle map[*partition.Tree]bool
}

// watch belongs to a tree that was written to lately.
type watch struct{ written int64 } // Tree.Written at the last look

func newQuiet() quiet { return quiet{watched: make(map[*partition.Tree]*watch)} }

// noteIdle finds the trees that had no writes since its previous call.
func (q *quiet) noteIdle(trees []*partition.Tree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seen := make(map[*partition.Tree]int64, len(trees))
	q.idle = make(map[*partition.Tree]bool)
	for _, tree := range trees {
		seen[tree] = tree.Written()
		if before, ok := q.seen[tree]; ok && before == seen[tree] {
			q.idle[tree] = true
		}
	}
	q.seen = seen
}

// activity says how much is written to the tree.
func (q *quiet) activity(tree *partition.Tree) partition.Activity {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.watched[tree] != nil:
		return partition.Busy
	case q.idle[tree]:
		return partition.Idle
	}
	return partition.Quiet
}

// ReadsLose lets the tree do what it may do for its reads, unless it is written to: then that waits until it is
// quiet.
func (u *Upkeep) ReadsLose(tree *partition.Tree) {
	if u.quiet.activity(tree) != partition.Busy {
		u.CompactionDue(tree)
	}
}

// watch observes writes to the tree until it is quiet; then the tree does the work that waited
// for this.
func (u *Upkeep) watch(tree *partition.Tree) {
	q := &u.quiet
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.idle, tree)
	if q.watched[tree] == nil {
		w := &watch{tree.Written()}
		q.watched[tree] = w
		u.Jobs.After(quietPeriod, func() { u.lookAgain(tree, w) })
	}
}

func (u *Upkeep) lookAgain(tree *partition.Tree, w *watch) {
	u.quiet.mu.Lock()
	current := u.quiet.watched[tree] == w
	u.quiet.mu.Unlock()
	if !current {
		return
	}
	before := w.written // only this timer uses it
	w.written = tree.Written()
	if w.written-before <= u.opts.MemtableSize/quietShare {
		u.rest(tree)
		return
	}
	u.Jobs.After(quietPeriod, func() { u.lookAgain(tree, w) })
}

// rest makes a tree quiet and lets it do the work that waited for this.
func (u *Upkeep) rest(tree *partition.Tree) {
	u.quiet.mu.Lock()
	delete(u.quiet.watched, tree)
	u.quiet.mu.Unlock()
	u.CompactionDue(tree)
}
