package server

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

// FuzzRequest sends any body, correctly signed, to any operation. The service refuses
// everything, so the fuzzer tests only the server.
func FuzzRequest(f *testing.F) {
	f.Add(uint8(0), marshal(f, getRowMessage()))
	f.Add(uint8(1), marshal(f, getRangeMessage()))
	f.Add(uint8(2), marshal(f, &otspb.PutRowRequest{TableName: ptr("t"), Row: blob(testKeyRow), Condition: ignore()}))
	f.Add(uint8(3), marshal(f, &otspb.BatchWriteRowRequest{Tables: []*otspb.TableInBatchWriteRowRequest{{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowRequest{
		{Type: otspb.OperationType_DELETE.Enum(), RowChange: blob(ots.Row{Key: testKeyRow.Key, DeleteMarker: true}), Condition: ignore()}}}}}))
	f.Add(uint8(4), marshal(f, &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{{TableName: ptr("t"), PrimaryKey: [][]byte{blob(testKeyRow)}}}}))
	f.Add(uint8(5), marshal(f, &otspb.CreateTableRequest{TableMeta: &otspb.TableMeta{TableName: ptr("t"), PrimaryKey: []*otspb.PrimaryKeySchema{
		{Name: ptr("a"), Type: otspb.PrimaryKeyType_STRING.Enum()}}}, ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: capacity(0, 0)}}))
	ops := [...]string{"GetRow", "GetRange", "PutRow", "BatchWriteRow", "BatchGetRow", "CreateTable", "UpdateRow", "DeleteRow",
		"UpdateTable", "DescribeTable", "DeleteTable", "ListTable", "ComputeSplitPointsBySize"}
	logger, logged := captureLog()
	s, fake := newTestServer(f, func(c *Config) { c.Logger = logger })
	// The service refuses, since it has no fitting answers. The test is that decoding does no
	// harm.
	fake.answer(&ots.Error{Code: ots.CodeObjectNotExist, Message: "Requested table does not exist."})
	f.Fuzz(func(t *testing.T, op uint8, body []byte) {
		r := handle(s, newDraft(ops[int(op)%len(ops)], body).sign(testSecret))
		if code, text := r.refusal(t); r.status != 400 && r.status != 404 {
			t.Errorf("%s: %d %s %q\n%s", ops[int(op)%len(ops)], r.status, code, text, logged())
		}
	})
}

func benchmarkHandler(b *testing.B, op string, message proto.Message, response any) {
	s, fake := newTestServer(b, nil)
	fake.answer(response)
	d := newDraft(op, marshal(b, message)).sign(testSecret)
	template := d.request()
	handler := s.Handler()
	body := bytes.NewReader(d.body)
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(d.body)
		r := *template
		r.Body = readCloser{body}
		w := httptest.ResponseRecorder{}
		handler.ServeHTTP(&w, &r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func benchmarkCells() []ots.Cell {
	var cells []ots.Cell
	for _, name := range []string{"field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8", "field9"} {
		cells = append(cells, ots.Cell{Name: name, Value: row.String(strings.Repeat("x", 100)), Version: testVersion, HasVersion: true})
	}
	return cells
}

func BenchmarkGetRowOf10Cells(b *testing.B) {
	benchmarkHandler(b, "GetRow", getRowMessage(), &ots.ReadResult{Row: &ots.Row{Key: testKeyRow.Key, Cells: benchmarkCells()}})
}

func BenchmarkPutRowOf10Cells(b *testing.B) {
	benchmarkHandler(b, "PutRow", &otspb.PutRowRequest{TableName: ptr("t"), Condition: ignore(),
		Row: blob(ots.Row{Key: testKeyRow.Key, Cells: benchmarkCells()})}, &ots.WriteResult{})
}
