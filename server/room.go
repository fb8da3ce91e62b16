package server

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/ots"
)

// room is what one request holds of memory that all share: of that for bodies, or
// of that for answers. It is an ots.Room.
type room struct {
	pool *share.Pool
	user share.User
	held atomic.Int64
}

// heldWait is how long a request waits for memory while it holds some: what it holds
// may be what others wait for. One that holds none waits as long as it may run.
const heldWait = 2 * time.Second

// Take takes n bytes, and waits for them if there must be others first.
func (m *room) Take(ctx context.Context, n int64) error {
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

// TryTake takes n bytes if they are there.
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

func busy() *ots.Error { return refuse(ots.CodeServerBusy, "Server is busy.") }

// chargedReader takes memory for what is read, as it arrives.
type chargedReader struct {
	io.Reader
	ctx  context.Context
	room *room
	paid int64 // not read yet
}

// bodyStep is how much is taken at a time for a body.
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
