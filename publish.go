package flagstone

// The stage "publish" of the commit pipeline: commits become visible in the
// order of their sequence numbers, each once it is applied and may be seen.

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/wal"
)

// publication is the queue of the commits that are ordered and not yet visible.
type publication struct {
	// visible is the largest sequence number that readers see.
	visible atomic.Uint64

	mu sync.Mutex
	// ring holds the commits in sequence order: that of ticket t at t modulo
	// its length, a power of two. Those from head on, below tail, are waiting.
	ring       []pending
	head, tail ticket
	waiters    []waiter
}

// ticket numbers commits in the order of their sequence numbers.
type ticket uint64

// pending is a commit that is not visible yet.
type pending struct {
	lsn     wal.LSN
	seq     uint64 // the last one
	applied bool
}

// waiter waits for a sequence number to become visible.
type waiter struct {
	seq  uint64
	done chan struct{}
}

const firstRing = 64

func (p *publication) init(visible uint64) {
	p.ring = make([]pending, firstRing)
	p.visible.Store(visible)
}

func (p *publication) at(t ticket) *pending { return &p.ring[uint64(t)&uint64(len(p.ring)-1)] }

// push adds a commit. Commits come in the order of their sequence numbers.
func (p *publication) push(lsn wal.LSN, seq uint64) ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(p.tail-p.head) == len(p.ring) {
		old := p.ring
		p.ring = make([]pending, 2*len(old))
		for t := p.head; t < p.tail; t++ {
			*p.at(t) = old[uint64(t)&uint64(len(old)-1)]
		}
	}
	t := p.tail
	*p.at(t) = pending{lsn: lsn, seq: seq}
	p.tail++
	return t
}

// last returns record and sequence number of the last commit that is not
// visible, zeros if there is none.
func (p *publication) last() (wal.LSN, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head == p.tail {
		return 0, 0
	}
	c := p.at(p.tail - 1)
	return c.lsn, c.seq
}

// lastBelow returns the last sequence number of the last commit before endSeq
// that is not visible, 0 if there is none.
func (p *publication) lastBelow(endSeq uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := p.tail; t > p.head; t-- {
		if c := p.at(t - 1); c.seq < endSeq {
			return c.seq
		}
	}
	return 0
}

// applied says that a commit is in the memtables. upTo returns the last record
// whose commit may be seen.
func (p *publication) applied(t ticket, upTo func() wal.LSN) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at(t).applied = true
	if t == p.head {
		// Asked after it is marked: who makes a record durable from now on
		// will find it so.
		p.advance(upTo())
	}
}

// publish makes the commits visible that are applied and may be seen.
func (p *publication) publish(upTo wal.LSN) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(upTo)
}

// advance moves the visible sequence number past every commit at the head of
// the queue that is applied and whose record is at most upTo. REQUIRES: mu is
// held.
func (p *publication) advance(upTo wal.LSN) {
	head := p.head
	for ; p.head < p.tail; p.head++ {
		c := p.at(p.head)
		if !c.applied || c.lsn > upTo {
			break
		}
		p.visible.Store(c.seq)
	}
	if p.head == head || len(p.waiters) == 0 {
		return
	}
	visible := p.visible.Load()
	left := p.waiters[:0]
	for _, w := range p.waiters {
		if w.seq <= visible {
			close(w.done)
		} else {
			left = append(left, w)
		}
	}
	clear(p.waiters[len(left):])
	p.waiters = left
}

// wait returns when a sequence number is visible, or with the context's error.
func (p *publication) wait(ctx context.Context, seq uint64) error {
	if p.visible.Load() >= seq {
		return nil
	}
	p.mu.Lock()
	if p.visible.Load() >= seq {
		p.mu.Unlock()
		return nil
	}
	w := waiter{seq: seq, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		p.waiters = slices.DeleteFunc(p.waiters, func(other waiter) bool { return other.done == w.done })
		p.mu.Unlock()
		return ctx.Err()
	}
}
