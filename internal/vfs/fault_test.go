package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// faulty returns a Fault around a Sim with the durable file "f.log" of the given content, which
// it also returns open.
func faulty(t testing.TB, content string) (*vfs.Fault, *vfs.Sim, vfs.File) {
	t.Helper()
	sim := vfs.NewSim(vfs.SimOptions{})
	put(t, sim, "f.log", content)
	f, err := sim.OpenReadWrite("f.log", vfs.OpenOptions{})
	must(t, err)
	must(t, f.Sync())
	mustClose(t, f)
	must(t, sim.SyncDir("."))
	fault := vfs.NewFault(sim, 1)
	f, err = fault.OpenReadWrite("f.log", vfs.OpenOptions{})
	must(t, err)
	return fault, sim, f
}

func TestFaultHitsTheCallsThatTheRuleNames(t *testing.T) {
	for _, c := range []struct {
		name string
		rule vfs.Rule
		want string // one letter for each of six writes: . passes, X fails
	}{
		{"the first by default", vfs.Rule{}, "X....."},
		{"the n-th", vfs.Rule{Nth: 3}, "..X..."},
		{"several from the n-th on", vfs.Rule{Nth: 2, Times: 3}, ".XXX.."},
		{"for ever", vfs.Rule{Nth: 5, Times: vfs.Forever}, "....XX"},
		{"by kind", vfs.Rule{Ops: vfs.OpSync, Times: vfs.Forever}, "......"},
		{"by base name", vfs.Rule{Glob: "*.log", Times: vfs.Forever}, "X.X.X."},
		{"by path", vfs.Rule{Glob: "d/*.sst", Times: vfs.Forever}, ".X.X.X"},
		{"by a path of another directory", vfs.Rule{Glob: "e/*.sst", Times: vfs.Forever}, "......"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
			must(t, fault.MkdirAll("d"))
			files := []vfs.File{create(t, fault, "d/1.log"), create(t, fault, "d/2.sst")}
			c.rule.Ops |= vfs.OpWrite
			if c.rule.Ops&vfs.OpSync != 0 {
				c.rule.Ops = vfs.OpSync
			}
			c.rule.Action = vfs.FailWith(syscall.EIO)
			fault.Add(c.rule)
			got := ""
			for i := range 6 {
				if _, err := files[i%2].Write([]byte("x")); err == nil {
					got += "."
				} else {
					wantError(t, err, syscall.EIO)
					got += "X"
				}
			}
			if got != c.want {
				t.Errorf("hit %s; want %s", got, c.want)
			}
		})
	}
}

func TestFaultByProbabilityFollowsTheSeed(t *testing.T) {
	run := func(seed uint64) string {
		fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), seed)
		fault.Add(vfs.Rule{Probability: 0.3, Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
		got := ""
		for range 200 {
			_, err := fault.Stat(".")
			got += map[bool]string{true: ".", false: "X"}[err == nil]
		}
		return got
	}
	first := run(1)
	if n := strings.Count(first, "X"); n < 30 || n > 90 {
		t.Errorf("%d of 200 calls hit at a chance of 0.3", n)
	}
	if first != run(1) || first == run(2) {
		t.Error("the seed does not decide")
	}
}

