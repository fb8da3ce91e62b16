package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server"
	"github.com/flagstone-db/flagstone/server/control"
)

// shutdownLimit is how long running requests may take to finish when the server stops. Closing
// the store takes additional time.
const shutdownLimit = 5 * time.Second

type serveCommand struct {
	Addr          string   `default:"127.0.0.1:8087" env:"FLAGSTONE_ADDR" help:"Address to listen on; port 0 picks a free one."`
	Dir           string   `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the store; made if it does not exist." type:"path"`
	Instance      []string `placeholder:"NAME" help:"Make this high-performance instance if it does not exist; may be given several times. The first start makes demo if none is given. See also 'flagstone instance'."`
	Sync          string   `default:"always" enum:"always,none" help:"When a write is acknowledged: always, when it is durable; none, when it is logged in memory."`
	Limits        string   `default:"documented" enum:"documented,current" help:"Limits of the service to apply: documented, those of the product documentation, or current, the newer ones."`
	Rates         bool     `name:"enforce-rates" help:"Refuse table operations above 10 per second, and changes of reserved throughput within two minutes, as the service does."`
	Units         bool     `name:"enforce-throughput" help:"Refuse requests to a partition key that has used 10,000 capacity units within the second, as the service does."`
	InstanceUnits int64    `default:"0" placeholder:"N" help:"Refuse requests to an instance that has used so many capacity units within the second; 0, the default, refuses none."`
	ReservedOnly  bool     `help:"Refuse requests to a table that has used its reserved capacity units of the second, if it has any, instead of counting more as additional."`

	Memory bool `help:"Keep all data in memory, for tests: --dir is not touched, and everything is gone when the server ends. POST /flagstone/test/reset empties it."`

	TestClock  bool `help:"Let tests set the clock over HTTP, from this machine only; see docs/testing.md. For directories of test data: what was written under a clock that was ahead stays ahead."`
	TestFaults bool `help:"Let tests make requests fail over HTTP, from this machine only; see docs/testing.md."`

	LogLevel string `default:"info" enum:"debug,info,warn,error" env:"FLAGSTONE_LOG_LEVEL" help:"What to log, on standard error: ${enum}."`

	Observe observeFlags `embed:""`

	MemoryBudget       size   `default:"256MiB" placeholder:"SIZE" help:"Bound of all memtables together, ${default} if not given."`
	MemtableSize       size   `default:"64MiB" placeholder:"SIZE" help:"Size at which a memtable is flushed, ${default} if not given."`
	TableFileSize      size   `default:"64MiB" placeholder:"SIZE" help:"Target size of table files, ${default} if not given."`
	BlockSize          size   `default:"8KiB" placeholder:"SIZE" help:"Target size of the blocks of table files, ${default} if not given, at most 1MiB. 4KiB makes random reads beyond memory faster, and tables a sixteenth larger."`
	WALSegmentSize     size   `name:"wal-segment-size" default:"16MiB" placeholder:"SIZE" help:"Size of log segments, ${default} if not given."`
	LogCompression     string `default:"auto" enum:"auto,always,never" help:"When to compress the log: ${enum}. With auto, the default, it is compressed under --sync none while writers wait for a slow device; see docs/operations.md."`
	PartitionSplitSize size   `default:"10GiB" placeholder:"SIZE" help:"Size from which a partition is split, ${default} if not given. Quiet neighbours with less than a quarter of it together are merged."`
	CacheSize          size   `default:"256MiB" placeholder:"SIZE" help:"Bound of the block cache, ${default} if not given."`

	VerifyInterval time.Duration `default:"10s" placeholder:"DURATION" help:"How long scans, and reads of large values, believe what was verified; -1s verifies at every read. ${default} if not given."`
	ReadBack       bool          `help:"Read what flushes and merges wrote back from the device before what it replaces is deleted."`
}

// Help is the long help of the command.
func (serveCommand) Help() string {
	return `SIZE is bytes, or 64KiB, 512MiB, 2GiB. The memory budget and the cache are at least 1MiB, a block 1KiB, --partition-split-size 16KiB, other sizes 64KiB.

The access key of the account, which opens every instance, is taken from FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET. Without them a pair is made at the first start, kept in <dir>/credentials, and shown once. 'flagstone instance key add' makes keys for one instance.

Sizes are those of high-performance instances together. If there are capacity instances, these take a quarter of the memory budget and an eighth of the cache on top.

When recovery is over and the server is ready it prints one line with its address. SIGINT and SIGTERM stop it in good order, during recovery too: the next start goes on.`
}

