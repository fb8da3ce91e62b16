package workload

// This file is the frame that a workload runs in: it opens the store, drives
// operations on one or several goroutines, and turns what it saw into figures.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Params are what a child process is told to do.
type Params struct {
	Workload string            `json:"workload"`
	Engine   string            `json:"engine"`
	Encoding rowstore.Encoding `json:"encoding"`
	Tuning   string            `json:"tuning,omitempty"`
	Round    int               `json:"round"`
	// Dir is the store's directory: empty, or a loaded one.
	Dir string `json:"dir"`
	// Rows of the row shape, Keys of the key-value shape, Beyond rows of the data
	// beyond memory.
	Rows   int `json:"rows"`
	Keys   int `json:"keys"`
	Beyond int `json:"beyond"`

	Values Values `json:"values"`
	// Unmerged leaves data sets as settling leaves them.
	Unmerged bool `json:"unmerged,omitempty"`

	Memtable int64 `json:"memtable"`
	Cache    int64 `json:"cache"`
	// MemoryLimit of the process in workloads beyond memory, and the cgroup that
	// sets it ("" if the machine lets us make none).
	MemoryLimit int64  `json:"memory_limit"`
	Cgroup      string `json:"cgroup,omitempty"`
	// ReadSeconds is how long reads are timed, LimitSeconds when a phase is
	// stopped whatever it does.
	ReadSeconds  float64 `json:"read_seconds"`
	LimitSeconds float64 `json:"limit_seconds"`

	CPUProfile string `json:"cpu_profile,omitempty"`
}

// env is a running workload.
type env struct {
	Params
	spec     *Spec
	engine   rowstore.Engine
	clock    atomic.Int64 // what the store's clock shows, where the spec wants that
	store    rowstore.Store
	memory   *memoryWatch
	figures  *json.Encoder
	progress io.Writer
	workers  []*worker
}

// worker is one goroutine's share: its session, its memory, and its clock.
type worker struct {
	*env
	id      int
	session rowstore.Session
	random  random
	row     rowstore.Row
	buf     []byte // to compare values with
	key     []byte
	maker   *maker
	batch   []rowstore.Row
	wide    []rowstore.Cell
	big     []byte
	name    [1][]byte
	// inserted is how many keys this worker has added behind the loaded ones.
	inserted uint64
	// expect is what sampled cells were last written with: row*columns+column to
	// generation. A row is written by one worker only.
	expect map[uint64]uint32

	// What loop counts: the times of operations by their kind, which the
	// operation sets (0 unless a workload has two), operations and units.
	kind  int
	hists [2]Histogram
	units int64
	ops   uint64
	err   error

	visits visitState
}

// config is how the store is opened.
func (e *env) config() rowstore.Config {
	cfg := rowstore.Defaults(e.Dir, e.Encoding)
	cfg.Memtable, cfg.Cache, cfg.MemoryLimit = e.Memtable, e.Cache, 0
	cfg.Tuning = e.Tuning
	cfg.Sync, cfg.Writers = e.spec.sync, e.spec.Threads
	if e.spec.maxVersions > 0 {
		cfg.MaxVersions = e.spec.maxVersions
	}
	if e.spec.ttl > 0 {
		cfg.TTL, cfg.NowMillis = e.spec.ttl, e.clock.Load
	}
	if e.spec.Set == setBeyond {
		cfg.MemoryLimit = e.MemoryLimit
		cfg.Memtable, cfg.Cache = e.MemoryLimit/8, e.MemoryLimit/4
	}
	return cfg
}

func (e *env) open() (err error) {
	e.store, err = e.engine.Open(e.config())
	return err
}

func (e *env) close() error {
	var errs []error
	for _, w := range e.workers {
		errs = append(errs, w.session.Close())
	}
	e.workers = nil
	if e.store != nil {
		errs = append(errs, e.store.Close())
		e.store = nil
	}
	return errors.Join(errs...)
}

// processors gives a program whose engine waits for the device in calls at least n of Go's processors,
// so that n readers can wait at once; GOMAXPROCS counts for them what the machine can compute, not
// what it can wait for. Data of up to half of the memory is read from there, where more processors cost
// Pebble a fifth of its gets. It returns what takes them back.
func (e *env) processors(n int) (restore func()) {
	if taken, _ := e.space(); e.engine.Parks || taken <= e.MemoryLimit/2 {
		return func() {}
	}
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(before, n))
	return func() { runtime.GOMAXPROCS(before) }
}

