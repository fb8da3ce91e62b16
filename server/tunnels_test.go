package server

import (
	"encoding/base64"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
	"github.com/flagstone-db/flagstone/server/tunnelpb"
)

func TestTunnelOperationsCarryEveryField(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer("id")
	var created tunnelpb.CreateTunnelResponse
	call(t, s, "tunnel/create", &tunnelpb.CreateTunnelRequest{Tunnel: &tunnelpb.Tunnel{
		TableName: ptr("t"), TunnelName: ptr("n"), TunnelType: tunnelpb.TunnelType_STREAM.Enum(),
		StreamTunnelConfig: &tunnelpb.StreamTunnelConfig{Flag: tunnelpb.StartOffset_EARLIEST.Enum(), StartOffset: ptr(uint64(9))},
	}}, &created)
	wantRequest(t, fake, &ots.CreateTunnelRequest{Table: "t", Name: "n", Type: tunnel.Stream, Earliest: true, StartMillis: 9})
	wantAnswer(t, &created, &tunnelpb.CreateTunnelResponse{TunnelId: ptr("id")})

	spec := tunnel.Spec{Name: "n", Table: "t", Type: tunnel.Stream, CreatedMicros: 5, StreamID: "s", Earliest: true, StartMillis: 9, Expired: "why"}
	info := &tunnelpb.TunnelInfo{
		TunnelId: ptr("id"), TunnelName: ptr("n"), TableName: ptr("t"), TunnelType: ptr("Stream"), InstanceName: ptr(testInstance),
		StreamId: ptr("s"), Stage: ptr("ProcessStream"), Expired: ptr(true), CreateTime: ptr(int64(5000)),
		StreamTunnelConfig: &tunnelpb.StreamTunnelConfig{Flag: tunnelpb.StartOffset_EARLIEST.Enum(), StartOffset: ptr(uint64(9))},
	}
	fake.answer([]ots.TunnelInfo{{ID: "id", Spec: spec, BaseDone: true}})
	var listed tunnelpb.ListTunnelResponse
	call(t, s, "tunnel/list", &tunnelpb.ListTunnelRequest{TableName: ptr("t")}, &listed)
	wantRequest(t, fake, "t")
	wantAnswer(t, &listed, &tunnelpb.ListTunnelResponse{Tunnels: []*tunnelpb.TunnelInfo{info}})

	fake.answer(&ots.TunnelDescription{TunnelInfo: ots.TunnelInfo{ID: "id", Spec: spec}, Channels: []tunnel.ChannelDescription{
		{ID: "BaseData_1", Status: "OPEN", Client: "c"}, {ID: "Stream_1", Status: "WAIT"}}})
	info.Stage = ptr("ProcessBaseData")
	var described tunnelpb.DescribeTunnelResponse
	call(t, s, "tunnel/describe", &tunnelpb.DescribeTunnelRequest{TableName: ptr("t"), TunnelName: ptr("n"), TunnelId: ptr("i")}, &described)
	wantRequest(t, fake, ots.TunnelRef{Table: "t", Name: "n", ID: "i"})
	wantAnswer(t, &described, &tunnelpb.DescribeTunnelResponse{Tunnel: info, Channels: []*tunnelpb.ChannelInfo{
		{ChannelId: ptr("BaseData_1"), ChannelType: ptr("BaseData"), ChannelStatus: ptr("OPEN"), ClientId: ptr("c")},
		{ChannelId: ptr("Stream_1"), ChannelType: ptr("Stream"), ChannelStatus: ptr("WAIT"), ClientId: ptr("")},
	}})

	fake.answer("client")
	var connected tunnelpb.ConnectResponse
	call(t, s, "tunnel/connect", &tunnelpb.ConnectRequest{TunnelId: ptr("id"), ClientConfig: &tunnelpb.ClientConfig{Timeout: ptr(int64(3))}}, &connected)
	wantRequest(t, fake, tunnelCall{"id", int64(3), nil})
	wantAnswer(t, &connected, &tunnelpb.ConnectResponse{ClientId: ptr("client")})

	fake.answer([]tunnel.Report{{Channel: "b", Version: 2, Status: tunnel.Closing}})
	var beaten tunnelpb.HeartbeatResponse
	call(t, s, "tunnel/heartbeat", &tunnelpb.HeartbeatRequest{TunnelId: ptr("id"), ClientId: ptr("c"), Channels: []*tunnelpb.Channel{
		{ChannelId: ptr("a"), Version: ptr(int64(4)), Status: tunnelpb.ChannelStatus_TERMINATED.Enum()}}}, &beaten)
	wantRequest(t, fake, tunnelCall{"id", "c", []tunnel.Report{{Channel: "a", Version: 4, Status: tunnel.Terminated}}})
	wantAnswer(t, &beaten, &tunnelpb.HeartbeatResponse{Channels: []*tunnelpb.Channel{
		{ChannelId: ptr("b"), Version: ptr(int64(2)), Status: tunnelpb.ChannelStatus_CLOSING.Enum()}}})
}

