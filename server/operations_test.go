package server

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

var (
	testKeyRow  = ots.Row{Key: key(row.String("a"), row.Integer(1))}
	testVersion = int64(1700000000001)
)

func ignore() *otspb.Condition {
	return &otspb.Condition{RowExistence: otspb.RowExistenceExpectation_IGNORE.Enum()}
}

func wantRequest(t *testing.T, fake *fakeService, want any) {
	t.Helper()
	if got := fake.lastRequest(); !reflect.DeepEqual(got, want) {
		t.Errorf("the service got\n%+v\nwant\n%+v", got, want)
	}
}

func wantAnswer(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("answer\n%v\nwant\n%v", got, want)
	}
}

// testFilter is the pagination of the protocol's examples; testFilterBytes is its encoding.
var (
	testFilter      = &ots.Filter{Type: ots.FilterPagination, Offset: 1, Limit: 3}
	testFilterBytes = []byte{0x08, 0x03, 0x12, 0x04, 0x08, 0x01, 0x10, 0x03}
)

func TestGetRowCarriesEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	cells := []ots.Cell{{Name: "c", Value: row.Double(1.5), Version: testVersion}}
	fake.answer(&ots.ReadResult{Row: &ots.Row{Key: testKeyRow.Key, Cells: cells}, Consumed: ots.CapacityUnit{Read: 2}})
	var answer otspb.GetRowResponse
	call(t, s, "GetRow", &otspb.GetRowRequest{
		TableName: ptr("t"), PrimaryKey: blob(testKeyRow), ColumnsToGet: []string{"c", "d"},
		TimeRange:   &otspb.TimeRange{StartTime: ptr(int64(1)), EndTime: ptr(int64(2)), SpecificTime: ptr(int64(3))},
		MaxVersions: ptr(int32(4)), CacheBlocks: ptr(false), Filter: testFilterBytes, StartColumn: ptr("b"),
		EndColumn: ptr("e"), Token: []byte("token"), TransactionId: ptr("txn"),
	}, &answer)
	wantRequest(t, fake, &ots.GetRowRequest{Table: "t", Row: testKeyRow, Selection: ots.Selection{
		ColumnsToGet: []string{"c", "d"}, MaxVersions: ptr(int32(4)),
		TimeRange:   &ots.TimeRange{Start: ptr(int64(1)), End: ptr(int64(2)), Specific: ptr(int64(3))},
		StartColumn: ptr("b"), EndColumn: ptr("e"), Filter: testFilter, Token: []byte("token"), TransactionID: ptr("txn"),
	}})
	cells[0].HasVersion = true
	wantAnswer(t, &answer, &otspb.GetRowResponse{
		Consumed: &otspb.ConsumedCapacity{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(2)), Write: ptr(int32(0))}},
		Row:      blob(ots.Row{Key: testKeyRow.Key, Cells: cells}),
	})
}

func TestTransactionsCarryTheirFields(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer("0123")
	var started otspb.StartLocalTransactionResponse
	call(t, s, "StartLocalTransaction", &otspb.StartLocalTransactionRequest{TableName: ptr("t"), Key: blob(testKeyRow)}, &started)
	wantRequest(t, fake, &ots.StartTransactionRequest{Table: "t", Row: testKeyRow})
	wantAnswer(t, &started, &otspb.StartLocalTransactionResponse{TransactionId: ptr("0123")})
	call(t, s, "CommitTransaction", &otspb.CommitTransactionRequest{TransactionId: ptr("0123")}, &otspb.CommitTransactionResponse{})
	wantRequest(t, fake, "commit 0123")
	var aborted otspb.AbortTransactionRequest // see abortTransaction
	call(t, s, "AbortTransaction", &otspb.AbortTransactionRequest{TransactionId: ptr("0123")}, &aborted)
	wantAnswer(t, &aborted, &otspb.AbortTransactionRequest{TransactionId: ptr("0123")})
	wantRequest(t, fake, "abort 0123")
}

func TestFieldsThatWereNotGivenStayNil(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	call(t, s, "GetRow", &otspb.GetRowRequest{TableName: ptr("t"), PrimaryKey: blob(testKeyRow)}, &otspb.GetRowResponse{})
	wantRequest(t, fake, &ots.GetRowRequest{Table: "t", Row: testKeyRow})
}

