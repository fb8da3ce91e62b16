package server

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
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
	// Read and Write are the capacity units that the answer says were used, Rows how many rows of a batch it has; all 0 if
	// the request was refused.
	Read, Write, Rows int64
}

// noteUse notes what a request used, which is in its answer.
func (x *exchange) noteUse(message proto.Message) {
	add := func(c *otspb.ConsumedCapacity) {
		x.used.Read += int64(c.GetCapacityUnit().GetRead())
		x.used.Write += int64(c.GetCapacityUnit().GetWrite())
	}
	switch m := message.(type) {
	case *otspb.BatchGetRowResponse:
		for _, table := range m.Tables {
			x.used.Rows += int64(len(table.Rows))
			for _, row := range table.Rows {
				add(row.GetConsumed())
			}
		}
	case *otspb.BatchWriteRowResponse:
		for _, table := range m.Tables {
			x.used.Rows += int64(len(table.Rows))
			for _, row := range table.Rows {
				add(row.GetConsumed())
			}
		}
	case interface {
		GetConsumed() *otspb.ConsumedCapacity
	}:
		add(m.GetConsumed())
	}
}

// tell tells the log and Config.Served of a request that was answered with a body of so many bytes.
func (x *exchange) tell(status int, refusal *ots.Error, out int) {
	ctx := x.r.Context()
	debug := x.s.log.Enabled(ctx, slog.LevelDebug)
	if !debug && x.s.cfg.Served == nil {
		return
	}
	served := x.used
	served.ID, served.Operation, served.Code, served.Status = x.id, x.operation, CodeOK, status
	served.Took, served.Received, served.Sent = x.s.cfg.Now().Sub(x.at), x.received, int64(out)
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
