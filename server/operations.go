package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/faults"
)

// target is what an operation works on.
type target struct {
	service  ots.Service
	instance string
	sender   string  // its access key
	table    *string // where the only table that the request names is noted
	// fault decides which fault to inject into a request for tables; nil: none.
	fault func(tables []string) faults.Fault
}

// operation decodes the body of a request, performs it and returns the answer message. Errors
// other than *ots.Error are faults of the server.
type operation func(ctx context.Context, on target, body []byte) (proto.Message, error)

// typed makes an operation from a function of the decoded message. It refuses a body that lacks
// a required field.
func typed[M any, P interface {
	*M
	proto.Message
}](run func(context.Context, target, P) (proto.Message, error)) operation {
	descriptor := P(new(M)).ProtoReflect().Descriptor()
	return func(ctx context.Context, on target, body []byte) (proto.Message, error) {
		message := P(new(M))
		if left := mostParts(); !left.count(descriptor, body) {
			return nil, parseFailed()
		}
		if err := proto.Unmarshal(body, message); err != nil {
			return nil, parseFailed()
		}
		*on.table = tableOf(message)
		if on.fault == nil {
			return run(ctx, on, message)
		}
		return on.faulty(ctx, message, func() (proto.Message, error) { return run(ctx, on, message) })
	}
}

// faulty runs a request with the faults that are injected into it.
func (t target) faulty(ctx context.Context, request proto.Message, run func() (proto.Message, error)) (proto.Message, error) {
	fault := t.fault(tablesOf(request.ProtoReflect()))
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fault.Err == nil {
		return run()
	}
	if fault.Applied {
		if _, err := run(); err != nil {
			return nil, err
		}
	}
	return nil, fault.Err
}

// tableOf returns the table that a request names, "" if it names none, or several.
func tableOf(m proto.Message) string {
	if plain, ok := m.(interface{ GetTableName() string }); ok {
		return plain.GetTableName()
	}
	if tables := tablesOf(m.ProtoReflect()); len(tables) == 1 {
		return tables[0]
	}
	return ""
}

// tablesOf returns the tables that a request names, by the protocol's field names.
func tablesOf(m protoreflect.Message) (tables []string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch field.Name() {
		case "table_name", "main_table_name":
			tables = append(tables, value.String())
		case "table_meta", "tunnel":
			tables = append(tables, tablesOf(value.Message())...)
		case "tables":
			for i := range value.List().Len() {
				tables = append(tables, tablesOf(value.List().Get(i).Message())...)
			}
		}
		return true
	})
	return tables
}

// parts bound the sub-messages, and the strings and blobs, of a message. An empty one takes two
// bytes on the wire and up to a hundred times as many in memory, so a limit on bodies is not
// enough.
type parts struct{ messages, texts int }

// mostParts is above the largest requests that the protocol allows: a few thousand messages,
// and 200 rows that name 1,024 columns each.
func mostParts() parts { return parts{messages: 50_000, texts: 250_000} }

// count subtracts the parts of an encoded message from p. It returns false if there are too
// many, or if the encoding is broken. No request message contains itself, so the depth is
// bounded.
func (p *parts) count(d protoreflect.MessageDescriptor, b []byte) bool {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(number, wire, b)
		if n < 0 {
			return false
		}
		value := b[:n]
		b = b[n:]
		field := d.Fields().ByNumber(number)
		if wire != protowire.BytesType || field == nil {
			continue
		}
		if field.Message() == nil {
			if p.texts--; p.texts < 0 {
				return false
			}
			continue
		}
		p.messages--
		inner, _ := protowire.ConsumeBytes(value)
		if p.messages < 0 || !p.count(field.Message(), inner) {
			return false
		}
	}
	return true
}

// operations returns the operations that this server offers, by name.
func operations() map[string]operation {
	return map[string]operation{
		"CreateTable":              typed(createTable),
		"ListTable":                typed(listTable),
		"DescribeTable":            typed(describeTable),
		"UpdateTable":              typed(updateTable),
		"DeleteTable":              typed(deleteTable),
		"ComputeSplitPointsBySize": typed(computeSplitPoints),

		"GetRow":      typed(getRow),
		"GetRange":    typed(getRange),
		"BatchGetRow": typed(batchGetRow),

		"PutRow":        typed(putRow),
		"UpdateRow":     typed(updateRow),
		"DeleteRow":     typed(deleteRow),
		"BatchWriteRow": typed(batchWriteRow),

		"StartLocalTransaction": typed(startLocalTransaction),
		"CommitTransaction":     typed(commitTransaction),
		"AbortTransaction":      typed(abortTransaction),

		"ListStream":       typed(listStream),
		"DescribeStream":   typed(describeStream),
		"GetShardIterator": typed(getShardIterator),
		"GetStreamRecord":  typed(getStreamRecord),

		"tunnel/create":        typed(createTunnel),
		"tunnel/list":          typed(listTunnel),
		"tunnel/describe":      typed(describeTunnel),
		"tunnel/delete":        typed(deleteTunnel),
		"tunnel/connect":       typed(connectTunnel),
		"tunnel/heartbeat":     typed(heartbeatTunnel),
		"tunnel/shutdown":      typed(shutdownTunnel),
		"tunnel/getcheckpoint": typed(getTunnelCheckpoint),
		"tunnel/checkpoint":    typed(checkpointTunnel),
		"tunnel/readrecords":   typed(readTunnel),
	}
}

// unofferedOperations are the other operations of the protocol. They are refused like unknown
// ones, so that clients do not repeat them; only the message differs.
func unofferedOperations() map[string]bool {
	names := [...]string{
		"BulkImport", "BulkExport", "LoadTable", "UnloadTable",
		"AddDefinedColumn", "DeleteDefinedColumn", "CreateIndex", "DropIndex",
		"CreateSearchIndex", "UpdateSearchIndex", "DeleteSearchIndex", "ListSearchIndex", "DescribeSearchIndex",
		"Search", "ComputeSplits", "ParallelScan", "SQLQuery",
		"CreateDeliveryTask", "DeleteDeliveryTask", "UpdateDeliveryTask", "DescribeDeliveryTask", "ListDeliveryTask",
		"tunnel/switch", "tunnel/getrpo", "tunnel/getrpobyoffset", "tunnel/schedule",
		"CreateTimeseriesTable", "UpdateTimeseriesTable", "DeleteTimeseriesTable", "ListTimeseriesTable", "DescribeTimeseriesTable",
		"PutTimeseriesData", "GetTimeseriesData", "QueryTimeseriesMeta", "UpdateTimeseriesMeta", "DeleteTimeseriesMeta",
		"CreateTimeseriesAnalyticalStore", "DeleteTimeseriesAnalyticalStore",
		"DescribeTimeseriesAnalyticalStore", "UpdateTimeseriesAnalyticalStore",
		"CreateTimeseriesLastpointIndex", "DeleteTimeseriesLastpointIndex", "SplitTimeseriesScanTask", "ScanTimeseriesData",
		"CreateGlobalTable", "BindGlobalTable", "UnbindGlobalTable", "DescribeGlobalTable", "UpdateGlobalTable",
	}
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