func TestMissingRowIsPresentAsZeroBytes(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	var answer otspb.GetRowResponse
	call(t, s, "GetRow", getRowMessage(), &answer)
	if answer.Row == nil || len(answer.Row) != 0 {
		t.Errorf("row %x, nil %t", answer.Row, answer.Row == nil)
	}
	fake.answer(&ots.BatchGetRowResponse{Tables: []ots.TableReadResults{{Table: "t", Rows: make([]ots.RowReadResult, 1)}}})
	var batch otspb.BatchGetRowResponse
	call(t, s, "BatchGetRow", &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{
		{TableName: ptr("t"), PrimaryKey: [][]byte{blob(testKeyRow)}}}}, &batch)
	if r := batch.Tables[0].Rows[0]; !r.GetIsOk() || r.Row == nil || len(r.Row) != 0 {
		t.Errorf("batch row %v", r)
	}
	fake.answer(&ots.GetRangeResponse{})
	var scan otspb.GetRangeResponse
	call(t, s, "GetRange", getRangeMessage(), &scan)
	if scan.Rows == nil || len(scan.Rows) != 0 || scan.NextStartPrimaryKey != nil {
		t.Errorf("range %v", &scan)
	}
}

func getRangeMessage() *otspb.GetRangeRequest {
	return &otspb.GetRangeRequest{
		TableName: ptr("t"), Direction: otspb.Direction_FORWARD.Enum(), MaxVersions: ptr(int32(1)),
		InclusiveStartPrimaryKey: blob(ots.Row{Key: key(row.Min(), row.Min())}),
		ExclusiveEndPrimaryKey:   blob(ots.Row{Key: key(row.Max(), row.Max())}),
	}
}

func TestGetRangeCarriesEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	rows := []ots.Row{
		{Key: key(row.String("a"), row.Integer(1)), Cells: []ots.Cell{{Name: "c", Value: row.Boolean(true), Version: 7, HasVersion: true}}},
		{Key: key(row.String("a"), row.Integer(2))},
	}
	fake.answer(&ots.GetRangeResponse{Rows: rows, Next: key(row.String("a"), row.Integer(3)), Consumed: ots.CapacityUnit{Read: 1}})
	m := getRangeMessage()
	m.Direction = otspb.Direction_BACKWARD.Enum()
	m.InclusiveStartPrimaryKey, m.ExclusiveEndPrimaryKey = m.ExclusiveEndPrimaryKey, m.InclusiveStartPrimaryKey
	m.Limit, m.Filter, m.ColumnsToGet = ptr(int32(10)), testFilterBytes, []string{"c"}
	m.ReturnEntirePrimaryKeys, m.Token, m.TransactionId = ptr(false), []byte("tok"), ptr("txn")
	m.StartColumn, m.EndColumn, m.TimeRange = ptr("b"), ptr("d"), &otspb.TimeRange{SpecificTime: ptr(int64(7))}
	var answer otspb.GetRangeResponse
	call(t, s, "GetRange", m, &answer)
	wantRequest(t, fake, &ots.GetRangeRequest{
		Table: "t", Backward: true, Limit: ptr(int32(10)), ReturnEntirePrimaryKeys: ptr(false),
		Start: ots.Row{Key: key(row.Max(), row.Max())}, End: ots.Row{Key: key(row.Min(), row.Min())},
		Selection: ots.Selection{ColumnsToGet: []string{"c"}, MaxVersions: ptr(int32(1)), TimeRange: &ots.TimeRange{Specific: ptr(int64(7))},
			StartColumn: ptr("b"), EndColumn: ptr("d"), Filter: testFilter, Token: []byte("tok"), TransactionID: ptr("txn")},
	})
	got, _, err := plainbuffer.DecodeRows(answer.Rows)
	if err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("rows %+v, %v", got, err)
	}
	next, err := plainbuffer.DecodeRow(answer.NextStartPrimaryKey)
	if err != nil || !reflect.DeepEqual(next, ots.Row{Key: key(row.String("a"), row.Integer(3))}) {
		t.Errorf("next %+v, %v", next, err)
	}
	if answer.GetDataBlockType() != otspb.DataBlockType_DBT_PLAIN_BUFFER {
		t.Errorf("block type %v", answer.DataBlockType)
	}
	m.DataBlockTypeHint = otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX.Enum()
	for _, whole := range []bool{true, false} { // the flag follows the keys of the rows, not the request
		if !whole {
			rows = []ots.Row{{Key: rows[0].Key[:1], Cells: rows[0].Cells}}
			fake.answer(&ots.GetRangeResponse{Rows: rows})
		}
		call(t, s, "GetRange", m, &answer)
		matrix, _ := plainbuffer.AppendMatrix(nil, rows, whole, math.MaxInt)
		if answer.GetDataBlockType() != otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX || string(answer.Rows) != string(matrix) {
			t.Errorf("matrix of whole keys %v: %v", whole, &answer)
		}
	}
}

func TestWritesCarryEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	change := ots.Row{Key: testKeyRow.Key, Cells: []ots.Cell{
		{Name: "put", Value: row.Binary([]byte{1})}, {Name: "at", Value: row.Integer(1), Version: 5, HasVersion: true},
		{Name: "one", Op: ots.OpDeleteOneVersion, Version: 6, HasVersion: true}, {Name: "all", Op: ots.OpDeleteAllVersion},
		{Name: "inc", Value: row.Integer(-5), Op: ots.OpIncrement},
	}}
	deletion := ots.Row{Key: testKeyRow.Key, DeleteMarker: true}
	condition := &otspb.Condition{RowExistence: otspb.RowExistenceExpectation_EXPECT_EXIST.Enum(), ColumnCondition: testFilterBytes}
	content := &otspb.ReturnContent{ReturnType: otspb.ReturnType_RT_AFTER_MODIFY.Enum(), ReturnColumnNames: []string{"inc"}}
	returned := ots.Row{Key: testKeyRow.Key, Cells: []ots.Cell{{Name: "inc", Value: row.Integer(9), Version: 8, HasVersion: true}}}
	fake.answer(&ots.WriteResult{Consumed: ots.CapacityUnit{Read: 1, Write: 2}, Row: &returned})

	tests := []struct {
		op      string
		message proto.Message
		kind    ots.ChangeType
		row     ots.Row
	}{
		{"PutRow", &otspb.PutRowRequest{TableName: ptr("t"), Row: blob(change), Condition: condition, ReturnContent: content, TransactionId: ptr("x")}, ots.ChangePut, change},
		{"UpdateRow", &otspb.UpdateRowRequest{TableName: ptr("t"), RowChange: blob(change), Condition: condition, ReturnContent: content, TransactionId: ptr("x")}, ots.ChangeUpdate, change},
		{"DeleteRow", &otspb.DeleteRowRequest{TableName: ptr("t"), PrimaryKey: blob(deletion), Condition: condition, ReturnContent: content, TransactionId: ptr("x")}, ots.ChangeDelete, deletion},
	}
	for _, tt := range tests {
		var answer otspb.PutRowResponse // all three answers have the same form
		call(t, s, tt.op, tt.message, &answer)
		wantRequest(t, fake, &ots.WriteRowRequest{Table: "t", TransactionID: ptr("x"), Change: ots.RowChange{
			Type: tt.kind, Row: tt.row, Existence: ots.ExistenceExpect, ColumnCondition: testFilter,
			Return: ots.ReturnAfterModify, ReturnColumns: []string{"inc"},
		}})
		wantAnswer(t, &answer, &otspb.PutRowResponse{
			Consumed: &otspb.ConsumedCapacity{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(1)), Write: ptr(int32(2))}},
			Row:      blob(returned),
		})
	}
	fake.answer(&ots.WriteResult{})
	var answer otspb.PutRowResponse
	call(t, s, "PutRow", &otspb.PutRowRequest{TableName: ptr("t"), Row: blob(testKeyRow), Condition: ignore()}, &answer)
	if answer.Row != nil || answer.Consumed.CapacityUnit.Read == nil || answer.Consumed.CapacityUnit.Write == nil {
		t.Errorf("answer %v: want no row, and capacity in both fields", &answer)
	}
}

