package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/faults"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/tunnelpb"
)

func TestMalformedMessagesAreRefusedAndNeverReachTheService(t *testing.T) {
	s, fake := newTestServer(t, nil)
	const parse = "Parse PBMessage from RawString failed."
	bad := "\xff"
	goodBlob := blob(testKeyRow)
	damaged := append([]byte(nil), goodBlob...)
	damaged[len(damaged)-1] ^= 1
	put := func(change func(*otspb.PutRowRequest)) *otspb.PutRowRequest {
		m := &otspb.PutRowRequest{TableName: ptr("t"), Row: goodBlob, Condition: ignore(), ReturnContent: &otspb.ReturnContent{}}
		change(m)
		return m
	}
	get := func(change func(*otspb.GetRowRequest)) *otspb.GetRowRequest {
		m := getRowMessage()
		change(m)
		return m
	}
	scan := func(change func(*otspb.GetRangeRequest)) *otspb.GetRangeRequest {
		m := getRangeMessage()
		change(m)
		return m
	}
	create := func(change func(*otspb.CreateTableRequest)) *otspb.CreateTableRequest {
		m := &otspb.CreateTableRequest{TableMeta: &otspb.TableMeta{TableName: ptr("t")}, ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{}}}
		change(m)
		return m
	}
	batch := func(change func(*otspb.RowInBatchWriteRowRequest)) *otspb.BatchWriteRowRequest {
		r := &otspb.RowInBatchWriteRowRequest{Type: otspb.OperationType_PUT.Enum(), RowChange: goodBlob, Condition: ignore()}
		change(r)
		return &otspb.BatchWriteRowRequest{Tables: []*otspb.TableInBatchWriteRowRequest{{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowRequest{r}}}}
	}
	tests := []struct {
		name, op string
		message  proto.Message
		want     string
	}{
		{"no table", "GetRow", get(func(m *otspb.GetRowRequest) { m.TableName = nil }), parse},
		{"no key", "GetRow", get(func(m *otspb.GetRowRequest) { m.PrimaryKey = nil }), parse},
		{"empty key", "GetRow", get(func(m *otspb.GetRowRequest) { m.PrimaryKey = []byte{} }), "Input encoded PK broken"},
		{"damaged key", "GetRow", get(func(m *otspb.GetRowRequest) { m.PrimaryKey = damaged }), "Cell data broken, wrong row checksum"},
		{"table not UTF-8", "GetRow", get(func(m *otspb.GetRowRequest) { m.TableName = &bad }), parse},
		{"column not UTF-8", "GetRow", get(func(m *otspb.GetRowRequest) { m.ColumnsToGet = []string{"a", bad} }), parse},
		{"start column not UTF-8", "GetRow", get(func(m *otspb.GetRowRequest) { m.StartColumn = &bad }), parse},
		{"end column not UTF-8", "GetRow", get(func(m *otspb.GetRowRequest) { m.EndColumn = &bad }), parse},
		{"transaction not UTF-8", "GetRow", get(func(m *otspb.GetRowRequest) { m.TransactionId = &bad }), parse},
		{"no row", "PutRow", put(func(m *otspb.PutRowRequest) { m.Row = nil }), parse},
		{"no condition", "PutRow", put(func(m *otspb.PutRowRequest) { m.Condition = nil }), parse},
		{"condition without existence", "PutRow", put(func(m *otspb.PutRowRequest) { m.Condition = &otspb.Condition{} }), parse},
		{"existence 3", "PutRow", put(func(m *otspb.PutRowRequest) {
			m.Condition = &otspb.Condition{RowExistence: otspb.RowExistenceExpectation(3).Enum()}
		}), parse},
		{"existence -1", "PutRow", put(func(m *otspb.PutRowRequest) {
			m.Condition = &otspb.Condition{RowExistence: otspb.RowExistenceExpectation(-1).Enum()}
		}), parse},
		{"return type 3", "PutRow", put(func(m *otspb.PutRowRequest) { m.ReturnContent.ReturnType = otspb.ReturnType(3).Enum() }), parse},
		{"return type 256", "PutRow", put(func(m *otspb.PutRowRequest) { m.ReturnContent.ReturnType = otspb.ReturnType(256).Enum() }), parse},
		{"return column not UTF-8", "PutRow", put(func(m *otspb.PutRowRequest) { m.ReturnContent.ReturnColumnNames = []string{bad} }), parse},
		{"no row change", "UpdateRow", &otspb.UpdateRowRequest{TableName: ptr("t"), Condition: ignore()}, parse},
		{"no key to delete", "DeleteRow", &otspb.DeleteRowRequest{TableName: ptr("t"), Condition: ignore()}, parse},
		{"no direction", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.Direction = nil }), parse},
		{"direction 2", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.Direction = otspb.Direction(2).Enum() }), parse},
		{"block type 2", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.DataBlockTypeHint = otspb.DataBlockType(2).Enum() }), parse},
		{"no start", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.InclusiveStartPrimaryKey = nil }), parse},
		{"no end", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.ExclusiveEndPrimaryKey = nil }), parse},
		{"broken end", "GetRange", scan(func(m *otspb.GetRangeRequest) { m.ExclusiveEndPrimaryKey = []byte{1} }), "Input encoded PK broken"},
		{"no operation type", "BatchWriteRow", batch(func(r *otspb.RowInBatchWriteRowRequest) { r.Type = nil }), parse},
		{"operation type 0", "BatchWriteRow", batch(func(r *otspb.RowInBatchWriteRowRequest) { r.Type = otspb.OperationType(0).Enum() }), parse},
		{"operation type 257", "BatchWriteRow", batch(func(r *otspb.RowInBatchWriteRowRequest) { r.Type = otspb.OperationType(257).Enum() }), parse},
		{"broken row in a batch", "BatchWriteRow", batch(func(r *otspb.RowInBatchWriteRowRequest) { r.RowChange = damaged }), "Cell data broken"},
		{"broken key in a batch", "BatchGetRow", &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{{TableName: ptr("t"), PrimaryKey: [][]byte{goodBlob, damaged}}}}, "Cell data broken"},
		{"batch table without name", "BatchGetRow", &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{{}}}, parse},
		{"no table meta", "CreateTable", create(func(m *otspb.CreateTableRequest) { m.TableMeta = nil }), parse},
		{"no throughput", "CreateTable", create(func(m *otspb.CreateTableRequest) { m.ReservedThroughput = nil }), parse},
		{"throughput without units", "CreateTable", create(func(m *otspb.CreateTableRequest) { m.ReservedThroughput.CapacityUnit = nil }), parse},
		{"key column without type", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.TableMeta.PrimaryKey = []*otspb.PrimaryKeySchema{{Name: ptr("a")}}
		}), parse},
		{"key column not UTF-8", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.TableMeta.PrimaryKey = []*otspb.PrimaryKeySchema{{Name: &bad, Type: otspb.PrimaryKeyType_STRING.Enum()}}
		}), parse},
		{"key option 2", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.TableMeta.PrimaryKey = []*otspb.PrimaryKeySchema{{Name: ptr("a"), Type: otspb.PrimaryKeyType_STRING.Enum(), Option: otspb.PrimaryKeyOption(2).Enum()}}
		}), parse},
		{"defined column of type 5", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.TableMeta.DefinedColumn = []*otspb.DefinedColumnSchema{{Name: ptr("a"), Type: otspb.DefinedColumnType(5).Enum()}}
		}), "Invalid type for attribute column"},
		{"bloom filter 4", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.TableOptions = &otspb.TableOptions{BloomFilterType: otspb.BloomFilterType(4).Enum()}
		}), parse},
		{"partition without a bound", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.Partitions = []*otspb.PartitionRange{{Begin: []byte{9}, End: []byte{}}}
		}), "Cell data broken"},
		{"stream column not UTF-8", "CreateTable", create(func(m *otspb.CreateTableRequest) {
			m.StreamSpec = &otspb.StreamSpecification{EnableStream: ptr(true), ColumnsToGet: []string{bad}}
		}), parse},
		{"stream without enable", "UpdateTable", &otspb.UpdateTableRequest{TableName: ptr("t"), StreamSpec: &otspb.StreamSpecification{}}, parse},
		{"no split size", "ComputeSplitPointsBySize", &otspb.ComputeSplitPointsBySizeRequest{TableName: ptr("t")}, parse},
		{"no table to describe", "DescribeTable", &otspb.DescribeTableRequest{}, parse},
		{"no table to delete", "DeleteTable", &otspb.DeleteTableRequest{}, parse},
		{"deleted table not UTF-8", "DeleteTable", &otspb.DeleteTableRequest{TableName: &bad}, parse},
	}
	for _, tt := range tests {
		status, code, text := callRefused(t, s, tt.op, tt.message)
		if status != 400 || code != ots.CodeParameterInvalid || !strings.HasPrefix(text, tt.want) {
			t.Errorf("%s: %d %s %q, want %q", tt.name, status, code, text, tt.want)
		}
	}
	if n := fake.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	body := marshal(t, getRowMessage())
	body = protowire.AppendTag(body, 900, protowire.BytesType)
	body = protowire.AppendBytes(body, []byte("of the future"))
	body = protowire.AppendTag(body, 901, protowire.Fixed64Type)
	body = protowire.AppendFixed64(body, math.MaxUint64)
	if r := handle(s, newDraft("GetRow", body).sign(testSecret)); r.status != http.StatusOK {
		t.Errorf("%d %q", r.status, r.body)
	}
}

func TestMessagesOfManySmallOnesAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	s, fake := newTestServer(t, nil)
	body := []byte(strings.Repeat("\x0a\x00", 2<<20)) // two million empty tables
	for _, op := range []string{"BatchGetRow", "BatchWriteRow"} {
		allocated := testing.AllocsPerRun(1, func() {
			r := handle(s, newDraft(op, body).sign(testSecret))
			if code, _ := r.refusal(t); code != ots.CodeParameterInvalid {
				t.Errorf("%s: %s", op, code)
			}
		})
		if allocated > 1000 {
			t.Errorf("%s: %v allocations", op, allocated)
		}
	}
	if n := fake.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

// TestListsOfManyTextsAreRefusedBeforeTheyAreDecoded allows the texts of 200 rows of 1,024
// columns, and not many more.
func TestListsOfManyTextsAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	named := func(names int) []byte {
		return append(marshal(t, getRowMessage()), strings.Repeat("\x1a\x01c", names)...)
	}
	own := parts{messages: 1, texts: 1000}
	if !own.count(new(otspb.GetRowRequest).ProtoReflect().Descriptor(), marshal(t, getRowMessage())) {
		t.Fatal("the message does not count")
	}
	most := 250_000 - (1000 - own.texts)
	if r := handle(s, newDraft("GetRow", named(most)).sign(testSecret)); r.status != 200 {
		code, text := r.refusal(t)
		t.Errorf("%d names: %s %s", most, code, text)
	}
	for _, names := range []int{most + 1, 1 << 20} {
		allocated := testing.AllocsPerRun(1, func() {
			r := handle(s, newDraft("GetRow", named(names)).sign(testSecret))
			if code, _ := r.refusal(t); code != ots.CodeParameterInvalid {
				t.Errorf("%d names: %s", names, code)
			}
		})
		if allocated > 1000 {
			t.Errorf("%d names: %v allocations", names, allocated)
		}
	}
	if n := fake.calls.Load(); n != 1 {
		t.Errorf("the service was called %d times", n)
	}
}

