package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestSimRefusesEverythingAfterTheCrash(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	f := create(t, sim, "a")
	write(t, f, "x")
	lock, err := sim.Lock("LOCK", vfs.LockToWrite)
	must(t, err)
	after := sim.Crash(vfs.CrashKeepAll, 1)
	for _, err := range callEverything(sim, f, lock) {
		wantError(t, err, vfs.ErrCrashed)
	}
	wantContent(t, after, "a", "x")
	lock, err = after.Lock("LOCK", vfs.LockToWrite)
	must(t, err)
	must(t, lock.Close())
}

// callEverything makes every call of the interfaces and returns their errors.
func callEverything(fsys vfs.FS, f vfs.File, lock io.Closer) []error {
	errs := []error{
		fsys.Remove("a"), fsys.RemoveDir("a"), fsys.Rename("a", "b"), fsys.Link("a", "b"), fsys.MkdirAll("d"),
		fsys.SyncDir("."), f.Sync(), f.SyncData(), f.Truncate(1), f.Preallocate(1), lock.Close(), f.Close(),
	}
	last := func(_ any, err error) { errs = append(errs, err) }
	last(fsys.Create("a", vfs.OpenOptions{}))
	last(fsys.Open("a", vfs.OpenOptions{}))
	last(fsys.OpenReadWrite("a", vfs.OpenOptions{}))
	last(fsys.List("."))
	last(fsys.Stat("a"))
	last(fsys.Lock("LOCK", vfs.LockToWrite))
	if sim, ok := fsys.(*vfs.Sim); ok {
		last(sim.Usage("."))
	}
	last(f.ReadAt(make([]byte, 1), 0))
	last(f.WriteAt([]byte("y"), 0))
	last(f.Write([]byte("y")))
	last(f.Size())
	return errs
}

func TestSimHoldsPreparedLogsInLittleMemory(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	f := create(t, sim, "f")
	zeros := make([]byte, 1<<20)
	allocs := testing.AllocsPerRun(1, func() {
		must(t, f.Truncate(0))
		for i := range int64(64) {
			_, err := f.WriteAt(zeros, i<<20)
			must(t, err)
		}
		must(t, f.Sync())
	})
	if allocs > 1000 { // one for each page would be 16384
		t.Errorf("%v allocations for a file of zeros", allocs)
	}
	if u, err := sim.Usage("."); err != nil || u.Total-u.Available != 64<<20 {
		t.Errorf("takes %d bytes of the disk, %v; want 64 MiB", u.Total-u.Available, err)
	}
}

func TestSimContentThatWasCutOffDoesNotComeBack(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	f := create(t, sim, "f")
	must(t, sim.SyncDir("."))
	write(t, f, strings.Repeat("x", 10_000))
	must(t, f.Sync())
	must(t, f.Truncate(100))
	must(t, f.Truncate(10_000))
	must(t, f.SyncData())
	want := strings.Repeat("x", 100) + string(make([]byte, 9900))
	wantContent(t, sim, "f", want)
	for _, policy := range vfs.CrashPolicies() {
		wantContent(t, sim.Image(policy, 7), "f", want)
	}
}

func TestSimFullDiskTakesWhatFitsAndGivesItBack(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{Capacity: 4 * 4096})
	f := create(t, sim, "f")
	n, err := f.Write(make([]byte, 5*4096))
	if n != 4*4096 || !vfs.IsNoSpace(err) {
		t.Fatalf("Write = %d, %v; want 16384 and no space", n, err)
	}
	if _, err := f.WriteAt([]byte("over what is there"), 100); err != nil {
		t.Errorf("overwriting needs no space, but: %v", err)
	}
	g := create(t, sim, "g")
	if _, err := g.Write([]byte("x")); !vfs.IsNoSpace(err) {
		t.Errorf("error %v; want no space", err)
	}
	must(t, f.Truncate(4096))
	must(t, g.Preallocate(3*4096))
	if err := g.Preallocate(4 * 4096); !vfs.IsNoSpace(err) {
		t.Errorf("error %v; want no space", err)
	}
	wantAvailable(t, sim, 0)
	if _, err := g.Write(make([]byte, 3*4096)); err != nil {
		t.Errorf("writing into reserved space: %v", err)
	}
	must(t, sim.Remove("g"))
	wantAvailable(t, sim, 0) // the file is still open
	mustClose(t, g)
	wantAvailable(t, sim, 3*4096)
	sim.SetCapacity(100)
	wantAvailable(t, sim, 0) // less than a page counts as one page, which is taken
	if err := f.Preallocate(2 * 4096); !vfs.IsNoSpace(err) {
		t.Errorf("error %v; want no space", err)
	}
	sim.SetCapacity(0)
	must(t, f.Preallocate(1<<30))
	must(t, f.Truncate(4096))
	sim.SetCapacity(4 * 4096)
	must(t, f.Preallocate(2*4096))
	must(t, f.Sync())
	must(t, sim.SyncDir("."))
	wantAvailable(t, sim.Crash(vfs.CrashLoseAll, 1), 2*4096)
}