func TestBatchesMirrorTheRequest(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fails := &ots.Error{Code: ots.CodeConditionCheckFail, Message: "Condition check failed."}
	deletion := ots.Row{Key: testKeyRow.Key, DeleteMarker: true}
	in := func(kind otspb.OperationType, r ots.Row) *otspb.RowInBatchWriteRowRequest {
		return &otspb.RowInBatchWriteRowRequest{Type: kind.Enum(), RowChange: blob(r), Condition: ignore()}
	}
	fake.answer(&ots.BatchWriteRowResponse{Tables: []ots.TableWriteResults{
		{Table: "t", Rows: []ots.RowWriteResult{{Err: fails}, {WriteResult: ots.WriteResult{Consumed: ots.CapacityUnit{Write: 1}, Row: &testKeyRow}}}},
		{Table: "u", Rows: []ots.RowWriteResult{{}}},
	}})
	var written otspb.BatchWriteRowResponse
	call(t, s, "BatchWriteRow", &otspb.BatchWriteRowRequest{
		Tables: []*otspb.TableInBatchWriteRowRequest{
			{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowRequest{in(otspb.OperationType_PUT, testKeyRow), in(otspb.OperationType_UPDATE, testKeyRow)}},
			{TableName: ptr("u"), Rows: []*otspb.RowInBatchWriteRowRequest{in(otspb.OperationType_DELETE, deletion)}},
		}, TransactionId: ptr("x"), IsAtomic: ptr(true),
	}, &written)
	wantRequest(t, fake, &ots.BatchWriteRowRequest{TransactionID: ptr("x"), Atomic: true, Tables: []ots.TableChanges{
		{Table: "t", Changes: []ots.RowChange{{Type: ots.ChangePut, Row: testKeyRow}, {Type: ots.ChangeUpdate, Row: testKeyRow}}},
		{Table: "u", Changes: []ots.RowChange{{Type: ots.ChangeDelete, Row: deletion}}},
	}})
	wantAnswer(t, &written, &otspb.BatchWriteRowResponse{Tables: []*otspb.TableInBatchWriteRowResponse{
		{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowResponse{
			{IsOk: ptr(false), Error: &otspb.Error{Code: &fails.Code, Message: &fails.Message}},
			{IsOk: ptr(true), Consumed: consumed(ots.CapacityUnit{Write: 1}), Row: blob(testKeyRow)},
		}},
		{TableName: ptr("u"), Rows: []*otspb.RowInBatchWriteRowResponse{{IsOk: ptr(true), Consumed: consumed(ots.CapacityUnit{})}}},
	}})

	fake.answer(&ots.BatchGetRowResponse{Tables: []ots.TableReadResults{{Table: "t", Rows: []ots.RowReadResult{
		{Err: fails}, {ReadResult: ots.ReadResult{Row: &testKeyRow, Consumed: ots.CapacityUnit{Read: 1}}}}}}})
	var read otspb.BatchGetRowResponse
	call(t, s, "BatchGetRow", &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{{
		TableName: ptr("t"), PrimaryKey: [][]byte{blob(testKeyRow), blob(testKeyRow)}, Token: [][]byte{{}, []byte("tok")},
		ColumnsToGet: []string{"c"}, MaxVersions: ptr(int32(2)), Filter: testFilterBytes, StartColumn: ptr("a"), EndColumn: ptr("z"),
		TimeRange: &otspb.TimeRange{StartTime: ptr(int64(0)), EndTime: ptr(int64(9))},
	}}}, &read)
	wantRequest(t, fake, &ots.BatchGetRowRequest{Tables: []ots.TableGets{{Table: "t", Rows: []ots.Row{testKeyRow, testKeyRow}, Selection: ots.Selection{
		ColumnsToGet: []string{"c"}, MaxVersions: ptr(int32(2)), Filter: testFilter, StartColumn: ptr("a"), EndColumn: ptr("z"),
		TimeRange: &ots.TimeRange{Start: ptr(int64(0)), End: ptr(int64(9))}, Token: []byte("tok")}}}})
	wantAnswer(t, &read, &otspb.BatchGetRowResponse{Tables: []*otspb.TableInBatchGetRowResponse{{TableName: ptr("t"), Rows: []*otspb.RowInBatchGetRowResponse{
		{IsOk: ptr(false), Error: &otspb.Error{Code: &fails.Code, Message: &fails.Message}},
		{IsOk: ptr(true), Consumed: consumed(ots.CapacityUnit{Read: 1}), Row: blob(testKeyRow)},
	}}}})
}

