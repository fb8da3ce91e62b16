package server

import (
	"log/slog"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// CodeOK is the code of requests that succeeded.
const CodeOK = "OK"

// Served is what the server tells of a request that it has answered. Requests for the health of
// the server and for test aids are left out.
type Served struct {
	ID string // as in the answer
	// Operation is one that the server offers, "" if the request was refused before it named
	// one.
	Operation string
	// Instance is the canonical name; "" if the sender may not access it.
	Instance string
	// Table is the table that the request names, whether it exists or not; "" if it names none, or
	// several.
	Table  string
	Code   string // of the error, or CodeOK
	Status int    // of HTTP
	// Took is the time from the headers to the last byte of the answer. It includes what the client
	// takes to send and to receive.
	Took time.Duration
	// Received and Sent are bytes of the bodies. The body of a sender without access is not read.
	Received, Sent int64
}

// tell tells the log and Config.Served of a request that was answered with a body of so many bytes.
func (x *exchange) tell(status int, refusal *ots.Error, out int) {
	ctx := x.r.Context()
	debug := x.s.log.Enabled(ctx, slog.LevelDebug)
	if !debug && x.s.cfg.Served == nil {
		return
	}
	served := Served{
		ID: x.id, Operation: x.operation, Code: CodeOK, Status: status,
		Took: x.s.cfg.Now().Sub(x.at), Received: x.received, Sent: int64(out),
	}
	if refusal != nil {
		served.Code = refusal.Code
	}
	if x.authentic {
		served.Instance, served.Table = x.instance, x.table
	}
	if debug {
		x.s.log.DebugContext(ctx, "request", "request", x.id, "path", x.path, "instance", x.field(headerInstance),
			"status", status, "code", served.Code, "took", served.Took)
	}
	if x.s.cfg.Served != nil {
		x.s.cfg.Served(&served)
	}
}