func TestFaultFailsEveryKindOfCall(t *testing.T) {
	calls := []struct {
		op vfs.Op
		do func(fsys vfs.FS, f vfs.File) error
	}{
		{vfs.OpCreate, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Create("n", vfs.OpenOptions{}); return err }},
		{vfs.OpOpen, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Open("f.log", vfs.OpenOptions{}); return err }},
		{vfs.OpOpenReadWrite, func(fsys vfs.FS, _ vfs.File) error {
			_, err := fsys.OpenReadWrite("f.log", vfs.OpenOptions{})
			return err
		}},
		{vfs.OpRename, func(fsys vfs.FS, _ vfs.File) error { return fsys.Rename("f.log", "g") }},
		{vfs.OpLink, func(fsys vfs.FS, _ vfs.File) error { return fsys.Link("f.log", "h") }},
		{vfs.OpRemove, func(fsys vfs.FS, _ vfs.File) error { return fsys.Remove("f.log") }},
		{vfs.OpMkdirAll, func(fsys vfs.FS, _ vfs.File) error { return fsys.MkdirAll("d") }},
		{vfs.OpRemoveDir, func(fsys vfs.FS, _ vfs.File) error { return fsys.RemoveDir("empty") }},
		{vfs.OpList, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.List("."); return err }},
		{vfs.OpStat, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Stat("f.log"); return err }},
		{vfs.OpSyncDir, func(fsys vfs.FS, _ vfs.File) error { return fsys.SyncDir(".") }},
		{vfs.OpLock, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Lock("LOCK", vfs.LockToWrite); return err }},
		{vfs.OpReadAt, func(_ vfs.FS, f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{vfs.OpWriteAt, func(_ vfs.FS, f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		{vfs.OpWrite, func(_ vfs.FS, f vfs.File) error { _, err := f.Write([]byte("x")); return err }},
		{vfs.OpTruncate, func(_ vfs.FS, f vfs.File) error { return f.Truncate(1) }},
		{vfs.OpPreallocate, func(_ vfs.FS, f vfs.File) error { return f.Preallocate(100) }},
		{vfs.OpSync, func(_ vfs.FS, f vfs.File) error { return f.Sync() }},
		{vfs.OpSyncData, func(_ vfs.FS, f vfs.File) error { return f.SyncData() }},
		{vfs.OpSize, func(_ vfs.FS, f vfs.File) error { _, err := f.Size(); return err }},
		{vfs.OpClose, func(_ vfs.FS, f vfs.File) error { return f.Close() }},
	}
	seen := vfs.Op(0)
	for _, c := range calls {
		seen |= c.op
		for _, action := range []vfs.Action{vfs.FailWith(syscall.EIO), vfs.FailAfter(syscall.EIO)} {
			t.Run(c.op.String()+" "+action.String(), func(t *testing.T) {
				fault, sim, f := faulty(t, "content")
				must(t, sim.MkdirAll("empty"))
				before, open := sim.Digest(), len(sim.OpenFiles())
				fault.Add(vfs.Rule{Ops: c.op, Action: action})
				if c.op == vfs.OpClose {
					open--
				}
				wantError(t, c.do(fault, f), syscall.EIO)
				if len(sim.OpenFiles()) != open {
					t.Errorf("open afterwards: %v", sim.OpenFiles())
				}
				changes := c.op&vfs.OpMutating&^vfs.OpSyncs != 0 && action.String() == "fail after: "+syscall.EIO.Error()
				if c.op == vfs.OpMkdirAll || c.op == vfs.OpRemoveDir {
					changes = false // the digest covers files only
				}
				if c.op != vfs.OpLock && (sim.Digest() != before) != changes {
					t.Errorf("disk changed: %v; want %v", !changes, changes)
				}
				if lock, err := sim.Lock("LOCK", vfs.LockToWrite); err != nil {
					t.Errorf("the lock that was denied is held: %v", err)
				} else {
					mustClose(t, lock)
				}
				if fault.Calls(c.op) != 1+map[bool]int64{true: 1}[c.op == vfs.OpOpenReadWrite] {
					t.Errorf("counted %d calls", fault.Calls(c.op))
				}
			})
		}
	}
	if seen != vfs.OpAll {
		t.Errorf("not tried: %s", vfs.OpAll&^seen)
	}
}

func TestFaultShortTransfersMoveTheirFirstBytes(t *testing.T) {
	fault, sim, f := faulty(t, "0123456789")
	fault.Add(vfs.Rule{Ops: vfs.OpWrite, Action: vfs.Short(3, syscall.ENOSPC)})
	n, err := f.Write([]byte("abcdef"))
	if n != 3 || !vfs.IsNoSpace(err) {
		t.Errorf("Write = %d, %v; want 3 and no space", n, err)
	}
	write(t, f, "X")
	wantContent(t, sim, "f.log", "abcX456789")
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Action: vfs.Short(99, io.ErrUnexpectedEOF)})
	buf := make([]byte, 4)
	if n, err := f.ReadAt(buf, 0); n != 3 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ReadAt = %d, %v; want 3 and unexpected EOF", n, err)
	}
}

