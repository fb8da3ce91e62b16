package flagstone

// An error at every call (T1): the workload of crash_workload_test.go runs repeatedly, each time
// with a fault at another call. The store must never panic, hang or return a wrong answer: a read
// is right or an error, a refused write leaves nothing (P2, P9), after a failed write of the log
// or the manifest every write is refused until the store is opened again (P10), and then all that
// was acknowledged is there (P1).
//
// FLAGSTONE_FAULT_FULL=1 visits every call; the quick version some.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// writesContent are the calls for which a disk has to have room.
const writesContent = vfs.OpCreate | vfs.OpWrites | vfs.OpPreallocate | vfs.OpMkdirAll | vfs.OpRename | vfs.OpLink

func TestP09_P10_AnErrorAtEveryCall(t *testing.T) {
	for _, f := range []struct {
		name   string
		rule   vfs.Rule
		cause  error // what every error must match
		sparse int   // the quick version visits one call in so many
	}{
		{"EIO", vfs.Rule{Action: vfs.FailWith(syscall.EIO)}, syscall.EIO, 41},
		{"EIO that stays", vfs.Rule{Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)}, syscall.EIO, 79},
		{"done, and EIO", vfs.Rule{Action: vfs.FailAfter(syscall.EIO)}, syscall.EIO, 73},
		{"ENOSPC", vfs.Rule{Ops: writesContent, Action: vfs.FailWith(syscall.ENOSPC)}, syscall.ENOSPC, 29},
		{"ENOSPC that stays", vfs.Rule{Ops: writesContent, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)}, syscall.ENOSPC, 31},
		{"short transfer", vfs.Rule{Action: vfs.Short(100, syscall.EIO)}, syscall.EIO, 29},
		{"short write, no space", vfs.Rule{Ops: vfs.OpWrites, Action: vfs.Short(512, syscall.ENOSPC)}, syscall.ENOSPC, 29},
		{"sync fails as on ext4", vfs.Rule{Action: vfs.FailSync(vfs.SyncFailureExt4)}, syscall.EIO, 17},
		{"sync fails as on btrfs", vfs.Rule{Action: vfs.FailSync(vfs.SyncFailureBtrfs)}, syscall.EIO, 23},
		{"bit flip in a read", vfs.Rule{Ops: vfs.OpReadAt, Action: vfs.FlipBit()}, ErrCorrupt, 13},
	} {
		t.Run(f.name, func(t *testing.T) {
			stride := f.sparse
			switch {
			case os.Getenv("FLAGSTONE_FAULT_FULL") != "":
				stride = 1
			case testing.Short():
				stride *= 8
			}
			ops := f.rule.Action.Applies()
			if f.rule.Ops != 0 {
				ops &= f.rule.Ops
			}
			total := injection{kinds: map[string]int64{}}
			calls := countCalls(t, ops)
			for nth := int64(1); nth <= calls; nth += int64(stride) {
				rule := f.rule
				rule.Nth = nth
				runWithFault(t, rule, f.cause, &total)
			}
			t.Logf("%d calls, %d runs, %d faults in %d kinds; %d errors, %d times poisoned, %d recoveries",
				calls, total.runs, total.faults, len(total.kinds), total.errors, total.poisoned, total.recoveries)
		})
	}
}

// injection is the sum of what happened in all runs.
type injection struct {
	runs, errors, poisoned, recoveries int
	faults                             int64
	kinds                              map[string]int64
}

// countCalls runs the workload without a fault.
func countCalls(t *testing.T, ops vfs.Op) int64 {
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	s := newScript(fault, withValues(scriptOptions(SyncAlways)), 3)
	s.outcome = func(err error) bool {
		t.Fatalf("without a fault, step %q: %v", s.step, err)
		return false
	}
	s.run()
	return fault.Calls(ops)
}

// victim is one run of the workload.
type victim struct {
	*script
	t     *testing.T
	label string
	cause error
	disk  *vfs.Sim
	fault *vfs.Fault
	nth   int64
	total *injection

	once    bool // the fault does not stay
	refused int  // steps that failed and left the store in order
}

