package flagstone

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestP04_ALogFileThatWasDeletedIsNoticedOrHeldNothing deletes each log file of
// stores that were closed, killed, or lost power: Open names the file, or all that
// was acknowledged is there.
func TestP04_ALogFileThatWasDeletedIsNoticedOrHeldNothing(t *testing.T) {
	stores := shorter(300)
	files, refused := 0, 0
	for seed := range uint64(stores) {
		rng := rand.New(rand.NewPCG(seed, 12))
		disk, s := endedStore(t, seed, rng)
		for _, name := range disk.Files() {
			if !strings.HasSuffix(name, ".log") {
				continue
			}
			files++
			damaged := disk.Image(vfs.CrashKeepAll, 1)
			if err := errors.Join(damaged.Remove("/"+name), damaged.SyncDir("/"+path.Dir(name))); err != nil {
				t.Fatal(err)
			}
			if judgeDamaged(t, s, damaged, name, fmt.Sprintf("seed %d: %s deleted", seed, name)) {
				refused++
			}
		}
	}
	t.Logf("%d stores, %d log files deleted, %d times refused", stores, files, refused)
}

// TestP04_ALogThatWasClosedKnowsWhereItEnds overwrites the end of the last segment
// of closed stores with zeros.
func TestP04_ALogThatWasClosedKnowsWhereItEnds(t *testing.T) {
	for seed := range uint64(shorter(60)) {
		rng := rand.New(rand.NewPCG(seed, 13))
		s := randomStore(t, vfs.NewSim(vfs.SimOptions{}), seed, rng)
		if !s.closeAtEnd() {
			t.Fatal("close failed")
		}
		disk := s.fs.(*vfs.Sim)
		names := slices.DeleteFunc(disk.Files(), func(n string) bool { return !strings.Contains(n, "wal/0") })
		name := names[len(names)-1]
		for blocks := int64(1); blocks < 8; blocks++ {
			damaged := disk.Image(vfs.CrashKeepAll, 1)
			err := damaged.Edit("/"+name, func(b []byte) []byte {
				end := len(b)
				for end > 0 && b[end-1] == 0 {
					end--
				}
				clear(b[max((int64(end)+4095)/4096-blocks, 1)*4096:])
				return b
			})
			if err != nil {
				t.Fatal(err)
			}
			judgeDamaged(t, s, damaged, name, fmt.Sprintf("seed %d: %d blocks of %s are zero", seed, blocks, name))
		}
	}
}

// judgeDamaged opens a store and reports whether that was refused.
func judgeDamaged(t *testing.T, s *script, disk *vfs.Sim, name, label string) (refused bool) {
	t.Helper()
	r := newScript(disk, s.opts, 1)
	if err := r.open(); err != nil {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path.Base(name)) {
			t.Errorf("%s: the error does not name the file: %v", label, err)
		}
		return true
	}
	defer r.store.Close()
	got, err := readAll(r.store)
	if err != nil {
		t.Fatalf("%s: %v", label, err)
	}
	if !slices.ContainsFunc(s.states[s.acked:], func(o *oracle) bool { return o.text() == got }) {
		t.Errorf("%s, unnoticed: acknowledged writes are gone:\n%s", label, difference(s.states[s.acked].text(), got))
	}
	return false
}

// endedStore makes a store and ends it in one of several ways.
func endedStore(t *testing.T, seed uint64, rng *rand.Rand) (*vfs.Sim, *script) {
	disk := vfs.NewSim(vfs.SimOptions{})
	s := randomStore(t, disk, seed, rng)
	switch rng.IntN(3) {
	case 0:
		s.closeAtEnd()
	case 1:
		next := disk.Kill()
		s.store.Close()
		disk = next
	default:
		policies := vfs.CrashPolicies()
		next := disk.Crash(policies[rng.IntN(len(policies))], seed)
		s.store.Close()
		disk = next
	}
	return disk, s
}

// randomStore makes a store, and works on it for a while.
func randomStore(t *testing.T, disk *vfs.Sim, seed uint64, rng *rand.Rand) *script {
	s := newScript(disk, scriptOptions(SyncMode(rng.IntN(2))), seed)
	s.outcome = func(err error) bool {
		t.Fatalf("seed %d, step %q: %v", seed, s.step, err)
		return false
	}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	_ = s.create("a", 3) && s.create("b", 1)
	for range rng.IntN(4) {
		_ = s.work(rng.IntN(60)) && (rng.IntN(3) > 0 || s.flush()) && (rng.IntN(3) > 0 || s.reopen())
	}
	_ = s.work(rng.IntN(5))
	return s
}
