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

// connections are the open connections. A connection is a stranger until a known key has signed
// a request on it. Strangers have at most a quarter of all connections. A new stranger replaces
// the oldest one for which the server has waited for a moment in total: a client with a key
// sends a request at once. A connection with a signed request counts for its key, which has a
// share of the other three quarters. So neither strangers nor one key can keep others out.
type connections struct {
	keys   *share.Pool
	most   int           // of strangers
	moment time.Duration // the least time that the server waits for each stranger
	freed  chan struct{} // holds an element after a stranger has left

	mu        sync.Mutex
	strangers list.List // of *limitedConn, oldest first
}

func newConnections(limit int, moment time.Duration) *connections {
	most := max(limit/4, 1)
	return &connections{
		keys: share.NewPool(int64(max(limit-most, 2))), most: most, moment: moment, freed: make(chan struct{}, 1),
	}
}

// admit adds a new connection to the strangers as soon as there is room. It returns false if
// closed is closed.
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

// tryAdmit admits a connection. If there are too many strangers it replaces one; it returns
// false if none can be replaced.
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
	conn.stranger = c.strangers.PushBack(conn)
	c.mu.Unlock()
	if leaves != nil {
		_ = leaves.Close() // its client gets the error
	}
	return true
}

// silent returns the oldest stranger that the server waits for now, and has waited for a moment
// in total, possibly in parts between bytes. A stranger whose data the server has not processed
// yet is not silent. REQUIRES: mu is held.
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

// forget removes a connection from the strangers. REQUIRES: mu is held.
func (c *connections) forget(conn *limitedConn) {
	c.strangers.Remove(conn.stranger)
	conn.stranger = nil
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// claim assigns a connection to a key. It returns false if the key, or its instance, has used
// up its share of connections; the connection then stays a stranger.
func (c *connections) claim(conn *limitedConn, user share.User) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case conn.user != share.User{}:
		return true // a connection counts for its first key
	case conn.stranger == nil:
		return true // closed, and its last request is ending
	case !c.keys.TryTake(user, 1):
		return false
	}
	c.forget(conn)
	conn.user = user
	return true
}

// leave forgets a closed connection.
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
	closed    chan struct{}
	closeOnce sync.Once
}

// Accept waits for a connection. If there are no descriptors left, it closes all strangers to
// make room for the next attempt, which net/http makes soon.
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
	return conn, nil
}

// Close stops accepting.
func (l *limitedListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	open     *connections
	stranger *list.Element // its place among the strangers; nil if it is none; under open.mu
	user     share.User    // the key it counts for; empty for a stranger; under open.mu
	reading  atomic.Int64  // start of the present wait for the client, in nanoseconds; 0: none
	waited   atomic.Int64  // total of earlier waits, in nanoseconds

	closeOnce sync.Once
}

// Read reads, and records how long the server waits.
func (c *limitedConn) Read(b []byte) (int, error) {
	since := time.Now().UnixNano()
	c.reading.Store(since)
	defer func() {
		c.waited.Add(time.Now().UnixNano() - since)
		c.reading.Store(0)
	}()
	return c.Conn.Read(b)
}

type connKey struct{}

// connContext puts the connection into the context of its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, nil if another server accepted it.
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

// CloseWrite closes the sending half, if possible. net/http calls it so that a reset does not
// lose the last answer.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
