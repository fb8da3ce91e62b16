package server

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// These tests imitate slow, lying, idle and broken clients (RELIABILITY P21) over raw
// connections, with short timeouts.

const shortly = 150 * time.Millisecond

func impatientServer(t *testing.T) (addr string, fake *fakeService) {
	s, fake := newTestServer(t, func(c *Config) {
		c.Limits = Limits{ReadHeaderTimeout: shortly, ReadTimeout: 2 * shortly, IdleTimeout: 2 * shortly}
	})
	fake.answer(&ots.ReadResult{})
	return listen(t, s), fake
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// wantClosed reads until the server closes the connection, and returns the data before that.
func wantClosed(t *testing.T, c net.Conn) string {
	t.Helper()
	said, err := io.ReadAll(c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatal("the server holds on to the connection")
	}
	return string(said)
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	addr, fake := impatientServer(t)
	c := dial(t, addr)
	fmt.Fprint(c, "POST /GetRow HTTP/1.1\r\nHost: x\r\nx-ots-da")
	if said := wantClosed(t, c); strings.Contains(said, "200") {
		t.Errorf("answer %q", said)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

// TestConnectionsOutliveTheTimeForHeaders checks that the timeout bounds only the first headers.
func TestConnectionsOutliveTheTimeForHeaders(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits = Limits{ReadHeaderTimeout: shortly} })
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	c := dial(t, addr)
	for range 3 {
		if status, closed := roundTrip(t, c, kept(t, testKey, testSecret, testInstance)); status != 200 || closed {
			t.Fatalf("status %d, closed: %v", status, closed)
		}
		wantClosed(t, dial(t, addr)) // the time for the headers of a younger connection is over
	}
}

func TestSilentConnectionsAreCutOff(t *testing.T) {
	addr, _ := impatientServer(t)
	wantClosed(t, dial(t, addr))
}

func TestIdleConnectionsAreCutOff(t *testing.T) {
	addr, _ := impatientServer(t)
	c := dial(t, addr)
	raw := bytes.Replace(good(t).sign(testSecret).raw(), []byte("Connection: close\r\n"), nil, 1)
	c.Write(raw)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(err)
	}
	wantClosed(t, c)
}