func runWithFault(t *testing.T, rule vfs.Rule, cause error, total *injection) {
	disk := vfs.NewSim(vfs.SimOptions{})
	v := &victim{
		t: t, cause: cause, disk: disk, fault: vfs.NewFault(disk, uint64(rule.Nth)), nth: rule.Nth, total: total,
		once: rule.Times != vfs.Forever, label: fmt.Sprintf("%v at call %d", rule.Action, rule.Nth),
	}
	v.script = newScript(v.fault, withValues(scriptOptions(SyncAlways)), 3)
	v.script.outcome = v.outcome
	v.fault.Add(rule)
	watchdog := time.AfterFunc(3*time.Minute, func() { panic("it hangs: " + v.label + ", step " + v.step) })
	defer watchdog.Stop()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s, step %q", v.label, v.step)
			panic(p)
		}
	}()
	total.runs++
	if v.run() {
		v.checkDisk()
	}
	for _, n := range v.fault.Injected() {
		total.faults += n.Count
		total.kinds[fmt.Sprint(n.Op, n.FileType)] += n.Count
	}
}

// outcome judges the error of a step.
func (v *victim) outcome(err error) bool {
	v.total.errors++
	if !errors.Is(err, v.cause) {
		v.t.Fatalf("%s, step %q: the error does not say what happened: %v", v.label, v.step, err)
	}
	switch {
	case v.step == "open" || v.step == "close":
		v.recover()
		return false
	case errors.Is(err, ErrPoisoned):
		v.total.poisoned++
		if v.cause == syscall.ENOSPC {
			v.t.Fatalf("%s, step %q: no space is no reason to poison: %v", v.label, v.step, err)
		}
		v.checkPoisoned()
		v.recover()
		return false
	}
	v.checkReads()
	if v.refused++; v.refused > 2 && v.once {
		v.t.Fatalf("%s, step %q: one fault, and errors without end: %v", v.label, v.step, err)
	}
	// Background work that failed is tried again, and writes are accepted again.
	v.clock.Advance(jobs.RetryAfter)
	v.exec.RunAll()
	return true
}

// checkReads: a read is right or an error.
func (v *victim) checkReads() {
	got, err := readAll(v.store)
	if err == nil && !slices.ContainsFunc(v.states[v.acked:], func(o *oracle) bool { return o.text() == got }) {
		v.t.Fatalf("%s, step %q: readers do not see what was acknowledged:\n%s",
			v.label, v.step, difference(v.states[v.acked].text(), got))
	}
}

func (v *victim) checkPoisoned() {
	v.checkReads()
	for what, err := range writesOf(v.store, "a") {
		if !errors.Is(err, ErrPoisoned) {
			v.t.Fatalf("%s, step %q: %s of a poisoned store: %v", v.label, v.step, what, err)
		}
	}
	if !v.store.Metrics().Poisoned {
		v.t.Errorf("%s: the metrics do not say that the store is poisoned", v.label)
	}
	v.clock.Advance(3 * jobs.RetryAfter)
	v.exec.RunAll()
	v.checkReads()
}

// recover ends the process, or the machine, and opens the store again on a
// sound disk.
func (v *victim) recover() {
	v.total.recoveries++
	old := v.store
	var next *vfs.Sim
	policies := vfs.CrashPolicies()
	kill := v.nth%3 == 0
	if kill {
		next = v.disk.Kill()
	} else {
		next = v.disk.Crash(policies[int(v.nth/3)%len(policies)], uint64(v.nth))
	}
	if old != nil {
		old.Close() // must come back
	}
	text := v.reopenOn(next)
	if kill { // what was read back may have been in the page cache only
		v.store.Close()
		if again := v.reopenOn(next.Crash(vfs.CrashLoseAll, 1)); again != text {
			v.t.Fatalf("%s: after the power loss:\n%s", v.label, difference(text, again))
		}
	}
	_ = v.work(5) && v.scan() && v.closeAtEnd()
	v.checkDisk()
}

// reopenOn opens the store on another disk, and goes on from what it holds.
func (v *victim) reopenOn(disk *vfs.Sim) (text string) {
	v.disk, v.fs = disk, disk
	v.label += fmt.Sprintf(" (step %q), reopened", v.step)
	v.script.outcome = func(err error) bool {
		v.t.Fatalf("%s, step %q: %v", v.label, v.step, err)
		return false
	}
	if err := v.open(); err != nil {
		v.t.Fatalf("%s: %v", v.label, err)
	}
	text, err := readAll(v.store)
	if err != nil {
		v.t.Fatalf("%s: %v", v.label, err)
	}
	at := slices.IndexFunc(v.states[v.acked:], func(o *oracle) bool { return o.text() == text })
	if at < 0 {
		v.t.Fatalf("%s: not what was acknowledged:\n%s\nnor what was begun:\n%s", v.label,
			difference(v.states[v.acked].text(), text), difference(v.now().text(), text))
	}
	v.states, v.acked = []*oracle{v.states[v.acked+at]}, 0
	return text
}

