package instances

// This file opens the stores of a directory, and looks up instances and keys for requests
// without a lock.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

const (
	// DefaultName is the instance of a new home if no other is given.
	DefaultName = "demo"
	// CapacityDir is the directory of the capacity store, within that of the home.
	CapacityDir = "capacity"

	// MemoryShare and CacheShare are divisors: the capacity store takes these fractions of the
	// memory budget and of the block cache in addition.
	MemoryShare = 4
	CacheShare  = 8
)

// Options configure a Home.
type Options struct {
	// Names of instances to create if they do not exist, of type high-performance. A new home
	// without names gets DefaultName.
	Names []string
	// Store has the options of the high-performance store; those of the capacity store are
	// derived from it. With ReadOnly, nothing is written.
	Store flagstone.Options
	// OnEvent, if not nil, is called as flagstone.Options.OnEvent, with the type of the store's instances.
	OnEvent func(kind ots.InstanceType, e flagstone.Event)
	// Limits apply to requests, and to the number of instances.
	Limits ots.Limits
	// Logger receives events. Nil discards.
	Logger *slog.Logger
}

// Home is an open directory of instances. Its methods are safe for concurrent use.
type Home struct {
	dir  string
	opts Options

	changing chan struct{} // has one while an instance is created or deleted, or a checkpoint is made; sent to before mu is taken
	held     chan struct{} // has one for each checkpoint that is held
	checking atomic.Bool   // a check runs
	mu       sync.Mutex    // held during changes
	registry *registry
	rooms    map[ots.InstanceType]*room
	closed   bool

	view atomic.Pointer[view] // replaced as a whole
}

// room is a store with the instances of one type.
type room struct {
	store  *flagstone.Store
	engine *ots.Engine // nil while there is no instance of the type
}

// view is the lookup table of requests.
type view struct {
	instances map[string]served // by name, and by name in lower case
	keys      map[string]InstanceKey
	stores    map[ots.InstanceType]*flagstone.Store
}

// served is an instance that answers requests.
type served struct {
	name   string
	engine *ots.Engine
}

// InstanceKey is an access key and the instance that it opens.
type InstanceKey struct {
	Key
	Instance string
}