// Run serves until the context ends.
func (s *serveCommand) Run(ctx context.Context, c *output) (err error) {
	if err := s.Observe.check(); err != nil {
		return err
	}
	if err := s.checkSizes(); err != nil {
		return err
	}
	logger := s.logger(c)
	s.limitMemory()
	keepOneListening()
	if s.InstanceUnits < 0 {
		return fmt.Errorf("--instance-units is %d; give a number of capacity units, or 0 for no limit", s.InstanceUnits)
	}
	if len(s.Instance) > 0 {
		if err := ots.CheckInstances(s.Instance, s.limits()); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s; choose another with --addr: %w", s.Addr, err)
	}
	defer listener.Close()
	if err := s.checkAids(listener.Addr()); err != nil {
		return err
	}
	if s.Memory {
		// What is not data, such as keys of instances and the token of the administration port, is in files.
		if s.Dir, err = os.MkdirTemp("", "flagstone-memory-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.Dir)) }()
	}
	observer, err := s.Observe.listen(logger)
	if err != nil {
		return err
	}
	aids := s.makeAids()
	home, err := instances.OpenContext(ctx, s.Dir, instances.Options{
		Names: s.Instance, Store: s.options(aids, logger), OnEvent: observer.event, Limits: s.limits(), Logger: logger,
	})
	if errors.Is(err, context.Canceled) {
		logger.Info("stopped before the log was recovered; the next start goes on", "dir", s.Dir)
		return within(observer.close)
	}
	if err != nil {
		return errors.Join(explain(err, s.Dir), within(observer.close))
	}
	defer func() { err = errors.Join(err, within(observer.close), home.Close()) }()
	// This comes last of what can fail: a new key must be shown now.
	creds, err := loadCredentials(s.Dir, os.Getenv)
	if err != nil {
		return err
	}
	creds.warn(s.Dir, logger)
	observer.start(home)
	handler, err := s.newServer(home, creds, aids, observer, logger)
	if err != nil {
		return err
	}
	door, err := admin.Open(s.Dir, home, observer.feed, localURL(listener.Addr()), creds.id)
	if err != nil {
		return err
	}
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		observer.feed.Watch(watching, home.LoadedKeys)
	}()
	defer func() {
		unwatch()
		<-watched
		err = errors.Join(err, within(door.Close))
	}()
	s.announce(c, listener.Addr(), creds, logger)
	return s.serve(ctx, handler, listener, logger)
}

// checkSizes refuses sizes with which each write or each read is work on files.
func (s *serveCommand) checkSizes() error {
	for _, f := range []struct {
		flag        string
		given, from size
	}{
		{"--memory-budget", s.MemoryBudget, 1 << 20}, {"--memtable-size", s.MemtableSize, 64 << 10},
		{"--table-file-size", s.TableFileSize, 64 << 10}, {"--block-size", s.BlockSize, 1 << 10}, {"--wal-segment-size", s.WALSegmentSize, 64 << 10},
		{"--partition-split-size", s.PartitionSplitSize, 16 << 10}, {"--cache-size", s.CacheSize, 1 << 20},
	} {
		if f.given < f.from {
			return misuse("%s is %d bytes; give %s or more", f.flag, f.given, bytesText(int64(f.from)))
		}
	}
	return nil
}

// limitMemory makes the collector work harder when the process approaches the memory that
// running requests should need (docs/reliability.md adds it up), plus memtables and caches if
// they are on the heap. Without a limit, as much garbage as live data may gather. GOMEMLIMIT
// overrides it.
func (s *serveCommand) limitMemory() {
	const requests = 1 << 30
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := int64(requests)
	if !offheap.Apart {
		memory, cache := int64(s.MemoryBudget), int64(s.CacheSize)
		// Include the capacity store.
		limit += memory + memory/instances.MemoryShare + cache + cache/instances.CacheShare
	}
	debug.SetMemoryLimit(limit)
}

// keepOneListening gives the runtime one processor more than the machine has. While expensive
// requests of one key keep the others busy, it notices arriving requests and does small ones;
// without it the runtime looks for arrivals only every 10 ms. It does nothing if GOMAXPROCS is
// set, or if a limit of the control group leaves fewer processors.
func keepOneListening() {
	if n := runtime.GOMAXPROCS(0); n == runtime.NumCPU() && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n + 1)
	}
}

// connections is the limit of connections for a number of descriptors (0: no limit). Table
// files need most descriptors, and other files some.
func connections(descriptors int) int {
	const (
		most     = 4096
		reserved = 64
		share    = 8
	)
	if descriptors == 0 {
		return most
	}
	return max(min(most, (descriptors-reserved)/share), share)
}

func (s *serveCommand) logger(c *output) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelInfo // the parser accepts known names only
	}
	options := &slog.HandlerOptions{Level: level}
	if s.Observe.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.err, options))
	}
	return slog.New(slog.NewTextHandler(c.err, options))
}