// checkDisk verifies every byte of a closed store.
func (v *victim) checkDisk() {
	report, err := Check(ctx(), scriptDir, Options{Seams: Seams{FS: v.disk}}, nil)
	if err != nil || len(report.Problems) > 0 {
		v.t.Fatalf("%s: check: %v %v", v.label, err, report.Problems)
	}
	if open := v.disk.OpenFiles(); len(open) > 0 {
		v.t.Fatalf("%s: open files: %v", v.label, open)
	}
}

// TestP10_APoisonedStoreDeletesNothing: it is unknown which files the manifest on the disk names.
func TestP10_APoisonedStoreDeletesNothing(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	for range 3 {
		for i := range 3 { // files that overlap: others would not be merged
			put(t, table, "p", i, "c", startMillis, "v")
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	rows := table.Scan(ctx(), nil, nil, ScanOptions{})
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	before := tableFiles(r.fs)
	fault.Add(vfs.Rule{Glob: "MANIFEST-*", Ops: vfs.OpSyncs, Action: vfs.FailSync(vfs.SyncFailureExt4)})
	wantError(t, "Alter", table.Alter(ctx(), TableChange{Annotations: []byte("x")}), ErrPoisoned)
	rows.Close() // releases the inputs of the compaction
	r.exec.RunAll()
	if after := tableFiles(r.fs); len(before) != 4 || !slices.Equal(before, after) {
		t.Errorf("there were %v, now there are %v", before, after)
	}
	r.fs = r.fs.Crash(vfs.CrashKeepAll, 1)
	r.store.Close()
	r.open()
	if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 3 || len(tableFiles(r.fs)) != 1 {
		t.Errorf("%d rows, files %v", n, tableFiles(r.fs))
	}
}

// TestP11_AFullDiskAtEveryBlock gives the disk one block more
// from run to run.
func TestP11_AFullDiskAtEveryBlock(t *testing.T) {
	stride := int64(9)
	switch {
	case os.Getenv("FLAGSTONE_FAULT_FULL") != "":
		stride = 1
	case testing.Short():
		stride *= 4
	}
	var total injection
	for blocks := int64(3); ; blocks += stride {
		disk := vfs.NewSim(vfs.SimOptions{Capacity: blocks * 4096})
		v := &victim{
			t: t, cause: ErrNoSpace, disk: disk, fault: vfs.NewFault(disk, 1), nth: blocks, total: &total,
			label: fmt.Sprintf("a disk of %d blocks", blocks),
		}
		v.script = newScript(v.fault, withValues(scriptOptions(SyncAlways)), 3)
		v.script.outcome = func(err error) bool {
			if !vfs.IsNoSpace(err) {
				t.Fatalf("%s, step %q: the error does not say what happened: %v", v.label, v.step, err)
			}
			v.total.errors++
			return v.whenFull(err)
		}
		total.runs++
		if v.run() {
			v.checkDisk()
		}
		if total.errors == 0 {
			break // there is enough for the whole workload
		}
		total.recoveries += total.errors
		total.errors = 0
	}
	t.Logf("%d runs, %d refusals, %d times poisoned", total.runs, total.recoveries, total.poisoned)
}

// whenFull: reads go on, and so do writes once there is space.
func (v *victim) whenFull(err error) bool {
	switch {
	case v.step == "open" || v.step == "close":
		v.disk.SetCapacity(0)
		v.recover()
		return false
	case !errors.Is(err, ErrNoSpace):
		v.t.Fatalf("%s, step %q: %v", v.label, v.step, err)
	}
	v.checkReads()
	v.disk.SetCapacity(0)
	v.clock.Advance(jobs.RetryAfter)
	v.exec.RunAll()
	v.script.outcome = func(err error) bool {
		v.t.Fatalf("%s, step %q: once there was space again: %v", v.label, v.step, err)
		return false
	}
	return true
}

// TestP11_AFullDiskDoesNotPoison: if background work runs in time, a full disk is noticed before
// the log needs the space. Writes are refused, reads go on, a restart with ReadOnly can read,
// and once there is space writes go on without a restart.
func TestP11_AFullDiskDoesNotPoison(t *testing.T) {
	told := 0 // stores whose metrics say why, unless only a single write found no space
	for blocks := int64(24); blocks < 90; blocks += 3 {
		r := newRig(t, Options{MemtableSize: 3 << 10, MemoryBudget: 24 << 10, TableFileSize: 4 << 10, WALSegmentSize: 16 << 10})
		table := r.table("t", TableOptions{})
		r.fs.SetCapacity(blocks * 4096)
		acked := 0
		var err error
		for ; acked < 3000; acked++ {
			err = table.Update(ctx(), Key("p", acked), func(_ context.Context, tx *RowTx) error {
				tx.Put("c", startMillis, row.String(fmt.Sprint(acked)))
				return nil
			})
			if err != nil {
				break
			}
			r.exec.RunAll()
		}
		if !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrPoisoned) || r.store.Metrics().Poisoned {
			t.Fatalf("%d blocks, %d writes: %v", blocks, acked, err)
		}
		if strings.Contains(r.store.Metrics().Refusal, "no space left") {
			told++
		}
		check := func(what string, store *Store) {
			t.Helper()
			table, err := store.Table("t")
			if err != nil {
				t.Fatal(err)
			}
			if n := count(t, table, ScanOptions{}); n != acked {
				t.Fatalf("%d blocks, %s: %d rows, want %d", blocks, what, n, acked)
			}
		}
		check("while the disk is full", r.store)
		opts := r.opts
		opts.ReadOnly = true
		opts.Seams = Seams{FS: r.fs.Image(vfs.CrashLoseAll, 1), Clock: r.clock, Executor: executortest.NewManual()}
		restarted, err := Open("/store", opts)
		if err != nil {
			t.Fatalf("%d blocks: a restart to read: %v", blocks, err)
		}
		check("after a restart", restarted)
		restarted.Close()
		opts.ReadOnly = false
		if restarted, err := Open("/store", opts); err == nil {
			check("after a restart to write", restarted)
			restarted.Close()
		} else if !errors.Is(err, ErrNoSpace) {
			t.Errorf("%d blocks: a restart to write: %v", blocks, err)
		}
		r.fs.SetCapacity(0)
		r.clock.Advance(jobs.RetryAfter)
		r.exec.RunAll()
		put(t, table, "p", acked, "c", startMillis, "more")
		acked++
		check("with space again", r.store)
		if refusal := r.store.Metrics().Refusal; refusal != "" {
			t.Fatalf("%d blocks, with space again: %s", blocks, refusal)
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if told < 11 {
		t.Errorf("%d of 22 stores say that the disk is full", told)
	}
}

// TestP11_AStartSaysWhatSpaceItNeeds: that space is enough, and a store that is only read needs none.
func TestP11_AStartSaysWhatSpaceItNeeds(t *testing.T) {
	const segment = 1 << 20
	refused := 0
	for blocks := int64(0); blocks <= (segment+128<<10)/4096; blocks += 8 {
		r := newRig(t, Options{WALSegmentSize: segment})
		put(t, r.table("t", TableOptions{}), "p", 1, "c", startMillis, "a")
		r.ok(r.store.Close())
		used, err := r.fs.Usage("/store")
		r.ok(err)
		r.fs.SetCapacity(int64(used.Total-used.Available) + blocks*4096)
		opts := r.opts
		opts.Seams = Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}
		store, err := Open("/store", opts)
		if err != nil {
			if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "a segment of the log, after a crash for one as large as the newest, twice the size of its manifest, and 128 KiB") {
				t.Fatalf("%d blocks left: %v", blocks, err)
			}
			if blocks >= (segment+128<<10)/4096 {
				t.Fatalf("a segment and 128 KiB are not enough: %v", err)
			}
			if strings.Contains(err.Error(), "a segment of the log needs 1048576 bytes") {
				refused++
			}
			opts.ReadOnly = true
			store, err = Open("/store", opts)
			r.ok(err)
		}
		table, err := store.Table("t")
		r.ok(err)
		if n := count(t, table, ScanOptions{}); n != 1 {
			t.Fatalf("%d blocks left: %d rows", blocks, n)
		}
		r.ok(store.Close())
	}
	if refused < segment/4096/16 { // the manifest needs some before
		t.Errorf("%d starts had no space for the log", refused)
	}

	const large = 2 << 20
	for more, refusal := range map[int64]error{0: ErrNoSpace, large: nil} {
		r := newRig(t, Options{WALSegmentSize: segment})
		r.ok(putContext(ctx(), r.table("t", TableOptions{}), 1, noise(rand.New(rand.NewPCG(1, 1)), large)))
		r.fs = r.fs.Crash(vfs.CrashLoseAll, 0)
		used, err := r.fs.Usage("/store")
		r.ok(err)
		r.fs.SetCapacity(int64(used.Total-used.Available) + segment + more + 128<<10)
		seams := Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}
		store, err := Open("/store", Options{WALSegmentSize: segment, Seams: seams})
		if !errors.Is(err, refusal) {
			t.Fatalf("a record of %d bytes, and %d bytes more than a segment: %v", large, more, err)
		}
		if err == nil {
			r.ok(store.Close())
		}
		r.fs.SetCapacity(0)
		r.open()
		want(t, "rows", count(t, r.table("t", TableOptions{}), ScanOptions{}), 1)
	}
}

