package flagstone

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/ingest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/transfer"
	"github.com/flagstone-db/flagstone/internal/txn"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

// Store is an open store. Its methods are safe for concurrent use.
type Store struct {
	dir   string
	opts  Options
	fs    vfs.FS
	clock clock.Clock

	lock     io.Closer
	manifest *manifest.Log   // nil when read-only
	frozen   *manifest.State // when read-only
	log      *wal.Writer     // nil when read-only, or if external is set
	external *external.Log   // nil if the store has its own log
	offheap  *offheap.Pool
	blocks   *sstable.BlockCache
	rows     *rowcache.Cache
	files    *tablefiles.Registry
	env      *partition.Env

	executor executor.Executor
	async    *vfs.AsyncReads
	own      *Shared // closed with the store; nil if Options.Shared was set

	issued            *storeclock.Issued
	changeMillis      func() int64 // the time of a change of the catalogue
	trusted           *storeclock.Trusted
	latches           commit.Latches
	pipeline          *commit.Pipeline
	views             *views.Set
	tableEnv          table.Env
	transactions      *txn.Set
	transactionMemory *share.Pool // of open transactions
	gate              *pressure.Gate
	events            event.Source
	batches           latency.Histogram
	jobs              *jobs.Jobs
	upkeep            *upkeep.Upkeep
	rebalancer        *rebalance.Rebalancer
	installer         *ingest.Installer
	mover             *transfer.Mover

	// merges is held, shared, while the outcome of a compaction is committed; a change of table
	// options takes it exclusively.
	merges sync.RWMutex
	// keeping is held while the manifest and the log agree on what is kept.
	keeping sync.Mutex
	shipped atomic.Int64 // see Metrics.LogShippedMicros
	lost    atomic.Int64 // see Metrics.KeptLogLostBytes

	tables tables

	// withinUpdate is the context of update functions whose caller passed context.Background.
	withinUpdate context.Context

	closed atomic.Bool
}

