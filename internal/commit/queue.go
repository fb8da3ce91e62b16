package commit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/wal"
)

// queue holds the commits that have their sequence numbers and are not visible yet. They become
// visible in sequence order, each once it is applied and readers may see it. Its methods are safe
// for concurrent use.
type queue struct {
	visible atomic.Uint64 // the largest sequence number that readers see

	mu sync.Mutex
	// pending holds the commits in sequence order; head is the ticket of the first.
	pending []pending
	head    ticket
	moved   chan struct{} // closed when head moves; nil if nothing waits for that
}

// ticket numbers commits in the order of their sequence numbers.
type ticket uint64

// pending is a commit that is not visible yet.
type pending struct {
	lsn     wal.LSN
	seq     uint64 // the last one
	applied bool
}

// push adds a commit. REQUIRES: commits come in the order of their sequence numbers.
func (q *queue) push(lsn wal.LSN, seq uint64) ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, pending{lsn: lsn, seq: seq})
	return q.head + ticket(len(q.pending)-1)
}

// lastBelow returns the record and the last sequence number of the last commit before endSeq that
// is not visible, zeros if there is none.
func (q *queue) lastBelow(endSeq uint64) (wal.LSN, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range slices.Backward(q.pending) {
		if c.seq < endSeq {
			return c.lsn, c.seq
		}
	}
	return 0, 0
}

// applied notes that a commit is in the memtables. upTo returns the last record whose commit may
// be seen.
func (q *queue) applied(t ticket, upTo func() wal.LSN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending[t-q.head].applied = true
	if t == q.head {
		// upTo is called after the mark is set: a writer that makes a record durable from now on
		// sees the mark.
		q.advance(upTo())
	}
}

// publish makes visible the commits up to the record upTo that are applied.
func (q *queue) publish(upTo wal.LSN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance(upTo)
}

// advance moves the visible sequence number past every commit at the head of
// the queue that is applied and whose record is at most upTo. REQUIRES: mu is
// held.
func (q *queue) advance(upTo wal.LSN) {
	n := 0
	for n < len(q.pending) && q.pending[n].applied && q.pending[n].lsn <= upTo {
		n++
	}
	if n == 0 {
		return
	}
	q.visible.Store(max(q.visible.Load(), q.pending[n-1].seq)) // files may hold more than an external log has delivered
	q.pending, q.head = append(q.pending[:0], q.pending[n:]...), q.head+ticket(n)
	if q.moved != nil {
		close(q.moved)
		q.moved = nil
	}
}

// looks is how often wait looks before it sleeps: some 8 us. The writer that it waits for takes one to three to
// apply a write, and a goroutine that sleeps runs some 150 us after it was woken (docs/lab/commit.md#writers-that-wait).
const looks = 20_000

// wait returns when a sequence number is visible, or with the context's error.
func (q *queue) wait(ctx context.Context, seq uint64) error {
	for range looks {
		if q.visible.Load() >= seq {
			return nil
		}
	}
	for {
		q.mu.Lock()
		if q.visible.Load() >= seq {
			q.mu.Unlock()
			return nil
		}
		if q.moved == nil {
			q.moved = make(chan struct{})
		}
		moved := q.moved
		q.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
