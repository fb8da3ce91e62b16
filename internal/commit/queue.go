package commit

import (
	"context"
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
	// ring holds the commits in sequence order: ticket t is at t modulo its length, a power of
	// two. Tickets from head to below tail are waiting.
	ring       []pending
	head, tail ticket
	moved      chan struct{} // closed when head moves; nil if nothing waits for that
}

// ticket numbers commits in the order of their sequence numbers.
type ticket uint64

// pending is a commit that is not visible yet.
type pending struct {
	lsn     wal.LSN
	seq     uint64 // the last one
	applied bool
}

const firstRing = 64

// init empties the queue: everything up to the sequence number visible is visible. REQUIRES: no
// other method was called before.
func (q *queue) init(visible uint64) {
	q.ring = make([]pending, firstRing)
	q.visible.Store(visible)
}

func (q *queue) at(t ticket) *pending { return &q.ring[uint64(t)&uint64(len(q.ring)-1)] }

// push adds a commit. REQUIRES: commits come in the order of their sequence numbers.
func (q *queue) push(lsn wal.LSN, seq uint64) ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if int(q.tail-q.head) == len(q.ring) {
		old := q.ring
		q.ring = make([]pending, 2*len(old))
		for t := q.head; t < q.tail; t++ {
			*q.at(t) = old[uint64(t)&uint64(len(old)-1)]
		}
	}
	t := q.tail
	*q.at(t) = pending{lsn: lsn, seq: seq}
	q.tail++
	return t
}

// lastBelow returns the record and the last sequence number of the last commit before endSeq that
// is not visible, zeros if there is none.
func (q *queue) lastBelow(endSeq uint64) (wal.LSN, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for t := q.tail; t > q.head; t-- {
		if c := q.at(t - 1); c.seq < endSeq {
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
	q.at(t).applied = true
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
	head := q.head
	for ; q.head < q.tail; q.head++ {
		c := q.at(q.head)
		if !c.applied || c.lsn > upTo {
			break
		}
		q.visible.Store(c.seq)
	}
	if q.head != head && q.moved != nil {
		close(q.moved)
		q.moved = nil
	}
}

// wait returns when a sequence number is visible, or with the context's error.
func (q *queue) wait(ctx context.Context, seq uint64) error {
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