func TestBodyShorterThanItsLengthTimesOut(t *testing.T) {
	addr, fake := impatientServer(t)
	d := good(t).sign(testSecret)
	c := dial(t, addr)
	raw := bytes.Replace(d.raw(), []byte("Content-Length: "+strconv.Itoa(len(d.body))), []byte("Content-Length: "+strconv.Itoa(len(d.body)+1)), 1)
	c.Write(raw)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	r := reply{status: res.StatusCode, body: body}
	if code, text := r.refusal(t); code != ots.CodeRequestTimeout || r.status != 408 || text != "Request timeout." {
		t.Errorf("%d %s %q", r.status, code, text)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestBodyCutByTheClientIsRefused(t *testing.T) {
	addr, fake := impatientServer(t)
	d := good(t).sign(testSecret)
	raw := d.raw()
	c := dial(t, addr)
	c.Write(raw[:len(raw)-3])
	c.(*net.TCPConn).CloseWrite()
	if said := wantClosed(t, c); strings.Contains(said, " 200 ") {
		t.Errorf("answer %q", said)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestBodyLongerThanItsLengthIsNotPartOfIt(t *testing.T) {
	addr, fake := impatientServer(t)
	d := good(t).sign(testSecret)
	r := send(t, addr, "POST", append(d.raw(), "POST /DeleteTable HTTP/1.1\r\n\r\n"...))
	if r.status != 200 || fake.calls.Load() != 1 {
		t.Errorf("status %d, %d calls", r.status, fake.calls.Load())
	}
}

func TestChunkedBodyWithoutEndTimesOut(t *testing.T) {
	addr, fake := impatientServer(t)
	d := good(t).sign(testSecret)
	head, _, _ := bytes.Cut(d.raw(), []byte("Content-Length"))

	c := dial(t, addr)
	fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", head, len(d.body), d.body)
	if said := wantClosed(t, c); !strings.Contains(said, " 408 ") {
		t.Errorf("answer %q", said)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestEndlessBodyIsCutOffAtTheLimit(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.BodyBytes = 64 << 10 })
	addr := listen(t, s)
	head, _, _ := bytes.Cut(good(t).sign(testSecret).raw(), []byte("Content-Length"))
	c := dial(t, addr)
	fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n", head)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		chunk := append([]byte("10000\r\n"), make([]byte, 64<<10+2)...)
		copy(chunk[len(chunk)-2:], "\r\n")
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}()
	said := make([]byte, 12)
	if _, err := io.ReadFull(c, said); err == nil && string(said) != "HTTP/1.1 413" {
		t.Errorf("answer %q", said) // a client that never reads may miss it
	}
	<-stopped // the server has closed the connection
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestStrangersDoNotKeepConnections(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	stranger := bytes.Replace(good(t).sign("wrong").raw(), []byte("Connection: close\r\n"), nil, 1)
	c := dial(t, addr)
	c.Write(stranger)
	if said := wantClosed(t, c); !strings.HasPrefix(said, "HTTP/1.1 403 ") {
		t.Errorf("answer %q", said)
	}
	c = dial(t, addr)
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if said := wantClosed(t, c); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
		t.Errorf("answer %q", said)
	}
}

func TestGarbageIsRefused(t *testing.T) {
	addr, fake := impatientServer(t)
	d := good(t).sign(testSecret)
	signed := string(d.raw())
	for name, raw := range map[string]string{
		"binary":                   "\x00\x01\x02\x03\xff\xfe\r\n\r\n",
		"TLS":                      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a line without end":       strings.Repeat("A", 64<<10),
		"no method":                " /GetRow HTTP/1.1\r\n\r\n",
		"HTTP/0.9":                 "POST /GetRow\r\n\r\n",
		"HTTP/3.7":                 strings.Replace(signed, "HTTP/1.1", "HTTP/3.7", 1),
		"no host":                  strings.Replace(signed, "Host: localhost\r\n", "", 1),
		"huge header":              strings.Replace(signed, "\r\n\r\n", "\r\nx-padding: "+strings.Repeat("p", 100<<10)+"\r\n\r\n", 1),
		"many headers":             strings.Replace(signed, "\r\n\r\n", strings.Repeat("\r\nx-padding: p", 8<<10)+"\r\n\r\n", 1),
		"header without colon":     strings.Replace(signed, "\r\n\r\n", "\r\nx-ots\r\n\r\n", 1),
		"space in a header name":   strings.Replace(signed, "x-ots-date:", "x-ots-date :", 1),
		"NUL in a header value":    strings.Replace(signed, "x-ots-date:", "x-ots-date:\x00", 1),
		"folded header":            strings.Replace(signed, "x-ots-date:", "x-ots-date:\r\n ", 1),
		"negative length":          strings.Replace(signed, "Content-Length: ", "Content-Length: -", 1),
		"two lengths":              strings.Replace(signed, "Content-Length: ", "Content-Length: 0\r\nContent-Length: ", 1),
		"length in words":          strings.Replace(signed, "Content-Length: ", "Content-Length: about ", 1),
		"unknown encoding":         strings.Replace(signed, "Content-Length: ", "Transfer-Encoding: gzip\r\nContent-Length: ", 1),
		"length and broken chunks": strings.Replace(signed, "Content-Length: ", "Transfer-Encoding: chunked\r\nContent-Length: ", 1),
		"chunk size overflow":      strings.Replace(signed, "Content-Length: ", "Transfer-Encoding: chunked\r\nX: ", 1) + "ffffffffffffffffff\r\n",
		"HTTP/2 garbage":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100),
	} {
		c := dial(t, addr)
		go io.WriteString(c, raw)
		if said := wantClosed(t, c); strings.Contains(said, " 200 ") && name != "folded header" {
			t.Errorf("%s: answer %q", name, said)
		}
	}
	if n := fake.calls.Load(); n > 1 { // a folded header is legal, if obsolete
		t.Errorf("the service was called %d times", n)
	}
	if r := send(t, addr, "POST", d.raw()); r.status != 200 {
		t.Errorf("a good client gets %d afterwards", r.status)
	}
}

func TestHTTP2IsNotSpoken(t *testing.T) {
	addr, fake := impatientServer(t)
	c := dial(t, addr)
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if said := wantClosed(t, c); !strings.HasPrefix(said, "HTTP/1.1 405 ") || fake.calls.Load() > 0 {
		t.Errorf("answer %q, %d calls", said, fake.calls.Load())
	}
}

func TestOldAndPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	addr, fake := impatientServer(t)
	one := good(t).sign(testSecret)
	keep := bytes.Replace(one.raw(), []byte("Connection: close\r\n"), nil, 1)
	bad := bytes.Replace(newDraft("Nope", nil).sign(testSecret).raw(), []byte("Connection: close\r\n"), nil, 1)
	c := dial(t, addr)
	c.Write(bytes.Join([][]byte{keep, bad, keep, one.raw()}, nil))
	r := bufio.NewReader(c)
	for i, want := range []int{200, 400, 200, 200} {
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("answer %d: %v, %v", i, res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
	wantClosed(t, c)
	old := bytes.Replace(one.raw(), []byte("HTTP/1.1"), []byte("HTTP/1.0"), 1)
	if res := send(t, addr, "POST", old); res.status != 200 {
		t.Errorf("HTTP/1.0: %d", res.status)
	}
	if n := fake.calls.Load(); n != 4 {
		t.Errorf("%d calls", n)
	}
}

func TestConnectionsAboveTheCapWaitAndOthersGoOn(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) {
		c.Limits = Limits{Connections: 3, ReadHeaderTimeout: shortly}
	})
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	for range 10 {
		dial(t, addr) // idle, and more than the limit
	}
	// The server closes the idle ones in turn to make room.
	if r := send(t, addr, "POST", good(t).sign(testSecret).raw()); r.status != 200 {
		t.Errorf("status %d", r.status)
	}
}

func TestBodiesInFlightAreBounded(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.InFlightBytes, c.Limits.RequestTimeout = 80<<10, shortly })
	entered, leave := make(chan struct{}), make(chan struct{})
	fake.answer(func(context.Context) any {
		close(entered)
		<-leave
		return &ots.ReadResult{}
	})
	first := make(chan reply)
	go func() { first <- handle(s, good(t).sign(testSecret)) }()
	<-entered
	if _, code, _ := callRefused(t, s, "GetRow", getRowMessage()); code != ots.CodeServerBusy {
		t.Errorf("code %s", code)
	}
	close(leave)
	if r := <-first; r.status != 200 {
		t.Errorf("status %d", r.status)
	}
	fake.answer(&ots.ReadResult{})
	if r := handle(s, good(t).sign(testSecret)); r.status != 200 {
		t.Errorf("status %d when there is room again", r.status)
	}
}

