package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/control"
	"github.com/flagstone-db/flagstone/server/faults"
	"github.com/flagstone-db/flagstone/server/signature"
)

// exchange is one request and its answer.
type exchange struct {
	s  *Server
	w  http.ResponseWriter
	r  *http.Request
	at time.Time
	id string // identifies the request in the answer and in the log

	path      string            // as signed
	fields    []signature.Field // the x-ots-* headers, sorted
	duplicate string            // a header that occurred more than once
	key       AccessKey         // the sender's; no secret if unknown
	proven    bool              // every header occurred once, and the signature is right
	service   ots.Service       // of the requested instance
	instance  string            // its canonical name; requests may spell it in another case
	authentic bool              // the sender may access this instance
	operation string            // that is offered; "" if the path names none
	table     string            // the only one that the request names
	received  int64             // bytes of the body that were read
	used      Served            // units and rows

	body, answer room // memory that the request holds for its body and its answer
	turn         turn // permission to compute
	place        room // one of the requests allowed at once
}

// serveHTTP answers one request.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte("ok")) // the client may have gone
		return
	}
	if s.cfg.Control != nil && strings.HasPrefix(r.URL.Path, control.Prefix) {
		w.Header().Set("Connection", "close") // no request on this connection was signed
		s.cfg.Control.ServeHTTP(w, r)
		return
	}
	x := &exchange{s: s, w: w, r: r, at: s.cfg.Now(), id: newRequestID(), path: r.URL.EscapedPath()}
	for strings.HasPrefix(x.path, "//") { // clients whose endpoint ends in a slash sign the path without it
		x.path = x.path[1:]
	}
	x.collectFields()
	defer x.release()
	body, refusal := x.run()
	status, last := http.StatusOK, false
	if refusal != nil {
		x.release()
		refusal = asTunnelRefusal(x.path, refusal)
		status, body = statusOf(refusal.Code), encodeError(refusal)
		last = !x.drain() || !x.authentic
	}
	x.respond(status, body, last)
	x.tell(status, refusal, len(body))
}

// release gives back the resources of the request.
func (x *exchange) release() {
	x.body.keep(0)
	x.answer.keep(0)
	x.turn.Leave()
	x.place.keep(0)
}

// run checks the request, performs it and returns the encoded answer. The protocol sets the
// order of checks: a client with several mistakes gets the first error, and no client learns
// more than its signature allows.
func (x *exchange) run() (answer []byte, refusal *ots.Error) {
	defer func() {
		if p := recover(); p != nil {
			x.s.log.Error("panic while serving a request", "request", x.id, "path", x.path,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, refusal = nil, internalError()
		}
	}()
	if x.r.Method != http.MethodPost {
		x.w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(ots.CodeMethodNotAllowed, "Only POST method for requests is supported.")
	}
	if x.r.ContentLength > x.s.limits.BodyBytes {
		return nil, bodyTooLarge()
	}
	if refusal := x.authenticate(); refusal != nil {
		return nil, refusal
	}
	// The sender is known: from here on the server keeps the connection and takes memory for
	// the body.
	user := share.User{Group: x.instance, Name: x.field(headerAccessKey)}
	if conn := connOf(x.r); conn != nil && !x.s.connections.claim(conn, user) {
		return nil, busy()
	}
	x.authentic = true
	if x.place.pool, x.place.user = x.s.requests, user; !x.place.TryTake(1) { // a connection of another server (Handler) may carry many requests
		return nil, busy()
	}
	x.turn.pool, x.turn.user = x.s.turns, user
	x.body.pool, x.body.user, x.body.turn = x.s.bodies, user, &x.turn
	x.answer.pool, x.answer.user, x.answer.turn = x.s.answers, user, &x.turn
	buf := x.s.takeBuffer()
	defer x.s.giveBuffer(buf)
	body, refusal := x.readBody(buf)
	if refusal != nil {
		return nil, refusal
	}
	op, refusal := x.findOperation()
	if refusal != nil {
		return nil, refusal
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.s.limits.RequestTimeout)
	defer cancel()
	message, err := op(ots.WithTurn(ots.WithRoom(ctx, &x.answer), &x.turn), x.target(), body)
	if err != nil {
		return nil, x.refusalOf(err)
	}
	x.noteUse(message)
	answer, err = proto.Marshal(message)
	if err != nil {
		return nil, x.refusalOf(err)
	}
	// The memory of the rows is garbage now; that of the answer is held until the answer is
	// written.
	x.answer.keep(int64(len(answer)))
	return answer, nil
}

// target returns the service and instance that the operation works on.
func (x *exchange) target() target {
	t := target{service: x.service, instance: x.instance, sender: x.field(headerAccessKey), table: &x.table}
	if injector := x.s.cfg.Faults; injector != nil {
		t.service = faults.Rows(t.service, injector)
		t.fault = func(tables []string) faults.Fault {
			return injector.Request(strings.TrimPrefix(x.path, "/"), t.instance, tables)
		}
	}
	return t
}

// findOperation looks up the operation of the path. The signature does not cover a query, so a
// path with a query names no operation. The protocol version is checked only for offered
// operations: others, and tunnels, have versions of their own.
func (x *exchange) findOperation() (operation, *ots.Error) {
	name := strings.TrimPrefix(x.path, "/")
	if x.r.URL.RawQuery != "" || x.r.URL.ForceQuery {
		name += "?" + x.r.URL.RawQuery
	}
	if op, ok := x.s.operations[name]; ok {
		want := apiVersion
		if strings.HasPrefix(name, tunnelPrefix) {
			want = tunnelAPIVersion
		}
		if v := x.field(headerAPIVersion); v != want {
			return nil, refuse(ots.CodeParameterInvalid, "Invalid API version: '%s'.", v)
		}
		x.operation = name
		return op, nil
	}
	if x.s.unoffered[name] {
		return nil, refuse(ots.CodeParameterInvalid, "Unsupported operation: '%s'. The operation is known, but this server does not offer it.", name)
	}
	return nil, refuse(ots.CodeParameterInvalid, "Unsupported operation: '%s'.", name)
}

// refusalOf turns an error of the service or of a conversion into an answer. Texts that are not
// meant for clients go to the log.
func (x *exchange) refusalOf(err error) *ots.Error {
	var refusal *ots.Error
	if errors.As(err, &refusal) && refusal != nil {
		return refusal
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return refuse(ots.CodeTimeout, "Operation timeout.")
	}
	x.s.log.Error("request failed", "request", x.id, "path", x.path, "error", err)
	return internalError()
}

// newRequestID returns a random id in the service's format.
func newRequestID() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	b := make([]byte, 0, 36)
	for i, end := range [...]int{4, 6, 8, 10, 16} {
		start := [...]int{0, 4, 6, 8, 10}[i]
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, random[start:end])
	}
	return string(b)
}

func (s *Server) takeBuffer() *bytes.Buffer {
	if buf, ok := s.buffers.Get().(*bytes.Buffer); ok {
		return buf
	}
	return new(bytes.Buffer)
}

func (s *Server) giveBuffer(buf *bytes.Buffer) {
	const keptBytes = 64 << 10
	if buf.Cap() <= keptBytes {
		buf.Reset()
		s.buffers.Put(buf)
	}
}
