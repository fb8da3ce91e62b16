package flagstone

// Crash at every call (T2): the workload of crash_workload_test.go runs once, and at each call
// that changes the disk it takes pictures of what a power cut at that moment could leave. Each
// picture is opened and must show one of the states that the oracle allows: everything
// acknowledged (P1), batches whole (P2), without sync a prefix of the history (P3), every file
// that the manifest names and no other (P13), also if recovery is cut short repeatedly (P14).
//
// The quick version takes a few pictures at each call. FLAGSTONE_CRASH_FULL=n
// takes all, of n workloads (one makes about 50,000 pictures in ten minutes).

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

// crashFull is the number of workloads of the full version, 0 for the quick one.
func crashFull() int {
	n, _ := strconv.Atoi(os.Getenv("FLAGSTONE_CRASH_FULL"))
	return n
}

func TestP01_P02_P13_CrashAtEveryCallWithSync(t *testing.T) {
	crashEverywhere(t, scriptOptions(SyncAlways), vfs.SimOptions{}, 1)
}

func TestP03_CrashAtEveryCallWithoutSyncLeavesAPrefix(t *testing.T) {
	crashEverywhere(t, scriptOptions(SyncNone), vfs.SimOptions{}, 1)
}

func TestP01_CrashAtEveryCallWhereFilesSyncTheirNames(t *testing.T) {
	crashEverywhere(t, withValues(scriptOptions(SyncAlways)), vfs.SimOptions{EntriesWithFiles: true, BlockSize: 512}, 4)
}

// crasher takes pictures and judges them.
type crasher struct {
	t      *testing.T
	opts   Options
	rng    *rand.Rand // decides where recovery is cut short
	stride int        // the quick version takes pictures at one in so many calls
	often  int        // pictures are taken at one in so many calls of recovery

	calls    int
	pictures int             // judged, with those of recovery
	nested   int             // of those
	digests  map[uint64]bool // different disks
	seen     map[picture]bool
	failed   bool
}

// picture is a disk together with what it may hold.
type picture struct {
	digest      uint64
	acked, last int
}

func crashEverywhere(t *testing.T, opts Options, sim vfs.SimOptions, stride int) {
	c := &crasher{t: t, opts: opts, stride: stride, often: 60, digests: map[uint64]bool{}}
	switch {
	case crashFull() > 0:
		c.often = 40
	case testing.Short():
		c.stride *= 8
	}
	for seed := range uint64(max(crashFull(), 1)) {
		c.rng = rand.New(rand.NewPCG(seed, 2))
		c.seen = map[picture]bool{}
		c.workload(vfs.NewSim(sim), seed)
	}
	t.Logf("%d calls, %d pictures judged (%d of recovery), %d different disks",
		c.calls, c.pictures, c.nested, len(c.digests))
}

// workload runs the workload of one seed and takes pictures on the way.
func (c *crasher) workload(disk *vfs.Sim, seed uint64) {
	fault := vfs.NewFault(disk, 1)
	s := newScript(fault, c.opts, seed)
	s.outcome = func(err error) bool {
		c.t.Fatalf("seed %d, step %q: %v", seed, s.step, err)
		return false
	}
	fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
		if call.Op&vfs.OpMutating != 0 {
			c.calls++
			c.shoot(s, disk, call)
		}
	}})
	s.run()
	for _, policy := range vfs.CrashPolicies() {
		c.judge(s, disk.Image(policy, 1), fmt.Sprintf("after the end, %v", policy), 0)
	}
}

// shoot takes the pictures of one call: in the quick version by one policy,
// the next at each call.
func (c *crasher) shoot(s *script, disk *vfs.Sim, call vfs.Call) {
	policies := vfs.CrashPolicies()
	if crashFull() == 0 {
		if c.calls%c.stride != 0 {
			return
		}
		policies = policies[c.calls/c.stride%len(policies):][:1]
	}
	for _, policy := range policies {
		seeds := 1
		if crashFull() > 0 && (policy == vfs.CrashPrefix || policy == vfs.CrashSubset || policy == vfs.CrashSizeFirst) {
			seeds = 4
		}
		for n := range seeds {
			seed := uint64(c.calls*10 + n)
			label := fmt.Sprintf("step %q, before call %d (%v %s), %v, seed %d", s.step, c.calls, call.Op, call.Name, policy, seed)
			c.judge(s, disk.Image(policy, seed), label, 0)
		}
	}
}