func TestFaultFlipsOneBit(t *testing.T) {
	fault, sim, f := faulty(t, "0123456789")
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Action: vfs.FlipBit()})
	buf := make([]byte, 10)
	_, err := f.ReadAt(buf, 0)
	must(t, err)
	wantOneBit(t, buf, []byte("0123456789"))
	wantRead(t, f, 0, "0123456789") // gone at the next read

	fault.Add(vfs.Rule{Ops: vfs.OpWriteAt, Action: vfs.FlipBit()})
	mine := []byte("abcdefghij")
	_, err = f.WriteAt(mine, 0)
	must(t, err)
	stored, err := sim.ReadFile("f.log")
	must(t, err)
	wantOneBit(t, stored, mine)
	if string(mine) != "abcdefghij" {
		t.Error("changed the caller's buffer")
	}
}

func wantOneBit(t *testing.T, got, want []byte) {
	t.Helper()
	bits := 0
	for i := range want {
		for x := got[i] ^ want[i]; x != 0; x &= x - 1 {
			bits++
		}
	}
	if bits != 1 {
		t.Errorf("%d bits differ; want 1", bits)
	}
}

func TestFaultLosesAndMisdirectsWithoutSayingSo(t *testing.T) {
	fault, sim, f := faulty(t, "0123456789")
	fault.Add(vfs.Rule{Ops: vfs.OpWrite, Action: vfs.Lose()})
	write(t, f, "ab")
	write(t, f, "cd")
	wantContent(t, sim, "f.log", "01cd456789")
	fault.Add(vfs.Rule{Ops: vfs.OpWriteAt, Action: vfs.Misdirect(5)})
	_, err := f.WriteAt([]byte("xy"), 0)
	must(t, err)
	wantContent(t, sim, "f.log", "01cd4xy789")
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Action: vfs.Misdirect(-100)})
	wantRead(t, f, 7, "01c")

	fault.Add(vfs.Rule{Ops: vfs.OpSync, Action: vfs.Lose()})
	must(t, f.Sync())
	wantContent(t, sim.Crash(vfs.CrashLoseAll, 1), "f.log", "0123456789")
}

// TestAWriteThatTheDeviceGetsWrongIsSeenByUncachedReadsAlone: the page cache has what was
// written until the machine restarts.
func TestAWriteThatTheDeviceGetsWrongIsSeenByUncachedReadsAlone(t *testing.T) {
	for _, c := range []struct {
		action vfs.Action
		want   string // on the device; "": one bit is wrong
	}{
		{vfs.Lose(), "0123456789"}, {vfs.FlipBit(), ""},
		{vfs.Misdirect(-3), "0ABCD56789"}, {vfs.Misdirect(4), "01234567AB"},
	} {
		fault, sim, f := faulty(t, "0123456789")
		fault.Add(vfs.Rule{Ops: vfs.OpWriteAt, Action: vfs.OnDevice(c.action)})
		_, err := f.WriteAt([]byte("ABCD"), 4)
		must(t, err)
		must(t, f.Sync())
		wantContent(t, sim, "f.log", "0123ABCD89")
		wantContent(t, sim.Kill(), "f.log", "0123ABCD89")
		after := sim.Crash(vfs.CrashKeepAll, 1)
		device, err := after.ReadFile("f.log")
		must(t, err)
		if c.want == "" {
			wantOneBit(t, device, []byte("0123ABCD89"))
		} else if string(device) != c.want {
			t.Errorf("%v: the device has %q", c.action, device)
		}
	}
}

func TestUncachedReadsAreOfWhatIsDurable(t *testing.T) {
	fault, _, f := faulty(t, "0123456789")
	fault.Add(vfs.Rule{Ops: vfs.OpWriteAt, Action: vfs.OnDevice(vfs.Lose())})
	_, err := f.WriteAt([]byte("ABCD"), 4)
	must(t, err)
	must(t, f.Sync())
	wantRead(t, f, 0, "0123ABCD89")
	uncached, err := fault.Open("f.log", vfs.OpenOptions{Uncached: true})
	must(t, err)
	got := vfs.AlignedBuffer(4096)
	if n, err := uncached.ReadAt(got, 0); err != io.EOF || string(got[:n]) != "0123456789" {
		t.Errorf("read %q, %v", got[:n], err)
	}
	mustClose(t, uncached)
}

