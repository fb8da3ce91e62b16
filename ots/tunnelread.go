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

// tunnelRecords bounds the records of a page, and tunnelBytes the memory of their keys and cells.
const (
	tunnelRecords = 5000
	tunnelBytes   = 4 * megabyte
)

// ConnectTunnel connects a client.
func (e *Engine) ConnectTunnel(ctx context.Context, instance, id string, timeout int64) (string, error) {
	t, err := e.tunnel(ctx, instance, id)
	if err != nil {
		return "", err
	}
	client, err := t.Connect(ctx, timeout)
	if err != nil {
		return "", e.tunnelError(err, "connect", t.Spec.Table)
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
		return nil, e.tunnelError(err, "heartbeat", t.Spec.Table)
	}
	return answer, nil
}

// ShutdownTunnel disconnects a client.
func (e *Engine) ShutdownTunnel(ctx context.Context, instance, id, client string) error {
	t, err := e.tunnel(ctx, instance, id)
	if err != nil {
		return err
	}
	if err := t.Shutdown(ctx, client); err != nil {
		return e.tunnelError(err, "shutdown", t.Spec.Table)
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
		return tunnel.Token{}, 0, e.tunnelError(err, "get checkpoint", t.Spec.Table)
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
		return e.tunnelError(err, "checkpoint", t.Spec.Table)
	}
	return nil
}

// ReadTunnel reads a page of a client's channel.
func (e *Engine) ReadTunnel(ctx context.Context, instance string, at TunnelChannel, token tunnel.Token) (*TunnelPage, error) {
	t, err := e.tunnel(ctx, instance, at.Tunnel)
	if err != nil {
		return nil, err
	}
	reading, err := t.Read(ctx, at.Client, at.Channel, token)
	if err == nil && reading.Done {
		return &TunnelPage{Next: token, Base: tunnel.IsBase(at.Channel)}, nil
	}
	var page *TunnelPage
	var found tunnel.Page
	if err == nil && tunnel.IsBase(at.Channel) {
		page, found, err = t.readBase(ctx, reading)
	} else if err == nil {
		page, found, err = t.readStream(ctx, reading)
	}
	if err == nil {
		page.Next, err = t.FinishRead(ctx, reading, found)
	}
	if err != nil {
		return nil, e.tunnelError(err, "read records", t.Spec.Table)
	}
	return page, nil
}

// readStream reads a page of a shard.
func (t *openTunnel) readStream(ctx context.Context, r tunnel.Reading) (*TunnelPage, tunnel.Page, error) {
	var none tunnel.Page
	found, s, err := t.stream()
	if err != nil {
		return nil, none, t.recordExpiry(ctx, err)
	}
	if bad := t.e.admitTable(found, reads); bad != nil {
		return nil, none, bad
	}
	if err := takeTurn(ctx, tunnelRecords, nil); err != nil {
		return nil, none, err
	}
	if err := RoomOf(ctx).Take(ctx, answerCopies*tunnelBytes); err != nil {
		return nil, none, err
	}
	read, err := s.read.Read(ctx, flagstone.StreamPosition{Shard: r.Channel.Shard, After: r.From.After, AsOf: r.From.AsOf},
		flagstone.StreamLimits{Records: tunnelRecords, Bytes: tunnelBytes})
	if err != nil {
		return nil, none, t.recordExpiry(ctx, lostRecords(err))
	}
	page := &TunnelPage{More: read.More}
	next := tunnel.Page{
		Next:  tunnel.Position{After: read.Next.After, AsOf: read.Next.AsOf},
		Empty: len(read.Records) == 0, End: read.Next.End,
	}
	if next.End && !next.Empty { // the next page is the end, and is empty
		next.End, page.More = false, true
		// The records of the shards that follow are not older than the last one of this shard, but
		// they can be older than the present, which is the time in read.Next.
		next.Next.AsOf = read.Records[len(read.Records)-1].Micros
	}
	var size int64
	for i := range read.Records {
		r, err := s.record(&read.Records[i])
		if err != nil {
			return nil, none, err
		}
		size += changeSize(&r.Row)
		page.Records = append(page.Records, r)
	}
	t.e.charge(found, readCost(size))
	return page, next, nil
}

// recordExpiry records that the tunnel has expired, if that is what err says.
func (t *openTunnel) recordExpiry(ctx context.Context, err error) error {
	if errors.Is(err, tunnel.ErrExpired) {
		return errors.Join(err, t.Expire(ctx, err.Error()))
	}
	return err
}

// endOfBase is Position.After behind the last row of a range.
const endOfBase = 1

// readBase reads a page of a range of the table.
func (t *openTunnel) readBase(ctx context.Context, r tunnel.Reading) (*TunnelPage, tunnel.Page, error) {
	var none tunnel.Page
	if r.From.After == endOfBase {
		return &TunnelPage{Base: true}, tunnel.Page{Empty: true, End: true}, nil
	}
	found, bad := t.e.table(t.instance, t.Spec.Table)
	if bad == nil {
		bad = t.e.admitTable(found, reads)
	}
	if bad != nil {
		return nil, none, bad
	}
	from := r.From.Key
	if len(from) == 0 {
		from = r.Channel.Begin
	}
	start, err := bound(from, len(found.key))
	if err != nil {
		return nil, none, err
	}
	end, err := bound(r.Channel.End, len(found.key))
	if err != nil {
		return nil, none, err
	}
	if err := takeTurn(ctx, tunnelRecords, nil); err != nil {
		return nil, none, err
	}
	limits := t.e.limits
	limits.RangeRows, limits.RangeBytes = tunnelRecords, tunnelBytes
	rows := rangePage{projection: projection{table: found}, limits: &limits, names: interner{}}
	if err := rows.readInRoom(ctx, start, end, false); err != nil {
		return nil, none, err
	}
	t.e.charge(found, readCost(rows.scannedBytes))
	page := &TunnelPage{Base: true}
	for i := range rows.rows {
		page.Records = append(page.Records, StreamRecord{Type: ChangePut, Row: rows.rows[i]})
	}
	switch empty := len(page.Records) == 0; {
	case rows.next == nil && empty:
		return page, tunnel.Page{Empty: true, End: true}, nil
	case rows.next == nil:
		page.More = true // the end, which is a page of its own
		return page, tunnel.Page{Next: tunnel.Position{Key: from, After: endOfBase}}, nil
	default:
		page.More = true
		key, err := row.AppendKey(nil, len(found.key), keyTuple(rows.next)...)
		return page, tunnel.Page{Next: tunnel.Position{Key: key}, Empty: empty}, err
	}
}

// bound decodes an end of a range; none is nil.
func bound(key []byte, columns int) ([]row.Value, error) {
	if len(key) == 0 {
		return nil, nil
	}
	return row.DecodeKey(key, columns)
}