// failure is a panic that says what is wrong with a picture. Pictures are judged inside calls of
// the engine. A test must not end these by runtime.Goexit, as t.Fatal does: the engine's locks
// would stay held.
type failure string

func (c *crasher) fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// guard reports the failure that do ends with, if any.
func (c *crasher) guard(do func()) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			c.failed = true
			c.t.Error(string(p))
		default:
			panic(p)
		}
	}()
	do()
}

// judge opens a picture, unless an equal one was judged before or a wrong one was found.
func (c *crasher) judge(s *script, disk *vfs.Sim, label string, depth int) {
	if !c.failed {
		c.guard(func() { c.look(s, disk, label, depth) })
	}
}

func (c *crasher) look(s *script, disk *vfs.Sim, label string, depth int) {
	digest := disk.Digest()
	c.digests[digest] = true
	p := picture{digest, s.acked, len(s.states)}
	if c.seen[p] {
		return
	}
	c.seen[p] = true
	c.pictures++
	if depth > 0 {
		c.nested++
	}
	unnumbered := filesAboveNext(disk)
	r := c.recover(s, disk, label, depth)
	c.checkFiles(r, disk, unnumbered, label)
	if depth == 0 {
		c.checkBackup(s, disk, label)
	}
	if c.pictures%4 == 0 {
		c.goOn(r, disk, label)
	} else if err := r.store.Close(); err != nil {
		c.fatalf("%s: close after recovery: %v", label, err)
	}
}

// recover opens a picture, and takes further ones on the way. The script it
// returns goes on from the one state that the store was found in.
func (c *crasher) recover(s *script, disk *vfs.Sim, label string, depth int) *script {
	const depths = 3
	fault := vfs.NewFault(disk, 1)
	if depth < depths {
		fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
			if call.Op&vfs.OpMutating == 0 || c.rng.IntN(c.often) != 0 {
				return
			}
			policy := vfs.CrashPolicies()[c.rng.IntN(len(vfs.CrashPolicies()))]
			inner := fmt.Sprintf("%s; in recovery before %v %s, %v", label, call.Op, call.Name, policy)
			c.judge(s, disk.Image(policy, c.rng.Uint64()), inner, depth+1)
		}})
	}
	r := newScript(fault, c.opts, uint64(c.pictures)+1000)
	r.version = s.version + 1000
	if err := r.open(); err != nil {
		c.fatalf("%s: open: %v", label, err)
	}
	fault.Observe(vfs.Observer{})
	got, err := readAll(r.store)
	if err != nil {
		c.fatalf("%s: read: %v", label, err)
	}
	at := slices.IndexFunc(s.states[s.acked:], func(o *oracle) bool { return o.text() == got })
	if at < 0 {
		c.fatalf("%s: after recovery the store shows neither what was acknowledged:\n%s\nnor what was begun (and %d states between):\n%s",
			label, difference(s.states[s.acked].text(), got), len(s.states)-s.acked-2, difference(s.now().text(), got))
	}
	r.states = []*oracle{s.states[s.acked+at]}
	r.outcome = func(err error) bool {
		c.fatalf("%s; after recovery, step %q: %v", label, r.step, err)
		return false
	}
	return r
}

// goOn writes more after a recovery, loses power again, and checks once more.
func (c *crasher) goOn(r *script, disk *vfs.Sim, label string) {
	r.work(6)
	whole := c.pictures%8 == 0
	if whole {
		r.flush()
		r.work(2)
		r.compact()
	}
	r.scan()
	again := disk.Image(vfs.CrashLoseAll, 1)
	label += "; written on and lost power again"
	r2 := c.recover(r, again, label, 3)
	if whole {
		c.checkFiles(r2, again, nil, label)
	}
	r2.closeAtEnd()
	if report, err := Check(context.Background(), scriptDir, Options{Seams: Seams{FS: again}}, nil); err != nil || len(report.Problems) > 0 {
		c.fatalf("%s: check after all: %v %v", label, err, report.Problems)
	}
	r.closeAtEnd()
}