func TestFaultMisdirectsToAnotherFile(t *testing.T) {
	fault, sim, f := faulty(t, "0123456789")
	put(t, sim, "g.log", "abcdefghij")
	fault.Add(vfs.Rule{Ops: vfs.OpWriteAt, Action: vfs.MisdirectTo("g.log")})
	_, err := f.WriteAt([]byte("xy"), 3)
	must(t, err)
	wantContent(t, sim, "f.log", "0123456789")
	wantContent(t, sim, "g.log", "abcxyfghij")
}

func TestFaultReadsStaleContent(t *testing.T) {
	fault, _, f := faulty(t, "old")
	write(t, f, "new")
	fault.Add(vfs.Rule{Action: vfs.Stale()})
	wantRead(t, f, 0, "old")
	wantRead(t, f, 0, "new")
}

func TestFaultOfASyncFollowsTheFileSystemModels(t *testing.T) {
	for _, c := range []struct {
		model        vfs.SyncFailure
		read, onDisk string
	}{
		{vfs.SyncFailureExt4, "new content", "old"},
		{vfs.SyncFailureBtrfs, "old", "old"},
	} {
		for _, op := range []vfs.Op{vfs.OpSync, vfs.OpSyncData} {
			inner, sim, _ := faulty(t, "old")
			fault := vfs.NewFault(inner, 1) // a rule reaches through other Faults
			f, err := fault.OpenReadWrite("f.log", vfs.OpenOptions{})
			must(t, err)
			write(t, f, "new content")
			fault.Add(vfs.Rule{Ops: op, Action: vfs.FailSync(c.model)})
			sync := map[vfs.Op]func() error{vfs.OpSync: f.Sync, vfs.OpSyncData: f.SyncData}[op]
			wantError(t, sync(), syscall.EIO)
			must(t, sync()) // the trap: the pages count as clean
			wantContent(t, sim, "f.log", c.read)
			got, err := sim.Crash(vfs.CrashKeepAll, 1).ReadFile("f.log")
			must(t, err)
			if !bytes.HasPrefix(got, []byte(c.onDisk)) {
				t.Errorf("model %d: %q on the disk; want %q", c.model, got, c.onDisk)
			}
		}
	}
	fault, sim, _ := faulty(t, "")
	put(t, fault, "new", "")
	fault.Add(vfs.Rule{Action: vfs.FailSync(vfs.SyncFailureExt4)})
	wantError(t, fault.SyncDir("."), syscall.EIO)
	wantList(t, sim.Crash(vfs.CrashLoseAll, 1), ".", "f.log")
}

func TestFaultHoldsACallUntilReleased(t *testing.T) {
	fault, _, f := faulty(t, "")
	release := make(chan struct{})
	fault.Add(vfs.Rule{Ops: vfs.OpSync, Action: vfs.Hold(release)})
	reached, done := make(chan struct{}), make(chan error)
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op == vfs.OpSync {
			close(reached)
		}
	}})
	go func() { done <- f.Sync() }()
	<-reached
	write(t, f, "others go on")
	select {
	case <-done:
		t.Error("returned before it was released")
	default:
	}
	close(release)
	must(t, <-done)
}

func TestFaultObserverSeesAllCallsInOrder(t *testing.T) {
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	var got []string
	fault.Observe(vfs.Observer{
		Before: func(c vfs.Call) {
			got = append(got, fmt.Sprintf("%d %s %s%s @%d+%d", c.Index, c.Op, c.Name, c.NewName, c.Offset, c.Length))
		},
		After: func(c vfs.Call, err error) {
			if err != nil {
				got = append(got, fmt.Sprintf("%d fails", c.Index))
			}
		},
	})
	put(t, fault, "a", "xyz")
	must(t, fault.Rename("a", "b"))
	wantError(t, fault.Remove("a"), fs.ErrNotExist)
	want := []string{"1 create a @0+0", "2 write a @0+3", "3 close a @0+0", "4 rename ab @0+0", "5 remove a @0+0", "5 fails"}
	if !slices.Equal(got, want) {
		t.Errorf("saw %q; want %q", got, want)
	}
	if fault.Calls(vfs.OpAll) != 5 || fault.Calls(vfs.OpMutating) != 4 {
		t.Errorf("counted %d calls, %d mutating", fault.Calls(vfs.OpAll), fault.Calls(vfs.OpMutating))
	}
}