// fileOfRows writes rows of a few blocks to one table file.
func fileOfRows(t *testing.T, rows int) (r *rig, table *Table, name string) {
	t.Helper()
	r = newRig(t, Options{CacheSize: 1, WALSegmentSize: 16 << 10})
	table = r.table("t", TableOptions{})
	for i := range rows {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint(i, strings.Repeat("0123456789abcdef", 40)))
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	files := tableFiles(r.fs)
	if len(files) != 1 {
		t.Fatalf("table files: %v", files)
	}
	return r, table, "/" + files[0]
}

func TestP09_ADamagedBlockFailsItsRowsAndNoOthers(t *testing.T) {
	const rows = 120
	var table *Table
	r, _, name := fileOfRows(t, rows)
	pristine, err := r.fs.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r.store.Close()
	whole, all := 0, 0
	for at := int64(100); at < int64(len(pristine)); at += int64(len(pristine)) / 25 {
		if err := r.fs.FlipByte(name, at, 0x10); err != nil {
			t.Fatal(err)
		}
		r.open()
		table = r.table("t", TableOptions{})
		bad := 0
		for i := range rows {
			got, err := table.Get(ctx(), Key("p", i), ReadOptions{})
			switch {
			case err != nil:
				bad++
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(name)) {
					t.Errorf("byte %d: the error does not name the file: %v", at, err)
				}
			case got == nil:
				t.Fatalf("byte %d: row %d passes for absent", at, i)
			default:
				if v, _ := got.Value("c"); !strings.HasPrefix(v.Text(), fmt.Sprint(i, "0123")) {
					t.Fatalf("byte %d: row %d is %v", at, i, v)
				}
			}
		}
		// A scan returns the error instead of ending early.
		n, scan := 0, table.Scan(ctx(), nil, nil, ScanOptions{})
		for scan.Next() {
			n++
		}
		if (scan.Err() == nil) != (n == rows) || scan.Err() != nil && !errors.Is(scan.Err(), ErrCorrupt) {
			t.Errorf("byte %d: a scan found %d rows and %v", at, n, scan.Err())
		}
		scan.Close()
		// A compaction of it fails, and keeps its data.
		if bad > 0 && bad < rows {
			whole++
			put(t, table, "p", rows/2, "c", startMillis, fmt.Sprint(rows/2, "0123")) // what lies over it cannot pass it by
			wantError(t, "Compact", r.store.Compact(ctx()), ErrCorrupt)
			r.exec.RunAll()
			if problems := strayFiles(r.store, r.fs, nil); len(problems) > 0 {
				t.Errorf("byte %d: %v", at, problems)
			}
			if err := r.store.DropTable(ctx(), "t"); err != nil {
				t.Errorf("byte %d: a table with a damaged file cannot be dropped: %v", at, err)
			}
			r.store.Close()
			r, _, name = fileOfRows(t, rows)
			r.store.Close()
			all++
			continue
		}
		all++
		r.store.Close()
		if err := r.fs.FlipByte(name, at, 0x10); err != nil {
			t.Fatal(err)
		}
	}
	if whole < all/2 {
		t.Errorf("only %d of %d flips hit single blocks", whole, all)
	}
}

