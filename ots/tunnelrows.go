package ots

// This file keeps tunnels in the store: in a table that no instance has, since its name has no
// slash, with a row for each tunnel and for each channel. docs/format-tunnels.md describes it.
// Open tunnels are in memory too; the rows are written before memory changes.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

const (
	tunnelTable  = ".tunnels"
	tunnelKind   = "tunnel"
	channelKind  = "channel"
	tunnelColumn = "v"
)

// tunnels are the tunnels that were used since the store was opened. run names this time.
type tunnels struct {
	run uint64

	mu   sync.Mutex
	open map[string]*openTunnel // by id
}

// openTunnel is a tunnel and its tunnel.Env.
type openTunnel struct {
	*tunnel.Tunnel
	e        *Engine
	instance string
	id       string
	spec     tunnel.Spec // as it was opened; Expired may be newer
}

var _ tunnel.Env = (*openTunnel)(nil)

// tunnelRows returns the table of the tunnels, nil if there never was one.
func (e *Engine) tunnelRows() (*flagstone.Table, error) {
	t, err := e.store.Table(tunnelTable)
	if errors.Is(err, flagstone.ErrTableNotFound) {
		return nil, nil
	}
	return t, err
}

// makeTunnelRows returns the table of the tunnels, and makes it if need be. REQUIRES: tableOps is
// held.
func (e *Engine) makeTunnelRows(ctx context.Context) (*flagstone.Table, error) {
	if t, err := e.tunnelRows(); t != nil || err != nil {
		return t, err
	}
	spec := flagstone.TableSpec{Name: tunnelTable}
	for _, name := range [...]string{"instance", "kind", "tunnel", "channel"} {
		spec.Key = append(spec.Key, flagstone.KeyColumn{Name: name, Type: row.TypeString})
	}
	return e.store.CreateTable(ctx, spec)
}

func tunnelKey(instance, id string) []row.Value {
	return []row.Value{row.String(instance), row.String(tunnelKind), row.String(id), row.String("")}
}

func channelKey(instance, id, channel string) []row.Value {
	return []row.Value{row.String(instance), row.String(channelKind), row.String(id), row.String(channel)}
}

// scanTunnels calls each for the rows whose keys begin with a prefix.
func (e *Engine) scanTunnels(ctx context.Context, prefix []row.Value, each func(key []row.Value, content []byte) error) error {
	rows, err := e.tunnelRows()
	if rows == nil || err != nil {
		return err
	}
	start, end := slices.Clone(prefix), slices.Clone(prefix)
	for len(start) < len(tunnelKey("", "")) {
		start, end = append(start, row.Min()), append(end, row.Max())
	}
	for r, err := range rows.Scan(ctx, start, end, flagstone.ScanOptions{}).All() {
		if err != nil {
			return err
		}
		if err := each(r.Key(), r.Bytes(tunnelColumn)); err != nil {
			return fmt.Errorf("ots: row %v of table %q: %w", r.Key(), tunnelTable, err)
		}
	}
	return nil
}

// tunnelsOf lists the tunnels of a table, or of all tables if the name is empty. Those of tables that
// were dropped are left out.
func (e *Engine) tunnelsOf(ctx context.Context, instance, name string) (list []TunnelInfo, err error) {
	err = e.scanTunnels(ctx, []row.Value{row.String(instance), row.String(tunnelKind)}, func(key []row.Value, content []byte) error {
		spec, err := tunnel.DecodeSpec(content)
		if err != nil || name != "" && spec.Table != name {
			return err
		}
		if t, bad := e.table(instance, spec.Table); bad == nil && t.info.ID == spec.TableID {
			list = append(list, TunnelInfo{ID: string(key[2].Bytes()), Spec: spec})
		}
		return nil
	})
	slices.SortFunc(list, func(a, b TunnelInfo) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name)) })
	return list, err
}

// openNewTunnel writes a new tunnel. REQUIRES: tableOps is held.
func (e *Engine) openNewTunnel(ctx context.Context, instance, id string, spec tunnel.Spec, channels map[string]tunnel.Channel) error {
	if _, err := e.makeTunnelRows(ctx); err != nil {
		return err
	}
	t := &openTunnel{e: e, instance: instance, id: id, spec: spec}
	if err := t.Store(ctx, tunnel.Change{Spec: &spec, Put: channels}); err != nil {
		return err
	}
	t.Tunnel = tunnel.New(id, e.tunnels.run, true, spec, channels, t)
	e.tunnels.mu.Lock()
	defer e.tunnels.mu.Unlock()
	e.tunnels.open[id] = t
	return nil
}

// tunnel finds a tunnel by its id. Errors are *Error.
func (e *Engine) tunnel(ctx context.Context, instance, id string) (*openTunnel, error) {
	e.tunnels.mu.Lock()
	defer e.tunnels.mu.Unlock()
	t := e.tunnels.open[id]
	if t == nil {
		var err error
		if t, err = e.loadTunnel(ctx, instance, id); err != nil {
			return nil, e.asError(err, "open tunnel", "", false)
		}
	}
	if t == nil || t.instance != instance {
		return nil, tunnelMissing()
	}
	if found, bad := e.table(instance, t.spec.Table); bad != nil || found.info.ID != t.spec.TableID {
		if bad == nil || bad.Code == CodeObjectNotExist {
			bad = tunnelMissing()
		}
		return nil, bad
	}
	e.tunnels.open[id] = t
	return t, nil
}

