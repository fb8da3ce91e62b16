package ots

// This file opens the service over a store, and finds the tables of an instance. The engine
// knows no instances: it stores a table under the name "instance/table". Properties that the
// engine does not know are kept as annotations (attributes.go).

import (
	"hash/maphash"
	"log/slog"
	"sync"

	flagstone "github.com/flagstone-db/flagstone"
)

// Options configure an Engine.
type Options struct {
	// Instances are the names of the instances to serve, 1 to Limits.Instances.
	Instances []string
	// Type is the type of all these instances. Default HighPerformance.
	Type InstanceType
	// Limits to check requests against. The zero value means Documented().
	Limits Limits
	// Logger receives the causes of internal errors, which clients are not told. Default: none.
	Logger *slog.Logger
}

// Engine is the Service over a store. Its state in memory can be rebuilt from the store. A
// store must have one Engine at a time: checks of tables and generated keys rely on no other
// Engine changing tables.
type Engine struct {
	store        *flagstone.Store
	limits       Limits
	instanceType InstanceType
	logger       *slog.Logger
	failures     failures

	instancesMu sync.RWMutex
	instances   map[string]struct{}

	attributes sync.Map // table id -> *cachedAttributes
	generators generators
	sessions   sync.Map // transaction id -> *session
	meters     sync.Map // table id -> *meter
	pressure   partitionMeter
	seed       maphash.Seed
	tunnels    tunnels
	readers    readers

	tunnelCreation exclusive // a tunnel is created, so one at a time looks up shards; before tableOps
	tableOps       exclusive // operations that change the set of tables or a table's options
	opTimes        []int64   // wall clock of the newest such operations; see Limits.EnforceRates
}

var _ Service = (*Engine)(nil)

// New returns the service over store, which the caller must close. It fails if an instance name
// is malformed or repeated, or if there are none or too many.
func New(store *flagstone.Store, opts Options) (*Engine, error) {
	e := &Engine{
		store:        store,
		limits:       opts.Limits,
		instanceType: opts.Type,
		logger:       opts.Logger,
		instances:    make(map[string]struct{}, len(opts.Instances)),

		tunnelCreation: newExclusive(), tableOps: newExclusive(),
	}
	if e.limits == (Limits{}) {
		e.limits = Documented()
	}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	for i := range e.generators.partitions {
		e.generators.partitions[i] = newExclusive()
	}
	e.seed = maphash.MakeSeed()
	e.tunnels.open = make(map[tunnelID]*tunnelEntry)
	if err := CheckInstances(opts.Instances, e.limits); err != nil {
		return nil, err
	}
	for _, name := range opts.Instances {
		e.instances[name] = struct{}{}
		if store != nil { // tests of names have none
			e.sweepTunnels(name)
		}
	}
	return e, nil
}

// table is a table as one request sees it: its key and options stay the same for the request.
type table struct {
	engine  *flagstone.Table
	name    string // without the instance
	key     []flagstone.KeyColumn
	options flagstone.TableOptions
	info    flagstone.TableInfo
	attributes
}

// storedName is the engine's name of a table. Neither part can hold a slash.
func storedName(instance, name string) string { return instance + "/" + name }

// table finds a table. The error is OTSObjectNotExist, or OTSInternalServerError if the
// annotations cannot be read.
// Table returns the table of the store that holds a table of an instance. Errors are *Error.
func (e *Engine) Table(instance, name string) (*flagstone.Table, error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return nil, bad
	}
	return t.engine, nil
}

func (e *Engine) table(instance, name string) (*table, *Error) {
	found, err := e.store.Table(storedName(instance, name))
	if err != nil {
		return nil, e.asError(err, "open table", name, false)
	}
	info := found.Info()
	if info.ID == 0 { // dropped since it was found
		return nil, tableMissing()
	}
	attrs, err := e.attributesOf(&info)
	if err != nil {
		return nil, e.asError(err, "open table", name, false)
	}
	return &table{
		engine: found, name: name, key: info.Key, options: info.Options, info: info, attributes: attrs,
	}, nil
}
