package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file holds the operations that read rows (PROTOCOL 2.4 and 5).

func getRow(ctx context.Context, on target, m *otspb.GetRowRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	key, err := plainbuffer.DecodeRow(m.PrimaryKey)
	if err != nil {
		return nil, err
	}
	req := &ots.GetRowRequest{Table: *m.TableName, Row: key, Selection: ots.Selection{
		ColumnsToGet: m.ColumnsToGet, MaxVersions: m.MaxVersions, TimeRange: timeRange(m.TimeRange),
		StartColumn: m.StartColumn, EndColumn: m.EndColumn,
		Token: m.Token, TransactionID: m.TransactionId,
	}}
	if err := completeSelection(&req.Selection, m.Filter, filters{}); err != nil {
		return nil, err
	}
	res, err := on.service.GetRow(ctx, on.instance, req)
	if err != nil {
		return nil, err
	}
	return &otspb.GetRowResponse{Consumed: consumed(res.Consumed), Row: encodeRow(res.Row)}, nil
}

func batchGetRow(ctx context.Context, on target, m *otspb.BatchGetRowRequest) (proto.Message, error) {
	count := len(m.Tables)
	for _, t := range m.Tables {
		count = max(count, len(t.PrimaryKey))
	}
	if count > ots.MaxBatchGetRows {
		return nil, ots.TooManyRows(ots.MaxBatchGetRows)
	}
	req := &ots.BatchGetRowRequest{Tables: make([]ots.TableGets, len(m.Tables))}
	known := filters{}
	var rows plainbuffer.RequestRows
	for i, t := range m.Tables {
		if err := checkTexts(*t.TableName); err != nil {
			return nil, err
		}
		gets := ots.TableGets{Table: *t.TableName, Selection: ots.Selection{
			ColumnsToGet: t.ColumnsToGet, MaxVersions: t.MaxVersions, TimeRange: timeRange(t.TimeRange),
			StartColumn: t.StartColumn, EndColumn: t.EndColumn,
		}}
		for _, token := range t.Token { // one per row; clients fill the list with empty tokens
			if len(token) > 0 {
				gets.Token = token
			}
		}
		if err := completeSelection(&gets.Selection, t.Filter, known); err != nil {
			return nil, err
		}
		for _, blob := range t.PrimaryKey {
			key, err := rows.Row(blob)
			if err != nil {
				return nil, err
			}
			gets.Rows = append(gets.Rows, key)
		}
		req.Tables[i] = gets
	}
	res, err := on.service.BatchGetRow(ctx, on.instance, req)
	if err != nil {
		return nil, err
	}
	if len(res.Tables) != len(req.Tables) {
		return nil, fmt.Errorf("server: %d tables in the answer to a batch of %d", len(res.Tables), len(req.Tables))
	}
	answer := &otspb.BatchGetRowResponse{}
	for i := range res.Tables {
		if len(res.Tables[i].Rows) != len(req.Tables[i].Rows) {
			return nil, fmt.Errorf("server: %d rows in the answer to a batch of %d", len(res.Tables[i].Rows), len(req.Tables[i].Rows))
		}
		answer.Tables = append(answer.Tables, tableRead(&res.Tables[i]))
	}
	return answer, nil
}

func tableRead(t *ots.TableReadResults) *otspb.TableInBatchGetRowResponse {
	table := &otspb.TableInBatchGetRowResponse{TableName: &t.Table}
	for i := range t.Rows {
		r := &otspb.RowInBatchGetRowResponse{IsOk: new(bool)}
		if t.Rows[i].Err != nil {
			r.Error = errorMessage(t.Rows[i].Err)
		} else {
			*r.IsOk = true
			r.Consumed = consumed(t.Rows[i].Consumed)
			r.Row = encodeRow(t.Rows[i].Row)
		}
		table.Rows = append(table.Rows, r)
	}
	return table
}

func getRange(ctx context.Context, on target, m *otspb.GetRangeRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	if err := checkEnum(otspb.Direction_name, *m.Direction); err != nil {
		return nil, err
	}
	if err := checkEnum(otspb.DataBlockType_name, m.GetDataBlockTypeHint()); err != nil {
		return nil, err
	}
	req := &ots.GetRangeRequest{
		Table:                   *m.TableName,
		Backward:                *m.Direction == otspb.Direction_BACKWARD,
		Limit:                   m.Limit,
		ReturnEntirePrimaryKeys: m.ReturnEntirePrimaryKeys,
		Selection: ots.Selection{
			ColumnsToGet: m.ColumnsToGet, MaxVersions: m.MaxVersions, TimeRange: timeRange(m.TimeRange),
			StartColumn: m.StartColumn, EndColumn: m.EndColumn,
			Token: m.Token, TransactionID: m.TransactionId,
		},
	}
	if err := completeSelection(&req.Selection, m.Filter, filters{}); err != nil {
		return nil, err
	}
	var err error
	if req.Start, err = plainbuffer.DecodeRow(m.InclusiveStartPrimaryKey); err != nil {
		return nil, err
	}
	if req.End, err = plainbuffer.DecodeRow(m.ExclusiveEndPrimaryKey); err != nil {
		return nil, err
	}
	res, err := on.service.GetRange(ctx, on.instance, req)
	if err != nil {
		return nil, err
	}
	answer := &otspb.GetRangeResponse{Consumed: consumed(res.Consumed), DataBlockType: otspb.DataBlockType_DBT_PLAIN_BUFFER.Enum()}
	if m.GetDataBlockTypeHint() == otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX && len(res.Rows) > 0 {
		// If each row has its own columns, most cells of a matrix are empty and only take
		// space.
		const worth = 2
		var ok bool
		if answer.Rows, ok = plainbuffer.AppendMatrix(nil, res.Rows, len(res.Rows[0].Key) == len(req.Start.Key), worth*rowsSize(res.Rows)); ok {
			answer.DataBlockType = m.DataBlockTypeHint
		}
	}
	if answer.Rows == nil {
		answer.Rows = encodeRows(res.Rows)
	}
	if res.Next != nil { // at the end the field must be absent, not empty
		answer.NextStartPrimaryKey = encodeKey(res.Next)
	}
	return answer, nil
}

// encodeRows returns the rows of a range as one blob. Without rows it is an empty slice, not
// nil.
func encodeRows(rows []ots.Row) []byte {
	if len(rows) == 0 {
		return []byte{}
	}
	blob := plainbuffer.AppendHeader(make([]byte, 0, rowsSize(rows)))
	for i := range rows {
		blob = plainbuffer.AppendResultRow(blob, &rows[i])
	}
	return blob
}

// rowsSize is an upper bound of the size of such a blob.
func rowsSize(rows []ots.Row) int {
	size := 4 // of the header
	for i := range rows {
		size += plainbuffer.RowSize(&rows[i])
	}
	return size
}

func timeRange(m *otspb.TimeRange) *ots.TimeRange {
	if m == nil {
		return nil
	}
	return &ots.TimeRange{Start: m.StartTime, End: m.EndTime, Specific: m.SpecificTime}
}

// completeSelection checks the texts of a selection and decodes its filter.
func completeSelection(s *ots.Selection, filter []byte, known filters) (err error) {
	if err := checkTexts(s.ColumnsToGet...); err != nil {
		return err
	}
	if err := checkTexts(textOf(s.StartColumn), textOf(s.EndColumn), textOf(s.TransactionID)); err != nil {
		return err
	}
	s.Filter, err = known.decode(filter)
	return err
}