// loadTunnel reads a tunnel, nil if there is none.
func (e *Engine) loadTunnel(ctx context.Context, instance, id string) (*openTunnel, error) {
	if len(id) != len(newTunnelID()) {
		return nil, nil
	}
	t := &openTunnel{e: e, instance: instance, id: id}
	found := false
	err := e.scanTunnels(ctx, tunnelKey(instance, id)[:3], func(_ []row.Value, content []byte) (err error) {
		found = true
		t.spec, err = tunnel.DecodeSpec(content)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	channels := map[string]tunnel.Channel{}
	err = e.scanTunnels(ctx, channelKey(instance, id, "")[:3], func(key []row.Value, content []byte) error {
		c, err := tunnel.DecodeChannel(content)
		channels[string(key[3].Bytes())] = c
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Tunnel = tunnel.New(id, e.tunnels.run, false, t.spec, channels, t)
	return t, nil
}

// Store writes a change of the tunnel in one step.
func (t *openTunnel) Store(ctx context.Context, c tunnel.Change) error {
	rows, err := t.e.store.Table(tunnelTable)
	if err != nil {
		return err
	}
	batch := t.e.store.NewBatch()
	put := func(key []row.Value, content []byte) {
		batch.Row(rows, key).Put(tunnelColumn, flagstone.Now, row.Binary(content))
	}
	if c.Spec != nil {
		put(tunnelKey(t.instance, t.id), c.Spec.Encode())
	}
	for _, id := range slices.Sorted(maps.Keys(c.Put)) {
		put(channelKey(t.instance, t.id, id), c.Put[id].Encode())
	}
	for _, id := range c.Delete {
		batch.Row(rows, channelKey(t.instance, t.id, id)).DeleteRow()
	}
	return t.e.store.Apply(ctx, batch)
}

// deleteTunnel deletes a tunnel and its rows.
func (e *Engine) deleteTunnel(ctx context.Context, t *openTunnel) error {
	rows, err := e.store.Table(tunnelTable)
	if err != nil {
		return err
	}
	err = t.Delete(ctx, func(channels []string) error {
		batch := e.store.NewBatch()
		batch.Row(rows, tunnelKey(t.instance, t.id)).DeleteRow()
		for _, id := range channels {
			batch.Row(rows, channelKey(t.instance, t.id, id)).DeleteRow()
		}
		return e.store.Apply(ctx, batch)
	})
	if err != nil {
		return err
	}
	e.tunnels.mu.Lock()
	defer e.tunnels.mu.Unlock()
	delete(e.tunnels.open, t.id)
	return nil
}

// openTunnels returns the tunnels of a table that is about to be dropped.
func (e *Engine) openTunnels(ctx context.Context, instance, name string) (open []*openTunnel) {
	list, err := e.tunnelsOf(ctx, instance, name)
	for _, i := range list {
		var t *openTunnel
		if t, err = e.tunnel(ctx, instance, i.ID); err != nil {
			break
		}
		open = append(open, t)
	}
	if err != nil {
		e.logger.Error("cannot find the tunnels of a table that is dropped", "table", name, "error", err)
	}
	return open
}

// dropTunnels deletes the tunnels of a table that was dropped. Their rows have no effect any more,
// so an error only leaves them behind.
func (e *Engine) dropTunnels(ctx context.Context, open []*openTunnel) {
	for _, t := range open {
		if err := e.deleteTunnel(ctx, t); err != nil {
			e.logger.Error("cannot delete a tunnel of a table that was dropped", "table", t.spec.Table, "tunnel", t.id, "error", err)
		}
	}
}

// stream finds the stream that the tunnel reads.
func (t *openTunnel) stream() (*table, *stream, error) {
	found, bad := t.e.table(t.instance, t.spec.Table)
	if bad != nil {
		return nil, nil, bad
	}
	s, err := found.streamOf()
	if err != nil {
		return nil, nil, err
	}
	if s == nil || s.id() != t.spec.StreamID {
		return nil, nil, tunnel.Expired("the stream of the table was disabled.")
	}
	return found, s, nil
}

// Shards lists the shards of the stream.
func (t *openTunnel) Shards(context.Context) ([]tunnel.Shard, error) {
	_, s, err := t.stream()
	if err != nil {
		return nil, err
	}
	var shards []tunnel.Shard
	for _, sh := range s.read.Shards() {
		shards = append(shards, tunnel.Shard{ID: sh.ID, Parents: sh.Parents})
	}
	return shards, nil
}

// Oldest is the position before the oldest record of a shard.
func (t *openTunnel) Oldest(ctx context.Context, shard uint64) (tunnel.Position, error) {
	_, s, err := t.stream()
	if err != nil {
		return tunnel.Position{}, err
	}
	at, err := s.read.Oldest(ctx, shard)
	return tunnel.Position{After: at.After, AsOf: at.AsOf}, lostRecords(err)
}

// lostRecords says that a tunnel has expired if an error of a stream does.
func lostRecords(err error) error {
	if errors.Is(err, flagstone.ErrStreamTrimmed) || errors.Is(err, flagstone.ErrStreamNotFound) {
		return tunnel.Expired("records of the stream expired before they were consumed.")
	}
	return err
}

// Millis is the clock of the store.
func (t *openTunnel) Millis() int64 { return t.e.store.WallMillis() }
