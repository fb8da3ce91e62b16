package flagstone

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// cuts are the starts of a table's partitions, with "user:" before those that a user asked for.
func cuts(table *Table) (starts []string) {
	for _, p := range table.Partitions()[1:] {
		start := p.Start.Text()
		if p.Cut {
			start = "user:" + start
		}
		starts = append(starts, start)
	}
	return starts
}

func wantCuts(t *testing.T, when string, table *Table, want ...string) {
	t.Helper()
	if got := cuts(table); !slices.Equal(got, want) {
		t.Errorf("%s: partitions begin at %q, want %q", when, got, want)
	}
}

// wait lets time pass, with the background work that falls due.
func (r *rig) wait(d time.Duration) {
	for range d/balance.Interval + 1 {
		r.clock.Advance(balance.Interval)
		r.exec.RunAll()
	}
}

// divideItself fills a table until the store has split it, and returns its cuts.
func (r *rig) divideItself(table *Table) []string {
	noise := rand.NewChaCha8([32]byte{})
	for i := range 1000 {
		value := make([]byte, 500)
		noise.Read(value)
		put(r.t, table, fmt.Sprintf("d%03d", i), 1, "c", startMillis, string(value))
	}
	if err := r.store.Flush(ctx()); err != nil {
		r.t.Fatal(err)
	}
	r.wait(time.Minute)
	return cuts(table)
}

