package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const testDir = "store"

// newStore makes a store and opens it.
func newStore(t testing.TB, fsys vfs.FS) *Log {
	t.Helper()
	if err := Create(fsys, testDir, NewState(testStore)); err != nil {
		t.Fatal(err)
	}
	return openStore(t, fsys)
}

func openStore(t testing.TB, fsys vfs.FS) *Log {
	t.Helper()
	l, s, err := Open(fsys, testDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s != l.State() {
		t.Fatal("Open returns another state than the log has")
	}
	return l
}

func commit(t testing.TB, l *Log, edits ...*Edit) {
	t.Helper()
	for i, e := range edits {
		s, err := l.Commit(e)
		if err != nil {
			t.Fatalf("edit %d: %v", i, err)
		}
		if s != l.State() {
			t.Fatal("Commit returns another state than the log has")
		}
	}
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// manifests returns the numbers of the manifests in the store.
func manifests(t testing.TB, fsys vfs.FS) []uint64 {
	t.Helper()
	numbers, err := listManifests(fsys, testDir)
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

func TestCommittedEditsAreThereAfterReopening(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"simulated": vfs.NewSim(vfs.SimOptions{}), "real": vfs.OS()} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "store")
			if err := Create(fsys, dir, NewState(testStore)); err != nil {
				t.Fatal(err)
			}
			want := image(NewState(testStore))
			for i, e := range smallEdits() {
				l, s, err := Open(fsys, dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				if image(s) != want {
					t.Fatalf("before edit %d: another state than was committed", i)
				}
				commit(t, l, e)
				want = image(l.State())
				closeLog(t, l)
			}
			s, report, err := Load(fsys, dir)
			if err != nil || image(s) != want || s.StoreID != testStore {
				t.Fatalf("state differs, or %v", err)
			}
			if !report.Closed || report.Torn != 0 || report.Records != 3 || report.Number != 5 {
				t.Errorf("report %+v", report)
			}
		})
	}
}

func TestADirectoryWithoutAStoreIsToldFromADamagedOne(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	check := func(name string, want error, part string) {
		t.Helper()
		for _, open := range []func() error{
			func() error { _, _, err := Load(sim, testDir); return err },
			func() error { _, _, err := Open(sim, testDir, nil); return err },
		} {
			if err := open(); !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("%s: error %v, want %v with %q", name, err, want, part)
			}
		}
	}
	current := filepath.Join(testDir, CurrentName)
	write := func(content string) {
		t.Helper()
		if err := sim.Edit(current, func([]byte) []byte { return []byte(content) }); err != nil {
			t.Fatal(err)
		}
	}
	check("no directory", ErrNotStore, testDir)
	check("no directory", fs.ErrNotExist, testDir)
	if err := vfs.MakeDir(sim, "", testDir); err != nil {
		t.Fatal(err)
	}
	check("empty directory", ErrNotStore, testDir)

	closeLog(t, newStore(t, sim))
	good, err := sim.ReadFile(current)
	if err != nil || string(good) != currentLine(manifestName(2)) {
		t.Fatalf("CURRENT is %q, %v", good, err)
	}
	if err := Create(sim, testDir, NewState(testStore)); !errors.Is(err, errExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a store: %v", err)
	}
	for _, c := range []string{"", "MANIFEST-000002\n", "MANIFEST-000002 0000000000000000\n",
		string(good[:len(good)-1]), string(good) + "\n", strings.ToUpper(string(good)),
		currentLine("../MANIFEST-000002"), currentLine("MANIFEST-2"), currentLine("MANIFEST-0000002"),
		currentLine("MANIFEST-000000"), currentLine("manifest-000002"), currentLine("MANIFEST-00000x"), currentLine("x/../MANIFEST-000002"),
		strings.Repeat("M", 1000)} {
		write(c)
		check(fmt.Sprintf("CURRENT %.40q", c), ErrCorrupt, CurrentName)
	}
	write(currentLine(manifestName(9)))
	check("missing manifest", ErrCorrupt, "names MANIFEST-000009, which does not exist")
	write(string(good))

	name := filepath.Join(testDir, manifestName(2))
	raise := func(at int) {
		t.Helper()
		if err := sim.Edit(name, func(b []byte) []byte {
			b[at]++
			resealHeader(b)
			return b
		}); err != nil {
			t.Fatal(err)
		}
	}
	raise(8)
	check("newer version", errNewer, "format version 2")
	raise(12)
	check("unknown flag", errNewer, "flags")

	if err := sim.Remove(current); err != nil {
		t.Fatal(err)
	}
	check("CURRENT is lost", ErrCorrupt, "no CURRENT")
	if err := Create(sim, testDir, NewState(testStore)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Create over a store that lost its CURRENT: %v", err)
	}
}