// Open opens the store in dir and makes one if there is none. When it returns, everything that
// was acknowledged before is readable. Errors match ErrLocked, ErrCorrupt, ErrNotStore,
// ErrInvalid, or those of the file system. Where files have permissions, Open takes away those
// that an earlier version gave to other users on the store's files; dir itself and other files in
// it keep theirs.
func Open(dir string, opts Options) (*Store, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is Open, and ends with the error of the context when that ends while the log is
// replayed. Nothing is lost then: the next Open replays what is missing.
func OpenContext(ctx context.Context, dir string, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, opts: opts, fs: opts.Seams.FS, clock: opts.Seams.Clock,
	}
	s.withinUpdate = context.WithValue(context.Background(), updateOf{s}, s)
	if opts.External != nil {
		s.external = &external.Log{First: opts.External.FirstAvailable}
		s.clock = s.external.Clock(s.clock)
	}
	if err := s.open(ctx); err != nil {
		if s.jobs != nil {
			s.jobs.Stop()
		}
		s.releaseAll()
		if vfs.IsNoSpace(err) {
			err = fmt.Errorf("to open a store takes space for a segment of the log, after a crash for one as large as the newest, twice the size of its manifest, and 128 KiB; to open it with ReadOnly takes no space: %w", err)
		}
		return nil, s.describe(err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if err := s.openFiles(); err != nil {
		return err
	}
	if err := s.external.Check(s.dir, s.state().External); err != nil {
		return err
	}
	if !s.opts.ReadOnly {
		if err := manifest.Tighten(s.fs, s.dir); err != nil {
			s.opts.Logger.Warn("others may have access to files of the store; take their permissions away", "dir", s.dir, "error", err)
		}
	}
	s.share()
	s.prepare()
	if err := s.recover(ctx); err != nil {
		return err
	}
	s.start()
	return nil
}

// openFiles takes the lock before it reads anything else, and opens or makes the manifest.
func (s *Store) openFiles() (err error) {
	mode := vfs.LockToWrite
	if s.opts.ReadOnly {
		mode = vfs.LockToRead
		if _, err := s.fs.Stat(filepath.Join(s.dir, manifest.CurrentName)); err != nil {
			_, _, err = manifest.Load(s.fs, s.dir)
			return err
		}
	} else if err := vfs.MakeDir(s.fs, "", s.dir); err != nil {
		return err
	}
	if s.lock, err = s.fs.Lock(filepath.Join(s.dir, manifest.LockName), mode); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		s.frozen, _, err = manifest.Load(s.fs, s.dir)
		return err
	}
	s.manifest, _, err = manifest.Open(s.fs, s.dir, s.opts.Logger)
	if !errors.Is(err, manifest.ErrNotStore) {
		return err
	}
	if err := manifest.RefuseForeign(s.fs, s.dir); err != nil {
		return err
	}
	var id [16]byte
	rand.Read(id[:])
	made := manifest.NewState(id)
	if s.external != nil {
		made.External = new(manifest.External)
	}
	if err := manifest.Create(s.fs, s.dir, made); err != nil {
		return err
	}
	s.manifest, _, err = manifest.Open(s.fs, s.dir, s.opts.Logger)
	return err
}

// state is the manifest's state: the tables, partitions and files.
func (s *Store) state() *manifest.State {
	if s.manifest == nil {
		return s.frozen
	}
	return s.manifest.State()
}

// share sets up what stores may have in common.
func (s *Store) share() {
	shared := s.opts.Shared
	if shared == nil {
		workers := cmp.Or(s.opts.Seams.Executor, newPool())
		s.own = newShared(s.opts.CacheSize, workers, cmp.Or(s.opts.Seams.Memory, offheap.New(offheap.Options{})))
		shared = s.own
	}
	s.executor = cmp.Or(s.opts.Seams.Executor, shared.executor)
	helpers := s.opts.Seams.Helpers
	if helpers == nil && s.opts.Seams.Executor == nil {
		helpers = shared.helpers
	}
	s.async = shared.async
	s.offheap, s.blocks, s.rows = shared.memory, shared.cache, shared.rows
	s.files = tablefiles.New(s.fs, s.dir, tablefiles.Options{
		Cache: shared.cache, Access: tablefiles.Access(s.opts.TableReads), Elapsed: s.clock.Elapsed, Helpers: helpers, Async: s.async,
		VerifyInterval: max(s.opts.VerifyInterval, 0),
	}, treeEnv{s})
}

// filterBits is the size of the bloom filters, in bits per row. It lets one of a hundred lookups
// of absent rows through.
const filterBits = 10

func (s *Store) prepare() {
	s.issued = storeclock.NewIssued(s.opts.Seams.Clock)
	s.changeMillis = s.issued.Millis
	s.trusted = storeclock.NewTrusted(s.opts.Seams.Clock, s.state().Clock, s.opts.Logger)
	s.views = views.NewSet(s.state)
	s.transactionMemory = share.NewPool(max(s.opts.MemoryBudget/transactionShare, txn.Bytes))
	s.jobs = jobs.New(s.executor, s.clock, s.jobFailed)
	s.events = event.Source{Clock: s.clock, To: s.happened}
	s.gate = pressure.NewGate(roomsEnv{s}, s.clock, s.opts.MemoryBudget)
	s.gate.Events = &s.events
	s.pipeline = commit.New(roomsEnv{s}, s.gate, s.jobs, commit.Options{
		Sync: s.opts.Sync == SyncAlways && s.external == nil, SegmentSize: s.opts.WALSegmentSize, LogBound: logFactor * s.opts.MemoryBudget, Logger: s.opts.Logger,
		Events: &s.events,
	})
	s.transactions = txn.NewSet(txn.Parts{Latches: &s.latches, Pipeline: s.pipeline, Gate: s.gate, Memory: s.transactionMemory})
	s.tableEnv = table.Env{
		State: s.state, Pipeline: s.pipeline, Files: s.files, Clock: s.clock, Issued: s.issued,
		Closed: &s.closed, PackFrom: s.opts.packFrom(),
	}
	s.upkeep = upkeep.New(upkeep.Parts{
		Env: roomsEnv{s}, Pipeline: s.pipeline, Gate: s.gate, Jobs: s.jobs, Executor: s.executor, Clock: s.clock,
	}, upkeep.Options{MemtableSize: s.opts.MemtableSize, Compaction: s.opts.levels(), Logger: s.opts.Logger})
	s.env = &partition.Env{
		Settings: partition.Settings{
			MemtableSize:   s.opts.MemtableSize,
			Table:          sstable.WriterOptions{Compression: s.opts.Compression.table(), BlockSize: int(s.opts.BlockSize), FilterBitsPerKey: filterBits},
			ValueThreshold: s.opts.valueThreshold(),
			PackValues:     s.opts.Compression != CompressionNone && !s.opts.PlainValues,
			Compaction:     s.opts.levels(),
			ReadBack:       s.opts.ReadBack,
		},
		FS: s.fs, Dir: s.dir, Clock: s.clock, Files: s.files,
		Memory: s.offheap, Rows: s.rows, Random: s.opts.Seams.Random,
		Manifest: treeEnv{s}, Retention: treeEnv{s}, Scheduler: treeEnv{s}, Executor: s.executor,
		Events: &s.events,
	}
	parts := rebalance.Parts{
		Env: rebalanceEnv{s}, Trees: s.env, Pipeline: s.pipeline, Upkeep: s.upkeep, Jobs: s.jobs, Clock: s.clock, Logger: s.opts.Logger,
	}
	if s.external != nil {
		s.changeMillis, parts.Propose = s.external.Millis, s.external.Rebalance
	}
	s.rebalancer = rebalance.New(parts, s.opts.balance())
	s.installer = &ingest.Installer{Env: ingestEnv{rebalanceEnv{s}}, Trees: s.env, Pipeline: s.pipeline, Upkeep: s.upkeep}
	s.mover = &transfer.Mover{Env: moverEnv{rebalanceEnv{s}}, Trees: s.env, Pipeline: s.pipeline, Rebalancer: s.rebalancer, Issued: s.issued}
	s.tables.load(s, s.state())
}

// commitEdit makes an edit durable. A failure to write it poisons the store;
// an edit that the manifest refuses leaves everything as it was.
func (s *Store) commitEdit(e *manifest.Edit) (*manifest.State, error) {
	// Times are read after the sequence number: every write up to it has its time already.
	if seq := s.pipeline.Visible(); seq > 0 {
		e.LastSeq = seq
		e.SeqTimes = []manifest.SeqTime{{Seq: seq, Millis: s.issued.Last()}}
	}
	if s.state().Kept.From != 0 {
		s.issued.Millis() // the note of a change has the present time
	}
	e.Issued = new(s.issued.Last())
	if s.external != nil {
		s.external.Note(e)
	}
	var state *manifest.State
	err := s.trusted.Save(func(now manifest.TrustedClock) (err error) {
		e.Clock = &now
		state, err = s.manifest.Commit(e)
		return err
	})
	switch {
	case err == nil:
		return state, nil
	case s.manifest.Poisoned() != nil:
		if !vfs.IsNoSpace(err) { // ErrNoSpace would promise that writes go on
			err = s.describe(err)
		}
		return nil, s.pipeline.Fail(err)
	}
	return nil, s.describe(err)
}

// describe maps the errors of lower packages to those of this one.
func (s *Store) describe(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrLocked), errors.Is(err, ErrPoisoned):
		return err
	case errors.Is(err, vfs.ErrLocked):
		return fmt.Errorf("%w: %s is open in another process or in this one: %w", ErrLocked, s.dir, err)
	}
	for _, d := range descriptions {
		if !errors.Is(err, d.as) && d.of(err) {
			err = fmt.Errorf("%w: %w", d.as, err)
		}
	}
	return err
}

