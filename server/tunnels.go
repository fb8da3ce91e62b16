package server

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/server/tunnelpb"
)

// This file holds the operations on data tunnels, docs/tunnels.md. Their clients read tokens to
// tell base channels from those of the stream:
//
//	token   "finished", or base64( version 2, content )
//	content primary_key of a base channel, or iterator of a stream channel: the sealed position

const (
	tunnelPrefix     = "tunnel/"
	tunnelAPIVersion = "2018-04-01"
	tokenFinished    = "finished"
	tokenVersion     = 2
)

func createTunnel(ctx context.Context, on target, m *tunnelpb.CreateTunnelRequest) (proto.Message, error) {
	t, config := m.Tunnel, m.Tunnel.GetStreamTunnelConfig()
	if err := checkTexts(*t.TableName, *t.TunnelName); err != nil {
		return nil, err
	}
	if err := checkEnum(tunnelpb.TunnelType_name, *t.TunnelType); err != nil {
		return nil, err
	}
	if err := checkEnum(tunnelpb.StartOffset_name, config.GetFlag()); err != nil {
		return nil, err
	}
	switch {
	case t.GetNeedAllTimeSeriesColumns():
		return nil, refuse(ots.CodeParameterInvalid, "Time series columns in tunnels are not supported by this server.")
	case config.GetEndOffset() != 0:
		return nil, refuse(ots.CodeParameterInvalid, "An end offset of a tunnel is not supported by this server.")
	}
	id, err := on.service.CreateTunnel(ctx, on.instance, &ots.CreateTunnelRequest{
		Table: *t.TableName, Name: *t.TunnelName, Type: tunnel.Type(*t.TunnelType),
		Earliest: config.GetFlag() == tunnelpb.StartOffset_EARLIEST, StartMillis: config.GetStartOffset(),
	})
	if err != nil {
		return nil, err
	}
	return &tunnelpb.CreateTunnelResponse{TunnelId: &id}, nil
}

func listTunnel(ctx context.Context, on target, m *tunnelpb.ListTunnelRequest) (proto.Message, error) {
	if err := checkTexts(m.GetTableName()); err != nil {
		return nil, err
	}
	list, err := on.service.ListTunnel(ctx, on.instance, m.GetTableName())
	if err != nil {
		return nil, err
	}
	answer := &tunnelpb.ListTunnelResponse{}
	for i := range list {
		answer.Tunnels = append(answer.Tunnels, tunnelInfo(on.instance, &list[i]))
	}
	return answer, nil
}

func describeTunnel(ctx context.Context, on target, m *tunnelpb.DescribeTunnelRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName, *m.TunnelName, m.GetTunnelId()); err != nil {
		return nil, err
	}
	d, err := on.service.DescribeTunnel(ctx, on.instance, ots.TunnelRef{Table: *m.TableName, Name: *m.TunnelName, ID: m.GetTunnelId()})
	if err != nil {
		return nil, err
	}
	answer := &tunnelpb.DescribeTunnelResponse{Tunnel: tunnelInfo(on.instance, &d.TunnelInfo)}
	for i := range d.Channels {
		c := &d.Channels[i]
		kind := tunnel.Stream
		if tunnel.IsBase(c.ID) {
			kind = tunnel.Base
		}
		answer.Channels = append(answer.Channels, &tunnelpb.ChannelInfo{
			ChannelId: &c.ID, ChannelType: proto.String(kind.String()), ChannelStatus: &c.Status, ClientId: &c.Client,
		})
	}
	return answer, nil
}

// tunnelInfo describes a tunnel. All fields that clients read without checking are set.
func tunnelInfo(instance string, i *ots.TunnelInfo) *tunnelpb.TunnelInfo {
	stage := "ProcessStream"
	if !i.BaseDone {
		stage = "ProcessBaseData"
	}
	info := &tunnelpb.TunnelInfo{
		TunnelId: &i.ID, TunnelName: &i.Name, TunnelType: proto.String(i.Type.String()), TableName: &i.Table,
		InstanceName: &instance, StreamId: &i.StreamID, Stage: &stage, Expired: proto.Bool(i.Expired != ""),
		CreateTime: proto.Int64(i.CreatedMicros * 1000),
	}
	if i.Type == tunnel.Stream {
		flag := tunnelpb.StartOffset_LATEST
		if i.Earliest {
			flag = tunnelpb.StartOffset_EARLIEST
		}
		info.StreamTunnelConfig = &tunnelpb.StreamTunnelConfig{Flag: &flag, StartOffset: &i.StartMillis}
	}
	return info
}

