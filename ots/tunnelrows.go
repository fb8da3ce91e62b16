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
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

const (
	tunnelTable  = ".tunnels"
	tunnelKind   = "tunnel"
	channelKind  = "channel"
	tunnelColumn = "v"

	// tunnelCleanup bounds how long tunnels whose tables are gone are deleted.
	tunnelCleanup = 10 * time.Second
)

// tunnels are the tunnels that were used since the store was opened.
type tunnels struct {
	mu   sync.Mutex
	open map[tunnelID]*tunnelEntry
}

type tunnelID struct{ instance, id string }

// tunnelEntry is a tunnel that is loaded or made by one caller while others wait for loaded.
type tunnelEntry struct {
	loaded chan struct{}
	t      *openTunnel // nil: there is none
	err    error
}

// enter returns the entry of a tunnel, and whether the caller has to call settle.
func (s *tunnels) enter(id tunnelID) (entry *tunnelEntry, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry = s.open[id]
	if entry == nil {
		entry, fresh = &tunnelEntry{loaded: make(chan struct{})}, true
		s.open[id] = entry
	}
	return entry, fresh
}

// settle ends the wait for an entry. One without a tunnel is forgotten.
func (s *tunnels) settle(id tunnelID, entry *tunnelEntry, t *openTunnel, err error) {
	entry.t, entry.err = t, err
	if t == nil || err != nil {
		s.forget(id, entry)
	}
	close(entry.loaded)
}

// forget removes an entry, unless another took its place.
func (s *tunnels) forget(id tunnelID, entry *tunnelEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] == entry {
		delete(s.open, id)
	}
}

// openTunnel is a tunnel and its tunnel.Env.
type openTunnel struct {
	*tunnel.Tunnel
	e        *Engine
	entry    *tunnelEntry
	instance string
}

// forget lets the next request load the tunnel again.
func (t *openTunnel) forget() { t.e.tunnels.forget(tunnelID{t.instance, t.ID}, t.entry) }

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
	at := tunnelID{instance, id}
	entry, _ := e.tunnels.enter(at) // the id is new, so the entry is
	t := &openTunnel{e: e, entry: entry, instance: instance}
	t.Tunnel = tunnel.New(id, spec, channels, t)
	err := t.Store(ctx, tunnel.Change{Spec: &spec, Put: channels})
	e.tunnels.settle(at, entry, t, err)
	return err
}

// tunnel finds a tunnel by its id. Errors are *Error.
func (e *Engine) tunnel(ctx context.Context, instance, id string) (*openTunnel, error) {
	t, err := e.openTunnel(ctx, instance, id)
	if err != nil {
		return nil, e.asError(err, "open tunnel", "", false)
	}
	if t == nil {
		return nil, tunnelMissing()
	}
	if found, bad := e.table(instance, t.Spec.Table); bad != nil || found.info.ID != t.Spec.TableID {
		if bad == nil || bad.Code == CodeObjectNotExist {
			t.forget()
			bad = tunnelMissing()
		}
		return nil, bad
	}
	return t, nil
}

