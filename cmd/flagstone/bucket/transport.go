package bucket

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// silence is how long a connection may move no byte.
	silence = 2 * time.Minute
	// whole is how long a request may take that reads no object. A part of an object takes that at 55 kB/s.
	whole = 5 * time.Minute
	// joining replaces both for the request that joins the parts of an object.
	joining = 15 * time.Minute
	// leastBytes must come of an object within the time of a whole request.
	leastBytes = 1 << 20
	// maxAnswer bounds an answer that is no object. A page of 1,000 names takes less than 2 MiB.
	maxAnswer = 2 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
)

var (
	errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	errTooSlow = errors.New("the answer takes too long")
)

// transport sends requests, and gives up what takes too long or is too large.
type transport struct {
	next, joins    http.RoundTripper
	whole, joining time.Duration
	answered       atomic.Bool // the server has answered a request
}

func newTransport(roots *x509.CertPool, silence, whole, joining time.Duration) *transport {
	return &transport{next: newConnections(roots, silence, whole), joins: newConnections(roots, joining, joining), whole: whole, joining: joining}
}

// newConnections returns a transport whose connections fail when they move no byte for a while.
func newConnections(roots *x509.CertPool, silence, header time.Duration) http.RoundTripper {
	dialer := &net.Dialer{Timeout: silence}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{c, silence}, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots},
		TLSHandshakeTimeout:    silence,
		ResponseHeaderTimeout:  header,
		IdleConnTimeout:        silence / 2,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // lengths are those of objects
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	next, limit := t.next, t.whole
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		next, limit = t.joins, t.joining
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(limit, func() { cancel(errTooSlow) })
	end := func() {
		timer.Stop()
		cancel(nil)
	}
	answer, err := next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	if r.Method == http.MethodGet && r.URL.RawQuery == "" && answer.StatusCode < http.StatusMultipleChoices { // an object
		timer.Stop()
		answer.Body = &paced{ReadCloser: answer.Body, limit: limit, end: end}
	} else {
		answer.Body = &limited{answer.Body, maxAnswer, end}
		if err := distrustMissing(answer); err != nil {
			return nil, err
		}
	}
	if answer.StatusCode < http.StatusInternalServerError {
		t.answered.Store(true)
	}
	return answer, nil
}

// distrustMissing makes status 404 a failure of a gateway, unless the answer has the error document of S3. A proxy, or a
// server that starts, also answers 404, and the client takes that for an object that is not there.
func distrustMissing(answer *http.Response) error {
	if answer.StatusCode != http.StatusNotFound {
		return nil
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // all of it was read, or err says why not
	answer.Body = io.NopCloser(bytes.NewReader(body))
	var document struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(body, &document) != nil || document.Code == "" {
		answer.StatusCode = http.StatusBadGateway
		answer.Status = "502 (404 without a document of S3)"
	}
	return err
}

// limited is a body that fails when it is too long.
type limited struct {
	io.ReadCloser
	left int
	end  func()
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// Close implements io.Closer.
func (l *limited) Close() error {
	defer l.end()
	return l.ReadCloser.Close()
}

// paced is the body of an object. It fails when reads that have given less than leastBytes have waited for too long.
type paced struct {
	io.ReadCloser
	limit, waited time.Duration
	got           int
	end           func()
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	begun := time.Now()
	n, err := p.ReadCloser.Read(b)
	p.waited += time.Since(begun)
	if p.got += n; p.got >= leastBytes {
		p.got, p.waited = 0, 0
	}
	if err == nil && p.waited > p.limit {
		err = errTooSlow
	}
	return n, err
}

// Close implements io.Closer.
func (p *paced) Close() error {
	defer p.end()
	return p.ReadCloser.Close()
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