func deflate(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write(body)
	z.Close()
	return b.Bytes()
}

func TestCompressedRequestsAreUncompressedWithinBounds(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	plain := marshal(t, getRowMessage())
	packed := deflate(t, plain)
	compressed := func(body []byte, kind, size string) *draft {
		return newDraft("GetRow", body).set("x-ots-request-compress-type", kind).set("x-ots-request-compress-size", size).sign(testSecret)
	}
	size := strconv.Itoa(len(plain))
	if r := handle(s, compressed(packed, "deflate", size)); r.status != 200 || fake.calls.Swap(0) != 1 {
		t.Fatalf("%d %q", r.status, r.body)
	}
	bomb := deflate(t, make([]byte, 50<<20))
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-1] ^= 1
	for _, tt := range []struct {
		name string
		d    *draft
		code string
	}{
		{"unknown type", compressed(packed, "gzip", size), ots.CodeParameterInvalid},
		{"not compressed", compressed(plain, "deflate", size), ots.CodeParameterInvalid},
		{"no size", newDraft("GetRow", packed).set("x-ots-request-compress-type", "deflate").sign(testSecret), ots.CodeParameterInvalid},
		{"negative size", compressed(packed, "deflate", "-1"), ots.CodeParameterInvalid},
		{"no number", compressed(packed, "deflate", "many"), ots.CodeParameterInvalid},
		{"huge number", compressed(packed, "deflate", "99999999999999999999"), ots.CodeParameterInvalid},
		{"size too small", compressed(packed, "deflate", strconv.Itoa(len(plain)-1)), ots.CodeParameterInvalid},
		{"size too large", compressed(packed, "deflate", strconv.Itoa(len(plain)+1)), ots.CodeParameterInvalid},
		{"cut", compressed(packed[:len(packed)-2], "deflate", size), ots.CodeParameterInvalid},
		{"damaged", compressed(damaged, "deflate", size), ots.CodeParameterInvalid},
		{"bomb", compressed(bomb, "deflate", strconv.Itoa(50<<20)), ots.CodeRequestBodyTooLarge},
		{"bomb that lies", compressed(bomb, "deflate", "100"), ots.CodeParameterInvalid},
	} {
		r := handle(s, tt.d)
		if code, _ := r.refusal(t); code != tt.code {
			t.Errorf("%s: %s", tt.name, code)
		}
	}
	if n := fake.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times", n)
	}
	if used := s.bodies.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are still taken", used)
	}
}

