package ots

// This file serves the clients of tunnels: connections, checkpoints, and the records.

import (
	"context"
	"errors"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// TunnelChannel names a channel and the client that says it has it.
type TunnelChannel struct{ Tunnel, Client, Channel string }

// TunnelPage is one page of a channel. Base says that the records are rows as they are, which have
// no place in the stream.
type TunnelPage struct {
	Records []StreamRecord
	Base    bool
	Next    tunnel.Token
	More    bool
}

// tunnelRecords bounds the records of a page, and tunnelBytes their keys, names and values.
const (
	tunnelRecords = 5000
	tunnelBytes   = 4 * megabyte
)

// ConnectTunnel lets in a client.
func (e *Engine) ConnectTunnel(ctx context.Context, instance, id string, timeout int64) (string, error) {
	t, err := e.tunnel(ctx, instance, id)
	if err != nil {
		return "", err
	}
	client, err := t.Connect(ctx, timeout)
	if err != nil {
		return "", e.tunnelError(err, "connect", t.spec.Table)
	}
	return client, nil
}

// HeartbeatTunnel takes a client's report and returns the channels that it should have.
func (e *Engine) HeartbeatTunnel(ctx context.Context, instance, id, client string, reports []tunnel.Report) ([]tunnel.Report, error) {
	t, err := e.tunnel(ctx, instance, id)
	if err != nil {
		return nil, err
	}
	answer, err := t.Heartbeat(ctx, client, reports)
	if err != nil {
		return nil, e.tunnelError(err, "heartbeat", t.spec.Table)
	}
	return answer, nil
}

// ShutdownTunnel takes leave of a client.
func (e *Engine) ShutdownTunnel(ctx context.Context, instance, id, client string) error {
	t, err := e.tunnel(ctx, instance, id)
	if err != nil {
		return err
	}
	if err := t.Shutdown(ctx, client); err != nil {
		return e.tunnelError(err, "shutdown", t.spec.Table)
	}
	return nil
}

// GetTunnelCheckpoint returns the latest checkpoint of a client's channel.
func (e *Engine) GetTunnelCheckpoint(ctx context.Context, instance string, at TunnelChannel) (tunnel.Token, int64, error) {
	t, err := e.tunnel(ctx, instance, at.Tunnel)
	if err != nil {
		return tunnel.Token{}, 0, err
	}
	token, sequence, err := t.GetCheckpoint(ctx, at.Client, at.Channel)
	if err != nil {
		return tunnel.Token{}, 0, e.tunnelError(err, "get checkpoint", t.spec.Table)
	}
	return token, sequence, nil
}

// CheckpointTunnel notes for good up to where a client's channel was consumed.
func (e *Engine) CheckpointTunnel(ctx context.Context, instance string, at TunnelChannel, token tunnel.Token, sequence int64) error {
	t, err := e.tunnel(ctx, instance, at.Tunnel)
	if err != nil {
		return err
	}
	if err := t.Checkpoint(ctx, at.Client, at.Channel, token, sequence); err != nil {
		return e.tunnelError(err, "checkpoint", t.spec.Table)
	}
	return nil
}

// ReadTunnel reads a page of a client's channel.
func (e *Engine) ReadTunnel(ctx context.Context, instance string, at TunnelChannel, token tunnel.Token) (*TunnelPage, error) {
	t, err := e.tunnel(ctx, instance, at.Tunnel)
	if err != nil {
		return nil, err
	}
	channel, pos, err := t.Read(ctx, at.Client, at.Channel, token)
	if err == nil && token.Finished {
		return &TunnelPage{Next: token, Base: tunnel.IsBase(at.Channel)}, nil
	}
	var page *TunnelPage
	var end bool
	if err == nil && tunnel.IsBase(at.Channel) {
		page, pos, end, err = t.readBase(ctx, channel, pos)
	} else if err == nil {
		page, pos, end, err = t.readStream(ctx, channel, pos)
	}
	if err == nil {
		page.Next, err = t.Passed(ctx, at.Client, at.Channel, pos, end)
	}
	if err != nil {
		return nil, e.tunnelError(err, "read records", t.spec.Table)
	}
	return page, nil
}

// readStream reads a page of a shard. It returns the position after it, and whether it is the end.
func (t *openTunnel) readStream(ctx context.Context, c tunnel.Channel, at tunnel.Position) (*TunnelPage, tunnel.Position, bool, error) {
	found, s, err := t.stream()
	if err != nil {
		return nil, at, false, t.lost(ctx, err)
	}
	if bad := t.e.admitTable(found, reads); bad != nil {
		return nil, at, false, bad
	}
	if err := RoomOf(ctx).Take(ctx, answerCopies*tunnelBytes); err != nil {
		return nil, at, false, err
	}
	read, err := s.read.Read(ctx, flagstone.StreamPosition{Shard: c.Shard, After: at.After, AsOf: at.AsOf},
		flagstone.StreamLimits{Records: tunnelRecords, Bytes: tunnelBytes})
	if err != nil {
		return nil, at, false, t.lost(ctx, lostRecords(err))
	}
	page := &TunnelPage{More: read.More}
	var size int64
	for i := range read.Records {
		r, err := s.record(&read.Records[i])
		if err != nil {
			return nil, at, false, err
		}
		size += changeSize(&r.Row)
		page.Records = append(page.Records, r)
	}
	t.e.charge(found, readCost(size))
	return page, tunnel.Position{After: read.Next.After, AsOf: read.Next.AsOf}, read.Next.End, nil
}

// lost notes that the tunnel has expired, if that is what err says.
func (t *openTunnel) lost(ctx context.Context, err error) error {
	if errors.Is(err, tunnel.ErrExpired) {
		return errors.Join(err, t.Expire(ctx, err.Error()))
	}
	return err
}

// readBase reads a page of a range of the table. It returns the position after it, and whether it is
// the end.
func (t *openTunnel) readBase(ctx context.Context, c tunnel.Channel, at tunnel.Position) (*TunnelPage, tunnel.Position, bool, error) {
	found, bad := t.e.table(t.instance, t.spec.Table)
	if bad == nil {
		bad = t.e.admitTable(found, reads)
	}
	if bad != nil {
		return nil, at, false, bad
	}
	from := at.Key
	if len(from) == 0 {
		from = c.Begin
	}
	start, err := bound(from, len(found.key))
	if err != nil {
		return nil, at, false, err
	}
	end, err := bound(c.End, len(found.key))
	if err != nil {
		return nil, at, false, err
	}
	if err := takeTurn(ctx, tunnelRecords, nil); err != nil {
		return nil, at, false, err
	}
	limits := t.e.limits
	limits.RangeRows, limits.RangeBytes = tunnelRecords, tunnelBytes
	rows := rangePage{projection: projection{table: found}, limits: &limits, names: interner{}}
	if err := rows.readInRoom(ctx, start, end, false); err != nil {
		return nil, at, false, err
	}
	t.e.charge(found, readCost(rows.scannedBytes))
	page := &TunnelPage{Base: true}
	for i := range rows.rows {
		page.Records = append(page.Records, StreamRecord{Type: ChangePut, Row: rows.rows[i]})
	}
	if rows.next == nil {
		return page, at, true, nil
	}
	page.More = true
	key, err := row.AppendKey(nil, len(found.key), keyTuple(rows.next)...)
	return page, tunnel.Position{Key: key}, false, err
}

// bound decodes an end of a range; none is nil.
func bound(key []byte, columns int) ([]row.Value, error) {
	if len(key) == 0 {
		return nil, nil
	}
	return row.DecodeKey(key, columns)
}