func TestLoadingWritesNothing(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	commit(t, l, smallEdits()...)
	before := sim.Digest()
	fault := vfs.NewFault(sim, 1)
	s, report, err := Load(fault, testDir)
	if err != nil || image(s) != image(l.State()) || report.Closed || report.Torn != 0 {
		t.Fatalf("report %+v, error %v", report, err)
	}
	if sim.Digest() != before || fault.Calls(vfs.OpMutating) != 0 {
		t.Error("Load changed the disk")
	}
	closeLog(t, l)
}

func TestAnInvalidEditIsRefusedAndTheLogGoesOn(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	edits := smallEdits()
	commit(t, l, edits[:2]...)
	for _, c := range violations {
		var e Edit
		c.edit(&e)
		if s, err := l.Commit(&e); s != nil || !errors.Is(err, ErrInvalidEdit) {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	if l.Poisoned() != nil {
		t.Fatal(l.Poisoned())
	}
	commit(t, l, edits[2:]...)
	closeLog(t, l)
}

func TestAFailedWriteOrSyncPoisonsTheLog(t *testing.T) {
	boom := errors.New("boom")
	for name, rule := range map[string]vfs.Rule{
		"write":            {Ops: vfs.OpWriteAt, Action: vfs.FailWith(boom)},
		"short write":      {Ops: vfs.OpWriteAt, Action: vfs.Short(10, boom)},
		"write after all":  {Ops: vfs.OpWriteAt, Action: vfs.FailAfter(boom)},
		"sync":             {Ops: vfs.OpSyncData, Action: vfs.FailWith(boom)},
		"sync, after all":  {Ops: vfs.OpSyncData, Action: vfs.FailAfter(boom)},
		"sync, ext4 model": {Ops: vfs.OpSyncData, Action: vfs.FailSync(vfs.SyncFailure(0))},
	} {
		t.Run(name, func(t *testing.T) {
			sim := vfs.NewSim(vfs.SimOptions{})
			fault := vfs.NewFault(sim, 1)
			l := newStore(t, fault)
			edits := smallEdits()
			commit(t, l, edits[0])
			good := image(l.State())
			fault.Add(rule)
			_, first := l.Commit(edits[1])
			if first == nil || errors.Is(first, ErrInvalidEdit) || !strings.Contains(first.Error(), manifestName(2)) {
				t.Fatalf("error %v", first)
			}
			if _, again := l.Commit(edits[1]); again != first || l.Poisoned() != first {
				t.Errorf("later: %v and %v, want the first error %v", again, l.Poisoned(), first)
			}
			if image(l.State()) != good {
				t.Error("the state holds an edit that was not committed")
			}
			before := fault.Calls(vfs.OpMutating)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if fault.Calls(vfs.OpMutating) != before {
				t.Error("Close of a poisoned log wrote to it")
			}
			if left := sim.OpenFiles(); len(left) != 0 {
				t.Errorf("open files %v", left)
			}
		})
	}
}

// TestAFullDiskRefusesEditsAndTakesThemAgainOnceThereIsSpace: a full disk does not poison the
// log, since space is reserved before a record is written, so nothing of it is on disk (P11).
func TestAFullDiskRefusesEditsAndTakesThemAgainOnceThereIsSpace(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	commit(t, l, smallEdits()...)
	sim.SetCapacity(1)
	rng := rand.New(rand.NewPCG(1, 1))
	var full error
	accepted := 0
	for ; full == nil && accepted < 1000; accepted++ {
		_, full = l.Commit(randomEdit(rng, l.State()))
	}
	if !vfs.IsNoSpace(full) || l.Poisoned() != nil {
		t.Fatalf("after %d edits: %v, poisoned %v", accepted, full, l.Poisoned())
	}
	if accepted < 2 {
		t.Errorf("no edit fits the reserved space")
	}
	want := image(l.State())
	crashed, _, err := Load(sim.Image(vfs.CrashLoseAll, 1), testDir)
	if err != nil || image(crashed) != want {
		t.Fatalf("a crash on the full disk: %v", err)
	}
	sim.SetCapacity(0)
	commit(t, l, randomEdit(rng, l.State()))
	want = image(l.State())
	closeLog(t, l)
	if s, _, err := Load(sim, testDir); err != nil || image(s) != want {
		t.Fatal(err)
	}
}

func TestALongLogIsRotatedAndTheOldOneDeleted(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	rng := rand.New(rand.NewPCG(2, 2))
	last, rotations := manifests(t, sim)[0], 0
	for range 600 {
		commit(t, l, randomEdit(rng, l.State()))
		now := manifests(t, sim)
		if len(now) != 1 {
			t.Fatalf("manifests %v", now)
		}
		if now[0] != last {
			last, rotations = now[0], rotations+1
			if s, _, err := Load(sim.Image(vfs.CrashLoseAll, 1), testDir); err != nil || image(s) != image(l.State()) {
				t.Fatalf("after a rotation: %v", err)
			}
		}
		if info, err := sim.Stat(filepath.Join(testDir, manifestName(last))); err != nil || info.Size > 3*minRotateSize {
			t.Fatalf("manifest of %d bytes, %v", info.Size, err)
		}
	}
	if rotations < 2 {
		t.Errorf("%d rotations", rotations)
	}
	want := image(l.State())
	closeLog(t, l)
	l = openStore(t, sim)
	if image(l.State()) != want {
		t.Error("another state after reopening")
	}
	closeLog(t, l)
}

func TestARotationThatFindsNoSpaceIsPutOff(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"manifest, create":      {Ops: vfs.OpCreate, Glob: "MANIFEST-*"},
		"manifest, preallocate": {Ops: vfs.OpPreallocate, Glob: "MANIFEST-000003"},
		"manifest, write":       {Ops: vfs.OpWriteAt, Glob: "MANIFEST-000003"},
		"CURRENT.tmp, create":   {Ops: vfs.OpCreate, Glob: "CURRENT.tmp"},
		"CURRENT.tmp, write":    {Ops: vfs.OpWrite, Glob: "CURRENT.tmp"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := vfs.NewSim(vfs.SimOptions{})
			fault := vfs.NewFault(sim, 1)
			l := newStore(t, fault)
			l.rotateAt = 0
			rule.Action = vfs.FailWith(syscall.ENOSPC)
			fault.Add(rule)
			commit(t, l, smallEdits()[0])
			if got := manifests(t, sim); len(got) != 1 || got[0] != 2 {
				t.Errorf("manifests %v", got)
			}
			l.rotateAt = 0
			commit(t, l, smallEdits()[1])
			if got := manifests(t, sim); len(got) != 1 || got[0] != 4 {
				t.Errorf("later: manifests %v", got)
			}
			closeLog(t, l)
			if s, _, err := Load(sim, testDir); err != nil || image(s) != image(l.State()) {
				t.Error(err)
			}
		})
	}
}