func TestP13_AMissingOrForeignFileIsRefusedByName(t *testing.T) {
	for what, damage := range map[string]func(r *rig, name string) (names string, want error){
		"table file missing": func(r *rig, name string) (string, error) {
			r.fs.Remove(name)
			return filepath.Base(name), ErrCorrupt
		},
		"manifest missing": func(r *rig, name string) (string, error) {
			for _, f := range r.fs.Files() {
				if base := filepath.Base(f); strings.HasPrefix(base, "MANIFEST-") {
					r.fs.Remove("/" + f)
					return base, ErrCorrupt
				}
			}
			return "", nil
		},
		"CURRENT missing": func(r *rig, name string) (string, error) {
			r.fs.Remove("/store/CURRENT")
			return "CURRENT", ErrCorrupt
		},
		"CURRENT and manifest missing": func(r *rig, name string) (string, error) {
			for _, f := range r.fs.Files() {
				if strings.HasPrefix(filepath.Base(f), "MANIFEST-") {
					r.fs.Remove("/" + f)
				}
			}
			r.fs.Remove("/store/CURRENT")
			return "CURRENT", ErrNotStore
		},
		"log segment missing": func(r *rig, name string) (string, error) {
			state := r.store.state()
			base := fmt.Sprintf("%06d.log", state.MinLog)
			r.fs.Remove("/store/wal/" + base)
			return base, ErrCorrupt
		},
	} {
		t.Run(what, func(t *testing.T) {
			r, table, name := fileOfRows(t, 100)
			put(t, table, "p", 500, "c", startMillis, "v")
			r.store.Close()
			names, want := damage(r, name)
			before := r.fs.Digest()
			for _, readOnly := range []bool{true, false} {
				opts := r.opts
				opts.ReadOnly = readOnly
				opts.Seams = Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}
				store, err := Open("/store", opts)
				if err == nil {
					store.Close()
				}
				if !errors.Is(err, want) || !strings.Contains(err.Error(), names) {
					t.Errorf("read-only %v: %v; want %v and the name %s", readOnly, err, want, names)
				}
				if readOnly && r.fs.Digest() != before {
					t.Error("a refused open to read has changed the disk")
				}
			}
			if open := r.fs.OpenFiles(); len(open) > 0 {
				t.Errorf("open files: %v", open)
			}
		})
	}
}