func (s *serveCommand) options(aids testAids, logger *slog.Logger) flagstone.Options {
	opts := flagstone.Options{
		MemoryBudget: int64(s.MemoryBudget), MemtableSize: int64(s.MemtableSize),
		TableFileSize: int64(s.TableFileSize), BlockSize: int64(s.BlockSize), WALSegmentSize: int64(s.WALSegmentSize),
		PartitionSplitSize: int64(s.PartitionSplitSize), CacheSize: int64(s.CacheSize),
		VerifyInterval: s.VerifyInterval, ReadBack: s.ReadBack,
		Logger: logger,
	}
	if s.Sync == "none" {
		opts.Sync = flagstone.SyncNone
	}
	switch s.LogCompression {
	case "always":
		opts.LogCompression = flagstone.LogCompressionAlways
	case "never":
		opts.LogCompression = flagstone.LogCompressionNever
	}
	if aids.clock != nil {
		opts.Seams.Clock = aids.clock
	}
	if s.Memory {
		opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
	}
	return opts
}

// explain adds advice to an error of opening dir. The error's text names the file.
func explain(err error, dir string) error {
	switch {
	case errors.Is(err, flagstone.ErrLocked):
		return fmt.Errorf("%w; stop the other process, or choose another --dir", err)
	case errors.Is(err, flagstone.ErrCorrupt):
		return fmt.Errorf("%w; run 'flagstone check --dir %s' for a full list, and restore the store from a backup ('flagstone restore'); without one, 'flagstone salvage' makes a new store of what is intact", err, dir)
	case errors.Is(err, instances.ErrCorrupt):
		return fmt.Errorf("%w; restore it from a copy, or move it away: the tables stay, access keys of instances must be made again", err)
	case errors.Is(err, instances.ErrQuota), errors.Is(err, instances.ErrInvalid):
		return err
	case errors.Is(err, flagstone.ErrNotStore): // which matches fs.ErrNotExist
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("cannot open the store in %s; check that it is a directory this user may write to, or choose another --dir: %w", dir, err)
	}
	return fmt.Errorf("cannot open the store in %s: %w", dir, err)
}

func (s *serveCommand) limits() ots.Limits {
	limits := ots.Documented()
	if s.Limits == "current" {
		limits = ots.Current()
	}
	limits.EnforceRates, limits.EnforceThroughput = s.Rates, s.Units
	limits.InstanceUnits, limits.ReservedOnly = s.InstanceUnits, s.ReservedOnly
	return limits
}

func (s *serveCommand) newServer(home *instances.Home, creds credentials, aids testAids, observer *observer, logger *slog.Logger) (*server.Server, error) {
	var reset func(context.Context) error
	if s.Memory {
		reset = home.DropTables
	}
	return server.New(server.Config{
		Instances: func(name string) (ots.Service, string, bool) { return home.Service(name) },
		Credentials: func(id string) (server.AccessKey, bool) {
			if secret, ok := creds.lookup(id); ok {
				return server.AccessKey{Secret: secret}, true
			}
			key, ok := home.Key(id)
			return server.AccessKey{Secret: key.Secret, Instance: key.Instance}, ok
		},
		Limits: server.Limits{Connections: connections(vfs.OS().FileLimit())},
		Now:    time.Now, Logger: logger, Served: observer.request(), Faults: aids.faults, Control: control.Handler(aids.clock, aids.faults, reset),
	})
}

// within calls f with a context that ends after shutdownLimit.
func within(f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	return f(limited)
}

// localURL is the address of the server for programs of this machine.
func localURL(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", tcp.Port) // a listener on [::] takes IPv4 too
	}
	return "http://" + addr.String()
}

// announce prints the line that says the server is ready, the only one on standard output. If
// the access key is new, it also prints how to connect.
func (s *serveCommand) announce(c *output, addr net.Addr, creds credentials, logger *slog.Logger) {
	url := "http://" + addr.String()
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		logger.Warn("listening beyond this machine: traffic is signed but not encrypted", "address", addr.String())
	}
	if creds.fresh {
		name := instances.DefaultName
		if len(s.Instance) > 0 {
			name = s.Instance[0]
		}
		fmt.Fprint(c.err, creds.snippet(url, name))
	}
	fmt.Fprintf(c.out, "flagstone: serving %s on %s\n", s.Dir, url)
}

// serve answers requests until the context ends or the listener fails.
func (s *serveCommand) serve(ctx context.Context, handler *server.Server, listener net.Listener, logger *slog.Logger) error {
	failed := make(chan error, 1)
	go func() { failed <- handler.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", s.Addr, err)
	case <-ctx.Done():
	}
	logger.Info("stopping")
	limited, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	if err := handler.Shutdown(limited); err != nil {
		logger.Warn("requests were cut off", "error", err)
	}
	return nil
}
