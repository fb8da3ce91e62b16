package flagstone

// P8: what a flush, a compaction, a checkpoint or the manifest wrote is read back from the device
// before what it replaces is released. A write that was lost, changed or misdirected makes the
// call fail; the store is otherwise unaffected.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// strayFile receives misdirected writes.
const strayFile = "/stray"

// badWrites are the ways in which a device gets a write wrong without an error.
var badWrites = []vfs.Action{
	vfs.Lose(), vfs.FlipBit(), vfs.Misdirect(4096), vfs.MisdirectTo(strayFile),
	vfs.OnDevice(vfs.Lose()), vfs.OnDevice(vfs.FlipBit()), vfs.OnDevice(vfs.Misdirect(4096)),
}

// badWrite is one run in which one write goes wrong.
type badWrite struct {
	*rig
	t     *testing.T
	fault *vfs.Fault
	want  string // the rows
}

// newBadWrite makes a store with files on two levels, value files of which much is
// garbage, and rows that are not flushed yet. It is on a copy of a disk, if that is
// not nil, on which it was made before.
func newBadWrite(t *testing.T, block int, made *vfs.Sim) *badWrite {
	t.Helper()
	r := &rig{t: t, clock: clocktest.NewManual(startMillis), opts: Options{
		TableFileSize: 4 << 10, WALSegmentSize: 16 << 10, ReadBack: true, Seams: Seams{ValueThreshold: 300},
	}}
	b := &badWrite{rig: r, t: t}
	if made != nil {
		r.fs = made.Image(vfs.CrashKeepAll, 1)
		b.openFaulty()
		b.want = b.rows()
		return b
	}
	r.fs = vfs.NewSim(vfs.SimOptions{BlockSize: block})
	if f, err := r.fs.Create(strayFile, vfs.OpenOptions{}); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	b.openFaulty()
	table := b.table("t", TableOptions{})
	for round := range 3 {
		for i := range 42 {
			if i%3 >= round {
				put(t, table, "p", i, "c", startMillis+int64(round), noise(rand.New(rand.NewPCG(uint64(round*100+i), 1)), 150+i%2*300))
			}
		}
		if round < 2 {
			if err := b.store.Compact(ctx()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// openFaulty opens the store on the faulty disk.
func (b *badWrite) openFaulty() {
	b.t.Helper()
	b.fault, b.exec = vfs.NewFault(b.fs, 1), executortest.NewManual()
	opts := b.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = b.fault, b.clock, b.exec
	var err error
	if b.store, err = Open("/store", opts); err != nil {
		b.t.Fatal(err)
	}
}

func (b *badWrite) rows() string {
	b.t.Helper()
	text, err := readAll(b.store)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// intact checks that every row is there: now, after a power loss, and for Check.
func (b *badWrite) intact(when string) {
	b.t.Helper()
	if got := b.rows(); got != b.want {
		b.t.Fatalf("%s:\n%s", when, difference(b.want, got))
	}
	image := b.fs.Image(vfs.CrashLoseAll, 1)
	opts := b.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = image, b.clock, executortest.NewManual()
	store, err := Open("/store", opts)
	if err != nil {
		b.t.Fatalf("%s, after a power loss: %v", when, err)
	}
	got, err := readAll(store)
	if err != nil || got != b.want {
		b.t.Fatalf("%s, after a power loss: %v\n%s", when, err, difference(b.want, got))
	}
	if err := store.Close(); err != nil {
		b.t.Fatalf("%s, after a power loss: %v", when, err)
	}
	report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: image}}, nil)
	if err != nil || len(report.Problems) > 0 {
		b.t.Fatalf("%s, after a power loss: check: %v %v", when, err, report.Problems)
	}
}

// everyBadWrite runs do once for every write to files like glob and each way in which
// it can go wrong, and judges its outcome. It returns how many runs there were.
func everyBadWrite(t *testing.T, glob string, prepare, do func(b *badWrite) error, judge func(b *badWrite, err error)) (runs int) {
	for _, block := range []int{0, -1} { // with direct I/O, and without
		made := newBadWrite(t, block, nil)
		for _, action := range badWrites {
			for nth := int64(1); ; nth++ {
				b := newBadWrite(t, block, made.fs)
				if err := prepare(b); err != nil {
					t.Fatal(err)
				}
				b.fault.Add(vfs.Rule{Ops: vfs.OpWrites, Glob: glob, Nth: nth, Action: action})
				err := do(b)
				hit := slices.ContainsFunc(b.fault.Injected(), func(i vfs.InjectionCount) bool { return i.Op&vfs.OpWrites != 0 })
				b.fault.Clear()
				if hit {
					runs++
					t.Run(fmt.Sprintf("%s %v at write %d block %d", glob, action, nth, block), func(t *testing.T) {
						b.t, b.rig.t = t, t
						judge(b, err)
					})
				}
				b.store.Close() // once more, perhaps
				if !hit || t.Failed() {
					break
				}
			}
		}
	}
	return runs
}

// refused judges a call that failed because of a bad write: its error says why, it leaves nothing
// behind, and it can be repeated.
func refused(again func(b *badWrite) error) func(b *badWrite, err error) {
	return func(b *badWrite, err error) {
		b.exec.RunAll() // obsolete files go
		if err == nil { // a bit behind the end of the file, say
			b.intact("after a bad write that does not matter")
			return
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "does not read back") {
			b.t.Fatalf("the call returned %v", err)
		}
		b.intact("after the bad write")
		if problems := strayFiles(b.store, b.fs, nil); len(problems) > 0 {
			b.t.Errorf("%v", problems)
		}
		if err := again(b); err != nil {
			b.t.Fatalf("without a fault: %v", err)
		}
		b.exec.RunAll()
		b.intact("after another attempt")
		if err := b.store.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func flush(b *badWrite) error   { return b.store.Flush(ctx()) }
func compact(b *badWrite) error { return b.store.Compact(ctx()) }
func nothing(*badWrite) error   { return nil }

func TestP08_ABadWriteOfAMergeMakesItFailAndItsInputsStay(t *testing.T) {
	for glob, least := range map[string]int{"*.sst": 28, "*.val": 28} {
		if runs := everyBadWrite(t, glob, flush, compact, refused(compact)); runs < least {
			t.Errorf("%d runs of writes to %s", runs, glob)
		}
	}
}

func TestP08_ABadWriteOfAFlushMakesItFailAndTheLogStays(t *testing.T) {
	for _, glob := range []string{"*.sst", "*.val"} {
		if runs := everyBadWrite(t, glob, nothing, flush, refused(flush)); runs < 14 {
			t.Errorf("%d runs of writes to %s", runs, glob)
		}
	}
}

// TestP08_ABadWriteOfTheManifestEndsItAndNothingIsLetGo: the edit would release the inputs of a
// compaction, or the log behind a flush.
func TestP08_ABadWriteOfTheManifestEndsItAndNothingIsLetGo(t *testing.T) {
	for _, do := range []func(b *badWrite) error{flush, compact} {
		runs := everyBadWrite(t, "MANIFEST-*", nothing, do, func(b *badWrite, err error) {
			if err == nil {
				b.exec.RunAll()
				b.intact("after a bad write that does not matter")
				return
			}
			if !errors.Is(err, ErrPoisoned) || !strings.Contains(err.Error(), "does not read back") {
				b.t.Fatalf("the call returned %v", err)
			}
			b.clock.Advance(jobs.RetryAfter)
			b.exec.RunAll()
			b.intact("after the bad write")
			b.store.Close()
			b.openFaulty()
			if err := b.store.Compact(ctx()); err != nil {
				b.t.Fatalf("without a fault: %v", err)
			}
			b.exec.RunAll()
			b.intact("after another attempt")
		})
		if runs < 28 {
			t.Errorf("%d runs", runs)
		}
	}
}

// TestP08_ABadWriteOfANewManifestMakesOpenFailAndTheOldOneStays: each Open begins a
// manifest, and deletes the one before.
func TestP08_ABadWriteOfANewManifestMakesOpenFailAndTheOldOneStays(t *testing.T) {
	for _, glob := range []string{"MANIFEST-*", "CURRENT.tmp"} {
		runs := everyBadWrite(t, glob, func(b *badWrite) error { return b.store.Close() }, func(b *badWrite) error {
			opts := b.opts
			opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = b.fault, b.clock, executortest.NewManual()
			store, err := Open("/store", opts)
			if err == nil {
				store.Close()
			}
			return err
		}, func(b *badWrite, err error) {
			if err != nil && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "does not read back")) {
				b.t.Fatalf("the call returned %v", err)
			}
			b.openFaulty()
			b.intact("after the bad write")
		})
		if runs < 14 {
			t.Errorf("%d runs of writes to %s", runs, glob)
		}
	}
}

// TestP08_ABadWriteOfACheckpointMakesItFail: also where files are copied, for want of
// links.
func TestP08_ABadWriteOfACheckpointMakesItFail(t *testing.T) {
	checkpoint := func(b *badWrite) error {
		b.fault.Add(vfs.Rule{Ops: vfs.OpLink, Times: vfs.Forever, Action: vfs.FailWith(syscall.EPERM)})
		return b.store.Checkpoint(ctx(), "/backup")
	}
	for _, glob := range []string{"/backup/sst/*/*.sst", "/backup/val/*/*.val", "/backup/MANIFEST-*", "/backup/CURRENT.tmp"} {
		runs := everyBadWrite(t, glob, nothing, checkpoint, func(b *badWrite, err error) {
			if err != nil {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "does not read back") {
					b.t.Fatalf("the call returned %v", err)
				}
				return
			}
			b.fs = b.fs.Image(vfs.CrashLoseAll, 1) // it does not matter
			report, err := Check(ctx(), "/backup", Options{Seams: Seams{FS: b.fs}}, nil)
			if err != nil || len(report.Problems) > 0 {
				b.t.Fatalf("the copy has %v %v", err, report.Problems)
			}
		})
		if runs < 14 {
			t.Errorf("%d runs of writes to %s", runs, glob)
		}
	}
}

// TestP08_ABadWriteIsFoundBesideTheMergeThatGoesOn: with goroutines, files are read back
// while the next ones are written.
func TestP08_ABadWriteIsFoundBesideTheMergeThatGoesOn(t *testing.T) {
	made := newBadWrite(t, 0, nil)
	refusals := 0
	for nth := int64(1); nth <= 12; nth++ {
		fault := vfs.NewFault(made.fs.Image(vfs.CrashKeepAll, 1), uint64(nth))
		opts := made.opts
		opts.Seams.FS = fault
		store, err := Open("/store", opts)
		if err != nil {
			t.Fatal(err)
		}
		want, err := readAll(store)
		if err != nil {
			t.Fatal(err)
		}
		fault.Add(vfs.Rule{Ops: vfs.OpWrites, Glob: "*.sst", Nth: nth, Action: vfs.Lose()})
		if err := store.Compact(ctx()); err != nil {
			refusals++
			wantError(t, "Compact", err, ErrCorrupt)
		}
		if got, err := readAll(store); err != nil || got != want {
			t.Errorf("write %d: %v\n%s", nth, err, difference(want, got))
		}
		fault.Clear()
		if err := store.Compact(ctx()); err != nil {
			t.Errorf("write %d: without a fault: %v", nth, err)
		}
		if got, err := readAll(store); err != nil || got != want {
			t.Errorf("write %d: %v\n%s", nth, err, difference(want, got))
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	if refusals < 3 { // of some others a merge in the background is refused
		t.Errorf("only %d of 12 merges were refused", refusals)
	}
}

// TestABadWriteThatIsBelieved: without reading back, a compaction trusts the device.
func TestABadWriteThatIsBelieved(t *testing.T) {
	made := newBadWrite(t, 0, nil)
	b := newBadWrite(t, 0, made.fs)
	defer func() { b.store.Close() }()
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.opts.ReadBack = false
	b.openFaulty()
	b.fault.Add(vfs.Rule{Ops: vfs.OpWrites, Glob: "*.sst", Action: vfs.OnDevice(vfs.Lose())})
	if err := flush(b); err != nil {
		t.Errorf("Flush: %v", err)
	}
	if got := b.fault.Injected(); len(got) != 1 {
		t.Errorf("injected %v", got)
	}
}

func TestP08_AnEditThatReadsBackOtherwisePoisonsAsDamage(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 0, "c", startMillis, "before")
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Glob: "MANIFEST-*", Times: vfs.Forever, Action: vfs.FlipBit()})
	var err error
	for n := 2; err == nil && n < 500; n++ { // until the bit is one of the edit's, and not of what pads it
		put(t, table, "p", n, "c", startMillis, "v")
		err = r.store.Flush(ctx())
	}
	if !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("the flush: %v", err)
	}
	if err := putContext(ctx(), table, 1, "after"); !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("a write after it: %v", err)
	}
	if got := show(t, table, "p", 0); got == "absent" {
		t.Error("the row cannot be read")
	}
}
