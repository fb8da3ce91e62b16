package schedule

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waits are the states, as runtime.Stack prints them, of goroutines that another one
// has to wake.
var waits = []string{
	"chan receive", "chan send", "select", "semacquire", "sync.Cond.Wait", "sync.WaitGroup.Wait",
	"sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock",
}

// settle returns once every other goroutine waits for another one: each has come as far as
// it gets before the test does something. Stores under test have a clock and a disk that are the test's, so
// neither time nor a device wakes any. REQUIRES: no test runs in parallel.
func settle() {
	for !settled() {
		runtime.Gosched()
	}
}

// settled reports whether every other goroutine waits. Goroutines stand still while their
// stacks are taken, so it is of one moment.
func settled() bool {
	stacks := make([]byte, 64<<10)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	goroutines := strings.Split(string(stacks), "\n\ngoroutine ")
	for _, g := range goroutines[1:] { // the first is this one
		_, state, _ := strings.Cut(g, "[")
		state, _, _ = strings.Cut(state, "]")
		state, _, _ = strings.Cut(state, ",") // for how long
		if !slices.Contains(waits, state) {
			return false
		}
	}
	return true
}

// rig is a store on a simulated disk, whose background jobs run when the test says so.
type rig struct {
	t     *testing.T
	disk  *vfs.Sim
	fault *vfs.Fault
	clock *clocktest.Manual
	exec  *executortest.Manual
	store *flagstone.Store
}

const startMillis = 1_700_000_000_000

func newRig(t *testing.T, opts flagstone.Options) *rig {
	t.Helper()
	r := &rig{t: t, disk: vfs.NewSim(vfs.SimOptions{}), clock: clocktest.NewManual(startMillis), exec: executortest.NewManual()}
	r.fault = vfs.NewFault(r.disk, 1)
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = r.fault, r.clock, r.exec
	var err error
	r.store, err = flagstone.Open("/disk/store", opts)
	must(t, err)
	t.Cleanup(func() { must(t, r.store.Close()) })
	return r
}

func (r *rig) table(name string, options flagstone.TableOptions) *flagstone.Table {
	r.t.Helper()
	table, err := r.store.CreateTable(r.t.Context(), flagstone.TableSpec{
		Name: name, Options: options, Key: []flagstone.KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
	})
	must(r.t, err)
	return table
}

// hold stops the nth call of a kind on files that a pattern matches, from now on, until the
// returned function is called.
func (r *rig) hold(ops vfs.Op, glob string, nth int64) (release func()) {
	door := make(chan struct{})
	r.fault.Add(vfs.Rule{Ops: ops, Glob: glob, Nth: nth, Action: vfs.Hold(door)})
	return func() { close(door) }
}

// run begins something beside the test, and lets everything come as far as it gets.
func (r *rig) run(what string, do func() error) *running {
	p := &running{t: r.t, what: what, end: make(chan struct{})}
	go func() {
		defer close(p.end)
		p.err = do()
	}()
	settle()
	return p
}

// running is what was begun beside the test.
type running struct {
	t    *testing.T
	what string
	end  chan struct{}
	err  error
}

func (p *running) done() bool {
	select {
	case <-p.end:
		return true
	default:
		return false
	}
}

// wait waits for the end, which is to be a success.
func (p *running) wait() {
	p.t.Helper()
	<-p.end
	if p.err != nil {
		p.t.Fatalf("%s: %v", p.what, p.err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// show describes what a row holds: versions and values of its only column.
func show(t *testing.T, r *flagstone.Row, err error) string {
	t.Helper()
	must(t, err)
	if r == nil {
		return "absent"
	}
	var b strings.Builder
	for _, c := range r.Cells() {
		fmt.Fprintf(&b, "%d=%s ", c.Version, c.Value)
	}
	return strings.TrimSpace(b.String())
}