func TestARotationThatFailsAtASyncPoisons(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"manifest":         {Ops: vfs.OpSync, Glob: "MANIFEST-000003"},
		"CURRENT.tmp":      {Ops: vfs.OpSync, Glob: "CURRENT.tmp"},
		"rename":           {Ops: vfs.OpRename},
		"directory before": {Ops: vfs.OpSyncDir},
		"directory after":  {Ops: vfs.OpSyncDir, Nth: 2},
	} {
		t.Run(name, func(t *testing.T) {
			sim := vfs.NewSim(vfs.SimOptions{})
			fault := vfs.NewFault(sim, 1)
			l := newStore(t, fault)
			l.rotateAt = 0
			rule.Action = vfs.FailWith(syscall.EIO)
			fault.Add(rule)
			if _, err := l.Commit(smallEdits()[0]); !errors.Is(err, syscall.EIO) || l.Poisoned() != err {
				t.Errorf("error %v, poisoned %v", err, l.Poisoned())
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if s, _, err := Load(sim, testDir); err != nil || image(s) != image(NewState(testStore)) {
				t.Error(err)
			}
			if left := sim.OpenFiles(); len(left) != 0 {
				t.Errorf("open files %v", left)
			}
		})
	}
}

func TestFileNumbersAreGivenOutOnceAlsoAcrossReopening(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	var mu sync.Mutex
	seen := map[uint64]bool{}
	take := func() {
		n := l.NewFileNumber()
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || seen[n] {
			t.Errorf("number %d", n)
		}
		seen[n] = true
	}
	for range 3 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					take()
				}
				if _, err := l.Commit(&Edit{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		closeLog(t, l)
		l = openStore(t, sim)
	}
	l.RaiseFileNumber(1000)
	l.RaiseFileNumber(10)
	if n := l.NewFileNumber(); n != 1001 {
		t.Errorf("after raising: %d", n)
	}
	var e Edit
	e.nextFile = 2000
	commit(t, l, &e)
	if n := l.NewFileNumber(); n != 2000 {
		t.Errorf("after an edit that raised it: %d", n)
	}
	closeLog(t, l)
}