func TestNodeSDKRangeBoundsWithSurplusBytesAreAccepted(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.GetRangeResponse{})
	bound, _ := hex.DecodeString("7500000001030401000000610501000000090adf0304010000006205010000000a0ae909960000")
	m := getRangeMessage()
	m.InclusiveStartPrimaryKey = bound
	call(t, s, "GetRange", m, &otspb.GetRangeResponse{})
	want := ots.Row{Key: []ots.KeyValue{{Name: "a", Value: row.Min()}, {Name: "b", Value: row.Max()}}}
	if got := fake.lastRequest().(*ots.GetRangeRequest).Start; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestErrorsOfTheServiceBecomeStatusCodeAndMessage(t *testing.T) {
	logger, logged := captureLog()
	s, fake := newTestServer(t, func(c *Config) { c.Logger = logger })
	long := strings.Repeat("é", 5000)
	tests := []struct {
		err        error
		status     int
		code, text string
	}{
		{&ots.Error{Code: ots.CodeParameterInvalid, Message: "m"}, 400, ots.CodeParameterInvalid, "m"},
		{&ots.Error{Code: ots.CodeInvalidPK, Message: "m"}, 400, ots.CodeInvalidPK, "m"},
		{&ots.Error{Code: ots.CodeConditionCheckFail, Message: "m"}, 403, ots.CodeConditionCheckFail, "m"},
		{&ots.Error{Code: ots.CodeQuotaExhausted, Message: "m"}, 403, ots.CodeQuotaExhausted, "m"},
		{&ots.Error{Code: ots.CodeObjectNotExist, Message: "m"}, 404, ots.CodeObjectNotExist, "m"},
		{&ots.Error{Code: ots.CodeTableNotReady, Message: "m"}, 404, ots.CodeTableNotReady, "m"},
		{&ots.Error{Code: ots.CodeObjectAlreadyExist, Message: "m"}, 409, ots.CodeObjectAlreadyExist, "m"},
		{&ots.Error{Code: ots.CodeRowOperationConflict, Message: "m"}, 409, ots.CodeRowOperationConflict, "m"},
		{&ots.Error{Code: ots.CodeFlowControl, Message: "m"}, 429, ots.CodeFlowControl, "m"},
		{&ots.Error{Code: ots.CodeServerBusy, Message: "m"}, 503, ots.CodeServerBusy, "m"},
		{&ots.Error{Code: ots.CodeInternalServerError, Message: "m"}, 500, ots.CodeInternalServerError, "m"},
		{&ots.Error{Code: ots.CodeTunnelExist, Message: "m"}, 409, ots.CodeTunnelExist, "m"},
		{&ots.Error{Code: ots.CodeSequenceNumberNotMatch, Message: "m"}, 409, ots.CodeSequenceNumberNotMatch, "m"},
		{&ots.Error{Code: ots.CodeResourceGone, Message: "m"}, 410, ots.CodeResourceGone, "m"},
		{&ots.Error{Code: ots.CodeTunnelExpired, Message: "m"}, 400, ots.CodeTunnelExpired, "m"},
		{&ots.Error{Code: "OTSNew", Message: "m"}, 500, "OTSNew", "m"},
		{fmt.Errorf("wrapped: %w", &ots.Error{Code: ots.CodeDataOutOfRange, Message: "m"}), 400, ots.CodeDataOutOfRange, "m"},
		{errors.New("open /var/lib/store/000001.sst: no such file"), 500, ots.CodeInternalServerError, "Internal server error."},
		{context.DeadlineExceeded, 503, ots.CodeTimeout, "Operation timeout."},
		{&ots.Error{Code: ots.CodeParameterInvalid, Message: "a\xffb"}, 400, ots.CodeParameterInvalid, "a\uFFFDb"},
		{&ots.Error{Code: ots.CodeParameterInvalid, Message: long}, 400, ots.CodeParameterInvalid, long[:1024] + "..."},
		{&ots.Error{Code: ots.CodeParameterInvalid, Message: "x" + long}, 400, ots.CodeParameterInvalid, "x" + long[:1022] + "..."},
	}
	ops := map[string]proto.Message{
		"GetRow": getRowMessage(), "GetRange": getRangeMessage(), "ListTable": &otspb.ListTableRequest{}, "BatchGetRow": &otspb.BatchGetRowRequest{},
		"BatchWriteRow": &otspb.BatchWriteRowRequest{}, "DeleteTable": &otspb.DeleteTableRequest{TableName: ptr("t")},
		"DescribeTable": &otspb.DescribeTableRequest{TableName: ptr("t")}, "UpdateTable": &otspb.UpdateTableRequest{TableName: ptr("t")},
		"PutRow":                   &otspb.PutRowRequest{TableName: ptr("t"), Row: blob(testKeyRow), Condition: ignore()},
		"UpdateRow":                &otspb.UpdateRowRequest{TableName: ptr("t"), RowChange: blob(testKeyRow), Condition: ignore()},
		"DeleteRow":                &otspb.DeleteRowRequest{TableName: ptr("t"), PrimaryKey: blob(testKeyRow), Condition: ignore()},
		"ComputeSplitPointsBySize": &otspb.ComputeSplitPointsBySizeRequest{TableName: ptr("t"), SplitSize: ptr(int64(1))},
		"StartLocalTransaction":    &otspb.StartLocalTransactionRequest{TableName: ptr("t"), Key: blob(testKeyRow)},
		"CommitTransaction":        &otspb.CommitTransactionRequest{TransactionId: ptr("x")},
		"AbortTransaction":         &otspb.AbortTransactionRequest{TransactionId: ptr("x")},
		"ListStream":               &otspb.ListStreamRequest{TableName: ptr("t")},
		"DescribeStream":           &otspb.DescribeStreamRequest{StreamId: ptr("t")},
		"GetShardIterator":         &otspb.GetShardIteratorRequest{StreamId: ptr("t"), ShardId: ptr("s")},
		"GetStreamRecord":          &otspb.GetStreamRecordRequest{ShardIterator: ptr("i")},
		"tunnel/create":            &tunnelpb.CreateTunnelRequest{Tunnel: &tunnelpb.Tunnel{TableName: ptr("t"), TunnelName: ptr("n"), TunnelType: tunnelpb.TunnelType_STREAM.Enum()}},
		"tunnel/list":              &tunnelpb.ListTunnelRequest{}, "tunnel/connect": &tunnelpb.ConnectRequest{TunnelId: ptr("i")},
		"tunnel/describe":      &tunnelpb.DescribeTunnelRequest{TableName: ptr("t"), TunnelName: ptr("n")},
		"tunnel/delete":        &tunnelpb.DeleteTunnelRequest{TableName: ptr("t"), TunnelName: ptr("n")},
		"tunnel/heartbeat":     &tunnelpb.HeartbeatRequest{TunnelId: ptr("i"), ClientId: ptr("c")},
		"tunnel/shutdown":      &tunnelpb.ShutdownRequest{TunnelId: ptr("i"), ClientId: ptr("c")},
		"tunnel/getcheckpoint": &tunnelpb.GetCheckpointRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: ptr("h")},
		"tunnel/checkpoint":    &tunnelpb.CheckpointRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: ptr("h"), Checkpoint: ptr("finished"), SequenceNumber: ptr(int64(1))},
		"tunnel/readrecords":   &tunnelpb.ReadRecordsRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: ptr("h"), Token: ptr("finished")},
		"CreateTable":          &otspb.CreateTableRequest{TableMeta: &otspb.TableMeta{TableName: ptr("t")}, ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{}}},
	}
	if len(ops) != len(s.operations) {
		t.Errorf("%d operations tried, %d offered", len(ops), len(s.operations))
	}
	for _, tt := range tests {
		fake.answer(tt.err)
		for op, message := range ops {
			status, code, text := callRefused(t, s, op, message)
			want, wantStatus := tt.code, tt.status
			mayBeCreated := op == "tunnel/create" && tt.code == ots.CodeTimeout
			if strings.HasPrefix(op, "tunnel/") && (wantStatus == 503 || wantStatus == 429) && !mayBeCreated { // what clients of tunnels repeat
				want, wantStatus = ots.CodeTunnelServerUnavailable, 503
			}
			if status != wantStatus || code != want || text != tt.text {
				t.Errorf("%s, %v: got %d %s %q", op, tt.err, status, code, text)
			}
		}
	}
	if !strings.Contains(logged(), "000001.sst") {
		t.Error("the internal error was not logged")
	}
}

