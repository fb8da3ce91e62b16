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

// connections are the open ones. A connection is a stranger's until a request on it
// was signed by a known key. Strangers have at most a quarter of all connections, and
// a new one takes the place of the oldest that has kept the server waiting for a
// moment altogether: a client that knows a key sends a request at once. Once a request
// was signed, the connection counts for its key, which has a share of the other three
// quarters. So neither strangers nor one key can keep others out.
type connections struct {
	keys   *share.Pool
	most   int           // strangers
	moment time.Duration // for which the server waits for each at least
	freed  chan struct{} // holds an element when a stranger has gone

	mu        sync.Mutex
	strangers list.List // of *limitedConn, the oldest first
}

func newConnections(limit int, moment time.Duration) *connections {
	most := max(limit/4, 1)
	return &connections{
		keys: share.NewPool(int64(max(limit-most, 2))), most: most, moment: moment, freed: make(chan struct{}, 1),
	}
}

// admit takes a new connection among the strangers as soon as there is room for it.
// It returns false if closed is.
func (c *connections) admit(conn *limitedConn, closed <-chan struct{}) bool {
	for !c.tryAdmit(conn) {
		timer := time.NewTimer(max(c.moment/4, time.Millisecond))
		select {
		case <-timer.C:
		case <-c.freed:
		case <-closed:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
	return true
}

// tryAdmit admits a connection, in the place of a stranger if there are as many as
// may be; false if none of them has to go.
func (c *connections) tryAdmit(conn *limitedConn) bool {
	c.mu.Lock()
	now := time.Now()
	var leaves *limitedConn
	if c.strangers.Len() >= c.most {
		if leaves = c.silent(now); leaves == nil {
			c.mu.Unlock()
			return false
		}
		c.strangers.Remove(leaves.stranger)
		leaves.stranger = nil
	}
	conn.accepted = now
	conn.stranger = c.strangers.PushBack(conn)
	c.mu.Unlock()
	if leaves != nil {
		_ = leaves.Close() // its client finds out
	}
	return true
}

// silent returns the oldest stranger for which the server has waited for a moment,
// be it in parts, between one byte and the next, and waits now: not one that has sent
// something which the server has had no time for. REQUIRES: mu is held.
func (c *connections) silent(now time.Time) *limitedConn {
	for e := c.strangers.Front(); e != nil; e = e.Next() {
		conn := e.Value.(*limitedConn)
		since := conn.reading.Load()
		if since != 0 && conn.waited.Load()+now.UnixNano()-since >= int64(c.moment) {
			return conn
		}
	}
	return nil
}

// evict closes all strangers.
func (c *connections) evict() {
	c.mu.Lock()
	var all []*limitedConn
	for e := c.strangers.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*limitedConn))
	}
	c.mu.Unlock()
	for _, conn := range all {
		_ = conn.Close()
	}
}

// forget takes a connection from among the strangers. REQUIRES: mu is held.
func (c *connections) forget(conn *limitedConn) {
	c.strangers.Remove(conn.stranger)
	conn.stranger = nil
	select {
	case c.freed <- struct{}{}:
	default:
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
	c.forget(conn)
	conn.user = user
	return true
}

// leave forgets a connection that is closed.
func (c *connections) leave(conn *limitedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.stranger != nil {
		c.forget(conn)
	}
	if (conn.user != share.User{}) {
		c.keys.Give(conn.user, 1)
		conn.user = share.User{}
	}
}

// limitedListener counts the connections that it accepts.
type limitedListener struct {
	net.Listener
	open      *connections
	headers   time.Duration // from accepting a connection to the end of the first headers
	closed    chan struct{}
	closeOnce sync.Once
}

// Accept waits for a connection. When there are no descriptors left, strangers make
// room for the next attempt, which net/http makes soon.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.open.evict()
		}
		return nil, err
	}
	conn := &limitedConn{Conn: c, open: l.open}
	if !l.open.admit(conn, l.closed) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	conn.first = conn.accepted.Add(l.headers)
	return conn, nil
}

// Close stops accepting.
func (l *limitedListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn is a connection that counts until it is closed. It does not read
// beyond a fixed time until its first request has begun: net/http, which looks for
// the preface of HTTP/2 first, would let the time for headers run twice.
type limitedConn struct {
	net.Conn
	open     *connections
	accepted time.Time
	stranger *list.Element // its place among the strangers, if it is one; under open.mu
	user     share.User    // what it counts for, if it is no stranger; under open.mu
	reading  atomic.Int64  // since when the server waits for it to send, in nanoseconds; 0: it does not
	waited   atomic.Int64  // how long it has waited before, in nanoseconds
	refusing atomic.Int32  // requests of strangers on it that are being refused

	closeOnce sync.Once

	mu     sync.Mutex
	first  time.Time // the end of the first headers at the latest
	begun  bool
	wanted time.Time // the deadline for reads that was set last
}

// Read reads, and notes that the server waits.
func (c *limitedConn) Read(b []byte) (int, error) {
	since := time.Now().UnixNano()
	c.reading.Store(since)
	defer func() {
		c.waited.Add(time.Now().UnixNano() - since)
		c.reading.Store(0)
	}()
	return c.Conn.Read(b)
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