func TestAClosedLogRefusesEdits(t *testing.T) {
	l := newStore(t, vfs.NewSim(vfs.SimOptions{}))
	closeLog(t, l)
	closeLog(t, l)
	if _, err := l.Commit(&Edit{}); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
	if l.State() == nil || l.Poisoned() != nil {
		t.Error("the state is gone, or the log poisoned")
	}
}

func TestCreateMakesAStoreWithAGivenState(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	want := mustApply(t, NewState(testStore), smallEdits()...)
	if err := Create(sim, testDir, want); err != nil {
		t.Fatal(err)
	}
	l := openStore(t, sim)
	if image(l.State()) != image(want) {
		t.Error("another state")
	}
	closeLog(t, l)
}

func BenchmarkCommit(b *testing.B) {
	for _, files := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("%d files", files), func(b *testing.B) {
			l := newStore(b, vfs.NewSim(vfs.SimOptions{}))
			var create Edit
			create.CreateTable(testTable(1, 1, "orders"))
			create.nextFile = uint64(files) + 10
			for i := range files {
				f := testFile(uint64(i+1), 0, 0, 1)
				f.Smallest, f.Largest = testKey(i/1000, i%1000), testKey(i/1000, i%1000)
				create.AddFile(1, 6, f)
			}
			commit(b, l, &create)
			b.ReportAllocs()
			for b.Loop() {
				var flush, compact Edit
				n := l.NewFileNumber()
				flush.AddFile(1, 0, testFile(n, 0, 50, 1))
				compact.DeleteFile(1, 0, n)
				commit(b, l, &flush, &compact)
			}
			closeLog(b, l)
		})
	}
}

func BenchmarkDecodeSnapshotOf10000Files(b *testing.B) {
	var create Edit
	create.CreateTable(testTable(1, 1, "orders"))
	create.nextFile = 20_000
	for i := range 10_000 {
		f := testFile(uint64(i+1), 0, 0, 1)
		f.Smallest, f.Largest = testKey(i/1000, i%1000), testKey(i/1000, i%1000)
		create.AddFile(1, 6, f)
	}
	snapshot := appendSnapshot(nil, mustApply(b, NewState(testStore), &create))
	b.SetBytes(int64(len(snapshot)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeSnapshot(snapshot, testStore); err != nil {
			b.Fatal(err)
		}
	}
}