func TestIncompleteBatchAnswersAreFaultsOfTheServer(t *testing.T) {
	s, fake := newTestServer(t, nil)
	write := &otspb.BatchWriteRowRequest{Tables: []*otspb.TableInBatchWriteRowRequest{{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowRequest{
		{Type: otspb.OperationType_PUT.Enum(), RowChange: blob(testKeyRow), Condition: ignore()}}}}}
	read := &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{{TableName: ptr("t"), PrimaryKey: [][]byte{blob(testKeyRow)}}}}
	for _, response := range []any{
		&ots.BatchWriteRowResponse{}, &ots.BatchWriteRowResponse{Tables: []ots.TableWriteResults{{Table: "t"}}},
		&ots.BatchGetRowResponse{}, &ots.BatchGetRowResponse{Tables: []ots.TableReadResults{{Table: "t"}}},
	} {
		fake.answer(response)
		op, message := "BatchWriteRow", proto.Message(write)
		if _, ok := response.(*ots.BatchGetRowResponse); ok {
			op, message = "BatchGetRow", read
		}
		if status, code, _ := callRefused(t, s, op, message); status != 500 || code != ots.CodeInternalServerError {
			t.Errorf("%T: %d %s", response, status, code)
		}
	}
}

func TestCreateTableCarriesEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	m := &otspb.CreateTableRequest{
		TableMeta: &otspb.TableMeta{TableName: ptr("t"), PrimaryKey: []*otspb.PrimaryKeySchema{
			{Name: ptr("a"), Type: otspb.PrimaryKeyType_STRING.Enum()}, {Name: ptr("b"), Type: otspb.PrimaryKeyType_BINARY.Enum()},
			{Name: ptr("c"), Type: otspb.PrimaryKeyType_INTEGER.Enum(), Option: otspb.PrimaryKeyOption_AUTO_INCREMENT.Enum()},
			{Name: ptr("d"), Type: otspb.PrimaryKeyType(5).Enum()},
		}, DefinedColumn: []*otspb.DefinedColumnSchema{
			{Name: ptr("i"), Type: otspb.DefinedColumnType_DCT_INTEGER.Enum()}, {Name: ptr("d"), Type: otspb.DefinedColumnType_DCT_DOUBLE.Enum()},
			{Name: ptr("o"), Type: otspb.DefinedColumnType_DCT_BOOLEAN.Enum()}, {Name: ptr("s"), Type: otspb.DefinedColumnType_DCT_STRING.Enum()},
			{Name: ptr("b"), Type: otspb.DefinedColumnType_DCT_BLOB.Enum()},
		}},
		ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(1))}},
		TableOptions: &otspb.TableOptions{TimeToLive: ptr(int32(-1)), MaxVersions: ptr(int32(3)), DeviationCellVersionInSec: ptr(int64(9)),
			AllowUpdate: ptr(false), UpdateFullRow: ptr(true), BloomFilterType: otspb.BloomFilterType_ROW.Enum(), BlockSize: ptr(int32(4096))},
		StreamSpec:     &otspb.StreamSpecification{EnableStream: ptr(true), ExpirationTime: ptr(int32(24)), ColumnsToGet: []string{"x"}},
		SseSpec:        &otspb.SSESpecification{Enable: ptr(true)},
		IndexMetas:     []*otspb.IndexMeta{{Name: ptr("i"), IndexUpdateMode: otspb.IndexUpdateMode_IUM_ASYNC_INDEX.Enum(), IndexType: otspb.IndexType_IT_GLOBAL_INDEX.Enum()}},
		EnableLocalTxn: ptr(true),
		Partitions: []*otspb.PartitionRange{
			{Begin: []byte{9}, End: []byte("\x03\x02\x00\x00\x00ab")}, {Begin: []byte("\x07\x01\x00\x00\x00a"), End: []byte("\x00\x05\x00\x00\x00\x00\x00\x00\x00")},
			{Begin: []byte{9}, End: []byte{10}},
		},
	}
	call(t, s, "CreateTable", m, &otspb.CreateTableResponse{})
	wantRequest(t, fake, &ots.CreateTableRequest{
		Table: "t",
		PrimaryKey: []ots.KeyColumn{{Name: "a", Type: row.TypeString}, {Name: "b", Type: row.TypeBinary},
			{Name: "c", Type: row.TypeInteger, AutoIncrement: true}, {Name: "d"}},
		DefinedColumns: []ots.DefinedColumn{{Name: "i", Type: row.TypeInteger}, {Name: "d", Type: row.TypeDouble},
			{Name: "o", Type: row.TypeBoolean}, {Name: "s", Type: row.TypeString}, {Name: "b", Type: row.TypeBinary}},
		Options: &ots.TableOptions{TimeToLive: ptr(int32(-1)), MaxVersions: ptr(int32(3)), MaxVersionOffset: ptr(int64(9)), AllowUpdate: ptr(false),
			UpdateFullRow: ptr(true), BloomFilterType: ptr(int32(3)), BlockSize: ptr(int32(4096))},
		ReservedThroughput: ots.ReservedThroughput{Read: ptr(int32(1))},
		Stream:             &ots.StreamSpecification{Enable: true, ExpirationHours: ptr(int32(24)), ColumnsToGet: []string{"x"}},
		EnableLocalTxn:     ptr(true), HasIndexes: true, HasSSE: true,
		Partitions: []ots.PartitionRange{
			{Begin: row.Min(), End: row.String("ab")}, {Begin: row.Binary([]byte("a")), End: row.Integer(5)}, {Begin: row.Min(), End: row.Max()},
		},
	})
}

