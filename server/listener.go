package server

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone/internal/share"
)

// connections are those that are open. One belongs to nobody until a request on it
// was signed by a key that is known; of those there may be a quarter of all, and a
// new one takes the place of the oldest: whoever knows a key needs moments to show
// it. From then on it counts for its key, which has a share of the other three
// quarters. So neither strangers nor one key can keep others out.
type connections struct {
	keys *share.Pool

	mu        sync.Mutex
	strangers list.List // of *limitedConn, the oldest first
	most      int       // strangers
}

func newConnections(limit int) *connections {
	most := max(limit/4, 1)
	return &connections{keys: share.NewPool(int64(max(limit-most, 2))), most: most}
}

// admit takes a new connection among the strangers, and closes the oldest ones in
// excess.
func (c *connections) admit(conn *limitedConn) {
	c.mu.Lock()
	conn.stranger = c.strangers.PushBack(conn)
	c.mu.Unlock()
	c.evict(c.most)
}

// evict closes the oldest strangers until there are no more than most.
func (c *connections) evict(most int) {
	for {
		c.mu.Lock()
		if c.strangers.Len() <= most {
			c.mu.Unlock()
			return
		}
		oldest := c.strangers.Remove(c.strangers.Front()).(*limitedConn)
		oldest.stranger = nil
		c.mu.Unlock()
		_ = oldest.Close() // who it was finds out
	}
}

// claim says that a connection belongs to a key. It returns false if the key, or its
// instance, has its share of connections; then the connection stays a stranger.
func (c *connections) claim(conn *limitedConn, user share.User) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case conn.user != share.User{}:
		return true // the first key on it counts
	case conn.stranger == nil:
		return true // it is closed, and its last request ends
	case !c.keys.TryTake(user, 1):
		return false
	}
	c.strangers.Remove(conn.stranger)
	conn.stranger, conn.user = nil, user
	return true
}

// leave forgets a connection that is closed.
func (c *connections) leave(conn *limitedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.stranger != nil {
		c.strangers.Remove(conn.stranger)
		conn.stranger = nil
	}
	if (conn.user != share.User{}) {
		c.keys.Give(conn.user, 1)
		conn.user = share.User{}
	}
}

// limitedListener counts the connections that it accepts.
type limitedListener struct {
	net.Listener
	open    *connections
	headers time.Duration // from accepting a connection to the end of the first headers
}

// Accept waits for a connection. When there are no descriptors left, strangers make
// room for the next attempt, which net/http makes soon.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.open.evict(0)
		}
		return nil, err
	}
	conn := &limitedConn{Conn: c, open: l.open, first: time.Now().Add(l.headers)}
	l.open.admit(conn)
	return conn, nil
}

// limitedConn is a connection that counts until it is closed. It does not read
// beyond a fixed time until its first request has begun: net/http, which looks for
// the preface of HTTP/2 first, would let the time for headers run twice.
type limitedConn struct {
	net.Conn
	open     *connections
	stranger *list.Element // its place among the strangers, if it is one; under open.mu
	user     share.User    // whose it is, if it is none; under open.mu
	refusing atomic.Int32  // requests of strangers on it that are being refused

	closeOnce sync.Once

	mu     sync.Mutex
	first  time.Time // the end of the first headers at the latest
	begun  bool
	wanted time.Time // the deadline for reads that was set last
}

// SetReadDeadline sets the deadline, or an earlier one while nobody has asked
// for anything.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = t
	if !c.begun && (t.IsZero() || t.After(c.first)) {
		t = c.first
	}
	return c.Conn.SetReadDeadline(t)
}

// begin lets deadlines be: the first headers are there.
func (c *limitedConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.begun = true
		_ = c.Conn.SetReadDeadline(c.wanted) // a connection that is gone says so when it is read
	}
}

// connState is told by net/http what becomes of connections: they are active
// when headers have arrived, or the preface of HTTP/2.
func connState(c net.Conn, state http.ConnState) {
	if limited, ok := c.(*limitedConn); ok && state == http.StateActive {
		limited.begin()
	}
}

type connKey struct{}

// connContext lets requests find their connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, nil if it is not one of this server.
func connOf(r *http.Request) *limitedConn {
	c, _ := r.Context().Value(connKey{}).(*limitedConn)
	return c
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.closeOnce.Do(func() { c.open.leave(c) })
	return err
}

// CloseWrite closes the sending half, if the connection can. net/http uses it
// so that the last answer is not lost to a reset.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
