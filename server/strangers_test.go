package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/control"
)

// These tests check what one client, or a stranger, can do to the others.

// kept is a signed request on a connection that should stay open.
func kept(t *testing.T, keyID, secret, instance string) []byte {
	d := good(t).set("x-ots-accesskeyid", keyID).set("x-ots-instancename", instance).sign(secret)
	return bytes.Replace(d.raw(), []byte("Connection: close\r\n"), nil, 1)
}

// roundTrip sends a request on a connection and reads its answer.
func roundTrip(t *testing.T, c net.Conn, raw []byte) (status int, closed bool) {
	t.Helper()
	if _, err := c.Write(raw); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Close
}

func TestNoAnswerWithoutASignatureKeepsAConnection(t *testing.T) {
	s, _ := newTestServer(t, func(c *Config) { c.Control = control.Handler(nil, nil, nil) })
	addr := listen(t, s)
	for _, first := range []string{
		"GET /flagstone/test/clock", "POST /flagstone/test/faults", "GET /flagstone/test/", "GET /healthz", "HEAD /healthz",
		"GET /", "POST /GetRow", "OPTIONS *", "PUT /healthz",
	} {
		c := dial(t, addr)
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", first)
		if said := wantClosed(t, c); !strings.HasPrefix(said, "HTTP/1.1 ") {
			t.Errorf("%s: answer %q", first, said)
		}
	}
}

// TestStrangersDoNotKeepOthersOut, however many connections they open and whatever they send.
func TestStrangersDoNotKeepOthersOut(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) {
		c.Limits.Connections, c.Limits.StrangerMoment = 16, shortly/10
		c.Control = control.Handler(nil, nil, nil)
	})
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	mine := dial(t, addr)
	if status, closed := roundTrip(t, mine, kept(t, testKey, testSecret, testInstance)); status != 200 || closed {
		t.Fatalf("status %d, closed: %v", status, closed)
	}
	for i := range 100 {
		c := dial(t, addr)
		switch i % 3 {
		case 1:
			fmt.Fprint(c, "GET /flagstone/test/clock HTTP/1.1\r\nHost: x\r\n\r\n")
		case 2:
			fmt.Fprint(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}
	}
	if r := send(t, addr, "POST", good(t).sign(testSecret).raw()); r.status != 200 {
		t.Errorf("a new connection: status %d", r.status)
	}
	if status, _ := roundTrip(t, mine, kept(t, testKey, testSecret, testInstance)); status != 200 {
		t.Errorf("a connection that is kept: status %d", status)
	}
}

func TestAKeyThatHoldsConnectionsLeavesSomeToOthers(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.Connections, c.Limits.StrangerMoment = 16, shortly/10 })
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	refused := 0
	for range 20 {
		switch status, closed := roundTrip(t, dial(t, addr), kept(t, testKey, testSecret, testInstance)); {
		case status == 503 && closed:
			refused++
		case status != 200 || closed:
			t.Errorf("status %d, closed: %v", status, closed)
		}
	}
	if refused != 20-4 { // a third of the twelve connections for keys
		t.Errorf("%d connections were refused", refused)
	}
	for range 2 {
		if status, closed := roundTrip(t, dial(t, addr), kept(t, "other", "othersecret", "another")); status != 200 || closed {
			t.Errorf("another instance: status %d, closed: %v", status, closed)
		}
	}
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	s, _ := newTestServer(t, nil)
	addr := listen(t, s)
	for _, length := range []int{100, 100 << 10, 5 << 20, 500 << 20} {
		d := good(t).sign("wrong")
		head, _, _ := bytes.Cut(d.raw(), []byte("Content-Length"))
		c := dial(t, addr)
		fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", head, length)
		if said := wantClosed(t, c); !strings.HasPrefix(said, "HTTP/1.1 4") {
			t.Errorf("a body of %d bytes that does not come: %q", length, said)
		}
	}
}

func TestADeclaredLengthTakesNothingBeforeTheBodyArrives(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	d := good(t).sign(testSecret)
	declared := bytes.Replace(d.raw(), []byte("Content-Length: "+strconv.Itoa(len(d.body))), []byte("Content-Length: 5000000"), 1)
	head, _, _ := bytes.Cut(declared, []byte("\r\n\r\n"))
	for range 60 {
		fmt.Fprintf(dial(t, addr), "%s\r\n\r\n", head)
	}
	for _, raw := range [][]byte{kept(t, testKey, testSecret, testInstance), kept(t, "other", "othersecret", "another")} {
		if status, _ := roundTrip(t, dial(t, addr), raw); status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if used := s.bodies.Used(); used > 100*bodyStep {
		t.Errorf("%d bytes are taken", used)
	}
}

func TestAKeyThatFillsTheMemoryForBodiesLeavesSomeToOthers(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.InFlightBytes = 3 << 20 })
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	half := newDraft("GetRow", make([]byte, 1<<20)).sign(testSecret)
	for range 8 {
		raw := half.raw()
		c := dial(t, addr)
		go c.Write(raw[:len(raw)-1]) // until the server closes the connection
	}
	for range 3 {
		if status, _ := roundTrip(t, dial(t, addr), kept(t, "other", "othersecret", "another")); status != 200 {
			t.Errorf("status %d", status)
		}
	}
}