func TestHeadersAreLowerCaseOnTheWire(t *testing.T) {
	s, fake := newTestServer(t, nil)
	addr := listen(t, s)
	fake.answer(&ots.Error{Code: ots.CodeConditionCheckFail, Message: "Condition check failed."})
	c := dial(t, addr)
	c.Write(good(t).sign(testSecret).raw())
	said := wantClosed(t, c)
	if !strings.HasPrefix(said, "HTTP/1.1 403 ") {
		t.Errorf("%q", said)
	}
	for _, name := range []string{"x-ots-date", "x-ots-requestid", "x-ots-contenttype", "x-ots-contentmd5", "authorization"} {
		if strings.Count(said, "\r\n"+name+": ") != 1 {
			t.Errorf("no single %s in %q", name, said)
		}
	}
}

func TestHealthAnswersUnsigned(t *testing.T) {
	s, fake := newTestServer(t, nil)
	addr := listen(t, s)
	r := send(t, addr, "GET", []byte("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	if r.status != 200 || string(r.body) != "ok" {
		t.Errorf("%d %q", r.status, r.body)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestShutdownLetsRequestsEndAndCutsOffWhatTakesTooLong(t *testing.T) {
	for _, patient := range []bool{true, false} {
		s, fake := newTestServer(t, nil)
		entered, leave := make(chan struct{}), make(chan struct{})
		fake.answer(func(context.Context) any {
			close(entered)
			<-leave
			return &ots.ReadResult{}
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		c := dial(t, l.Addr().String())
		c.Write(good(t).sign(testSecret).raw())
		<-entered
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if !patient {
			cancel()
		}
		ended := make(chan error)
		go func() { ended <- s.Shutdown(ctx) }()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if patient {
			close(leave)
		}
		err = <-ended
		said := wantClosed(t, c)
		if patient != (err == nil) || patient != strings.HasPrefix(said, "HTTP/1.1 200 ") {
			t.Errorf("patient %t: Shutdown %v, answer %q", patient, err, said)
		}
		if !patient {
			close(leave)
		}
		cancel()
	}
}

func TestNewWantsWhatItNeeds(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration is accepted")
	}
	s, _ := newTestServer(t, nil)
	cfg := s.cfg
	cfg.Limits.ReadTimeout = -1
	if _, err := New(cfg); err == nil {
		t.Error("a negative limit is accepted")
	}
}
