package bucket

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// silence is how long a connection may move no byte. A server may need a while to join the parts of an object.
	silence = 2 * time.Minute
	// whole is how long a request may take that reads no object. A part of an object takes that at 55 kB/s.
	whole = 5 * time.Minute
	// maxAnswer bounds an answer that is no object. A page of 1,000 names takes less than 2 MiB.
	maxAnswer = 8 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
)

// transport sends requests, and gives up what takes too long or is too large.
type transport struct {
	next  http.RoundTripper
	whole time.Duration
}

func newTransport(silence, whole time.Duration) http.RoundTripper {
	dialer := &net.Dialer{Timeout: silence}
	return &transport{whole: whole, next: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{c, silence}, nil
		},
		TLSHandshakeTimeout:    silence,
		ResponseHeaderTimeout:  whole,
		IdleConnTimeout:        silence / 2,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // lengths are those of objects
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if isObject := r.Method == http.MethodGet && r.URL.RawQuery == ""; isObject {
		answer, err := t.next.RoundTrip(r)
		if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
			answer.Body = &limited{answer.Body, maxAnswer, func() {}}
		}
		return answer, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.whole)
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &limited{answer.Body, maxAnswer, cancel}
	return answer, nil
}

// limited is a body that fails when it is too long.
type limited struct {
	io.ReadCloser
	left   int
	cancel func()
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// Close implements io.Closer.
func (l *limited) Close() error {
	defer l.cancel()
	return l.ReadCloser.Close()
}

// conn is a connection that fails when it moves no byte for a while. A write that goes on gives a read, which waits
// for the answer meanwhile, more time.
type conn struct {
	net.Conn
	silence time.Duration
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
