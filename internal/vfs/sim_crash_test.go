package vfs_test

// Tests of what each policy leaves after a power cut.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestSimOfADeadMachineCannotBeKilled(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	sim.Crash(vfs.CrashLoseAll, 1)
	defer func() {
		if recover() == nil {
			t.Error("the disk went on as if the power had not been cut")
		}
	}()
	sim.Kill()
}

func TestSimCrashBySubsetAlsoLosesAndTearsPreparedSpace(t *testing.T) {
	prepared := func(t testing.TB) *vfs.Sim {
		sim := vfs.NewSim(vfs.SimOptions{})
		f := create(t, sim, "f")
		must(t, sim.SyncDir("."))
		must(t, f.Preallocate(1024))
		_, err := f.WriteAt(make([]byte, 8192), 0)
		must(t, err)
		must(t, f.Truncate(5000))
		return sim
	}
	sizes := map[int64]bool{}
	for seed := range uint64(100) {
		after := prepared(t).Crash(vfs.CrashSubset, seed)
		info, err := after.Stat("f")
		must(t, err)
		sizes[info.Size] = true
		wantContent(t, after, "f", string(make([]byte, info.Size)))
	}
	if !sizes[5000] || !sizes[8192] || len(sizes) < 4 {
		t.Errorf("left sizes %v", sizes)
	}
}

func TestSimCrashesOfOneMomentDoNotInfluenceEachOther(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	put(t, sim, "a", "first")
	image := sim.Image(vfs.CrashKeepAll, 1)
	f, err := image.OpenReadWrite("a", vfs.OpenOptions{})
	must(t, err)
	write(t, f, "IMAGE")
	put(t, sim, "b", "goes on")
	f2, err := sim.OpenReadWrite("a", vfs.OpenOptions{})
	must(t, err)
	write(t, f2, "ORIGI")
	wantContent(t, image, "a", "IMAGE")
	wantContent(t, sim, "a", "ORIGI")
	wantList(t, image, ".", "a")
	one, two := sim.Crash(vfs.CrashKeepAll, 1), sim.Crash(vfs.CrashLoseAll, 1)
	wantList(t, one, ".", "a", "b")
	wantList(t, two, ".")
}

// scene is a disk with a bit of everything: a durable file with pending changes, a file whose
// name was never synced, a pending rename and a pending removal.
func scene(t testing.TB) *vfs.Sim {
	sim := vfs.NewSim(vfs.SimOptions{})
	must(t, vfs.MakeDir(sim, "", "d"))
	for _, name := range []string{"d/changed", "d/renamed", "d/removed"} {
		f := create(t, sim, name)
		write(t, f, "durable "+name)
		must(t, f.Sync())
		mustClose(t, f)
	}
	must(t, sim.SyncDir("d"))
	f, err := sim.OpenReadWrite("d/changed", vfs.OpenOptions{})
	must(t, err)
	write(t, f, "PENDING")
	mustClose(t, f)
	put(t, sim, "d/new", "written and not synced")
	f = create(t, sim, "d/synced")
	write(t, f, "synced, but not its name")
	must(t, f.SyncData())
	mustClose(t, f)
	must(t, sim.Rename("d/renamed", "d/target"))
	must(t, sim.Remove("d/removed"))
	return sim
}

// show prints a disk in one line.
func show(t testing.TB, sim *vfs.Sim) string {
	var b strings.Builder
	for _, name := range sim.Files() {
		data, err := sim.ReadFile(name)
		must(t, err)
		fmt.Fprintf(&b, "%s=%q ", strings.TrimPrefix(name, "d/"), data)
	}
	return b.String()
}

func TestSimCrashPoliciesKeepWhatTheySay(t *testing.T) {
	const (
		oldNames = `changed=%q removed="durable d/removed" renamed="durable d/renamed" `
		newNames = `changed=%q new=%q synced="synced, but not its name" target="durable d/renamed" `
		before   = "durable d/changed"
		after    = "PENDING d/changed"
	)
	for _, c := range []struct {
		policy vfs.CrashPolicy
		want   string
	}{
		{vfs.CrashLoseAll, fmt.Sprintf(oldNames, before)},
		{vfs.CrashKeepAll, fmt.Sprintf(newNames, after, "written and not synced")},
		{vfs.CrashMetaFirst, fmt.Sprintf(newNames, before, "")},
		{vfs.CrashDataFirst, fmt.Sprintf(oldNames, after)},
	} {
		if got := show(t, scene(t).Crash(c.policy, 1)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.policy, got, c.want)
		}
	}
}

func TestSimCrashBySizeFirstKeepsSizesAndInventsContent(t *testing.T) {
	contents := map[string]bool{}
	for seed := range uint64(60) {
		after := scene(t).Crash(vfs.CrashSizeFirst, seed)
		data, err := after.ReadFile("d/new")
		must(t, err)
		if len(data) != len("written and not synced") || string(data) == "written and not synced" {
			t.Fatalf("seed %d: new file holds %q", seed, data)
		}
		switch {
		case bytes.Equal(data, make([]byte, len(data))):
			contents["zeros"] = true
		case bytes.HasPrefix(data, []byte("durable d/")) || bytes.HasPrefix(data, []byte("synced, but")):
			contents["old block"] = true
		default:
			contents["garbage"] = true
		}
		wantContent(t, after, "d/changed", "durable d/changed")
	}
	if len(contents) != 3 {
		t.Errorf("only %v turned up", contents)
	}
}