func TestPanicBecomesAnInternalErrorAndIsLogged(t *testing.T) {
	logger, logged := captureLog()
	s, fake := newTestServer(t, func(c *Config) { c.Logger = logger })
	fake.answer(func(context.Context) any { panic("broken invariant 17") })
	d := newDraft("GetRow", marshal(t, getRowMessage())).sign(testSecret)
	r := handle(s, d)
	code, text := r.refusal(t)
	if r.status != 500 || code != ots.CodeInternalServerError || text != "Internal server error." {
		t.Errorf("%d %s %q", r.status, code, text)
	}
	checkResponseHeaders(t, "panic", d, r)
	if l := logged(); !strings.Contains(l, "broken invariant 17") || !strings.Contains(l, "refusals_test.go") {
		t.Errorf("log without the panic or its stack: %s", l)
	}
	if used := s.bodies.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are still taken", used)
	}
}

func TestServiceGetsADeadline(t *testing.T) {
	s, fake := newTestServer(t, func(c *Config) { c.Limits.RequestTimeout = 20 * time.Millisecond })
	fake.answer(func(ctx context.Context) any {
		<-ctx.Done()
		return ctx.Err()
	})
	if status, code, _ := callRefused(t, s, "GetRow", getRowMessage()); status != 503 || code != ots.CodeTimeout {
		t.Errorf("%d %s", status, code)
	}
}