func testDescription() *ots.TableDescription {
	return &ots.TableDescription{
		Table: "t", PrimaryKey: []ots.KeyColumn{{Name: "a", Type: row.TypeString}, {Name: "b", Type: row.TypeInteger, AutoIncrement: true}},
		DefinedColumns: []ots.DefinedColumn{{Name: "d", Type: row.TypeBinary}},
		TimeToLive:     -1, MaxVersions: 2, MaxVersionOffset: 86400, AllowUpdate: true,
		BloomFilterType: ptr(int32(2)), LastIncreaseTime: 5, CreationTimeMicros: 6_000_000,
		Splits: [][]ots.KeyValue{{{Name: "a", Value: row.String("m")}}},
	}
}

func TestTableAnswersHaveEveryFieldThatClientsReadUnasked(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(testDescription())
	options := &otspb.TableOptions{TimeToLive: ptr(int32(-1)), MaxVersions: ptr(int32(2)), DeviationCellVersionInSec: ptr(int64(86400)),
		AllowUpdate: ptr(true), UpdateFullRow: ptr(false), BloomFilterType: otspb.BloomFilterType_CELL.Enum()}
	throughput := &otspb.ReservedThroughputDetails{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(0)), Write: ptr(int32(0))}, LastIncreaseTime: ptr(int64(5))}
	off := &otspb.StreamDetails{EnableStream: ptr(false)}

	var described otspb.DescribeTableResponse
	call(t, s, "DescribeTable", &otspb.DescribeTableRequest{TableName: ptr("t")}, &described)
	wantAnswer(t, &described, &otspb.DescribeTableResponse{
		TableMeta: &otspb.TableMeta{TableName: ptr("t"), PrimaryKey: []*otspb.PrimaryKeySchema{
			{Name: ptr("a"), Type: otspb.PrimaryKeyType_STRING.Enum()},
			{Name: ptr("b"), Type: otspb.PrimaryKeyType_INTEGER.Enum(), Option: otspb.PrimaryKeyOption_AUTO_INCREMENT.Enum()}},
			DefinedColumn: []*otspb.DefinedColumnSchema{{Name: ptr("d"), Type: otspb.DefinedColumnType_DCT_BLOB.Enum()}}},
		ReservedThroughputDetails: throughput, TableOptions: options, TableStatus: otspb.TableStatus_ACTIVE.Enum(),
		StreamDetails: off, CreationTime: ptr(int64(6_000_000)),
		ShardSplits: [][]byte{encodeKey([]ots.KeyValue{{Name: "a", Value: row.String("m")}})},
	})

	var updated otspb.UpdateTableResponse
	call(t, s, "UpdateTable", &otspb.UpdateTableRequest{TableName: ptr("t"), TableOptions: &otspb.TableOptions{MaxVersions: ptr(int32(2))},
		ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{Write: ptr(int32(1))}},
		StreamSpec:         &otspb.StreamSpecification{EnableStream: ptr(false)}}, &updated)
	wantRequest(t, fake, &ots.UpdateTableRequest{Table: "t", Options: &ots.TableOptions{MaxVersions: ptr(int32(2))},
		ReservedThroughput: &ots.ReservedThroughput{Write: ptr(int32(1))}, Stream: &ots.StreamSpecification{}})
	wantAnswer(t, &updated, &otspb.UpdateTableResponse{ReservedThroughputDetails: throughput, TableOptions: options, StreamDetails: off})

	call(t, s, "DeleteTable", &otspb.DeleteTableRequest{TableName: ptr("t")}, &otspb.DeleteTableResponse{})
	wantRequest(t, fake, "t")
}

