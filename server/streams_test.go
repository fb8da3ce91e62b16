package server

import (
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

func TestStreamOperationsCarryEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer([]ots.StreamSummary{{StreamID: "t_1_2", Table: "t", CreatedMicros: 1}})
	var listed otspb.ListStreamResponse
	call(t, s, "ListStream", &otspb.ListStreamRequest{TableName: ptr("t")}, &listed)
	wantRequest(t, fake, "t")
	wantAnswer(t, &listed, &otspb.ListStreamResponse{Streams: []*otspb.ListStreamResponse_Stream{
		{StreamId: ptr("t_1_2"), TableName: ptr("t"), CreationTime: ptr(int64(1))}}})

	fake.answer(&ots.StreamDescription{
		StreamSummary:   ots.StreamSummary{StreamID: "t_1_2", Table: "t", CreatedMicros: 1},
		ExpirationHours: 24, NextShard: "c",
		Shards: []ots.StreamShard{{ID: "a"}, {ID: "b", Parent: "x", ParentSibling: "y"}},
	})
	var described otspb.DescribeStreamResponse
	call(t, s, "DescribeStream", &otspb.DescribeStreamRequest{StreamId: ptr("t_1_2"), InclusiveStartShardId: ptr("a"), ShardLimit: ptr(int32(2))}, &described)
	wantRequest(t, fake, &ots.DescribeStreamRequest{StreamID: "t_1_2", StartShard: ptr("a"), ShardLimit: ptr(int32(2))})
	wantAnswer(t, &described, &otspb.DescribeStreamResponse{
		StreamId: ptr("t_1_2"), ExpirationTime: ptr(int32(24)), TableName: ptr("t"), CreationTime: ptr(int64(1)),
		StreamStatus: otspb.StreamStatus_STREAM_ACTIVE.Enum(), NextShardId: ptr("c"),
		Shards: []*otspb.DescribeStreamResponse_Shard{{ShardId: ptr("a")}, {ShardId: ptr("b"), ParentId: ptr("x"), ParentSiblingId: ptr("y")}},
	})

	fake.answer("iterator")
	var begun otspb.GetShardIteratorResponse
	call(t, s, "GetShardIterator", &otspb.GetShardIteratorRequest{StreamId: ptr("t_1_2"), ShardId: ptr("a"), Timestamp: ptr(int64(7)), Token: ptr("x")}, &begun)
	wantRequest(t, fake, &ots.GetShardIteratorRequest{StreamID: "t_1_2", ShardID: "a", Timestamp: ptr(int64(7)), Token: "x"})
	wantAnswer(t, &begun, &otspb.GetShardIteratorResponse{ShardIterator: ptr("iterator")})
}

// TestStreamRecordsAreEncodedAsInTheProtocolsVectors checks vector PB-12.
func TestStreamRecordsAreEncodedAsInTheProtocolsVectors(t *testing.T) {
	s, fake := newTestServer(t, nil)
	k := []ots.KeyValue{{Name: "uid", Value: row.String("row1")}}
	fake.answer(&ots.GetStreamRecordResponse{
		Next: "next", More: true, Consumed: ots.CapacityUnit{Read: 3},
		Records: []ots.StreamRecord{
			{Type: ots.ChangePut, Epoch: 1, Timestamp: 1700000000000123, Row: ots.Row{Key: k,
				Cells: []ots.Cell{{Name: "c", Value: row.String("v"), Version: 1700000000000, HasVersion: true}}}},
			{Type: ots.ChangeDelete, Epoch: 1, Timestamp: 1700000000000123, Row: ots.Row{Key: k, DeleteMarker: true},
				Origin: &ots.Row{Key: k}},
		},
	})
	var page otspb.GetStreamRecordResponse
	call(t, s, "GetStreamRecord", &otspb.GetStreamRecordRequest{ShardIterator: ptr("i"), Limit: ptr(int32(5)), TableName: ptr("t"),
		NewRowReturnPolicy: otspb.NewRowReturnPolicy_NO_NEW_ROW.Enum()}, &page)
	wantRequest(t, fake, &ots.GetStreamRecordRequest{Iterator: "i", Limit: ptr(int32(5)), Table: ptr("t"), Sender: testKey})
	vector := func(h string) []byte {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	wantAnswer(t, &page, &otspb.GetStreamRecordResponse{
		NextShardIterator: ptr("next"), MayMoreRecord: ptr(true), Consumed: consumed(ots.CapacityUnit{Read: 3}),
		StreamRecords: []*otspb.GetStreamRecordResponse_StreamRecord{
			{ActionType: otspb.ActionType_PUT_ROW.Enum(), Record: vector("750000000103040300000075696405090000000304000000726f77310a4d02030401000000630506000000030100000076070068e5cf8b0100000a3b0b180000000c130000000d010000000e7b401e18240a06000f000000000979")},
			{ActionType: otspb.ActionType_DELETE_ROW.Enum(), Record: vector("750000000103040300000075696405090000000304000000726f77310a4d080b180000000c130000000d010000000e7b401e18240a06000f0000000009b5"),
				OriginRecord: vector("750000000103040300000075696405090000000304000000726f77310a4d09b2")},
		},
	})
}

// TestAClosedShardHasNoNextIterator: clients take the absent field for its end.
func TestAClosedShardHasNoNextIterator(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.GetStreamRecordResponse{Consumed: ots.CapacityUnit{Read: 1}})
	var page otspb.GetStreamRecordResponse
	call(t, s, "GetStreamRecord", &otspb.GetStreamRecordRequest{ShardIterator: ptr("i")}, &page)
	wantAnswer(t, &page, &otspb.GetStreamRecordResponse{MayMoreRecord: ptr(false), Consumed: consumed(ots.CapacityUnit{Read: 1})})
}

func TestWhatStreamRecordsCannotHaveIsRefused(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.GetStreamRecordResponse{Next: "next"})
	sys := func(v uint64) *otspb.GetStreamRecordRequest {
		m := &otspb.GetStreamRecordRequest{ShardIterator: ptr("i")}
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), v))
		return m
	}
	for what, m := range map[string]proto.Message{
		"new rows":       &otspb.GetStreamRecordRequest{ShardIterator: ptr("i"), NewRowReturnPolicy: otspb.NewRowReturnPolicy_WITH_NEW_ROW.Enum()},
		"new rows only":  &otspb.GetStreamRecordRequest{ShardIterator: ptr("i"), NewRowReturnPolicy: otspb.NewRowReturnPolicy_NEW_ROW_ONLY.Enum()},
		"system columns": sys(1),
	} {
		if r := handle(s, newDraft("GetStreamRecord", marshal(t, m)).sign(testSecret)); r.status != 400 {
			t.Errorf("%s: status %d", what, r.status)
		}
	}
	call(t, s, "GetStreamRecord", sys(0), &otspb.GetStreamRecordResponse{})
}