func TestFaultReportsWhatItInjected(t *testing.T) {
	fault, _, f := faulty(t, "content")
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Times: 2, Action: vfs.FlipBit()})
	fault.Add(vfs.Rule{Ops: vfs.OpList, Action: vfs.FailWith(syscall.EIO)})
	for range 3 {
		_, err := f.ReadAt(make([]byte, 1), 0)
		must(t, err)
	}
	_, err := fault.List(".")
	wantError(t, err, syscall.EIO)
	want := []vfs.InjectionCount{
		{Injection: vfs.Injection{Op: vfs.OpList, FileType: ".", Action: "fail: " + syscall.EIO.Error()}, Count: 1},
		{Injection: vfs.Injection{Op: vfs.OpReadAt, FileType: "*.log", Action: "flip"}, Count: 2},
	}
	if got := fault.Injected(); !slices.Equal(got, want) {
		t.Errorf("reports %v; want %v", got, want)
	}
	fault.Clear()
	_, err = fault.List(".")
	must(t, err)
}

// TestFaultEnumeratesAWorkload shows how error tests go through all calls.
func TestFaultEnumeratesAWorkload(t *testing.T) {
	workload := func(fsys vfs.FS) error {
		f, err := fsys.Create("tmp", vfs.OpenOptions{})
		if err != nil {
			return err
		}
		_, err = f.Write([]byte("pointer"))
		err = errors.Join(err, f.Sync())
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		return errors.Join(fsys.Rename("tmp", "CURRENT"), fsys.SyncDir("."))
	}
	clean := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	must(t, workload(clean))
	calls := clean.Calls(vfs.OpAll)
	if calls != 6 {
		t.Fatalf("%d calls", calls)
	}
	for i := range calls {
		sim := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(sim, 1)
		fault.Add(vfs.Rule{Nth: i + 1, Action: vfs.FailWith(syscall.EIO)})
		if err := workload(fault); !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d failed and the workload says %v", i+1, err)
		}
		if open := sim.OpenFiles(); len(open) > 0 {
			t.Errorf("call %d failed and left open %v", i+1, open)
		}
	}
}

// TestSimDirectReadsSeeThroughPagesThatAFailedSyncLeft: after a failed sync as on ext4, the page
// cache holds what the disk does not, and a direct read shows it.
func TestSimDirectReadsSeeThroughPagesThatAFailedSyncLeft(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	fault := vfs.NewFault(sim, 1)
	f := create(t, fault, "f")
	page := func(c string) []byte { return []byte(strings.Repeat(c, 4096)) }
	writeAt := func(c string, off int64) {
		_, err := f.WriteAt(page(c), off)
		must(t, err)
	}
	writeAt("a", 0)
	writeAt("b", 4096)
	must(t, f.Sync())
	fault.Add(vfs.Rule{Ops: vfs.OpSync, Action: vfs.FailSync(vfs.SyncFailureExt4)})
	writeAt("x", 0)
	writeAt("y", 4096)
	if f.Sync() == nil {
		t.Fatal("the sync did not fail")
	}
	writeAt("z", 4096)
	for _, direct := range []bool{false, true} {
		in, err := sim.Open("f", vfs.OpenOptions{Direct: direct})
		must(t, err)
		got := vfs.AlignedBuffer(8192)
		_, err = in.ReadAt(got, 0)
		must(t, err)
		want := map[bool]string{false: "x", true: "a"}[direct]
		if string(got) != string(page(want))+string(page("z")) {
			t.Errorf("direct %v: the pages hold %c and %c, want %s and z", direct, got[0], got[4096], want)
		}
		must(t, in.Close())
	}
}
