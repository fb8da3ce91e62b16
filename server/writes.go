package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file holds the operations that write rows (PROTOCOL 2.4 and 6).

func putRow(ctx context.Context, on target, m *otspb.PutRowRequest) (proto.Message, error) {
	res, err := writeRow(ctx, on, ots.ChangePut, *m.TableName, m.Row, m.Condition, m.ReturnContent, m.TransactionId)
	if err != nil {
		return nil, err
	}
	return &otspb.PutRowResponse{Consumed: consumed(res.Consumed), Row: encodeWritten(res.Row)}, nil
}

func updateRow(ctx context.Context, on target, m *otspb.UpdateRowRequest) (proto.Message, error) {
	res, err := writeRow(ctx, on, ots.ChangeUpdate, *m.TableName, m.RowChange, m.Condition, m.ReturnContent, m.TransactionId)
	if err != nil {
		return nil, err
	}
	return &otspb.UpdateRowResponse{Consumed: consumed(res.Consumed), Row: encodeWritten(res.Row)}, nil
}

func deleteRow(ctx context.Context, on target, m *otspb.DeleteRowRequest) (proto.Message, error) {
	res, err := writeRow(ctx, on, ots.ChangeDelete, *m.TableName, m.PrimaryKey, m.Condition, m.ReturnContent, m.TransactionId)
	if err != nil {
		return nil, err
	}
	return &otspb.DeleteRowResponse{Consumed: consumed(res.Consumed), Row: encodeWritten(res.Row)}, nil
}

// writeRow is the common part of the three single-row writes.
func writeRow(ctx context.Context, on target, kind ots.ChangeType, table string, blob []byte,
	condition *otspb.Condition, content *otspb.ReturnContent, transaction *string) (*ots.WriteResult, error) {
	if err := checkTexts(table, textOf(transaction)); err != nil {
		return nil, err
	}
	change, err := rowChange(new(plainbuffer.RequestRows), filters{}, kind, blob, condition, content)
	if err != nil {
		return nil, err
	}
	return on.service.WriteRow(ctx, on.instance, &ots.WriteRowRequest{Table: table, Change: change, TransactionID: transaction})
}

func batchWriteRow(ctx context.Context, on target, m *otspb.BatchWriteRowRequest) (proto.Message, error) {
	if err := checkTexts(textOf(m.TransactionId)); err != nil {
		return nil, err
	}
	count := len(m.Tables)
	for _, t := range m.Tables {
		count = max(count, len(t.Rows))
	}
	if count > ots.MaxBatchWriteRows {
		return nil, ots.TooManyRows(ots.MaxBatchWriteRows)
	}
	req := &ots.BatchWriteRowRequest{
		Tables:        make([]ots.TableChanges, len(m.Tables)),
		TransactionID: m.TransactionId,
		Atomic:        m.GetIsAtomic(),
	}
	known := filters{}
	var rows plainbuffer.RequestRows
	for i, t := range m.Tables {
		if err := checkTexts(*t.TableName); err != nil {
			return nil, err
		}
		changes := make([]ots.RowChange, len(t.Rows))
		for j, r := range t.Rows {
			if err := checkEnum(otspb.OperationType_name, *r.Type); err != nil {
				return nil, err
			}
			var err error
			// ots.ChangeType has the numbers of the protocol.
			if changes[j], err = rowChange(&rows, known, ots.ChangeType(*r.Type), r.RowChange, r.Condition, r.ReturnContent); err != nil {
				return nil, err
			}
		}
		req.Tables[i] = ots.TableChanges{Table: *t.TableName, Changes: changes}
	}
	res, err := on.service.BatchWriteRow(ctx, on.instance, req)
	if err != nil {
		return nil, err
	}
	if len(res.Tables) != len(req.Tables) {
		return nil, fmt.Errorf("server: %d tables in the answer to a batch of %d", len(res.Tables), len(req.Tables))
	}
	answer := &otspb.BatchWriteRowResponse{}
	for i := range res.Tables {
		if len(res.Tables[i].Rows) != len(req.Tables[i].Changes) {
			return nil, fmt.Errorf("server: %d rows in the answer to a batch of %d", len(res.Tables[i].Rows), len(req.Tables[i].Changes))
		}
		answer.Tables = append(answer.Tables, tableWritten(&res.Tables[i]))
	}
	return answer, nil
}

func tableWritten(t *ots.TableWriteResults) *otspb.TableInBatchWriteRowResponse {
	table := &otspb.TableInBatchWriteRowResponse{TableName: &t.Table}
	for i := range t.Rows {
		r := &otspb.RowInBatchWriteRowResponse{IsOk: new(bool)}
		if t.Rows[i].Err != nil {
			r.Error = errorMessage(t.Rows[i].Err)
		} else {
			*r.IsOk = true
			r.Consumed = consumed(t.Rows[i].Consumed)
			r.Row = encodeWritten(t.Rows[i].Row)
		}
		table.Rows = append(table.Rows, r)
	}
	return table
}

// rowChange converts one write. ots.RowExistence and ots.ReturnType have the numbers of the
// protocol.
func rowChange(rows *plainbuffer.RequestRows, known filters, kind ots.ChangeType, blob []byte, condition *otspb.Condition, content *otspb.ReturnContent) (ots.RowChange, error) {
	if err := checkEnum(otspb.RowExistenceExpectation_name, *condition.RowExistence); err != nil {
		return ots.RowChange{}, err
	}
	if err := checkEnum(otspb.ReturnType_name, content.GetReturnType()); err != nil {
		return ots.RowChange{}, err
	}
	if err := checkTexts(content.GetReturnColumnNames()...); err != nil {
		return ots.RowChange{}, err
	}
	r, err := rows.Row(blob)
	if err != nil {
		return ots.RowChange{}, err
	}
	filter, err := known.decode(condition.ColumnCondition)
	if err != nil {
		return ots.RowChange{}, err
	}
	return ots.RowChange{
		Type:            kind,
		Row:             r,
		Existence:       ots.RowExistence(*condition.RowExistence),
		ColumnCondition: filter,
		Return:          ots.ReturnType(content.GetReturnType()),
		ReturnColumns:   content.GetReturnColumnNames(),
	}, nil
}