// team returns n workers, made when they are first asked for.
func (e *env) team(n int) ([]*worker, error) {
	for len(e.workers) < n {
		session, err := e.store.Session()
		if err != nil {
			return nil, err
		}
		id := len(e.workers)
		e.workers = append(e.workers, &worker{
			env: e, id: id, session: session,
			// Rounds differ, engines within a round do not.
			random: random(mix(uint64(e.Round)<<16 + uint64(id))),
			buf:    make([]byte, max(e.spec.size, e.spec.bigSize)), key: make([]byte, 0, 64),
			maker:  newMaker(e.spec.columns(), e.spec.size, e.spec.order, e.Values),
			expect: map[uint64]uint32{},
		})
	}
	return e.workers[:n], nil
}

// phase is a stretch of a workload that becomes a figure.
type phase struct {
	e      *env
	name   string
	unit   string
	before usage
	after  usage          // of what is counted; checks of answers come later
	stats  rowstore.Stats // before, too
	figure Figure
	kinds  [2]Histogram
}

// operation does the i-th operation of all and returns how many units it was.
type operation func(w *worker, i uint64) (units int, err error)

// begin starts measuring.
func (e *env) begin(name, unit string) *phase {
	if name != "" {
		name = "/" + name
	}
	name = e.spec.Name + name
	fmt.Fprintf(e.progress, "%s\n", name)
	runtime.GC()
	return &phase{e: e, name: name, unit: unit, stats: e.store.Stats(), before: usageNow()}
}

// drive does operations first, first+1, ... on n goroutines until count are done
// (0: without end) or the time is over.
func (e *env) drive(n int, first, count uint64, limit time.Duration, op operation) (elapsed time.Duration, stopped bool, err error) {
	team, err := e.team(n)
	if err != nil {
		return 0, false, err
	}
	var wg sync.WaitGroup
	var halt atomic.Bool
	start := time.Now()
	for _, w := range team {
		w.kind, w.hists, w.units, w.ops, w.err = 0, [2]Histogram{}, 0, 0, nil
		wg.Go(func() {
			w.err = w.loop(start, first, count, uint64(n), limit, op, &halt)
			if w.err != nil {
				halt.Store(true)
			}
		})
	}
	wg.Wait()
	elapsed = time.Since(start)
	var done uint64
	for _, w := range team {
		err = errors.Join(err, w.err)
		done += w.ops
	}
	return elapsed, count > 0 && done < count, err
}

// loop is the part of one worker in drive. An operation's time runs from the
// end of the one before, so making its key and values is in it (0.02 us and
// 0.02 us per value of 100 bytes), and asking the clock is, once.
func (w *worker) loop(start time.Time, first, count, step uint64, limit time.Duration, op operation, halt *atomic.Bool) error {
	last := time.Since(start)
	for i := uint64(w.id); count == 0 || i < count; i += step {
		units, err := op(w, first+i)
		if err != nil {
			return err
		}
		now := time.Since(start)
		w.hists[w.kind].Add(now - last)
		last = now
		w.units += int64(units)
		w.ops++
		if now >= limit || halt.Load() {
			return nil
		}
	}
	return nil
}

// run drives the phase's operations and adds what came of it to that of earlier runs.
func (p *phase) run(n int, first, count uint64, limit time.Duration, op operation) error {
	elapsed, stopped, err := p.e.drive(n, first, count, limit, op)
	if err != nil {
		return err
	}
	p.take(elapsed, p.e.workers[:n])
	p.figure.Stopped = stopped
	return nil
}

// take adds what the workers counted.
func (p *phase) take(elapsed time.Duration, team []*worker) {
	f := &p.figure
	for _, w := range team {
		for k := range p.kinds {
			p.kinds[k].Merge(&w.hists[k])
		}
		f.Ops += w.units
	}
	f.Seconds += elapsed.Seconds()
	all := p.kinds[0]
	all.Merge(&p.kinds[1])
	f.quantiles(&all)
	// Allocations are the operations', not those of the settling after them.
	p.after = usageNow()
	calls := float64(max(all.Count(), 1))
	f.Allocs = float64(p.after.mallocs-p.before.mallocs) / calls
	f.AllocBytes = float64(p.after.allocBytes-p.before.allocBytes) / calls
}

func (f *Figure) quantiles(h *Histogram) {
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	f.P50, f.P99, f.P999 = us(h.Quantile(0.5)), us(h.Quantile(0.99)), us(h.Quantile(0.999))
	f.Max = us(h.Max())
}

// settle waits for the store's background work, and counts what it costs and how long
// it takes.
func (p *phase) settle() error {
	took, err := p.rest()
	p.figure.Settle = max(took.Seconds(), 1e-6)
	now := p.e.store.Stats()
	for name, n := range map[string]int64{
		"bytes_flushed": now.Flushed - p.stats.Flushed, "bytes_compacted": now.Compacted - p.stats.Compacted,
		"bytes_logged": now.Logged - p.stats.Logged,
	} {
		if n > 0 { // the engine says
			p.extra(name, float64(n))
		}
	}
	return err
}

