package modeltest

// I/O errors. An operation during which calls to the disk fail may fail, and then has done
// nothing; or it has poisoned the store, and then what became of it is found out when
// the store is open again. An answer is right or an error. Once the disk works again, so
// does everything else.

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// What is counted of them.
const (
	ioErrors   = "I/O errors"
	ioRefusals = "operations that failed for I/O errors"
	ioPoisoned = "stores poisoned by I/O errors"
	ioNotOpen  = "stores that did not open for I/O errors"
)

// fault says which calls fail, and how.
type fault struct {
	vfs.Rule
	space bool // for lack of space
}

// anyFault picks one.
func (m *machine) anyFault() fault {
	const needsSpace = vfs.OpCreate | vfs.OpWrites | vfs.OpPreallocate | vfs.OpMkdirAll | vfs.OpRename | vfs.OpLink
	faults := []fault{
		{Rule: vfs.Rule{Ops: vfs.OpMutating, Action: vfs.FailWith(syscall.EIO)}},
		{Rule: vfs.Rule{Ops: vfs.OpMutating, Action: vfs.FailAfter(syscall.EIO)}},
		{Rule: vfs.Rule{Ops: vfs.OpReadAt | vfs.OpOpen, Action: vfs.FailWith(syscall.EIO)}},
		{Rule: vfs.Rule{Ops: needsSpace, Action: vfs.FailWith(syscall.ENOSPC)}, space: true},
		{Rule: vfs.Rule{Ops: needsSpace, Action: vfs.FailWith(syscall.ENOSPC)}, space: true},
		{Rule: vfs.Rule{Ops: vfs.OpWrites, Action: vfs.Short(512, syscall.ENOSPC)}, space: true},
		{Rule: vfs.Rule{Ops: vfs.OpWrites, Action: vfs.Short(512, syscall.EIO)}},
		{Rule: vfs.Rule{Ops: vfs.OpSyncs, Action: vfs.FailSync(vfs.SyncFailureExt4)}},
		{Rule: vfs.Rule{Ops: vfs.OpSyncs, Action: vfs.FailSync(vfs.SyncFailureBtrfs)}},
	}
	f := faults[m.rng.IntN(len(faults))]
	f.Glob = []string{"", "", "*.log", "*.sst", "*.val", "MANIFEST-*"}[m.rng.IntN(6)]
	f.Nth = 1 + m.rng.Int64N(6)
	f.Times = []int64{1, 2, vfs.Forever}[m.rng.IntN(3)]
	return f
}

// faulty does something during which calls fail.
func (m *machine) faulty(f fault, do func()) {
	before := m.doing
	m.doing = func() string { return fmt.Sprintf("%s, while calls fail: %s", before(), f) }
	earlier := m.injected()
	if !m.cfg.sound {
		m.faults.Add(f.Rule)
	}
	do()
	m.faults.Clear()
	if m.injected() == earlier {
		return
	}
	m.hurt = true
	m.seen[ioErrors]++
	if m.store.Metrics().Poisoned {
		m.poisoned(f)
		m.after = m.ended()
	}
}

func (f fault) String() string {
	return fmt.Sprintf("%v, %v of %q, the %dth and %d in all", f.Action, f.Ops, f.Glob, f.Nth, f.Times)
}

// poisoned notes that a fault has poisoned the store, which a full disk must not.
func (m *machine) poisoned(f fault) {
	m.seen[ioPoisoned]++
	if f.space {
		m.fail("a full disk has poisoned the store")
	}
}

// injected is how many calls of the store failed since it was opened. Those of helpers do not
// count: the store makes such a call again itself.
func (m *machine) injected() int64 {
	n := injectedBy(m.faults)
	if m.helpers != nil {
		n -= m.helpers.failed[m.faults]
	}
	return n
}

func injectedBy(faults *vfs.Fault) (n int64) {
	for _, i := range faults.Injected() {
		n += i.Count
	}
	return n
}

// ended is what is on the disk when the process is gone, or the machine.
func (m *machine) ended() *vfs.Sim {
	if m.rng.IntN(2) == 0 {
		return m.disk.Kill()
	}
	return m.disk.Crash(m.anyPolicy(), m.rng.Uint64())
}

// excused reports whether an operation may have failed so, and counts it.
func (m *machine) excused(err error) bool {
	ok := err != nil && m.hurt && (errors.Is(err, syscall.EIO) || errors.Is(err, flagstone.ErrNoSpace))
	if ok {
		m.seen[ioRefusals]++
	}
	return ok
}

// mistakeTime lets the machine come up with another wall clock now and then: the right one, or a wrong
// one, as setClock makes them.
func (m *machine) mistakeTime() {
	if m.rng.IntN(8) > 0 {
		return
	}
	to := m.rightTime()
	switch m.rng.IntN(3) {
	case 0:
		to -= (24 * time.Hour).Milliseconds()
	case 1:
		if m.wild {
			to += (10 * year).Milliseconds()
		}
	}
	m.clock.SetWall(to)
	m.watchStreams()
	m.seen["restarts with another wall clock"]++
}

// heal lets the store try again what failed in the background.
func (m *machine) heal() {
	m.hurt = false
	m.passTime(3 * time.Second)
	m.exec.RunAll()
	if m.owed {
		m.owed = false
		m.acknowledged(m.model.last) // there is space now
	}
}

// readFaulty reads while reads fail.
func (m *machine) readFaulty() {
	read := []func(*machine){(*machine).get, (*machine).getHeld, (*machine).scanNow}[m.rng.IntN(3)]
	f := fault{Rule: vfs.Rule{
		Ops: vfs.OpReadAt | vfs.OpOpen, Nth: 1 + m.rng.Int64N(4), Times: 1 + m.rng.Int64N(3), Action: vfs.FailWith(syscall.EIO),
	}}
	// What fails is known only afterwards, and what it means is judged before.
	m.hurt = true
	defer func() { m.hurt = false }()
	m.faulty(f, func() { read(m) })
}

// openFaulty opens the store while calls fail: nil, or what is on the disk afterwards if it is
// not open, or not in order.
func (m *machine) openFaulty() (after *vfs.Sim) {
	m.faults = vfs.NewFault(m.disk, m.seed)
	m.exec = executortest.NewManual()
	f := m.anyFault()
	f.Nth = 1 + m.rng.Int64N(40)
	before := m.doing
	m.doing = func() string {
		return fmt.Sprintf("%s, opening while calls fail: %s", before(), f)
	}
	if !m.cfg.sound {
		m.faults.Add(f.Rule)
	}
	store, err := flagstone.Open(storeDir, m.storeOptions(m.exec))
	m.faults.Clear()
	m.hurt = m.injected() > 0
	switch {
	case err != nil && !m.excused(err):
		m.fail("open: %v", err)
	case err != nil:
		m.seen[ioNotOpen]++
		return m.ended()
	case store.Metrics().Poisoned:
		m.poisoned(f)
		store.Close()
		return m.ended()
	}
	m.store = store
	return nil
}
