package ots

// This file creates, lists, describes and deletes data tunnels. Package ots/tunnel decides what
// a tunnel does, tunnelrows.go keeps it, and tunnelread.go serves the clients that consume it.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// TunnelService are the operations on data tunnels.
type TunnelService interface {
	// CreateTunnel returns the id of the new tunnel.
	CreateTunnel(ctx context.Context, instance string, req *CreateTunnelRequest) (string, error)
	// ListTunnel lists the tunnels of a table, or of all tables if the name is empty.
	ListTunnel(ctx context.Context, instance, table string) ([]TunnelInfo, error)
	DescribeTunnel(ctx context.Context, instance string, ref TunnelRef) (*TunnelDescription, error)
	DeleteTunnel(ctx context.Context, instance string, ref TunnelRef) error

	// ConnectTunnel returns the id of a new client; timeout is in seconds, 0 is the default.
	ConnectTunnel(ctx context.Context, instance, id string, timeout int64) (string, error)
	HeartbeatTunnel(ctx context.Context, instance, id, client string, reports []tunnel.Report) ([]tunnel.Report, error)
	ShutdownTunnel(ctx context.Context, instance, id, client string) error
	// GetTunnelCheckpoint returns the latest checkpoint of a channel and its number.
	GetTunnelCheckpoint(ctx context.Context, instance string, at TunnelChannel) (tunnel.Token, int64, error)
	CheckpointTunnel(ctx context.Context, instance string, at TunnelChannel, token tunnel.Token, sequence int64) error
	ReadTunnel(ctx context.Context, instance string, at TunnelChannel, token tunnel.Token) (*TunnelPage, error)
}

// CreateTunnelRequest describes a tunnel to be made. Earliest and StartMillis say where a tunnel of
// type Stream begins: at the oldest record that there is, or at a time since the epoch. Without
// them it begins now.
type CreateTunnelRequest struct {
	Table, Name string
	Type        tunnel.Type
	Earliest    bool
	StartMillis uint64
}

// TunnelRef names a tunnel. ID may be empty; if it is not, both have to be right.
type TunnelRef struct{ Table, Name, ID string }

// TunnelInfo describes a tunnel. BaseDone says that it delivers no rows of the table any more.
type TunnelInfo struct {
	ID string
	tunnel.Spec
	BaseDone bool
}

// TunnelDescription is a tunnel with its channels.
type TunnelDescription struct {
	TunnelInfo
	Channels []tunnel.ChannelDescription
}

const (
	// mostTunnels is the number of tunnels of a table, as at the service.
	mostTunnels = 10
	// tunnelStreamHours is the retention of a stream that is enabled for a tunnel, as at the
	// service.
	tunnelStreamHours = 168
	// A base has a channel for each baseBytes, and for each partition, but at most mostBases.
	baseBytes = 64 * megabyte
	mostBases = 64
)

func tunnelMissing() *Error { return invalid("Requested tunnel does not exist.") }

// CreateTunnel makes a tunnel. It enables the stream of the table, if the tunnel needs one and there
// is none.
func (e *Engine) CreateTunnel(ctx context.Context, instance string, req *CreateTunnelRequest) (string, error) {
	if bad := e.limits.checkTunnel(req); bad != nil {
		return "", bad
	}
	if int64(req.StartMillis) > e.store.WallMillis() {
		return "", invalid("The start offset of the tunnel is in the future.")
	}
	if bad := e.tunnelCreation.enter(ctx); bad != nil {
		return "", bad
	}
	defer e.tunnelCreation.leave()
	t, bad := e.beginTunnel(ctx, instance, req)
	if bad != nil {
		return "", bad
	}
	spec := tunnel.Spec{
		Name: req.Name, Table: req.Table, TableID: t.info.ID, Type: req.Type, CreatedMicros: e.store.WallMillis() * 1000,
		Earliest: req.Earliest, StartMillis: req.StartMillis, Key: make([]byte, 16),
	}
	rand.Read(spec.Key)
	channels := map[string]tunnel.Channel{}
	if req.Type != tunnel.Base { // before the base is read, so that nothing is missed
		if err := streamChannels(ctx, t, &spec, channels); err != nil {
			return "", e.asError(err, "create tunnel", req.Table, false)
		}
	}
	if req.Type != tunnel.Stream {
		if err := beginBase(ctx, t, channels); err != nil {
			return "", e.asError(err, "create tunnel", req.Table, false)
		}
	}
	return e.addTunnel(ctx, instance, spec, channels)
}