func wantAvailable(t *testing.T, sim *vfs.Sim, want uint64) {
	t.Helper()
	if u, err := sim.Usage("."); err != nil || u.Available != want {
		t.Errorf("available %d, %v; want %d", u.Available, err, want)
	}
}

func TestSimDamageIsSeenAtOnceAndAfterACrash(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	put(t, sim, "f", "0123456789")
	must(t, sim.SyncDir("."))
	must(t, sim.FlipByte("f", 3, 0xFF))
	must(t, sim.Cut("f", 5))
	must(t, sim.Edit("f", func(b []byte) []byte { return append(b, '!') }))
	want := "012\xcc4!"
	wantContent(t, sim, "f", want)
	wantContent(t, sim.Crash(vfs.CrashLoseAll, 1), "f", want)
	next := sim.Crash(vfs.CrashKeepAll, 1)
	if err := next.FlipByte("f", 6, 1); err == nil {
		t.Error("flipped a byte beyond the end")
	}
}

func TestSimDigestTellsDisksApart(t *testing.T) {
	a, b := scene(t), scene(t)
	if a.Digest() != b.Digest() {
		t.Error("equal disks have different digests")
	}
	must(t, b.FlipByte("d/changed", 0, 1))
	if a.Digest() == b.Digest() {
		t.Error("different contents have one digest")
	}
	must(t, b.FlipByte("d/changed", 0, 1))
	must(t, b.Rename("d/changed", "d/changee"))
	if a.Digest() == b.Digest() {
		t.Error("different names have one digest")
	}
}

// TestSimAgreesWithBytesInMemory compares content, durable content and outcomes of crashes with
// the simplest model: two byte slices.
func TestSimAgreesWithBytesInMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sim := vfs.NewSim(vfs.SimOptions{})
		f, err := sim.Create("f", vfs.OpenOptions{})
		if err != nil || sim.SyncDir(".") != nil {
			t.Fatal(err)
		}
		var visible, durable []byte
		resize := func(size int) {
			visible = append(visible, make([]byte, max(size-len(visible), 0))...)[:size]
			// The part cut off must read as zeros when the file grows again.
			clear(visible[len(visible):cap(visible)])
		}
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0, 1:
				off, size := rapid.IntRange(0, 20_000).Draw(t, "off"), rapid.IntRange(0, 9000).Draw(t, "size")
				// Many zeros, because Sim stores them in a special way.
				p := bytes.Repeat([]byte{max(rapid.Byte().Draw(t, "byte"), 128) - 128}, size)
				if _, err := f.WriteAt(p, int64(off)); err != nil {
					t.Fatal(err)
				}
				if size > 0 {
					resize(max(len(visible), off+size))
					copy(visible[off:], p)
				}
			case 2:
				size := rapid.IntRange(0, 25_000).Draw(t, "truncate")
				if err := f.Truncate(int64(size)); err != nil {
					t.Fatal(err)
				}
				resize(size)
			case 3:
				size := rapid.IntRange(0, 25_000).Draw(t, "preallocate")
				if err := f.Preallocate(int64(size)); err != nil {
					t.Fatal(err)
				}
				resize(max(size, len(visible)))
			case 4:
				if err := f.SyncData(); err != nil {
					t.Fatal(err)
				}
				durable = slices.Clone(visible)
			case 5:
				compareImages(t, sim, visible, durable)
			}
		}
		compareImages(t, sim, visible, durable)
	})
}

func compareImages(t *rapid.T, sim *vfs.Sim, visible, durable []byte) {
	for _, c := range []struct {
		what string
		sim  *vfs.Sim
		want []byte
	}{
		{"visible", sim, visible},
		{"lose-all", sim.Image(vfs.CrashLoseAll, 1), durable},
		{"meta-first", sim.Image(vfs.CrashMetaFirst, 1), durable},
		{"keep-all", sim.Image(vfs.CrashKeepAll, 1), visible},
	} {
		got, err := c.sim.ReadFile("f")
		if err != nil || !bytes.Equal(got, c.want) {
			t.Fatalf("%s: %d bytes, %v; want %d bytes, or the content differs", c.what, len(got), err, len(c.want))
		}
		if c.sim == sim {
			continue
		}
		used, free := usedBy(got), uint64(0)
		if u, err := c.sim.Usage("."); err == nil {
			free = u.Total - u.Available
		}
		if free < used {
			t.Fatalf("%s: %d bytes in use; the content alone takes %d", c.what, free, used)
		}
	}
}

// usedBy returns the space of the pages that are not all zero.
func usedBy(b []byte) uint64 {
	used := uint64(0)
	for page := range slices.Chunk(b, 4096) {
		if !bytes.Equal(page, make([]byte, len(page))) {
			used += 4096
		}
	}
	return used
}

