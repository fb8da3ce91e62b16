package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// scenario runs creation, commits, a rotation, a close and a reopening, and stops at the first
// error. It records what was acknowledged.
type scenario struct {
	created      bool
	acknowledged string // image of the state, once created
	inFlight     string // image of the state if the present call succeeds
}

func (c *scenario) run(fsys vfs.FS) error {
	empty := image(NewState(testStore))
	c.inFlight = empty
	if err := Create(fsys, testDir, NewState(testStore)); err != nil {
		return err
	}
	c.created, c.acknowledged = true, empty
	rng := rand.New(rand.NewPCG(7, 7))
	for session := range 2 {
		l, s, err := Open(fsys, testDir, nil)
		if err != nil {
			return err
		}
		if image(s) != c.acknowledged {
			return fmt.Errorf("%w: session %d opens another state than was acknowledged", errBroken, session)
		}
		edits := smallEdits()
		for i := range 7 {
			e := randomEdit(rng, l.State())
			if session == 0 && i < len(edits) {
				e = edits[i]
			}
			if i == 5 {
				l.rotateAt = 0 // the next commit rotates first
			}
			e.nextFile = max(e.nextFile, l.nextFile.Load())
			next, err := l.State().Apply(e)
			if err != nil {
				return fmt.Errorf("%w: %w", errBroken, errors.Join(err, l.Close()))
			}
			c.inFlight = image(next)
			if _, err := l.Commit(e); err != nil {
				return errors.Join(err, l.Close())
			}
			c.acknowledged = c.inFlight
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// errBroken marks an error that no fault excuses.
var errBroken = errors.New("broken")

// checkRecovered opens what a crash left. Exactly one state is right: the acknowledged one, or
// that with the edit that was being committed.
func (c *scenario) checkRecovered(fsys vfs.FS) error {
	s, _, err := Load(fsys, testDir)
	if errors.Is(err, ErrNotStore) && !c.created {
		if err := Create(fsys, testDir, NewState(testStore)); err != nil {
			return fmt.Errorf("creation cannot be repeated: %w", err)
		}
		s, _, err = Load(fsys, testDir)
	}
	if err != nil {
		return err
	}
	if got := image(s); got != c.acknowledged && got != c.inFlight {
		return errors.New("recovered a state that is neither the acknowledged one nor that in flight")
	}
	// The state that was read must stay through an open, a commit and a power cut.
	l, s, err := Open(fsys, testDir, nil)
	if err != nil {
		return err
	}
	var e Edit
	e.CreateTable(testTable(s.NextTable, s.NextPartition, "after the crash"))
	if _, err := l.Commit(&e); err != nil {
		return err
	}
	want := image(l.State())
	if sim, ok := fsys.(*vfs.Sim); ok {
		fsys = sim.Crash(vfs.CrashLoseAll, 1)
	}
	if s, _, err = Load(fsys, testDir); err != nil || image(s) != want {
		return fmt.Errorf("what was committed after recovery is lost: %w", errors.Join(err, errBroken))
	}
	return nil
}

// TestP13ACrashAtAnyCallLosesNothingAcknowledged: at every moment there is one recoverable
// version.
func TestP13ACrashAtAnyCallLosesNothingAcknowledged(t *testing.T) {
	for _, journal := range []bool{false, true} {
		sim := vfs.NewSim(vfs.SimOptions{EntriesWithFiles: journal})
		fault := vfs.NewFault(sim, 1)
		c := &scenario{}
		images := map[uint64]bool{}
		crash := func(when string, call vfs.Call) {
			for _, policy := range vfs.CrashPolicies() {
				seeds := uint64(2)
				if policy == vfs.CrashSubset || policy == vfs.CrashPrefix || policy == vfs.CrashSizeFirst {
					seeds = 6
				}
				for seed := range seeds {
					left := sim.Image(policy, seed)
					if digest := left.Digest(); images[digest] {
						continue
					} else if err := c.checkRecovered(left); err != nil {
						t.Fatalf("journal %v, power cut %s call %d (%s %s), policy %s, seed %d: %v",
							journal, when, call.Index, call.Op, call.Name, policy, seed, err)
					} else {
						images[digest] = true
					}
				}
			}
			// A new acknowledgement invalidates old images.
			clear(images)
		}
		fault.Observe(vfs.Observer{
			Before: func(call vfs.Call) {
				if call.Op&vfs.OpMutating != 0 {
					crash("before", call)
				}
			},
			After: func(call vfs.Call, _ error) {
				if call.Op&vfs.OpMutating != 0 {
					crash("after", call)
				}
			},
		})
		if err := c.run(fault); err != nil {
			t.Fatal(err)
		}
		crash("at the end,", vfs.Call{})
		if left := sim.OpenFiles(); len(left) != 0 {
			t.Errorf("open files %v", left)
		}
	}
}

// TestP10AFailureOfAnyCallLosesNothingAcknowledged: the failing call may be any, and the machine
// may go on or lose power after it.
func TestP10AFailureOfAnyCallLosesNothingAcknowledged(t *testing.T) {
	count := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	if err := (&scenario{}).run(count); err != nil {
		t.Fatal(err)
	}
	calls := count.Calls(vfs.OpAll)
	for _, action := range []vfs.Action{
		vfs.FailWith(syscall.EIO), vfs.FailAfter(syscall.EIO), vfs.FailWith(syscall.ENOSPC), vfs.Short(5, syscall.ENOSPC),
		vfs.FailSync(vfs.SyncFailure(0)), vfs.FailSync(vfs.SyncFailure(1)),
	} {
		failures := 0
		for nth := range calls {
			sim := vfs.NewSim(vfs.SimOptions{})
			fault := vfs.NewFault(sim, 1)
			fault.Add(vfs.Rule{Nth: nth + 1, Action: action})
			c := &scenario{}
			err := c.run(fault)
			if errors.Is(err, errBroken) {
				t.Fatalf("%s at call %d: %v", action, nth+1, err)
			}
			if err != nil {
				failures++
			}
			if left := sim.OpenFiles(); len(left) != 0 {
				t.Errorf("%s at call %d: open files %v", action, nth+1, left)
			}
			for _, policy := range []vfs.CrashPolicy{vfs.CrashLoseAll, vfs.CrashKeepAll, vfs.CrashSubset} {
				if err := c.checkRecovered(sim.Image(policy, 1)); err != nil {
					t.Fatalf("%s at call %d, then a power cut (%s): %v", action, nth+1, policy, err)
				}
			}
			if err := c.checkRecovered(sim.Kill()); err != nil {
				t.Fatalf("%s at call %d, then a restart: %v", action, nth+1, err)
			}
		}
		if failures == 0 {
			t.Errorf("%s at any of %d calls goes unnoticed", action, calls)
		}
	}
}