func TestP08_SwappedTableFilesAreNoticed(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	for file := range 2 {
		for i := range 40 {
			put(t, table, "p", i, "c", startMillis+int64(file), fmt.Sprint(file))
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	r.store.Close()
	files := tableFiles(r.fs)
	one, err1 := r.fs.ReadFile("/" + files[0])
	two, err2 := r.fs.ReadFile("/" + files[1])
	if err1 != nil || err2 != nil || len(files) != 2 {
		t.Fatal(files, err1, err2)
	}
	for i, content := range [][]byte{two, one} {
		if err := r.fs.Edit("/"+files[i], func([]byte) []byte { return content }); err != nil {
			t.Fatal(err)
		}
	}
	r.open()
	for i := range 40 {
		_, err := r.table("t", TableOptions{}).Get(ctx(), Key("p", i), ReadOptions{})
		wantError(t, "Get", err, ErrCorrupt)
	}
}

// TestP18_WritersAreToldWhenCompactionsFail: level 0 fills up because a file cannot be read.
// Writers get an error at last; they do not wait for ever.
func TestP18_WritersAreToldWhenCompactionsFail(t *testing.T) {
	var table *Table
	r, _, name := fileOfRows(t, 100)
	r.store.Close()
	for at := int64(100); at < 1500; at += 100 {
		if err := r.fs.FlipByte(name, at, 0xFF); err != nil {
			t.Fatal(err)
		}
	}
	store, err := Open("/store", Options{MemtableSize: 1 << 10, Seams: Seams{FS: r.fs}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err = store.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(ctx(), time.Minute)
	defer cancel()
	for i := 0; err == nil; i++ {
		err = table.Update(limit, Key("p", i%100), func(_ context.Context, tx *RowTx) error {
			tx.Put("d", startMillis, row.String(strings.Repeat("x", 200)))
			return nil
		})
	}
	wantError(t, "Update", err, ErrCorrupt)
	if err := store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	_, err = store.CreateTable(ctx(), TableSpec{Name: "u", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := store.Table("u")
	put(t, other, "p", 1, "c", startMillis, "v") // the cause is gone
}