// TestAnAnswerCountsUntilItIsWritten uses a client that does not read: it holds the memory of
// its answer, but only for a short time.
func TestAnAnswerCountsUntilItIsWritten(t *testing.T) {
	const size, total = 24 << 20, 400 << 20
	s, fake := newTestServer(t, func(c *Config) { c.Limits.AnswerBytes, c.Limits.StallTimeout = total, shortly })
	large := &ots.Row{Key: testKeyRow.Key, Cells: []ots.Cell{{Name: "c", Value: row.Binary(make([]byte, size)), Version: 1}}}
	room := make(chan ots.Room, 1)
	fake.answer(func(ctx context.Context) any {
		r := ots.RoomOf(ctx)
		if err := r.Take(ctx, 3*size); err != nil {
			return err
		}
		room <- r
		return &ots.ReadResult{Row: large}
	})
	c := dial(t, listen(t, s))
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	c.Write(kept(t, testKey, testSecret, testInstance))
	io.ReadFull(c, make([]byte, 12)) // the server has begun to send the answer
	<-room
	if used := s.answers.Used(); used < size || used > 2*size {
		t.Errorf("%d bytes are taken for an answer of %d", used, size)
	}
	// If nothing is taken, one group can take half.
	if err := s.answers.Take(context.Background(), share.User{Group: "test"}, total/2); err != nil {
		t.Error(err)
	}
}

// TestAStrangerWhoSendsAByteNowAndThenKeepsNoPlace: the total time that the server has waited
// counts.
func TestAStrangerWhoSendsAByteNowAndThenKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment = 500 * time.Millisecond
		all := newConnections(4, moment)
		theirs, ours := net.Pipe()
		stranger := &limitedConn{Conn: ours, open: all}
		if !all.tryAdmit(stranger) {
			t.Fatal("the only one was not admitted")
		}
		go func() {
			for {
				if _, err := stranger.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}()
		for range 3 {
			time.Sleep(moment / 3)
			if all.tryAdmit(new(limitedConn)) {
				t.Fatal("another one took its place at once")
			}
			theirs.Write([]byte("P"))
			synctest.Wait()
		}
		time.Sleep(moment / 3)
		if !all.tryAdmit(new(limitedConn)) {
			t.Error("it keeps its place")
		}
		stranger.Close()
	})
}

// TestRequestsThatComputeMuchWaitForTheirTurn, while those of another instance and small ones
// do not wait for them. A request that waits for memory holds no turn.
func TestRequestsThatComputeMuchWaitForTheirTurn(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.RequestTimeout = shortly })
	s.turns = share.NewPool(3)
	large := func() *draft { return newDraft("GetRow", make([]byte, 100<<10)) }
	mine := share.User{Group: testInstance, Name: testKey}
	if !s.turns.TryTake(mine, 1) {
		t.Fatal("no turn")
	}
	if r := handle(s, large().sign(testSecret)); r.status != 503 {
		t.Errorf("a large request without a turn: status %d", r.status)
	}
	fake.answer(&ots.ReadResult{})
	if r := handle(s, good(t).sign(testSecret)); r.status != 200 {
		t.Errorf("a small request: status %d", r.status)
	}
	if r := handle(s, large().set("x-ots-accesskeyid", "other").set("x-ots-instancename", "another").sign("othersecret")); r.status == 503 {
		t.Errorf("a large request of another instance: status %d", r.status)
	}
	s.turns.Give(mine, 1)
	if r := handle(s, large().sign(testSecret)); r.status == 503 {
		t.Errorf("a large request: status %d", r.status)
	}
	if s.turns.Used() != 0 {
		t.Errorf("%d turns were not given back", s.turns.Used())
	}
	mineNow := &turn{pool: s.turns, user: mine}
	answer := room{pool: share.NewPool(10), user: mine, turn: mineNow}
	if err := mineNow.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := answer.Take(ended, 100); err == nil || s.turns.Used() != 0 {
		t.Errorf("%v; %d turns while it waited for memory", err, s.turns.Used())
	}
}

// TestAKeyThatHasManyRequestsAtOnceLeavesSomeToOthers, also where another server accepts the connections.
func TestAKeyThatHasManyRequestsAtOnceLeavesSomeToOthers(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.Connections = 12 })
	entered, leave := make(chan struct{}), make(chan struct{})
	fake.answer(func(context.Context) any {
		entered <- struct{}{}
		<-leave
		return &ots.ReadResult{}
	})
	replies := make(chan reply)
	do := func(d *draft) { go func() { replies <- handle(s, d) }() }
	for range 4 { // a third
		do(good(t).sign(testSecret))
		<-entered
	}
	if r := handle(s, good(t).sign(testSecret)); r.status != 503 {
		t.Errorf("one more: status %d", r.status)
	}
	do(good(t).set("x-ots-accesskeyid", "other").set("x-ots-instancename", "another").sign("othersecret"))
	<-entered
	close(leave)
	for range 5 {
		if r := <-replies; r.status != 200 {
			t.Errorf("status %d", r.status)
		}
	}
	if n := s.requests.Used(); n != 0 {
		t.Errorf("%d requests still count", n)
	}
}
