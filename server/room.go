package server

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/ots"
)

// room is the part of a shared memory budget, for bodies or for answers, that one request
// holds. It is an ots.Room.
type room struct {
	pool *share.Pool
	user share.User
	held atomic.Int64
	turn *turn // of the same request
}

// heldWait is how long a request that holds memory waits for more: others may wait for the
// memory it holds. A request without memory waits until its timeout.
const heldWait = 2 * time.Second

// Take takes n bytes, and waits if others must give some back first. It gives up the request's
// turn while it waits: requests that hold memory may be waiting for a turn.
func (m *room) Take(ctx context.Context, n int64) error {
	if m.turn.Leave() {
		if err := m.take(ctx, n); err != nil {
			return err
		}
		return m.turn.Take(ctx)
	}
	return m.take(ctx, n)
}

func (m *room) take(ctx context.Context, n int64) error {
	if m.held.Load() > 0 {
		if m.TryTake(n) {
			return nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, heldWait)
		defer cancel()
	}
	if m.pool.Take(ctx, m.user, n) != nil {
		return busy()
	}
	m.held.Add(n)
	return nil
}

// TryTake takes n bytes if they are available.
func (m *room) TryTake(n int64) bool {
	ok := m.pool.TryTake(m.user, n)
	if ok {
		m.held.Add(n)
	}
	return ok
}

// Give gives n bytes back.
func (m *room) Give(n int64) {
	if n != 0 {
		m.held.Add(-n)
		m.pool.Give(m.user, n)
	}
}

// keep gives back all but n bytes.
func (m *room) keep(n int64) {
	if more := m.held.Load() - n; more > 0 {
		m.Give(more)
	}
}

// turn is one request's permission to compute, an ots.Turn.
type turn struct {
	pool *share.Pool
	user share.User

	mu   sync.Mutex
	held bool
}

// processorTurns is the number of turns per processor. A key that is alone gets a third of
// the turns: one per processor.
const processorTurns = 3

// Take waits for the turn, unless the request has it.
func (t *turn) Take(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		return nil
	}
	if t.pool.Take(ctx, t.user, 1) != nil {
		return busy()
	}
	t.held = true
	return nil
}

// Leave gives the turn back, and reports whether the request had it.
func (t *turn) Leave() (had bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if had = t.held; had {
		t.pool.Give(t.user, 1)
		t.held = false
	}
	return had
}

func busy() *ots.Error { return refuse(ots.CodeServerBusy, "Server is busy.") }

// chargedReader takes memory for data as it arrives.
type chargedReader struct {
	io.Reader
	ctx  context.Context
	room *room
	paid int64 // taken in advance and not read yet
}

// bodyStep is the number of bytes taken at a time for a body.
const bodyStep = 32 << 10

func (r *chargedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	for r.paid -= int64(n); r.paid < 0; r.paid += bodyStep {
		if busy := r.room.Take(r.ctx, bodyStep); busy != nil {
			return n, busy
		}
	}
	return n, err
}