// checkFiles compares the files of an open store with its manifest: none is missing and none is
// left over.
func (c *crasher) checkFiles(r *script, disk *vfs.Sim, tolerated map[string]bool, label string) {
	for _, problem := range strayFiles(r.store, disk, tolerated) {
		c.fatalf("%s: after recovery: %s", label, problem)
	}
}

// filesAboveNext returns the table files with numbers that the manifest has not recorded as used:
// they were begun shortly before the crash. They stay until an edit has used up their numbers,
// and the next Open after that removes them.
func filesAboveNext(disk *vfs.Sim) map[string]bool {
	above := map[string]bool{}
	state, _, err := manifest.Load(disk, scriptDir)
	if err != nil {
		return above // not a store yet
	}
	for _, name := range disk.Files() {
		relative := strings.TrimPrefix(name, strings.TrimPrefix(scriptDir, "/")+"/")
		n, ok := manifest.ParseTableName(relative)
		if !ok {
			n, ok = manifest.ParseValueName(relative)
		}
		if ok && n >= state.NextFile {
			above[relative] = true
		}
	}
	return above
}

// strayFiles lists what is wrong, and not tolerated, with the files of a store whose background
// work is done.
func strayFiles(s *Store, disk *vfs.Sim, tolerated map[string]bool) (problems []string) {
	inventory, err := manifest.TakeInventory(disk, s.dir, s.state())
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range inventory.Missing {
		problems = append(problems, name+" is missing")
	}
	if inventory.Highest >= s.manifest.NewFileNumber() {
		problems = append(problems, fmt.Sprintf("file %d may be made a second time", inventory.Highest))
	}
	segments := 0
	var manifests, copies []string
	for _, name := range disk.Files() {
		name, ok := strings.CutPrefix(name, strings.TrimPrefix(s.dir, "/")+"/")
		if !ok {
			continue
		}
		switch base := path.Base(name); {
		case strings.HasSuffix(name, ".sst"):
			if n, ok := manifest.ParseTableName(name); !ok || s.state().File(n) == nil && !tolerated[name] {
				problems = append(problems, "left over: "+name)
			}
		case strings.HasSuffix(name, ".val"):
			n, _ := manifest.ParseValueName(name)
			if _, live := s.state().ValueFile(n); !live && !tolerated[name] {
				problems = append(problems, "left over: "+name)
			}
		case strings.HasPrefix(name, "COPY-"):
			copies = append(copies, strings.TrimPrefix(name, "COPY-"))
		case strings.HasPrefix(name, "MANIFEST-"):
			manifests = append(manifests, strings.TrimPrefix(name, "MANIFEST-"))
		case strings.HasPrefix(name, "wal/"):
			segments++
		case base == manifest.LockName || base == manifest.CurrentName || base == "CURRENT.tmp":
		default:
			problems = append(problems, "unknown file "+name)
		}
	}
	if len(manifests) != 1 || len(copies) > 1 || len(copies) == 1 && copies[0] != manifests[0] {
		problems = append(problems, fmt.Sprintf("manifests %v, copies %v: %v", manifests, copies, disk.Files()))
	}
	if spares := segments - int(s.log.Segment()-s.state().MinLog+1); spares > 2 {
		problems = append(problems, fmt.Sprintf("%d log files, of which segments %d to %d count: %v",
			segments, s.state().MinLog, s.log.Segment(), disk.Files()))
	}
	return problems
}

// checkBackup opens the checkpoint that the workload makes: once acknowledged it is complete;
// before, it is complete or no store at all.
func (c *crasher) checkBackup(s *script, disk *vfs.Sim, label string) {
	if s.saved == 0 && s.step != "checkpoint" || c.pictures%8 != 0 && s.step != "checkpoint" {
		return
	}
	saved := s.saved
	if saved == 0 {
		saved = len(s.states) - 1
	}
	opts := c.opts
	opts.Seams = newScript(disk, opts, 0).seams()
	opts.ReadOnly = true
	store, err := Open(scriptBackup, opts)
	if s.saved == 0 && (errors.Is(err, ErrNotStore) || errors.Is(err, fs.ErrNotExist)) {
		return
	}
	if err != nil {
		c.fatalf("%s: open the checkpoint: %v", label, err)
	}
	defer store.Close()
	got, err := readAll(store)
	if want := s.states[saved].text(); err != nil || got != want {
		c.fatalf("%s: the checkpoint is not what it should be: %v\n%s", label, err, difference(want, got))
	}
}

