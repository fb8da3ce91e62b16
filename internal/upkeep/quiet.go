package upkeep

// Which trees are being written to, or read. Some compactions wait until a tree is quiet.

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

// quiet remembers how much is written to which tree, and what its reads lose.
type quiet struct {
	mu sync.Mutex
	// watched holds the trees that are written to; the others are quiet.
	watched map[*partition.Tree]*watch
	// seen is how much each tree was used when noteIdle last ran. idle holds the trees without
	// writes between its last two runs, and without a flush since: they are Idle or Unread.
	seen map[*partition.Tree]use
	idle map[*partition.Tree]partition.Activity
}

// use is Tree.Written and Tree.Lost at one moment.
type use struct{ written, lost int64 }

// watch belongs to a tree that was written to lately.
type watch struct{ written int64 } // Tree.Written at the last look

func newQuiet() quiet { return quiet{watched: make(map[*partition.Tree]*watch)} }

// noteIdle finds the trees that had no writes since its previous call, and those without reads among them.
func (q *quiet) noteIdle(trees []*partition.Tree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seen := make(map[*partition.Tree]use, len(trees))
	q.idle = make(map[*partition.Tree]partition.Activity)
	for _, tree := range trees {
		now := use{tree.Written(), tree.Lost()}
		seen[tree] = now
		switch before, ok := q.seen[tree]; {
		case !ok || before.written != now.written:
		case before.lost != now.lost:
			q.idle[tree] = partition.Idle
		default:
			q.idle[tree] = partition.Unread
		}
	}
	q.seen = seen
}

// activity says how much is written to the tree.
func (q *quiet) activity(tree *partition.Tree) partition.Activity {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watched[tree] != nil {
		return partition.Busy
	}
	return max(q.idle[tree], partition.Quiet)
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
