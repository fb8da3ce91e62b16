package server

import (
	"context"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file holds the operations on streams (PROTOCOL 2.5, 8).

func listStream(ctx context.Context, on target, m *otspb.ListStreamRequest) (proto.Message, error) {
	if err := checkTexts(m.GetTableName()); err != nil {
		return nil, err
	}
	streams, err := on.service.ListStream(ctx, on.instance, m.GetTableName())
	if err != nil {
		return nil, err
	}
	answer := &otspb.ListStreamResponse{}
	for i := range streams {
		s := &streams[i]
		answer.Streams = append(answer.Streams, &otspb.ListStreamResponse_Stream{
			StreamId: &s.StreamID, TableName: &s.Table, CreationTime: &s.CreatedMicros,
		})
	}
	return answer, nil
}

func describeStream(ctx context.Context, on target, m *otspb.DescribeStreamRequest) (proto.Message, error) {
	if err := checkTexts(*m.StreamId, m.GetInclusiveStartShardId()); err != nil {
		return nil, err
	}
	d, err := on.service.DescribeStream(ctx, on.instance, &ots.DescribeStreamRequest{
		StreamID: *m.StreamId, StartShard: m.InclusiveStartShardId, ShardLimit: m.ShardLimit,
	})
	if err != nil {
		return nil, err
	}
	answer := &otspb.DescribeStreamResponse{
		StreamId: &d.StreamID, ExpirationTime: &d.ExpirationHours, TableName: &d.Table, CreationTime: &d.CreatedMicros,
		StreamStatus: otspb.StreamStatus_STREAM_ACTIVE.Enum(), NextShardId: given(d.NextShard),
	}
	for i := range d.Shards {
		s := &d.Shards[i]
		answer.Shards = append(answer.Shards, &otspb.DescribeStreamResponse_Shard{
			ShardId: &s.ID, ParentId: given(s.Parent), ParentSiblingId: given(s.ParentSibling),
		})
	}
	return answer, nil
}

// given returns nil for an empty string, so that the field is left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func getShardIterator(ctx context.Context, on target, m *otspb.GetShardIteratorRequest) (proto.Message, error) {
	if err := checkTexts(*m.StreamId, *m.ShardId, m.GetToken()); err != nil {
		return nil, err
	}
	iterator, err := on.service.GetShardIterator(ctx, on.instance, &ots.GetShardIteratorRequest{
		StreamID: *m.StreamId, ShardID: *m.ShardId, Timestamp: m.Timestamp, Token: m.GetToken(),
	})
	if err != nil {
		return nil, err
	}
	return &otspb.GetShardIteratorResponse{ShardIterator: &iterator}, nil
}

func getStreamRecord(ctx context.Context, on target, m *otspb.GetStreamRecordRequest) (proto.Message, error) {
	if err := checkTexts(*m.ShardIterator, m.GetTableName()); err != nil {
		return nil, err
	}
	if p := m.NewRowReturnPolicy; p != nil {
		if err := checkEnum(otspb.NewRowReturnPolicy_name, *p); err != nil {
			return nil, err
		}
		if *p != otspb.NewRowReturnPolicy_NO_NEW_ROW {
			return nil, refuse(ots.CodeParameterInvalid, "New rows in stream records are not supported by this server.")
		}
	}
	if asksForSysColumns(m.ProtoReflect().GetUnknown()) {
		return nil, refuse(ots.CodeParameterInvalid, "System columns in stream records are not supported by this server.")
	}
	page, err := on.service.GetStreamRecord(ctx, on.instance, &ots.GetStreamRecordRequest{
		Iterator: *m.ShardIterator, Limit: m.Limit, Table: m.TableName, Sender: on.sender,
	})
	if err != nil {
		return nil, err
	}
	answer := &otspb.GetStreamRecordResponse{
		NextShardIterator: given(page.Next), Consumed: consumed(page.Consumed), MayMoreRecord: &page.More,
	}
	for i := range page.Records {
		answer.StreamRecords = append(answer.StreamRecords, streamRecord(&page.Records[i]))
	}
	return answer, nil
}

// asksForSysColumns reports whether the unknown fields of a request set return_sys_columns.
func asksForSysColumns(unknown []byte) bool {
	const returnSysColumns = 5
	asks := false
	for len(unknown) > 0 {
		number, wire, n := protowire.ConsumeTag(unknown)
		if n < 0 {
			return false
		}
		unknown = unknown[n:]
		if n = protowire.ConsumeFieldValue(number, wire, unknown); n < 0 {
			return false
		}
		if number == returnSysColumns && wire == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(unknown)
			asks = v != 0 // the last one counts
		}
		unknown = unknown[n:]
	}
	return asks
}

func streamRecord(r *ots.StreamRecord) *otspb.GetStreamRecordResponse_StreamRecord {
	action := otspb.ActionType_UPDATE_ROW
	switch r.Type {
	case ots.ChangePut:
		action = otspb.ActionType_PUT_ROW
	case ots.ChangeDelete:
		action = otspb.ActionType_DELETE_ROW
	}
	place := &plainbuffer.Extension{Epoch: r.Epoch, Timestamp: r.Timestamp, RowIndex: r.RowIndex}
	m := &otspb.GetStreamRecordResponse_StreamRecord{
		ActionType: &action,
		Record:     plainbuffer.AppendRow(plainbuffer.AppendHeader(nil), &r.Row, place),
	}
	if r.Origin != nil {
		m.OriginRecord = plainbuffer.AppendRow(plainbuffer.AppendHeader(nil), r.Origin, nil)
	}
	return m
}

// streamDetails describes the stream of a table; without one, only EnableStream is set, to
// false.
func streamDetails(d *ots.StreamDetails) *otspb.StreamDetails {
	if d == nil {
		return &otspb.StreamDetails{EnableStream: new(bool)}
	}
	enabled := true
	return &otspb.StreamDetails{
		EnableStream: &enabled, StreamId: &d.StreamID, ExpirationTime: &d.ExpirationHours,
		LastEnableTime: &d.LastEnableMicros, ColumnsToGet: d.ColumnsToGet,
	}
}