func TestSplitPointsAreKeyPrefixesAndRepeatIsZigZag(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.SplitPointsResponse{
		PrimaryKey: []ots.KeyColumn{{Name: "pk1", Type: row.TypeString}, {Name: "pk2", Type: row.TypeInteger}},
		Points:     [][]ots.KeyValue{key(row.String("m"))},
		Locations:  []ots.SplitLocation{{Location: strings.Repeat("0f", 16), Repeat: 2}}, Consumed: ots.CapacityUnit{Read: 2},
	})
	r := handle(s, newDraft("ComputeSplitPointsBySize", marshal(t, &otspb.ComputeSplitPointsBySizeRequest{
		TableName: ptr("t"), SplitSize: ptr(int64(1)), SplitSizeUnitInByte: ptr(int64(1 << 20)), SplitPointLimit: ptr(int32(3))})).sign(testSecret))
	wantRequest(t, fake, &ots.SplitPointsRequest{Table: "t", SplitSize: 1, UnitBytes: ptr(int64(1 << 20)), PointLimit: ptr(int32(3))})
	var answer otspb.ComputeSplitPointsBySizeResponse
	if err := proto.Unmarshal(r.body, &answer); err != nil {
		t.Fatal(err)
	}
	point, err := plainbuffer.DecodeRow(answer.SplitPoints[0])
	if err != nil || len(answer.SplitPoints) != 1 || !reflect.DeepEqual(point.Key, key(row.String("m"))) || len(answer.Schema) != 2 {
		t.Errorf("%v", &answer)
	}
	// Field 2 of a location: tag 10, then 2 as zigzag, which is 4.
	if want := append(protowire.AppendString([]byte{0x0a}, strings.Repeat("0f", 16)), 0x10, 0x04); !strings.Contains(string(r.body), string(want)) {
		t.Errorf("no %x in %x", want, r.body)
	}
}

// TestAMatrixThatIsLargerThanTwiceThePlainFormIsNotMade: a matrix has the size of rows times
// the union of their columns, and a request of 58 bytes may ask for it.
func TestAMatrixThatIsLargerThanTwiceThePlainFormIsNotMade(t *testing.T) {
	s, fake := newTestServer(t, nil)
	rows := func(own bool) []ots.Row {
		var rows []ots.Row
		for i := range 300 {
			r := ots.Row{Key: key(row.Integer(int64(i)))}
			for c := range 50 {
				name := fmt.Sprintf("c%02d", c)
				if own {
					name = fmt.Sprintf("c%03d_%02d", i, c)
				}
				r.Cells = append(r.Cells, ots.Cell{Name: name, Value: row.Integer(1), Version: 1, HasVersion: true})
			}
			rows = append(rows, r)
		}
		return rows
	}
	m := getRangeMessage()
	m.DataBlockTypeHint = otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX.Enum()
	for _, own := range []bool{true, false} {
		res := &ots.GetRangeResponse{Rows: rows(own)}
		fake.answer(res)
		var answer otspb.GetRangeResponse
		call(t, s, "GetRange", m, &answer)
		want := otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX
		if own {
			want = otspb.DataBlockType_DBT_PLAIN_BUFFER
			if string(answer.Rows) != string(encodeRows(res.Rows)) {
				t.Error("the rows are not those of the plain form")
			}
		}
		if answer.GetDataBlockType() != want {
			t.Errorf("rows of own columns: %v: a block of type %v, %d bytes", own, answer.GetDataBlockType(), len(answer.Rows))
		}
	}
}
