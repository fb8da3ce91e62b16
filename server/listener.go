package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// limitedListener caps the connections that are open at once. Above the cap it
// does not accept, so that further clients wait in the system's queue: idle
// connections time out and make room.
type limitedListener struct {
	net.Listener
	slots     chan struct{} // holds one element per open connection
	headers   time.Duration // from accepting a connection to the end of the first headers
	closed    chan struct{}
	closeOnce sync.Once
}

func newLimitedListener(l net.Listener, limit int, headers time.Duration) *limitedListener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, limit), headers: headers, closed: make(chan struct{})}
}

// Accept waits for a slot, then for a connection.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, release: func() { <-l.slots }, first: time.Now().Add(l.headers)}, nil
}

// Close stops accepting.
func (l *limitedListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn gives its slot back when it is closed, and does not read beyond
// a fixed time until its first request has begun: net/http, which looks for the
// preface of HTTP/2 first, would let the time for headers run twice.
type limitedConn struct {
	net.Conn
	releaseOnce sync.Once
	release     func()

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

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.releaseOnce.Do(c.release)
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