// descriptions are the errors of this package for those of lower ones. An error can have several.
var descriptions = []struct {
	as error
	of func(error) bool
}{
	{ErrNoSpace, vfs.IsNoSpace},
	{ErrTooManyFiles, vfs.IsTooManyFiles},
	{ErrConflict, func(err error) bool { return errors.Is(err, ingest.ErrNotEmpty) }},
	{ErrNotStore, func(err error) bool { return errors.Is(err, manifest.ErrNotStore) }},
	{ErrInvalid, func(err error) bool { return errors.Is(err, transfer.ErrRefused) }},
	{ErrCorrupt, func(err error) bool {
		return errors.Is(err, wal.ErrCorrupt) || errors.Is(err, sstable.ErrCorrupt) || errors.Is(err, manifest.ErrCorrupt) ||
			errors.Is(err, valuefile.ErrCorrupt) || errors.Is(err, outfile.ErrNotWritten)
	}},
}

// sync makes everything that was written durable.
func (s *Store) sync() error { return s.describe(s.pipeline.Sync()) }

// NowMillis is the time to stamp cells with: the wall clock in milliseconds, but it never goes
// back, not even across restarts.
func (s *Store) NowMillis() int64 { return s.issued.Millis() }

// WallMillis is the wall clock in milliseconds, by which cells expire for readers.
func (s *Store) WallMillis() int64 { return s.clock.NowMillis() }

// Elapsed is a monotonic reading of the store's clock since an arbitrary start.
func (s *Store) Elapsed() time.Duration { return s.clock.Elapsed() }

// Close makes everything that was written durable and closes the store. Writes in progress fail
// or finish, and transactions are aborted. Reads at a snapshot then fail with ErrClosed. A scan that is
// open is no error: it may go on to the end of its partition, and fails with ErrClosed behind that. It
// keeps files open until it is closed, and memory until the process ends.
func (s *Store) Close() error {
	var closed bool
	s.pipeline.Between(func() { closed = s.closed.Swap(true) })
	if closed {
		return nil
	}
	var err error
	if s.log != nil && s.pipeline.Failed() == nil {
		err = s.sync()
	}
	s.jobs.Stop()
	for _, tx := range s.transactions.All() {
		tx.Terminate(ErrClosed)
	}
	return errors.Join(err, s.releaseAll())
}

// releaseAll closes what is open, in an order in which nothing is used after it is closed.
func (s *Store) releaseAll() error {
	var errs []error
	if s.own != nil {
		s.own.executor.Close()
		s.own.helpers.Close()
	}
	if s.jobs != nil {
		s.jobs.Wait()
	}
	if c := s.tables.current.Load(); c != nil {
		for _, t := range c.byID {
			for _, tree := range t.core.Trees() {
				tree.Close()
			}
		}
	}
	if s.log != nil || s.external != nil && s.external.Env != nil {
		errs = append(errs, s.closeLog())
	}
	if s.manifest != nil {
		errs = append(errs, s.manifest.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if s.own != nil {
		// Open scans keep their memory: that is no failure of the store.
		if err := s.own.release(); err != nil {
			s.opts.Logger.Warn("memory was not given back", "error", err)
		}
	}
	return errors.Join(errs...)
}