// settleAside is settle for headlines that are without settling: what it costs is
// counted, how long it takes is told beside them.
func (p *phase) settleAside() error {
	took, err := p.rest()
	p.extra("settle_seconds", took.Seconds())
	return err
}

// rest waits for the store's background work and returns how long that took, without
// what it took to learn that it was over. What comes next begins when the device has
// all that was written.
func (p *phase) rest() (time.Duration, error) {
	start := time.Now()
	asking, err := p.e.store.Settle()
	took := time.Since(start) - asking.Late
	p.after = usageNow()
	p.after.cpu -= asking.CPU.Seconds()
	if err != nil {
		return took, err
	}
	start = time.Now()
	err = rowstore.WritePageCache(p.e.Dir)
	p.figure.Written = time.Since(start).Seconds()
	return took, err
}

// end makes the figure and reports it. REQUIRES: run was called, and settle or
// settleAside where something was written.
func (p *phase) end() error {
	f := &p.figure
	f.Name, f.Unit = p.name, p.unit
	if f.Seconds > 0 {
		f.Rate = float64(f.Ops) / f.Seconds
	}
	if f.Settle > 0 {
		f.RateSettled = float64(f.Ops) / (f.Seconds + f.Settle)
	}
	f.CPU = p.after.cpu - p.before.cpu
	f.WriteBytes, f.ReadBytes = p.after.written-p.before.written, p.after.read-p.before.read
	f.Space, f.LogSpace = p.e.space()
	f.PeakRSS, f.PeakAnon, f.PeakFile = p.e.memory.peaks()
	return p.e.figures.Encode(f)
}

// extra adds a figure that only this workload has.
func (p *phase) extra(name string, value float64) {
	if p.figure.Extra == nil {
		p.figure.Extra = map[string]float64{}
	}
	p.figure.Extra[name] = value
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// writes measures writing: count operations of one worker, and the settling after
// them. Of what the time was too short for, the rest is done without looking: what
// comes next relies on all of it.
func (e *env) writes(name, unit string, count uint64, op operation) error {
	p := e.begin(name, unit)
	if err := p.run(1, 0, count, seconds(e.LimitSeconds), op); err != nil {
		return err
	}
	done := e.workers[0].ops
	if err := p.settle(); err != nil {
		return err
	}
	if err := p.end(); err != nil || done == count {
		return err
	}
	if err := e.complete(done, count-done, op); err != nil {
		return err
	}
	return e.settled()
}

// settled waits without looking until the store has nothing to do, and the kernel nothing
// to write.
func (e *env) settled() error {
	if _, err := e.store.Settle(); err != nil {
		return err
	}
	return rowstore.WritePageCache(e.Dir)
}

// complete does operations without looking, all of them: the runner ends a child that
// takes too long.
func (e *env) complete(first, count uint64, op operation) error {
	_, _, err := e.drive(1, first, count, math.MaxInt64, op)
	return err
}

// updates measures writing over what is there, for the time. Its headline is
// without settling, which after so short a while would be most of it.
func (e *env) updates(name, unit string, n int, op operation) error {
	p := e.begin(name, unit)
	if err := p.run(n, 0, 0, seconds(e.ReadSeconds), op); err != nil {
		return err
	}
	if err := p.settleAside(); err != nil {
		return err
	}
	return p.end()
}

// reads measures reading, once warmUp has read without looking.
func (e *env) reads(name, unit string, n int, op operation) error {
	if err := e.warmUp(n, op); err != nil {
		return err
	}
	p := e.begin(name, unit)
	if err := p.run(n, 0, 0, seconds(e.ReadSeconds), op); err != nil {
		return err
	}
	return p.end()
}

// warmUp reads for a third of the time of measuring, and until the block cache
// can be full: to fill it costs first touches of its memory and of the mapped
// files, which is not what the workload is to show. A block is 4 KiB; two caches
// of single reads, or one of the rows of ranges and scans, are enough.
func (e *env) warmUp(n int, op operation) error {
	const block, mostSeconds = 4 << 10, 5
	calls, units := uint64(2*e.Cache/block), e.Cache/(columnCount*valueSize)
	start := time.Now()
	for {
		if _, _, err := e.drive(n, 0, 0, seconds(max(e.ReadSeconds/3, 0.05)), op); err != nil {
			return err
		}
		var done uint64
		var read int64
		for _, w := range e.workers[:n] {
			done += w.ops
			if w.units > int64(w.ops) { // ranges and scans
				read += w.units
			}
		}
		calls, units = calls-min(calls, done), units-read
		if calls == 0 || units <= 0 || time.Since(start) >= seconds(min(mostSeconds, e.LimitSeconds)) {
			return nil
		}
	}
}
