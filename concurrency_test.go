package flagstone

// Many goroutines on one store with tiny memtables and real background work. Readers check,
// meanwhile and afterwards, that no row is torn, no batch is seen in part, no increment is lost,
// nothing that was seen disappears, and memory stays within its budget.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	accountsPerTeller = 6
	tellers           = 2
	bankTotal         = tellers * 2 * accountsPerTeller * 100
	counters          = 4
	wideRows          = 12
	wideColumns       = 8
)

// load is a store under load.
type load struct {
	t      *testing.T
	store  *Store
	dir    string
	seams  Seams
	rounds int

	debits, credits, counts, wide *Table

	writers sync.WaitGroup
	others  sync.WaitGroup
	over    chan struct{} // closed when the writers are done
	cut     atomic.Bool   // the power is gone: errors are expected

	acked [counters]atomic.Int64 // increments acknowledged
	seen  [counters]atomic.Int64 // the most that a reader saw
	begun [counters]atomic.Int64 // increments begun
}

func loadOptions(seams Seams) Options {
	return Options{
		MemtableSize: 4 << 10, MemoryBudget: 48 << 10, TableFileSize: 8 << 10,
		WALSegmentSize: 64 << 10, CacheSize: 32 << 10, Seams: seams,
	}
}

func startLoad(t *testing.T, dir string, seams Seams, rounds int) *load {
	t.Helper()
	l := &load{t: t, dir: dir, seams: seams, rounds: rounds, over: make(chan struct{})}
	var err error
	if l.store, err = Open(dir, loadOptions(seams)); err != nil {
		t.Fatal(err)
	}
	splits := map[string][]row.Value{"debits": Key("t1"), "wide": Key("b", "w", "x")}
	for name, table := range map[string]**Table{
		"debits": &l.debits, "credits": &l.credits, "counts": &l.counts, "wide": &l.wide,
	} {
		*table, err = l.store.CreateTable(ctx(), TableSpec{
			Name: name, Options: TableOptions{MaxVersions: 2}, SplitAt: splits[name],
			Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b := l.store.NewBatch()
	for teller := range tellers {
		for n := range accountsPerTeller {
			for _, table := range []*Table{l.debits, l.credits} {
				b.Row(table, Key(fmt.Sprint("t", teller), n)).Put("balance", 1, row.Integer(100))
			}
		}
	}
	if err := l.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	return l
}

// failed reports an error of a worker, unless the power was cut. It returns
// whether there was one.
func (l *load) failed(what string, err error) bool {
	if err != nil && !l.cut.Load() {
		l.t.Errorf("%s: %v", what, err)
	}
	return err != nil
}

func (l *load) run() {
	for teller := range tellers {
		l.writers.Go(func() { l.transfer(teller) })
	}
	for worker := range 3 {
		l.writers.Go(func() { l.count(worker) })
	}
	for worker := range 2 {
		l.writers.Go(func() { l.widen(worker) })
	}
	for worker := range 2 {
		l.others.Go(func() { l.until(func(i int) bool { return l.audit() && l.read(i) }) })
		_ = worker
	}
	l.others.Go(l.watchCounters)
	l.others.Go(func() { l.until(l.administrate) })
	l.others.Go(func() { l.until(l.checkMemory) })
	l.writers.Wait()
	close(l.over)
	l.others.Wait()
}

// until repeats a step until the writers are done or it returns false.
func (l *load) until(step func(i int) bool) {
	for i := 0; step(i); i++ {
		select {
		case <-l.over:
			return
		default:
		}
	}
}

// transfer moves amounts between accounts of one teller, over both tables.
func (l *load) transfer(teller int) {
	rng := rand.New(rand.NewPCG(uint64(teller), 1))
	var balance [2 * accountsPerTeller]int64
	for i := range balance {
		balance[i] = 100
	}
	for version := int64(2); version < int64(l.rounds); version++ {
		from, to := rng.IntN(len(balance)), rng.IntN(len(balance))
		if from == to {
			continue
		}
		amount := rng.Int64N(50)
		balance[from] -= amount
		balance[to] += amount
		b := l.store.NewBatch()
		for _, i := range []int{from, to} {
			table := []*Table{l.debits, l.credits}[i%2]
			c := b.Row(table, Key(fmt.Sprint("t", teller), i/2))
			if version%5 == 0 {
				c.PutRow()
			}
			c.Put("balance", version, row.Integer(balance[i]))
		}
		if l.failed("transfer", l.store.Apply(ctx(), b)) {
			return
		}
	}
}

// audit sums up all accounts in one moment.
func (l *load) audit() bool {
	sn, err := l.store.Snapshot()
	if l.failed("snapshot", err) {
		return false
	}
	defer sn.Close()
	return l.auditAt(l.debits, l.credits, sn)
}

func (l *load) auditAt(debits, credits *Table, sn *Snapshot) bool {
	total, accounts := int64(0), 0
	for reverse, table := range map[bool]*Table{true: debits, false: credits} {
		rows := table.Scan(ctx(), nil, nil, ScanOptions{
			ReadOptions: ReadOptions{Snapshot: sn, MaxVersions: 1}, Reverse: reverse,
		})
		var last []byte
		for rows.Next() {
			r := rows.Row()
			if d := bytes.Compare(last, r.rowKey); last != nil && (d == 0 || reverse != (d > 0)) {
				l.t.Errorf("a scan is out of order")
			}
			last = bytes.Clone(r.rowKey)
			v, _ := r.Value("balance")
			total += v.Int64()
			accounts++
		}
		err := rows.Err()
		rows.Close()
		if l.failed("audit", err) {
			return false
		}
	}
	if total != bankTotal || accounts != tellers*2*accountsPerTeller {
		l.t.Errorf("%d accounts hold %d, want %d with %d", accounts, total, tellers*2*accountsPerTeller, bankTotal)
		return false
	}
	return true
}

// count increments hot counters by read-modify-write, now and then several at
// once without waiting.
func (l *load) count(worker int) {
	rng := rand.New(rand.NewPCG(uint64(worker), 2))
	for i := range l.rounds {
		n := rng.IntN(counters)
		var commits []*Commit
		for range 1 + i%3 {
			l.begun[n].Add(1)
			c, err := l.counts.UpdateAsync(ctx(), Key("c", n), increment)
			if l.failed("increment", err) {
				return
			}
			commits = append(commits, c)
		}
		for _, c := range commits {
			if l.failed("increment", c.Wait(ctx())) {
				return
			}
			l.acked[n].Add(1)
		}
	}
}

func increment(_ context.Context, tx *RowTx) error {
	r, err := tx.Get(ReadOptions{MaxVersions: 1})
	if err != nil {
		return err
	}
	count := int64(0)
	if r != nil {
		v, _ := r.Value("count")
		count = v.Int64()
	}
	tx.Put("count", count+1, row.Integer(count+1))
	return nil
}

func (l *load) counter(n int) (int64, error) {
	r, err := l.counts.Get(ctx(), Key("c", n), ReadOptions{})
	if err != nil || r == nil {
		return 0, err
	}
	v, _ := r.Value("count")
	return v.Int64(), nil
}

// watchCounters checks that acknowledged increments are seen and that counters do not go back.
func (l *load) watchCounters() {
	var last [counters]int64
	l.until(func(i int) bool {
		n := i % counters
		acked := l.acked[n].Load()
		got, err := l.counter(n)
		if l.failed("counter", err) {
			return false
		}
		begun := l.begun[n].Load()
		if got < acked || got < last[n] || got > begun {
			l.t.Errorf("counter %d shows %d; it showed %d, %d were acknowledged, %d begun", n, got, last[n], acked, begun)
			return false
		}
		last[n] = got
		l.seen[n].Store(got)
		return true
	})
}

// widen rewrites columns of wide rows, and the checksum over them.
func (l *load) widen(worker int) {
	rng := rand.New(rand.NewPCG(uint64(worker), 3))
	for i := range l.rounds {
		key := Key("w", rng.IntN(wideRows))
		err := l.wide.Update(ctx(), key, func(_ context.Context, tx *RowTx) error {
			r, err := tx.Get(ReadOptions{MaxVersions: 1})
			if err != nil {
				return err
			}
			columns, version := map[string]string{}, int64(1)
			if r != nil {
				for j := range r.Cells() {
					v, _ := row.PayloadValue(r.Cells()[j].Type, r.Cells()[j].Value)
					columns[string(r.Cells()[j].Column)] = v.Text()
					version = max(version, r.Cells()[j].Version+1)
				}
			}
			switch {
			case i%17 == 16:
				tx.DeleteRow()
				return nil
			case i%5 == 4:
				tx.PutRow()
				columns = map[string]string{}
			}
			for range 3 {
				name := fmt.Sprint("c", rng.IntN(wideColumns))
				columns[name] = fmt.Sprintf("%d-%0*d", i, rng.IntN(40)+1, worker)
				tx.Put(name, version, row.String(columns[name]))
			}
			tx.Put("sum", version, row.String(checksum(columns)))
			return nil
		})
		if l.failed("widen", err) {
			return
		}
	}
}

func checksum(columns map[string]string) string {
	h := crc32.NewIEEE()
	for i := range wideColumns {
		fmt.Fprintf(h, "%s;", columns[fmt.Sprint("c", i)])
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

func (l *load) checkWide(r *Row) bool {
	columns := map[string]string{}
	for i := range r.Cells() {
		if name := string(r.Cells()[i].Column); columns[name] == "" { // the newest
			v, _ := row.PayloadValue(r.Cells()[i].Type, r.Cells()[i].Value)
			columns[name] = v.Text()
		}
	}
	if sum := checksum(columns); columns["sum"] != sum {
		l.t.Errorf("a torn row: %s; its checksum is %s", cells(r), sum)
		return false
	}
	return true
}

func (l *load) read(i int) bool {
	if i%3 == 0 {
		rows := l.wide.Scan(ctx(), nil, nil, ScanOptions{Reverse: i%2 == 0})
		defer rows.Close()
		for rows.Next() {
			if !l.checkWide(rows.Row()) {
				return false
			}
		}
		return !l.failed("scan", rows.Err())
	}
	r, err := l.wide.Get(ctx(), Key("w", i%wideRows), ReadOptions{})
	return !l.failed("get", err) && (r == nil || l.checkWide(r))
}

// administrate runs operators' calls, such as flushes and compactions.
func (l *load) administrate(i int) bool {
	at := row.String([]string{"t1", "c", "w"}[i%3])
	switch i % 11 {
	case 0, 4:
		return !l.failed("flush", l.store.Flush(ctx()))
	case 1:
		return !l.failed("compact", l.store.Compact(ctx()))
	case 2, 6:
		options := TableOptions{MaxVersions: int64(1 + i%4)}
		return !l.failed("alter", l.wide.Alter(ctx(), TableChange{Options: &options}))
	case 3:
		_, err := l.wide.SplitPoints(ctx(), 500, 0)
		return !l.failed("split points", err)
	case 5:
		return l.checkpoint(i)
	case 9:
		return !l.failed("split", errors.Join(l.debits.Split(ctx(), at), l.wide.Split(ctx(), at), l.counts.Split(ctx(), at)))
	case 10:
		err := errors.Join(l.debits.Merge(ctx(), at), l.counts.Merge(ctx(), at))
		return errors.Is(err, ErrConflict) || !l.failed("merge", err)
	case 7:
		_, err := l.store.CreateTable(ctx(), TableSpec{Name: "temporary", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
		return !l.failed("create", err)
	default:
		return !l.failed("drop", l.store.DropTable(ctx(), "temporary"))
	}
}

// checkpoint makes a checkpoint and checks that it shows one moment.
func (l *load) checkpoint(i int) bool {
	dir := filepath.Join(filepath.Dir(l.dir), fmt.Sprint("checkpoint", i))
	if l.failed("checkpoint", l.store.Checkpoint(ctx(), dir)) {
		return false
	}
	if l.cut.Load() {
		return false
	}
	opts := loadOptions(l.seams)
	opts.ReadOnly = true
	cp, err := Open(dir, opts)
	if l.failed("open the checkpoint", err) {
		return false
	}
	defer cp.Close()
	debits, err1 := cp.Table("debits")
	credits, err2 := cp.Table("credits")
	if l.failed("tables of the checkpoint", errors.Join(err1, err2)) {
		return false
	}
	return l.auditAt(debits, credits, nil)
}

// checkMemory: writers are held back before they exceed the budget.
func (l *load) checkMemory(int) bool {
	runtime.Gosched()
	if m := l.store.Metrics(); m.MemoryBytes > m.MemoryBudget || m.MemoryBytes < 0 {
		l.t.Errorf("memtables take %d bytes of %d", m.MemoryBytes, m.MemoryBudget)
		return false
	}
	return true
}

// checkCounters compares the counters with what was acknowledged, what readers
// saw, and what was begun.
func (l *load) checkCounters() {
	for n := range counters {
		got, err := l.counter(n)
		if err != nil {
			l.t.Fatal(err)
		}
		if acked, begun := l.acked[n].Load(), l.begun[n].Load(); got < acked || got > begun || !l.cut.Load() && got != begun {
			l.t.Errorf("counter %d is %d; %d increments were acknowledged, %d begun", n, got, acked, begun)
		}
		if seen := l.seen[n].Load(); got < seen {
			l.t.Errorf("counter %d is %d; a reader saw %d", n, got, seen)
		}
	}
}

func loadRounds() int {
	if testing.Short() {
		return 60
	}
	return 250
}

func TestP02_P06_P07_ManyClientsOnASimulatedDisk(t *testing.T) {
	defer goleak.VerifyNone(t)
	fsys := vfs.NewSim(vfs.SimOptions{})
	l := startLoad(t, "/load/store", Seams{FS: fsys, ValueThreshold: 8}, loadRounds())
	l.run()
	l.checkCounters()
	if err := l.store.Close(); err != nil {
		t.Error(err)
	}
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Errorf("open files: %v", open)
	}
	report, err := Check(ctx(), l.dir, Options{Seams: l.seams}, nil)
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("check: %v %v", err, report.Problems)
	}
}

func TestP02_P06_P07_ManyClientsOnARealDisk(t *testing.T) {
	defer goleak.VerifyNone(t)
	l := startLoad(t, filepath.Join(t.TempDir(), "store"), Seams{}, loadRounds()/2)
	l.run()
	l.checkCounters()
	if err := l.store.Close(); err != nil {
		t.Error(err)
	}
	var err error
	if l.store, err = Open(l.dir, loadOptions(l.seams)); err != nil {
		t.Fatal(err)
	}
	defer l.store.Close()
	if l.counts, err = l.store.Table("counts"); err != nil {
		t.Fatal(err)
	}
	l.checkCounters()
}

// TestP01_PowerLossUnderLoad cuts the power while all workers run.
func TestP01_PowerLossUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	for round, policy := range vfs.CrashPolicies() {
		disk := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(disk, 1)
		l := startLoad(t, "/load/store", Seams{FS: fault}, 1<<30)
		var next *vfs.Sim
		var once sync.Once
		calls := atomic.Int64{}
		fault.Observe(vfs.Observer{Before: func(vfs.Call) {
			if calls.Add(1) > int64(300+150*round) {
				once.Do(func() {
					l.cut.Store(true)
					next = disk.Crash(policy, uint64(round))
				})
			}
		}})
		l.run()
		l.store.Close()
		l.seams = Seams{FS: next}
		var err error
		if l.store, err = Open(l.dir, loadOptions(l.seams)); err != nil {
			t.Fatalf("%v: %v", policy, err)
		}
		for name, table := range map[string]**Table{
			"debits": &l.debits, "credits": &l.credits, "counts": &l.counts, "wide": &l.wide,
		} {
			if *table, err = l.store.Table(name); err != nil {
				t.Fatalf("%v: %v", policy, err)
			}
		}
		l.checkCounters()
		l.audit()
		l.read(0)
		if err := l.store.Close(); err != nil {
			t.Errorf("%v: %v", policy, err)
		}
	}
}

// TestP01_NothingIsVisibleBeforeItIsDurable begins a write while the log is being synced for
// another one: that sync does not cover it.
func TestP01_NothingIsVisibleBeforeItIsDurable(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "warm", 1, "c", startMillis, "v")
	r.exec.RunAll() // the first log segment gives way to one that was written before
	put(t, table, "warm", 1, "c", startMillis, "v")
	insert := func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil }
	var late *Commit
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op == vfs.OpSyncData && late == nil {
			var err error
			if late, err = table.UpdateAsync(ctx(), Key("late", 1), insert); err != nil {
				t.Error(err)
			}
		}
	}})
	if err := table.Update(ctx(), Key("p", 1), insert); err != nil {
		t.Fatal(err)
	}
	if late == nil {
		t.Fatal("the log was not synced")
	}
	if got := show(t, table, "p", 1); got == "absent" {
		t.Error("an acknowledged row is not visible")
	}
	if got := show(t, table, "late", 1); got != "absent" {
		t.Error("a row is visible that a crash would take back")
	}
	if err := late.Wait(ctx()); err != nil {
		t.Fatal(err)
	}
	if got := show(t, table, "late", 1); got == "absent" {
		t.Error("an acknowledged row is not visible")
	}
}