// beginTunnel checks that a tunnel may be made, and enables the stream that it needs. What takes long is done after it,
// without the lock, and addTunnel checks again.
func (e *Engine) beginTunnel(ctx context.Context, instance string, req *CreateTunnelRequest) (*table, *Error) {
	if bad := e.tableOps.enter(ctx); bad != nil {
		return nil, bad
	}
	defer e.tableOps.leave()
	if !e.HasInstance(instance) {
		return nil, &Error{Code: CodeAuthFailed, Message: "The instance is not found."}
	}
	if bad := e.admitTableOperation(); bad != nil {
		return nil, bad
	}
	t, bad := e.admitTunnel(ctx, instance, req.Table, req.Name)
	if bad == nil && req.Type != tunnel.Base {
		bad = e.enableTunnelStream(ctx, t)
	}
	return t, bad
}

// admitTunnel finds the table of a new tunnel. REQUIRES: tableOps is held.
func (e *Engine) admitTunnel(ctx context.Context, instance, name, tunnelName string) (*table, *Error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return nil, bad
	}
	present, err := e.tunnelsOf(ctx, instance, name)
	if err != nil {
		return nil, e.asError(err, "list tunnels", name, false)
	}
	if slices.ContainsFunc(present, func(i TunnelInfo) bool { return i.Name == tunnelName }) {
		return nil, &Error{Code: CodeTunnelExist, Message: "Requested tunnel already exists."}
	}
	if len(present) >= mostTunnels {
		return nil, &Error{Code: CodeQuotaExhausted, Message: fmt.Sprintf("Number of tunnels of the table exceeds the quota:%d.", mostTunnels)}
	}
	return t, nil
}

// addTunnel writes a new tunnel, unless its table or stream has gone or another one got its name meanwhile.
func (e *Engine) addTunnel(ctx context.Context, instance string, spec tunnel.Spec, channels map[string]tunnel.Channel) (string, error) {
	if bad := e.tableOps.enter(ctx); bad != nil {
		return "", bad
	}
	defer e.tableOps.leave()
	t, bad := e.admitTunnel(ctx, instance, spec.Table, spec.Name)
	if bad != nil {
		return "", bad
	}
	stream := t.details()
	if t.info.ID != spec.TableID || spec.StreamID != "" && (stream == nil || stream.StreamID != spec.StreamID) {
		return "", &Error{Code: CodeObjectNotExist, Message: "The table or its stream was replaced while the tunnel was created."}
	}
	id := newTunnelID()
	if err := e.openNewTunnel(ctx, instance, id, spec, channels); err != nil {
		return "", e.asError(err, "create tunnel", spec.Table, true)
	}
	return id, nil
}

func (l *Limits) checkTunnel(req *CreateTunnelRequest) *Error {
	if bad := l.checkTableName(req.Table); bad != nil {
		return bad
	}
	begins := req.Earliest || req.StartMillis != 0
	switch {
	case !isPlainName(req.Name, l.TableNameBytes):
		return invalid("Invalid tunnel name: '%s'.", printable(req.Name))
	case req.Type != tunnel.Base && req.Type != tunnel.Stream && req.Type != tunnel.BaseAndStream:
		return invalid("The type of the tunnel is invalid.")
	case begins && req.Type != tunnel.Stream:
		return invalid("Only a tunnel of type Stream can have a start offset.")
	case req.StartMillis > math.MaxInt64/1000:
		return invalid("The start offset of the tunnel is out of range.")
	}
	return nil
}