// TestP14_WhatRecoveryShowsOutlivesThePowerLossAfterIt kills the process while its writes are
// only in the page cache. What recovery then shows to readers must still be there after the
// machine loses power as well.
func TestP14_WhatRecoveryShowsOutlivesThePowerLossAfterIt(t *testing.T) {
	stride, least := 13, 15
	if testing.Short() {
		stride, least = 4*stride, least/2
	}
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		shown := map[string]bool{}
		for at := 1; ; at += stride {
			got, ok := killAt(t, sync, at)
			if !ok {
				break
			}
			shown[got] = true
		}
		t.Logf("sync mode %d: %d different recovered states", sync, len(shown))
		if len(shown) < least {
			t.Errorf("only %d different states", len(shown))
		}
	}
}

// killAt kills the workload at one call. It returns what the store shows when it is opened again;
// false if the workload makes fewer calls.
func killAt(t *testing.T, sync SyncMode, at int) (text string, ok bool) {
	disk := vfs.NewSim(vfs.SimOptions{})
	fault := vfs.NewFault(disk, 1)
	s := newScript(fault, scriptOptions(sync), 0)
	var next *vfs.Sim
	calls := 0
	fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
		if call.Op&vfs.OpMutating == 0 {
			return
		}
		if calls++; calls == at {
			next = disk.Kill()
		}
	}})
	s.run()
	if next == nil {
		return "", false
	}
	label := fmt.Sprintf("sync mode %d, killed before call %d, step %q", sync, at, s.step)
	if s.store != nil {
		s.store.Close()
	}
	c := &crasher{
		t: t, opts: s.opts, rng: rand.New(rand.NewPCG(uint64(at), 9)), often: 4,
		digests: map[uint64]bool{}, seen: map[picture]bool{},
	}
	c.guard(func() {
		unnumbered := filesAboveNext(next)
		r := c.recover(s, next, label, 2)
		c.checkFiles(r, next, unnumbered, label)
		again := next.Crash(vfs.CrashLoseAll, 1)
		r.store.Close()
		r2 := c.recover(r, again, label+", recovered, then power lost", 3)
		r2.closeAtEnd()
		text = r.now().text()
	})
	return text, true
}

// TestP13_CurrentUnderTwoNamesIsNotEmptied: a crash in the middle of the rename
// of CURRENT.tmp may leave one file under both names. Staging the next CURRENT
// must not write into it.
func TestP13_CurrentUnderTwoNamesIsNotEmptied(t *testing.T) {
	r := newRig(t, Options{})
	put(t, r.table("t", TableOptions{}), "p", 1, "c", startMillis, "v")
	r.store.Close()
	if err := r.fs.Link("/store/CURRENT", "/store/CURRENT.tmp"); err != nil {
		t.Fatal(err)
	}
	if err := r.fs.SyncDir("/store"); err != nil {
		t.Fatal(err)
	}
	var pictures []*vfs.Sim
	fault := vfs.NewFault(r.fs, 1)
	fault.Observe(vfs.Observer{Before: func(vfs.Call) {
		for _, policy := range []vfs.CrashPolicy{vfs.CrashLoseAll, vfs.CrashKeepAll} {
			pictures = append(pictures, r.fs.Image(policy, 1))
		}
	}})
	s := newScript(fault, r.opts, 0)
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	fault.Observe(vfs.Observer{})
	s.store.Close()
	for i, disk := range pictures {
		r.fs = disk
		r.open()
		if got := show(t, r.table("t", TableOptions{}), "p", 1); !strings.Contains(got, "=v") {
			t.Errorf("picture %d: the row is %q", i, got)
		}
		r.store.Close()
	}
}