func TestNoSecretIsLogged(t *testing.T) {
	logger, logged := captureLog()
	s, fake := newTestServer(t, func(c *Config) { c.Logger = logger })
	fake.answer(&ots.ReadResult{})
	d := good(t).sign(testSecret)
	handle(s, d)
	handle(s, good(t).sign("wrong"))
	l := logged()
	if !strings.Contains(l, "/GetRow") {
		t.Fatalf("requests are not logged: %s", l)
	}
	for _, secret := range []string{testSecret, s.dummy, d.value("x-ots-signature")} {
		if strings.Contains(l, secret) {
			t.Errorf("%q in the log: %s", secret, l)
		}
	}
}

// TestUnofferedOperationsAreRefusedByName: clients do not repeat such a refusal, and the
// message says that the name was right.
func TestUnofferedOperationsAreRefusedByName(t *testing.T) {
	s, fake := newTestServer(t, nil)
	addr := listen(t, s)
	for name := range unofferedOperations() {
		if _, ok := operations()[name]; ok {
			t.Errorf("%s is offered", name)
		}
		r := send(t, addr, "POST", newDraft(name, nil).sign(testSecret).raw())
		code, text := r.refusal(t)
		want := "Unsupported operation: '" + name + "'. The operation is known, but this server does not offer it."
		if r.status != http.StatusBadRequest || code != ots.CodeParameterInvalid || text != want {
			t.Errorf("%s: %d %s %q", name, r.status, code, text)
		}
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}

func TestFaultsMayNameEveryOperationThatIsOffered(t *testing.T) {
	for name := range operations() {
		r := faults.Rule{Operation: name, Code: ots.CodeTimeout, Rate: 1}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
}