// outcomes returns how often the seeds turn a scene into each outcome.
func outcomes(t testing.TB, make func(testing.TB) *vfs.Sim, policy vfs.CrashPolicy, seeds uint64) map[string]int {
	out := map[string]int{}
	for seed := range seeds {
		out[show(t, make(t).Crash(policy, seed))]++
	}
	return out
}

func TestSimCrashByPrefixLosesNothingInTheMiddle(t *testing.T) {
	log := func(t testing.TB) *vfs.Sim {
		sim := vfs.NewSim(vfs.SimOptions{})
		f := create(t, sim, "log")
		must(t, f.Sync())
		must(t, sim.SyncDir("."))
		for i := range 5 {
			write(t, f, fmt.Sprint(i))
		}
		return sim
	}
	got := outcomes(t, log, vfs.CrashPrefix, 200)
	for _, want := range []string{"", "0", "01", "012", "0123", "01234"} {
		key := fmt.Sprintf("log=%q ", want)
		if got[key] == 0 {
			t.Errorf("never left %q", want)
		}
		delete(got, key)
	}
	if len(got) != 0 {
		t.Errorf("not prefixes: %v", got)
	}
}

func TestSimCrashBySubsetTearsWritesAtSectors(t *testing.T) {
	old, new := strings.Repeat("a", 1024), strings.Repeat("b", 1024)
	torn := func(t testing.TB) *vfs.Sim {
		sim := vfs.NewSim(vfs.SimOptions{})
		f := create(t, sim, "f")
		write(t, f, old)
		must(t, f.Sync())
		must(t, sim.SyncDir("."))
		_, err := f.WriteAt([]byte(new), 0)
		must(t, err)
		return sim
	}
	got := outcomes(t, torn, vfs.CrashSubset, 100)
	want := []string{old, new, old[:512] + new[:512], new[:512] + old[:512]}
	for _, content := range want {
		if got[fmt.Sprintf("f=%q ", content)] == 0 {
			t.Errorf("never left %.4q...%.4q", content, content[1020:])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d outcomes; want %d", len(got), len(want))
	}
}

func TestSimCrashBySubsetLeavesARenamedFileAtLeastOneName(t *testing.T) {
	renamed := func(t testing.TB) *vfs.Sim {
		sim := vfs.NewSim(vfs.SimOptions{})
		f := create(t, sim, "tmp")
		write(t, f, "x")
		must(t, f.Sync())
		must(t, sim.SyncDir("."))
		must(t, sim.Rename("tmp", "CURRENT"))
		return sim
	}
	got := outcomes(t, renamed, vfs.CrashSubset, 100)
	for _, want := range []string{`tmp="x" `, `CURRENT="x" `, `CURRENT="x" tmp="x" `} {
		if got[want] == 0 {
			t.Errorf("never left %s", want)
		}
		delete(got, want)
	}
	if len(got) != 0 {
		t.Errorf("also left %v", got)
	}
}

func TestSimKillKeepsThePageCacheAndDropsTheLocks(t *testing.T) {
	sim := scene(t)
	_, err := sim.Lock("d/LOCK", vfs.LockToWrite)
	must(t, err)
	f, err := sim.OpenReadWrite("d/changed", vfs.OpenOptions{})
	must(t, err)
	next := sim.Kill()
	wantError(t, f.Sync(), vfs.ErrCrashed)
	wantContent(t, next, "d/new", "written and not synced")
	lock, err := next.Lock("d/LOCK", vfs.LockToWrite)
	must(t, err)
	must(t, lock.Close())
	// Writes that the dead process did not sync are still not durable.
	if got := show(t, next.Crash(vfs.CrashLoseAll, 1)); strings.Contains(got, "PENDING") || strings.Contains(got, "new=") {
		t.Errorf("became durable by dying: %s", got)
	}
}

func TestSimSyncWithEntriesMakesNamesDurable(t *testing.T) {
	for _, like := range []bool{false, true} {
		sim := vfs.NewSim(vfs.SimOptions{EntriesWithFiles: like})
		must(t, sim.MkdirAll("d"))
		f := create(t, sim, "d/f")
		must(t, f.Sync())
		if got := len(sim.Crash(vfs.CrashLoseAll, 1).Files()); got != map[bool]int{false: 0, true: 1}[like] {
			t.Errorf("EntriesWithFiles=%v: %d files survive", like, got)
		}
	}
}

func TestSimCrashIsAFunctionOfItsSeed(t *testing.T) {
	for _, policy := range vfs.CrashPolicies() {
		for seed := range uint64(20) {
			a, b := scene(t).Crash(policy, seed), scene(t).Crash(policy, seed)
			if a.Digest() != b.Digest() {
				t.Fatalf("%s, seed %d: two outcomes:\n%s\n%s", policy, seed, show(t, a), show(t, b))
			}
		}
	}
}