// emptyAgain deletes what divideItself has put.
func (r *rig) emptyAgain(table *Table) {
	for i := range 1000 {
		if err := table.Delete(ctx(), Key(fmt.Sprintf("d%03d", i), 1)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.store.Compact(ctx()); err != nil {
		r.t.Fatal(err)
	}
}

// openCopy copies the store and opens a table of the copy.
func (r *rig) openCopy(name string) *Table {
	if _, err := r.store.CopyTo(ctx(), "/copy", nil); err != nil {
		r.t.Fatal(err)
	}
	copied, err := Open("/copy", Options{Seams: Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { copied.Close() })
	made, err := copied.Table(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

// TestOnlyAUserTakesAwayACutOfAUser has partitions that a user and the store itself have made. All are
// small and idle, so the store merges those that it made.
func TestOnlyAUserTakesAwayACutOfAUser(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: 256 << 10})
	table := r.presplit("t", nil, "m", "c")
	starts := r.divideItself(table)
	if len(starts) < 4 || starts[0] != "user:c" || starts[len(starts)-1] != "user:m" {
		t.Fatalf("a large partition was not split: %q", starts)
	}
	own := starts[1]
	if err := table.Split(ctx(), row.String(own)); err != nil { // the store has cut there itself
		t.Fatal(err)
	}
	if err := table.Split(ctx(), row.String("x")); err != nil {
		t.Fatal(err)
	}
	r.emptyAgain(table)
	r.wait(30 * time.Minute)
	wantCuts(t, "quiet", table, "user:c", "user:"+own, "user:m", "user:x")
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	r.wait(30 * time.Minute)
	wantCuts(t, "after a crash", table, "user:c", "user:"+own, "user:m", "user:x")

	for _, at := range []string{"m", "x"} {
		if err := table.Merge(ctx(), row.String(at)); err != nil {
			t.Fatal(err)
		}
	}
	wantCuts(t, "merged", table, "user:c", "user:"+own)
	if again := r.divideItself(table); len(again) < 3 {
		t.Errorf("a large partition was not split: %q", again)
	}
	wantCuts(t, "copied", r.openCopy("t"), cuts(table)...)
}

// TestAMergeLeavesACutThatAUserAskedForMeanwhile: while the store prepares to merge two partitions, a user cuts the
// table between them.
func TestAMergeLeavesACutThatAUserAskedForMeanwhile(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: 256 << 10})
	table := r.table("t", TableOptions{})
	starts := r.divideItself(table)
	r.emptyAgain(table)
	var want []string
	r.store.rebalancer.Parts.Env = workEnv{rebalanceEnv{r.store}, func() {
		if want != nil {
			return
		}
		for _, s := range starts {
			if err := table.Split(ctx(), row.String(s)); err != nil {
				t.Error(err)
			}
			want = append(want, "user:"+s)
		}
	}}
	r.wait(30 * time.Minute)
	if want == nil {
		t.Fatal("nothing was merged")
	}
	wantCuts(t, "asked for", table, want...)
}

func TestASplitAtTheSmallestValueDoesNothing(t *testing.T) {
	r := newRig(t, Options{})
	for name, at := range map[string]row.Value{
		"string": row.String(""), "integer": row.Integer(math.MinInt64), "binary": row.Binary(nil),
	} {
		table, err := r.store.CreateTable(ctx(), TableSpec{Name: name, Key: []KeyColumn{{Name: "pk", Type: at.Type()}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Split(ctx(), at); err != nil || len(table.Partitions()) != 1 {
			t.Errorf("%s: %d partitions, %v", name, len(table.Partitions()), err)
		}
		wantError(t, name+" split at a double", table.Split(ctx(), row.Double(1)), ErrInvalid)
		if err := r.store.DropTable(ctx(), name); err != nil {
			t.Fatal(err)
		}
		wantError(t, name+" dropped", table.Split(ctx(), at), ErrTableNotFound)
	}
}

// TestACopyHasMoreThanAThousandPartitions: a table can be split further than CreateTable allows.
func TestACopyHasMoreThanAThousandPartitions(t *testing.T) {
	r := newRig(t, Options{})
	var many []any
	for n := range maxSplits {
		many = append(many, fmt.Sprintf("%04d", n))
	}
	table := r.presplit("t", nil, many...)
	for _, at := range []string{"x", "y"} {
		if err := table.Split(ctx(), row.String(at)); err != nil {
			t.Fatal(err)
		}
	}
	wantCuts(t, "copied", r.openCopy("t"), cuts(table)...)
}

// newBusyRig has partitions that are busy with a hundredth of the load that others need.
func newBusyRig(t *testing.T) *rig {
	return newRig(t, Options{Seams: Seams{Balance: balance.Settings{SplitUnits: 100}}})
}

// TestAHotKeyIsAFinding reads one key so often that a split by load would follow if there were other keys.
func TestAHotKeyIsAFinding(t *testing.T) {
	r := newBusyRig(t)
	table := r.table("t", TableOptions{})
	put(t, table, "hot", 1, "c", startMillis, "v")
	for range 3 * time.Minute / balance.Interval {
		r.reads(table, 1500, func() string { return "hot" })
	}
	parts := table.Partitions()
	if len(parts) != 1 || len(parts[0].Findings) != 1 {
		t.Fatalf("%+v", parts)
	}
	p := parts[0]
	f := p.Findings[0]
	if f.Kind != BusyKey || f.Key.Text() != "hot" || f.Figure < 90 || f.Figure > 200 || p.Reads < 90 || p.Reads > 200 || p.Writes > 1 || p.Units < p.Reads {
		t.Errorf("%+v", p)
	}
	if m := r.store.Metrics().Tables[0]; m.BusyKeys != 1 || m.LargeKeys != 0 || m.MovingLoads != 0 {
		t.Errorf("%+v", m)
	}
}

// reads reads rows between two looks at the partitions.
func (r *rig) reads(table *Table, count int, next func() string) {
	for range count {
		if _, err := table.Get(ctx(), Key(next(), 1), ReadOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.wait(0)
}

// TestALoadOnFewKeysSpreadsOverPartitions reads a twentieth of the keys in 95 of 100 operations.
func TestALoadOnFewKeysSpreadsOverPartitions(t *testing.T) {
	const keys, first, hot = 2000, 1500, 100
	r := newBusyRig(t)
	table := r.table("t", TableOptions{})
	for i := range keys {
		put(t, table, fmt.Sprintf("p%04d", i), 1, "c", startMillis, "v")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	next := func() string {
		if rng.IntN(20) == 0 {
			return fmt.Sprintf("p%04d", rng.IntN(keys))
		}
		return fmt.Sprintf("p%04d", first+rng.IntN(hot))
	}
	for range 15 * time.Minute / balance.Interval {
		r.reads(table, 10_000, next)
	}
	parts := table.Partitions()
	loads := make([]int, len(parts))
	for range 100_000 {
		key, at := next(), len(parts)-1
		for at > 0 && key < parts[at].Start.Text() {
			at--
		}
		loads[at]++
	}
	slices.Sort(loads)
	slices.Reverse(loads)
	carried, n := 0, 0
	for ; carried < 90_000; n++ {
		carried += loads[n]
	}
	t.Logf("operations in each of %d partitions: %v", len(parts), loads)
	if n < 4 || loads[0] > 2*loads[n-1] {
		t.Errorf("%d partitions carry nine tenths of the load, the busiest has %d operations, the last of these %d", n, loads[0], loads[n-1])
	}
	for _, p := range parts {
		if len(p.Findings) > 0 {
			t.Errorf("%+v", p)
		}
	}
}

// TestScansOverDeletedRowsAreAFinding scans rows that were all deleted, then the same number of rows that exist. The
// passed rows are no units, so that no key counts as busy and no partition is split.
func TestScansOverDeletedRowsAreAFinding(t *testing.T) {
	const rows = 1000
	var log bytes.Buffer
	r := newRig(t, Options{Seams: Seams{Balance: balance.Settings{SplitUnits: 100}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	table := r.table("t", TableOptions{})
	for n := range rows {
		put(t, table, fmt.Sprintf("key-%04d", n), 1, "c", startMillis, "v")
	}
	r.ok(table.Flush(ctx()))
	for n := range rows {
		r.ok(table.Delete(ctx(), Key(fmt.Sprintf("key-%04d", n), 1)))
	}
	scans := func(opts ScanOptions) Partition {
		for range 30 * time.Second / balance.Interval {
			for range 50 {
				for _, err := range table.Scan(ctx(), nil, nil, opts).All() {
					r.ok(err)
				}
			}
			r.reads(table, 0, nil)
		}
		if parts := table.Partitions(); len(parts) == 1 {
			return parts[0]
		}
		t.Fatalf("%+v", table.Partitions())
		return Partition{}
	}
	p := scans(ScanOptions{})
	if len(p.Findings) != 1 || p.Findings[0].Kind != PassedRows || p.Findings[0].Key.Type() != row.TypeNone || p.Findings[0].Figure < 2000 || p.Units > p.Writes+6 || p.Reads > 1 {
		t.Errorf("deleted rows: %+v", p)
	}
	if m := r.store.Metrics().Tables[0]; math.Abs(m.PassedRate-p.Findings[0].Figure) > 1 || m.BusyKeys != 0 {
		t.Errorf("%+v", m)
	}
	if said := log.String(); strings.Count(said, "reads pass over deleted rows") != 1 || strings.Contains(said, "splits do not help") {
		t.Error(said)
	}
	old, err := r.store.Snapshot()
	r.ok(err)
	defer old.Close()
	for n := range rows {
		put(t, table, fmt.Sprintf("key-%04d", n), 1, "c", startMillis, "v")
	}
	if p = scans(ScanOptions{}); len(p.Findings) != 0 {
		t.Errorf("rows that exist: %+v", p)
	}
	before := r.store.Metrics().Tables[0].PassedRate
	scans(ScanOptions{ReadOptions: ReadOptions{Snapshot: old}})
	if after := r.store.Metrics().Tables[0].PassedRate; after >= before {
		t.Errorf("scans at a snapshot that is older than the rows: %v passed per second, and %v before", after, before)
	}
}