// Open opens the home in dir, or makes one. It finishes deletions of instances that a crash
// interrupted. Errors of the store are those of flagstone.Open.
func Open(dir string, opts Options) (*Home, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is Open, and ends with the error of the context as flagstone.OpenContext does.
func OpenContext(ctx context.Context, dir string, opts Options) (*Home, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Limits == (ots.Limits{}) {
		opts.Limits = ots.Documented()
	}
	if len(opts.Names) > 0 {
		if err := ots.CheckInstances(opts.Names, opts.Limits); err != nil {
			return nil, err
		}
	}
	h := &Home{dir: dir, opts: opts, rooms: make(map[ots.InstanceType]*room), changing: make(chan struct{}, 1), held: make(chan struct{}, maxCheckpoints)}
	if err := h.open(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Home) open(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The lock of this store protects the whole home.
	if _, err := h.room(ctx, ots.HighPerformance); err != nil {
		return err
	}
	if !h.opts.Store.ReadOnly {
		if err := removeLeft(h.dir); err != nil {
			return err
		}
	}
	// The capacity store may hold tables of instances that are not registered.
	if _, err := os.Stat(filepath.Join(h.dir, CapacityDir, "CURRENT")); err == nil {
		if _, err := h.room(ctx, ots.Capacity); err != nil {
			return err
		}
	}
	if err := h.register(); err != nil {
		return err
	}
	for _, in := range h.registry.Instances {
		if err := h.serve(ctx, in); err != nil {
			return err
		}
	}
	h.publish()
	h.reportStrays()
	for _, in := range h.registry.clone().Instances {
		if in.Deleting && !h.opts.Store.ReadOnly {
			if err := h.finishDelete(ctx, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// register loads the registry and adds the instances of Options.Names.
func (h *Home) register() error {
	r, found, err := loadRegistry(h.dir)
	if err != nil {
		return err
	}
	names, changed := h.opts.Names, !found
	if !found && len(names) == 0 {
		names = []string{DefaultName}
	}
	for _, name := range names {
		switch in := r.find(name); {
		case in == nil:
			r.add(&record{Name: name, Type: ots.HighPerformance, CreatedMillis: h.now()})
			changed = true
		case in.Deleting:
			return fmt.Errorf("%w: instance %q is still being deleted; start without it once", ErrInvalid, name)
		}
	}
	if n := len(r.Instances); n > h.opts.Limits.Instances {
		return fmt.Errorf("%w: %d instances, at most %d are allowed; name fewer, or delete one with 'flagstone instance delete'", ErrQuota, n, h.opts.Limits.Instances)
	}
	if changed && !h.opts.Store.ReadOnly {
		if err := r.save(h.dir); err != nil {
			return err
		}
	}
	h.registry = r
	return nil
}

func (r *registry) add(in *record) {
	r.Instances = append(r.Instances, in)
	slices.SortFunc(r.Instances, func(a, b *record) int { return cmp.Compare(a.Name, b.Name) })
}

// now is the time of the store's clock, which tests control.
func (h *Home) now() int64 { return h.rooms[ots.HighPerformance].store.WallMillis() }

// room returns the store of a type, and opens or makes it if necessary. REQUIRES: mu is held.
func (h *Home) room(ctx context.Context, kind ots.InstanceType) (*room, error) {
	if r := h.rooms[kind]; r != nil {
		return r, nil
	}
	dir, opts := h.dir, h.opts.Store
	if kind == ots.Capacity {
		dir, opts = filepath.Join(dir, CapacityDir), capacityOptions(opts)
	}
	if on := h.opts.OnEvent; on != nil {
		opts.OnEvent = func(e flagstone.Event) { on(kind, e) }
	}
	store, err := flagstone.OpenContext(ctx, dir, opts)
	if err != nil {
		return nil, err
	}
	r := &room{store: store}
	h.rooms[kind] = r
	return r, nil
}

// capacityOptions saves space at the cost of slower reads: blocks are compressed harder, and
// the cache keeps fewer of them uncompressed.
func capacityOptions(o flagstone.Options) flagstone.Options {
	const mib = 1 << 20
	if o.MemoryBudget == 0 {
		o.MemoryBudget = 256 * mib
	}
	if o.CacheSize == 0 {
		o.CacheSize = 256 * mib
	}
	o.Compression = flagstone.CompressionZstd
	o.MemoryBudget = max(o.MemoryBudget/MemoryShare, 1)
	o.CacheSize = max(o.CacheSize/CacheShare, 1)
	return o
}

// serve adds an instance to the engine of its type. REQUIRES: mu is held.
func (h *Home) serve(ctx context.Context, in *record) error {
	r, err := h.room(ctx, in.Type)
	switch {
	case err != nil:
		return err
	case in.Deleting:
		return nil
	case r.engine != nil:
		return r.engine.AddInstance(in.Name)
	}
	r.engine, err = ots.New(r.store, ots.Options{
		Instances: []string{in.Name}, Type: in.Type, Limits: h.opts.Limits, Logger: h.opts.Logger,
	})
	return err
}

// publish shows the registry to requests. REQUIRES: mu is held.
func (h *Home) publish() {
	v := &view{instances: make(map[string]served), keys: make(map[string]InstanceKey), stores: make(map[ots.InstanceType]*flagstone.Store)}
	for kind, room := range h.rooms {
		v.stores[kind] = room.store
	}
	for _, in := range h.registry.Instances {
		if in.Deleting {
			continue
		}
		entry := served{in.Name, h.rooms[in.Type].engine}
		v.instances[in.Name] = entry
		if lower := strings.ToLower(in.Name); h.registry.find(lower) == in {
			v.instances[lower] = entry
		}
		for _, k := range in.Keys {
			v.keys[k.ID] = InstanceKey{Key: k, Instance: in.Name}
		}
	}
	h.view.Store(v)
}

// tablesOf returns the name, equal except for case, of an instance that has tables in the
// store, registered or not; "" if there is none.
func (r *room) tablesOf(instance string) string {
	for _, t := range r.store.Tables() {
		if name, _, ok := strings.Cut(t.Name(), "/"); ok && strings.EqualFold(name, instance) {
			return name
		}
	}
	return ""
}

// reportStrays logs instances that have tables and are not registered: they date from before
// the registry, or the registry was lost.
func (h *Home) reportStrays() {
	reported := map[string]bool{}
	for kind, room := range h.rooms {
		for _, t := range room.store.Tables() {
			name, _, ok := strings.Cut(t.Name(), "/")
			if in := h.registry.find(name); ok && (in == nil || in.Name != name) && !reported[name] {
				reported[name] = true
				h.opts.Logger.Warn("an instance has tables and is not served; create it to see them", "instance", name, "type", kind)
			}
		}
	}
}

// Service returns the engine of an instance, and the instance's name as it was created. The
// lookup ignores case.
func (h *Home) Service(instance string) (engine *ots.Engine, name string, ok bool) {
	v := h.view.Load()
	in, ok := v.instances[instance]
	if !ok {
		in, ok = v.instances[strings.ToLower(instance)]
	}
	return in.engine, in.name, ok
}

// Key returns an access key by its id. Ids are not secret.
func (h *Home) Key(id string) (InstanceKey, bool) {
	k, ok := h.view.Load().keys[id]
	return k, ok
}

// Metrics returns the figures of the stores, by the type of their instances. The name of a table
// is "instance/table"; the table in which a store keeps its tunnels is left out. REQUIRES: Close was not called.
func (h *Home) Metrics() map[ots.InstanceType]flagstone.Metrics {
	figures := make(map[ots.InstanceType]flagstone.Metrics)
	for kind, store := range h.view.Load().stores {
		of := store.Metrics()
		of.Tables = slices.DeleteFunc(of.Tables, func(t flagstone.TableMetrics) bool { return !strings.Contains(t.Name, "/") })
		for i := range of.Tables {
			instance, table, _ := strings.Cut(of.Tables[i].Name, "/")
			if used, err := h.Throughput(instance, table); err == nil { // else a stream, or a table that was dropped meanwhile
				of.Tables[i].Refused = used.Refused
			}
		}
		figures[kind] = of
	}
	return figures
}

// Figures is Metrics for package admin.
func (h *Home) Figures(context.Context) (map[ots.InstanceType]flagstone.Metrics, error) {
	return h.Metrics(), nil
}

// Poisoned returns why a store takes no writes until the home is opened again, nil if all take them.
func (h *Home) Poisoned() error {
	for kind, store := range h.view.Load().stores {
		if err := store.Poisoned(); err != nil {
			return fmt.Errorf("the %s store takes no writes until it is opened again: %w", kind, err)
		}
	}
	return nil
}

// Throughput returns the capacity units that requests to a table used since the home was opened.
func (h *Home) Throughput(instance, table string) (ots.Throughput, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return ots.Throughput{}, err
	}
	return engine.Throughput(name, table)
}

// DropTables drops the tables of all instances, which stay: for tests.
func (h *Home) DropTables(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.changeable(); err != nil {
		return err
	}
	for _, in := range h.registry.Instances {
		if in.Deleting {
			continue
		}
		if err := h.rooms[in.Type].engine.DropTables(ctx, in.Name); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the stores. It may be called again.
func (h *Home) Close() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	// The store whose lock protects the registry is closed last.
	for _, kind := range []ots.InstanceType{ots.Capacity, ots.HighPerformance} {
		if r := h.rooms[kind]; r != nil {
			err = errors.Join(err, r.store.Close())
			delete(h.rooms, kind)
		}
	}
	return err
}