// FuzzSimSurvivesAnySequence takes operations and a crash from arbitrary bytes: nothing panics,
// accounts stay non-negative, and synced bytes are there.
func FuzzSimSurvivesAnySequence(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, uint8(3), uint64(1))
	f.Add([]byte("create, write, sync, rename, crash"), uint8(2), uint64(2))
	f.Fuzz(func(t *testing.T, script []byte, policy uint8, seed uint64) {
		sim := vfs.NewSim(vfs.SimOptions{Capacity: 64 * 4096})
		must(t, sim.MkdirAll("d"))
		names := []string{"a", "b", "d/a", "d/b"}
		for i := 0; i+2 < len(script) && i < 600; i += 3 {
			runScripted(sim, script[i], names[script[i+1]%4], names[script[i+2]%4], int64(script[i+2])*97)
		}
		stable := create(t, sim, "stable")
		write(t, stable, "s")
		must(t, stable.Sync())
		must(t, sim.SyncDir("."))
		after := sim.Crash(vfs.CrashPolicies()[policy%7], seed)
		wantContent(t, after, "stable", "s")
		if u, err := after.Usage("."); err != nil || u.Available > u.Total {
			t.Fatalf("usage %+v, %v", u, err)
		}
		after.Digest()
	})
}

// runScripted does one operation. Its errors come from a full disk and missing files, and do not
// matter here.
func runScripted(sim *vfs.Sim, op byte, name, other string, n int64) {
	switch op % 8 {
	case 0:
		if f, err := sim.Create(name, vfs.OpenOptions{}); err == nil && n%2 == 0 {
			_ = f.Close()
		}
	case 1:
		_ = sim.Rename(name, other)
	case 2:
		_ = sim.Remove(name)
	case 3:
		_ = sim.Link(name, other)
	case 4:
		_ = sim.SyncDir("d")
	default:
		f, err := sim.OpenReadWrite(name, vfs.OpenOptions{})
		if err != nil {
			return
		}
		switch op % 8 {
		case 5:
			// This leaves room for the file that the test itself writes.
			if u, err := sim.Usage("."); err == nil && u.Available > 16*4096 {
				_, _ = f.WriteAt(make([]byte, n), n)
			}
		case 6:
			_ = f.Truncate(n / 2)
		case 7:
			_ = f.Sync()
		}
		_ = f.Close()
	}
}

func BenchmarkSimAppendAndSync(b *testing.B) {
	b.ReportAllocs()
	sim := vfs.NewSim(vfs.SimOptions{})
	f := create(b, sim, "log")
	record := make([]byte, 100)
	b.SetBytes(int64(len(record)))
	for i := range b.N {
		if i%(1<<20) == 0 {
			must(b, f.Truncate(0))
			mustClose(b, f)
			f = create(b, sim, "log")
		}
		if _, err := f.Write(record); err != nil {
			b.Fatal(err)
		}
		if err := f.SyncData(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSimReadAt(b *testing.B) {
	b.ReportAllocs()
	sim := vfs.NewSim(vfs.SimOptions{})
	f := create(b, sim, "f")
	if _, err := f.Write(make([]byte, 1<<24)); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 4096)
	b.SetBytes(int64(len(buf)))
	for range b.N {
		if _, err := f.ReadAt(buf, rng.Int64N(1<<24-4096)); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}

// TestSimServesWritersReadersAndCrashesAtOnce is for the race detector: disks after crashes
// share pages with the disk they come from.
func TestSimServesWritersReadersAndCrashesAtOnce(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			name := fmt.Sprint("f", worker)
			f, err := sim.Create(name, vfs.OpenOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			buf := bytes.Repeat([]byte{byte(worker + 1)}, 5000)
			for i := range 50 {
				_, werr := f.WriteAt(buf, int64(i%7)*1000)
				_, rerr := f.ReadAt(make([]byte, 5000), 0)
				if err := errors.Join(werr, rerr, f.Sync(), sim.SyncDir(".")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for seed := range uint64(4) {
		all.Go(func() {
			for i := range 20 {
				image := sim.Image(vfs.CrashPolicies()[i%7], seed)
				for _, name := range image.Files() {
					f, err := image.OpenReadWrite(name, vfs.OpenOptions{})
					if err == nil {
						_, err = f.WriteAt([]byte("the image goes its own way"), 0)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				image.Digest()
			}
		})
	}
	all.Wait()
	for _, name := range sim.Files() {
		data, err := sim.ReadFile(name)
		must(t, err)
		for _, b := range data {
			if b != data[0] {
				t.Fatalf("%s holds bytes of an image", name)
			}
		}
	}
}

func BenchmarkSimImage(b *testing.B) {
	b.ReportAllocs()
	sim := vfs.NewSim(vfs.SimOptions{})
	for i := range 100 {
		f := create(b, sim, fmt.Sprint(i))
		if _, err := f.Write(bytes.Repeat([]byte{1}, 1<<16)); err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 {
			must(b, f.Sync())
		}
		mustClose(b, f)
	}
	must(b, sim.SyncDir("."))
	for _, policy := range vfs.CrashPolicies() {
		b.Run(policy.String(), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				sim.Image(policy, uint64(i))
			}
		})
	}
}