// openTunnel finds a tunnel in memory, or loads it; nil if there is none. One caller loads, and the
// others wait.
func (e *Engine) openTunnel(ctx context.Context, instance, id string) (*openTunnel, error) {
	if len(id) != len(newTunnelID()) {
		return nil, nil
	}
	at := tunnelID{instance, id}
	for {
		entry, fresh := e.tunnels.enter(at)
		if fresh {
			t, err := e.loadTunnel(ctx, entry, instance, id)
			e.tunnels.settle(at, entry, t, err)
			return t, err
		}
		select {
		case <-entry.loaded:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !errors.Is(entry.err, context.Canceled) && !errors.Is(entry.err, context.DeadlineExceeded) {
			return entry.t, entry.err
		} // the context of the other caller ended
	}
}

// loadTunnel reads a tunnel, nil if there is none.
func (e *Engine) loadTunnel(ctx context.Context, entry *tunnelEntry, instance, id string) (*openTunnel, error) {
	t := &openTunnel{e: e, entry: entry, instance: instance}
	var spec tunnel.Spec
	found := false
	err := e.scanTunnels(ctx, tunnelKey(instance, id)[:3], func(_ []row.Value, content []byte) (err error) {
		found = true
		spec, err = tunnel.DecodeSpec(content)
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
	t.Tunnel = tunnel.New(id, spec, channels, t)
	return t, nil
}

// Store writes a change of the tunnel in one step. After an error its outcome may be unknown, so the
// next request loads the tunnel again.
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
		put(tunnelKey(t.instance, t.ID), c.Spec.Encode())
	}
	for _, id := range slices.Sorted(maps.Keys(c.Put)) {
		put(channelKey(t.instance, t.ID, id), c.Put[id].Encode())
	}
	for _, id := range c.Delete {
		batch.Row(rows, channelKey(t.instance, t.ID, id)).DeleteRow()
	}
	if err := t.e.store.Apply(ctx, batch); err != nil {
		t.forget()
		return err
	}
	return nil
}

// deleteTunnel deletes a tunnel and its rows.
func (e *Engine) deleteTunnel(ctx context.Context, t *openTunnel) error {
	rows, err := e.store.Table(tunnelTable)
	if err != nil {
		return err
	}
	err = t.Delete(ctx, func(channels []string) error {
		batch := e.store.NewBatch()
		batch.Row(rows, tunnelKey(t.instance, t.ID)).DeleteRow()
		for _, id := range channels {
			batch.Row(rows, channelKey(t.instance, t.ID, id)).DeleteRow()
		}
		return e.store.Apply(ctx, batch)
	})
	t.forget() // after an error too: its outcome may be unknown
	return err
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

// dropTunnels deletes the tunnels of a table that was dropped, also if its client has gone meanwhile.
// Their rows have no effect any more, so an error only leaves them behind.
func (e *Engine) dropTunnels(ctx context.Context, open []*openTunnel) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tunnelCleanup)
	defer cancel()
	for _, t := range open {
		if err := e.deleteTunnel(ctx, t); err != nil {
			e.logger.Error("cannot delete a tunnel of a table that was dropped", "table", t.Spec.Table, "tunnel", t.ID, "error", err)
		}
	}
}

// sweepTunnels deletes the rows of tunnels whose tables are gone: those of an instance that was cut off between
// dropping a table and deleting its tunnels. They have no effect, so an error only leaves them behind.
func (e *Engine) sweepTunnels(instance string) {
	ctx, cancel := context.WithTimeout(context.Background(), tunnelCleanup)
	defer cancel()
	var gone []string
	err := e.scanTunnels(ctx, []row.Value{row.String(instance), row.String(tunnelKind)}, func(key []row.Value, content []byte) error {
		spec, err := tunnel.DecodeSpec(content)
		if err != nil {
			return err
		}
		t, bad := e.table(instance, spec.Table)
		if bad != nil && bad.Code == CodeObjectNotExist || bad == nil && t.info.ID != spec.TableID {
			gone = append(gone, string(key[2].Bytes()))
		}
		return nil
	})
	for _, id := range gone {
		if err == nil {
			err = e.deleteTunnelRows(ctx, tunnelKey(instance, id)[:3], channelKey(instance, id, "")[:3])
		}
	}
	if err != nil && !errors.Is(err, flagstone.ErrReadOnly) {
		e.logger.Error("cannot delete the tunnels of tables that are gone", "instance", instance, "error", err)
	}
}

// deleteTunnelRows deletes the rows whose keys have one of the prefixes, in one step.
func (e *Engine) deleteTunnelRows(ctx context.Context, prefixes ...[]row.Value) error {
	rows, err := e.tunnelRows()
	if rows == nil || err != nil {
		return err
	}
	batch := e.store.NewBatch()
	for _, prefix := range prefixes {
		err := e.scanTunnels(ctx, prefix, func(key []row.Value, _ []byte) error {
			own := make([]row.Value, len(key)) // the scan reuses the memory of the key
			for i := range key {
				own[i] = key[i].Clone()
			}
			batch.Row(rows, own).DeleteRow()
			return nil
		})
		if err != nil {
			return err
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	return e.store.Apply(ctx, batch)
}

// stream finds the stream that the tunnel reads.
func (t *openTunnel) stream() (*table, *stream, error) {
	found, bad := t.e.table(t.instance, t.Spec.Table)
	if bad != nil {
		return nil, nil, bad
	}
	s, err := found.streamOf()
	if err != nil {
		return nil, nil, err
	}
	if s == nil || s.id() != t.Spec.StreamID {
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

// Millis is the monotonic clock of the store: steps of the wall clock end no lease.
func (t *openTunnel) Millis() int64 { return t.e.store.Elapsed().Milliseconds() }