func deleteTunnel(ctx context.Context, on target, m *tunnelpb.DeleteTunnelRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName, *m.TunnelName, m.GetTunnelId()); err != nil {
		return nil, err
	}
	err := on.service.DeleteTunnel(ctx, on.instance, ots.TunnelRef{Table: *m.TableName, Name: *m.TunnelName, ID: m.GetTunnelId()})
	if err != nil {
		return nil, err
	}
	return &tunnelpb.DeleteTunnelResponse{}, nil
}

func connectTunnel(ctx context.Context, on target, m *tunnelpb.ConnectRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId); err != nil {
		return nil, err
	}
	client, err := on.service.ConnectTunnel(ctx, on.instance, *m.TunnelId, m.GetClientConfig().GetTimeout())
	if err != nil {
		return nil, err
	}
	return &tunnelpb.ConnectResponse{ClientId: &client}, nil
}

func heartbeatTunnel(ctx context.Context, on target, m *tunnelpb.HeartbeatRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId, *m.ClientId); err != nil {
		return nil, err
	}
	reports := make([]tunnel.Report, 0, len(m.Channels))
	for _, c := range m.Channels {
		if err := checkEnum(tunnelpb.ChannelStatus_name, *c.Status); err != nil {
			return nil, err
		}
		reports = append(reports, tunnel.Report{Channel: *c.ChannelId, Version: *c.Version, Status: tunnel.Status(*c.Status)})
	}
	channels, err := on.service.HeartbeatTunnel(ctx, on.instance, *m.TunnelId, *m.ClientId, reports)
	if err != nil {
		return nil, err
	}
	answer := &tunnelpb.HeartbeatResponse{}
	for i := range channels {
		c := &channels[i]
		answer.Channels = append(answer.Channels, &tunnelpb.Channel{
			ChannelId: &c.Channel, Version: &c.Version, Status: tunnelpb.ChannelStatus(c.Status).Enum(),
		})
	}
	return answer, nil
}

func shutdownTunnel(ctx context.Context, on target, m *tunnelpb.ShutdownRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId, *m.ClientId); err != nil {
		return nil, err
	}
	if err := on.service.ShutdownTunnel(ctx, on.instance, *m.TunnelId, *m.ClientId); err != nil {
		return nil, err
	}
	return &tunnelpb.ShutdownResponse{}, nil
}

func getTunnelCheckpoint(ctx context.Context, on target, m *tunnelpb.GetCheckpointRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId, *m.ClientId, *m.ChannelId); err != nil {
		return nil, err
	}
	at := ots.TunnelChannel{Tunnel: *m.TunnelId, Client: *m.ClientId, Channel: *m.ChannelId}
	token, sequence, err := on.service.GetTunnelCheckpoint(ctx, on.instance, at)
	if err != nil {
		return nil, err
	}
	text := tokenText(token, at.Channel)
	return &tunnelpb.GetCheckpointResponse{Checkpoint: &text, SequenceNumber: &sequence}, nil
}

func checkpointTunnel(ctx context.Context, on target, m *tunnelpb.CheckpointRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId, *m.ClientId, *m.ChannelId); err != nil {
		return nil, err
	}
	token, err := parseToken(*m.Checkpoint, *m.ChannelId)
	if err != nil {
		return nil, err
	}
	at := ots.TunnelChannel{Tunnel: *m.TunnelId, Client: *m.ClientId, Channel: *m.ChannelId}
	if err := on.service.CheckpointTunnel(ctx, on.instance, at, token, *m.SequenceNumber); err != nil {
		return nil, err
	}
	return &tunnelpb.CheckpointResponse{}, nil
}