// newTunnelID returns a random id in the service's format.
func newTunnelID() string {
	b := make([]byte, 16)
	rand.Read(b)
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// enableTunnelStream enables the stream of a table, unless it has one. REQUIRES: tableOps is held.
func (e *Engine) enableTunnelStream(ctx context.Context, t *table) *Error {
	if t.details() != nil {
		return nil
	}
	hours := int32(tunnelStreamHours)
	change, bad := e.streamChange(&StreamSpecification{Enable: true, ExpirationHours: &hours}, nil)
	if bad != nil {
		return bad
	}
	if err := t.engine.Alter(ctx, flagstone.TableChange{Annotations: t.encode(), Stream: change}); err != nil {
		return e.asError(err, "create tunnel", t.name, false)
	}
	return nil
}

// streamChannels makes the channels of the shards of a table's stream: they begin now or where the tunnel asks for.
func streamChannels(ctx context.Context, t *table, spec *tunnel.Spec, channels map[string]tunnel.Channel) error {
	s, err := t.streamOf()
	if err != nil {
		return err
	}
	if s == nil {
		return &Error{Code: CodeObjectNotExist, Message: "Requested stream does not exist."}
	}
	spec.StreamID = s.id()
	latest := !spec.Earliest && spec.StartMillis == 0
	since := int64(spec.StartMillis) * 1000
	if latest {
		since = math.MaxInt64
	}
	shards := s.read.Shards()
	ended := map[uint64]bool{}
	for _, sh := range shards {
		for _, parent := range sh.Parents {
			ended[parent] = true
		}
	}
	for _, sh := range shards {
		at, err := s.read.Since(ctx, sh.ID, since)
		if errors.Is(err, flagstone.ErrStreamTrimmed) { // forgotten meanwhile
			continue
		}
		if err != nil {
			return err
		}
		channels[tunnel.StreamID(sh.ID)] = tunnel.Channel{
			Shard: sh.ID, Parents: sh.Parents, At: tunnel.Position{After: at.After, AsOf: at.AsOf}, Done: latest && ended[sh.ID],
		}
	}
	return nil
}

// beginBase makes the channels of the base: ranges of the table that do not overlap.
func beginBase(ctx context.Context, t *table, channels map[string]tunnel.Channel) error {
	sized, err := t.engine.SplitPoints(ctx, max(baseBytes, t.engine.ApproximateSize()/mostBases), mostBases)
	if err != nil {
		return err
	}
	values := t.engine.Splits()
	for _, point := range sized {
		values = append(values, point[0])
	}
	var points [][]byte
	for _, v := range values {
		key, err := row.AppendKey(nil, len(t.key), v)
		if err != nil {
			return err
		}
		points = append(points, key)
	}
	slices.SortFunc(points, bytes.Compare)
	points = slices.CompactFunc(points, bytes.Equal)
	points = thinned(points, mostBases-1)
	var begin []byte
	for i := range len(points) + 1 {
		var end []byte
		if i < len(points) {
			end = points[i]
		}
		channels[tunnel.BaseID(i)] = tunnel.Channel{Begin: begin, End: end}
		begin = end
	}
	return nil
}

// thinned returns at most so many of the points, evenly.
func thinned(points [][]byte, most int) [][]byte {
	if len(points) <= most {
		return points
	}
	kept := make([][]byte, most)
	for i := range kept {
		kept[i] = points[i*len(points)/most]
	}
	return kept
}

// ListTunnel lists tunnels, ascending by table and name.
func (e *Engine) ListTunnel(ctx context.Context, instance, name string) ([]TunnelInfo, error) {
	if name != "" {
		if bad := e.limits.checkTableName(name); bad != nil {
			return nil, bad
		}
		if _, bad := e.table(instance, name); bad != nil {
			return nil, bad
		}
	}
	list, err := e.tunnelsOf(ctx, instance, name)
	if err != nil {
		return nil, e.asError(err, "list tunnels", name, false)
	}
	for i := range list {
		if list[i].BaseDone, err = e.baseDone(ctx, instance, list[i].ID); err != nil {
			return nil, e.asError(err, "list tunnels", name, false)
		}
	}
	return list, nil
}

// baseDone reads from the rows of a tunnel whether its base was consumed. The tunnel is not opened.
func (e *Engine) baseDone(ctx context.Context, instance, id string) (done bool, err error) {
	done = true
	err = e.scanTunnels(ctx, channelKey(instance, id, "")[:3], func(key []row.Value, content []byte) error {
		c, err := tunnel.DecodeChannel(content)
		done = done && (c.Done || !tunnel.IsBase(string(key[3].Bytes())))
		return err
	})
	return done, err
}

// describeTunnel describes a tunnel that was found.
func (e *Engine) describeTunnel(ctx context.Context, instance string, i *TunnelInfo) (*TunnelDescription, error) {
	t, err := e.tunnel(ctx, instance, i.ID)
	if err != nil {
		return nil, err
	}
	d, err := t.Describe(ctx)
	if err != nil {
		return nil, e.tunnelError(err, "describe tunnel", i.Table)
	}
	return &TunnelDescription{TunnelInfo{i.ID, d.Spec, d.BaseDone}, d.Channels}, nil
}

// namedTunnel finds a tunnel by its names.
func (e *Engine) namedTunnel(ctx context.Context, instance string, ref TunnelRef) (*TunnelInfo, error) {
	if bad := e.limits.checkTableName(ref.Table); bad != nil {
		return nil, bad
	}
	if _, bad := e.table(instance, ref.Table); bad != nil {
		return nil, bad
	}
	list, err := e.tunnelsOf(ctx, instance, ref.Table)
	if err != nil {
		return nil, e.asError(err, "list tunnels", ref.Table, false)
	}
	for i := range list {
		if list[i].Name == ref.Name && (ref.ID == "" || ref.ID == list[i].ID) {
			return &list[i], nil
		}
	}
	return nil, tunnelMissing()
}

// DescribeTunnel describes a tunnel and its channels.
func (e *Engine) DescribeTunnel(ctx context.Context, instance string, ref TunnelRef) (*TunnelDescription, error) {
	i, err := e.namedTunnel(ctx, instance, ref)
	if err != nil {
		return nil, err
	}
	return e.describeTunnel(ctx, instance, i)
}

// LookAtTunnels describes the tunnels of a table, ascending by name, and changes nothing. One that is deleted
// meanwhile is left out.
func (e *Engine) LookAtTunnels(ctx context.Context, instance, name string) ([]TunnelDescription, error) {
	list, err := e.tunnelsOf(ctx, instance, name)
	if err != nil {
		return nil, e.asError(err, "list tunnels", name, false)
	}
	var found []TunnelDescription
	for _, i := range list {
		t, err := e.openTunnel(ctx, instance, i.ID)
		if err == nil && t == nil {
			continue
		}
		var d *tunnel.Description
		if err == nil {
			d, err = t.Look(ctx)
		}
		switch {
		case errors.Is(err, tunnel.ErrInvalid): // deleted
		case err != nil:
			return nil, e.tunnelError(err, "describe tunnel", name)
		default:
			found = append(found, TunnelDescription{TunnelInfo{i.ID, d.Spec, d.BaseDone}, d.Channels})
		}
	}
	return found, nil
}

// DeleteTunnel deletes a tunnel. The stream of the table stays.
func (e *Engine) DeleteTunnel(ctx context.Context, instance string, ref TunnelRef) error {
	i, err := e.namedTunnel(ctx, instance, ref)
	if err != nil {
		return err
	}
	t, err := e.tunnel(ctx, instance, i.ID)
	if err != nil {
		return err
	}
	if err := e.deleteTunnel(ctx, t); err != nil {
		return e.tunnelError(err, "delete tunnel", ref.Table)
	}
	return nil
}

// streamTunnels refuses to disable the stream of a table that has tunnels: they would lose data.
// REQUIRES: tableOps is held.
func (e *Engine) streamTunnels(ctx context.Context, instance string, t *table) *Error {
	list, err := e.tunnelsOf(ctx, instance, t.name)
	if err != nil {
		return e.asError(err, "list tunnels", t.name, false)
	}
	stream := t.details()
	for _, i := range list {
		if stream != nil && i.StreamID == stream.StreamID {
			return invalid("The stream of the table is read by tunnel '%s'. Delete its tunnels before it is disabled.", i.Name)
		}
	}
	return nil
}

// tunnelError turns an error into the answer for the client.
func (e *Engine) tunnelError(err error, operation, table string) *Error {
	var refusal *tunnel.Refusal
	if !errors.As(err, &refusal) {
		return e.asError(err, operation, table, false)
	}
	code := CodeParameterInvalid
	switch refusal.Kind {
	case tunnel.ErrGone:
		code = CodeResourceGone
	case tunnel.ErrSequence:
		code = CodeSequenceNumberNotMatch
	case tunnel.ErrExpired:
		code = CodeTunnelExpired
	case tunnel.ErrTooMany:
		code = CodeQuotaExhausted
	case tunnel.ErrStale:
		code = CodeServerUnavailable
	}
	return &Error{Code: code, Message: refusal.Text}
}
