package commit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/wal"
)

func (q *queue) length() int { return len(q.pending) }

func newQueue(visible uint64) *queue {
	q := new(queue)
	q.visible.Store(visible)
	return q
}

// durable returns what Applied asks for: the last record that is durable.
func durable(lsn wal.LSN) func() wal.LSN { return func() wal.LSN { return lsn } }

func TestCommitsBecomeVisibleInTheirOrder(t *testing.T) {
	q := newQueue(10)
	first, second := q.push(1, 12), q.push(2, 15)
	q.applied(second, durable(2))
	if q.visible.Load() != 10 || q.length() != 2 {
		t.Errorf("%d is visible and %d wait; the first commit is not applied", q.visible.Load(), q.length())
	}
	q.applied(first, durable(1))
	if q.visible.Load() != 12 {
		t.Errorf("%d is visible, want 12: the second commit is not durable", q.visible.Load())
	}
	if lsn, seq := q.lastBelow(math.MaxUint64); lsn != 2 || seq != 15 {
		t.Errorf("the last commit is record %d, %d", lsn, seq)
	}
	q.publish(2)
	if lsn, seq := q.lastBelow(math.MaxUint64); q.visible.Load() != 15 || q.length() != 0 || lsn != 0 || seq != 0 {
		t.Errorf("%d is visible, %d wait, last are %d, %d", q.visible.Load(), q.length(), lsn, seq)
	}
}

func TestTheLastCommitBelowASequenceNumber(t *testing.T) {
	q := newQueue(0)
	for i := range uint64(3) {
		q.push(wal.LSN(i+1), 10*(i+1))
	}
	for below, want := range map[uint64]uint64{10: 0, 11: 10, 30: 20, math.MaxUint64: 30} {
		if _, got := q.lastBelow(below); got != want {
			t.Errorf("below %d: %d, want %d", below, got, want)
		}
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	q := newQueue(0)
	ticket := q.push(1, 1)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := q.wait(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	q.applied(ticket, durable(1))
	if q.moved != nil {
		t.Error("what the wait left behind outlives its commit")
	}
	if err := q.wait(ended, 1); err != nil {
		t.Errorf("what is visible is not waited for: %v", err)
	}
}

// TestEveryWaiterSeesItsCommit: many goroutines apply commits in any order, another one makes
// them durable, and the queue has to grow.
func TestEveryWaiterSeesItsCommit(t *testing.T) {
	const commits = 256
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	q := newQueue(0)
	var tickets []ticket
	seq, seqs := uint64(0), []uint64(nil)
	for i := range commits {
		seq += 1 + r.Uint64N(3)
		tickets, seqs = append(tickets, q.push(wal.LSN(i+1), seq)), append(seqs, seq)
	}
	var all sync.WaitGroup
	for _, i := range r.Perm(commits) {
		all.Go(func() { q.applied(tickets[i], durable(commits/2)) })
		all.Go(func() {
			if err := q.wait(context.Background(), seqs[i]); err != nil || q.visible.Load() < seqs[i] {
				t.Errorf("seed %d: %d: %v, %d is visible", seed, seqs[i], err, q.visible.Load())
			}
		})
	}
	all.Go(func() {
		for i := range commits {
			q.publish(wal.LSN(i + 1))
		}
		// The commits that were applied after the last call are published by Applied up to
		// half of them; the rest wait for the next one.
		for q.visible.Load() < seq {
			q.publish(commits)
		}
	})
	all.Wait()
	if q.visible.Load() != seq || q.length() != 0 {
		t.Errorf("seed %d: %d is visible and %d wait, want %d", seed, q.visible.Load(), q.length(), seq)
	}
}