func readTunnel(ctx context.Context, on target, m *tunnelpb.ReadRecordsRequest) (proto.Message, error) {
	if err := checkTexts(*m.TunnelId, *m.ClientId, *m.ChannelId); err != nil {
		return nil, err
	}
	token, err := parseToken(*m.Token, *m.ChannelId)
	if err != nil {
		return nil, err
	}
	at := ots.TunnelChannel{Tunnel: *m.TunnelId, Client: *m.ClientId, Channel: *m.ChannelId}
	page, err := on.service.ReadTunnel(ctx, on.instance, at, token)
	if err != nil {
		return nil, err
	}
	next := tokenText(page.Next, at.Channel)
	answer := &tunnelpb.ReadRecordsResponse{NextToken: &next, MayMoreRecord: &page.More}
	for i := range page.Records {
		answer.Records = append(answer.Records, tunnelRecord(&page.Records[i], page.Base))
	}
	return answer, nil
}

// tunnelRecord encodes a record. A row of the base has no place in the stream.
func tunnelRecord(r *ots.StreamRecord, base bool) *tunnelpb.Record {
	if base {
		return &tunnelpb.Record{ActionType: tunnelpb.ActionType_PUT_ROW.Enum(), Record: encodeRow(&r.Row)}
	}
	s := streamRecord(r)
	return &tunnelpb.Record{
		ActionType: tunnelpb.ActionType(*s.ActionType).Enum(), Record: s.Record, OriginRecord: s.OriginRecord,
	}
}

// tokenText makes the token of a channel.
func tokenText(t tunnel.Token, channel string) string {
	if t.Finished {
		return tokenFinished
	}
	content := &tunnelpb.TokenContent{}
	if tunnel.IsBase(channel) {
		content.PrimaryKey = t.Position
	} else {
		content.Iterator = proto.String(base64.RawURLEncoding.EncodeToString(t.Position))
	}
	inner, err := proto.Marshal(content)
	if err != nil {
		panic("server: a token does not encode: " + err.Error()) // plain data always does
	}
	outer, err := proto.Marshal(&tunnelpb.Token{Version: proto.Int64(tokenVersion), Content: inner})
	if err != nil {
		panic("server: a token does not encode: " + err.Error())
	}
	return base64.StdEncoding.EncodeToString(outer)
}

// parseToken is the inverse of tokenText. The position is still sealed.
func parseToken(text, channel string) (tunnel.Token, error) {
	if text == tokenFinished {
		return tunnel.Token{Finished: true}, nil
	}
	malformed := refuse(ots.CodeParameterInvalid, "The token is malformed.")
	b, err := base64.StdEncoding.DecodeString(text)
	outer, content := new(tunnelpb.Token), new(tunnelpb.TokenContent)
	if err != nil || proto.Unmarshal(b, outer) != nil || outer.GetVersion() != tokenVersion || proto.Unmarshal(outer.GetContent(), content) != nil {
		return tunnel.Token{}, malformed
	}
	if tunnel.IsBase(channel) {
		return tunnel.Token{Position: content.GetPrimaryKey()}, nil
	}
	position, err := base64.RawURLEncoding.DecodeString(content.GetIterator())
	if err != nil {
		return tunnel.Token{}, malformed
	}
	return tunnel.Token{Position: position}, nil
}

// temporary are the codes of refusals that may be gone when the request is repeated.
var temporary = []string{
	ots.CodeServerBusy, ots.CodeStorageServerBusy, ots.CodePartitionUnavailable, ots.CodeTimeout, ots.CodeServerUnavailable,
	ots.CodeOperationThrottled, ots.CodeFlowControl, ots.CodeRequestTimeout, ots.CodeNotEnoughCapacityUnit, ots.CodeCapacityUnitExhausted,
}

// asTunnelRefusal gives the refusal of a tunnel's request the only code after which its clients
// repeat a request, if repeating can help. After a time-out a tunnel may have been created, so that a
// repetition would only find its name in use.
func asTunnelRefusal(path string, refusal *ots.Error) *ots.Error {
	if path == "/"+tunnelPrefix+"create" && refusal.Code == ots.CodeTimeout {
		return refusal
	}
	if strings.HasPrefix(path, "/"+tunnelPrefix) && slices.Contains(temporary, refusal.Code) {
		return &ots.Error{Code: ots.CodeTunnelServerUnavailable, Message: refusal.Message}
	}
	return refusal
}