func TestTunnelRecordsAndTokensAreEncoded(t *testing.T) {
	s, fake := newTestServer(t, nil)
	k := []ots.KeyValue{{Name: "uid", Value: row.String("row1")}}
	cells := []ots.Cell{{Name: "c", Value: row.String("v"), Version: 1700000000000, HasVersion: true}}
	for _, base := range []bool{false, true} {
		channel := map[bool]string{false: "Stream_1", true: "BaseData_1"}[base]
		fake.answer(tunnel.Token{Position: []byte{1, 2, 255}})
		var checkpoint tunnelpb.GetCheckpointResponse
		call(t, s, "tunnel/getcheckpoint", &tunnelpb.GetCheckpointRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: &channel}, &checkpoint)
		at := ots.TunnelChannel{Tunnel: "i", Client: "c", Channel: channel}
		wantRequest(t, fake, at)
		if checkpoint.GetSequenceNumber() != 7 {
			t.Errorf("sequence number %d", checkpoint.GetSequenceNumber())
		}
		fake.answer(&ots.TunnelPage{Base: base, More: true, Next: tunnel.Token{Finished: true}, Records: []ots.StreamRecord{
			{Type: ots.ChangePut, Epoch: 1, RowIndex: 2, Timestamp: 3, Row: ots.Row{Key: k, Cells: cells}}}})
		var page tunnelpb.ReadRecordsResponse
		call(t, s, "tunnel/readrecords", &tunnelpb.ReadRecordsRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: &channel, Token: checkpoint.Checkpoint}, &page)
		wantRequest(t, fake, tunnelCall{at, tunnel.Token{Position: []byte{1, 2, 255}}, nil})
		if page.GetNextToken() != "finished" || !page.GetMayMoreRecord() || len(page.Records) != 1 || page.Records[0].GetActionType() != tunnelpb.ActionType_PUT_ROW {
			t.Fatalf("%v", &page)
		}
		rows, places, err := plainbuffer.DecodeRows(page.Records[0].Record)
		if err != nil || len(rows) != 1 || len(rows[0].Cells) != 1 || (places[0] == nil) != base || !base && *places[0] != (plainbuffer.Extension{Epoch: 1, RowIndex: 2, Timestamp: 3}) {
			t.Errorf("base %v: %+v, %+v, %v", base, rows, places, err)
		}
		fake.answer(nil)
		call(t, s, "tunnel/checkpoint", &tunnelpb.CheckpointRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: &channel,
			Checkpoint: page.NextToken, SequenceNumber: ptr(int64(8))}, &tunnelpb.CheckpointResponse{})
		wantRequest(t, fake, tunnelCall{at, tunnel.Token{Finished: true}, int64(8)})
	}
}

func TestBadMessagesOfTunnelsAreRefused(t *testing.T) {
	s, fake := newTestServer(t, nil)
	token := func(version int64, content []byte) string {
		return base64.StdEncoding.EncodeToString(marshal(t, &tunnelpb.Token{Version: &version, Content: content}))
	}
	stream := marshal(t, &tunnelpb.TokenContent{Iterator: ptr("not base64!")})
	read := func(token string) proto.Message {
		return &tunnelpb.ReadRecordsRequest{TunnelId: ptr("i"), ClientId: ptr("c"), ChannelId: ptr("Stream_1"), Token: &token}
	}
	for i, c := range []struct {
		op      string
		message proto.Message
		text    string
	}{
		{"tunnel/readrecords", read(""), "The token is malformed."},
		{"tunnel/readrecords", read("!"), "The token is malformed."},
		{"tunnel/readrecords", read("AAAA"), "The token is malformed."},
		{"tunnel/readrecords", read(token(1, stream)), "The token is malformed."},
		{"tunnel/readrecords", read(token(2, stream)), "The token is malformed."},
		{"tunnel/readrecords", read(token(2, []byte{0xff})), "The token is malformed."},
		{"tunnel/heartbeat", &tunnelpb.HeartbeatRequest{TunnelId: ptr("i"), ClientId: ptr("c"), Channels: []*tunnelpb.Channel{
			{ChannelId: ptr("a"), Version: ptr(int64(4)), Status: tunnelpb.ChannelStatus(9).Enum()}}}, "Parse PBMessage from RawString failed."},
		{"tunnel/connect", &tunnelpb.ConnectRequest{TunnelId: ptr("\xff")}, "Parse PBMessage from RawString failed."},
		{"tunnel/create", &tunnelpb.CreateTunnelRequest{Tunnel: &tunnelpb.Tunnel{TableName: ptr("t"), TunnelName: ptr("n"), TunnelType: tunnelpb.TunnelType(0).Enum()}}, "Parse PBMessage from RawString failed."},
	} {
		if status, code, text := callRefused(t, s, c.op, c.message); status != 400 || code != ots.CodeParameterInvalid || text != c.text {
			t.Errorf("%d, %s: %d %s %q", i, c.op, status, code, text)
		}
	}
	many := &tunnelpb.HeartbeatRequest{TunnelId: ptr("i"), ClientId: ptr("c")}
	for i := range 60_000 {
		many.Channels = append(many.Channels, &tunnelpb.Channel{ChannelId: ptr(fmt.Sprint(i)), Version: ptr(int64(1)), Status: tunnelpb.ChannelStatus_OPEN.Enum()})
	}
	if status, _, _ := callRefused(t, s, "tunnel/heartbeat", many); status != 400 {
		t.Errorf("a huge heartbeat: %d", status)
	}
	if fake.calls.Load() != 0 {
		t.Error("the service was called")
	}
}
