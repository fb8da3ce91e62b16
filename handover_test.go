package flagstone

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// pair is two stores between which the upper part of a table moves back and forth, with a model: the rows, and
// where they are.
type pair struct {
	*testing.T
	rng   *rand.Rand
	rigs  [2]*rig
	fault [2]*vfs.Fault
	at    int // the store that has the part
	model map[[2]int]string
	moves int // begun
}

const movingFrom = 20 // partition keys from here on move

func newPair(t *testing.T, seed uint64) *pair {
	t.Logf("seed %d", seed)
	p := &pair{T: t, rng: rand.New(rand.NewPCG(seed, 8)), model: map[[2]int]string{}}
	for i := range p.rigs {
		p.rigs[i], p.fault[i] = faultRig(t, movingOptions)
		table := p.rigs[i].table("t", TableOptions{})
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(movingFrom))), nil)
		for n := range movingFrom {
			put(t, table, partitionKey(n), 0, "c", startMillis, fmt.Sprint(n))
		}
		for range i * 100 { // the stores are at different sequence numbers
			put(t, table, partitionKey(0), 1, "c", startMillis, "x")
		}
	}
	wantError(t, "Freeze", p.table(1).Freeze(ctx(), p.parts(1)[0].ID, ""), nil)
	wantError(t, "Detach", p.table(1).Detach(ctx(), p.parts(1)[0].ID, "it begins in the other store"), nil)
	return p
}

func (p *pair) table(of int) *Table {
	table, err := p.rigs[of].store.Table("t")
	if err != nil {
		p.Fatal(err)
	}
	return table
}

// parts are the partitions of the part in a store.
func (p *pair) parts(of int) []Partition {
	list := p.table(of).Partitions()
	at := slices.IndexFunc(list, func(q Partition) bool { return q.Start.Type() != 0 && q.Start.Text() == partitionKey(movingFrom) })
	return list[at:]
}

// write writes and deletes some rows of the part. The store that does not have it must refuse.
func (p *pair) write() {
	p.Helper()
	for range 5 + p.rng.IntN(30) {
		at := [2]int{movingFrom + p.rng.IntN(dividedKeys-movingFrom), p.rng.IntN(dividedRows)}
		key, value := Key(partitionKey(at[0]), at[1]), fmt.Sprint(p.rng.Uint64())
		if p.rng.IntN(5) == 0 {
			value = strings.Repeat(value, 100)
		}
		wantError(p.T, "a write to the other store", p.table(1-p.at).Put(ctx(), key, "c", startMillis, row.String(value)), ErrDetached)
		if p.rng.IntN(4) == 0 {
			wantError(p.T, "Delete", p.table(p.at).Delete(ctx(), key), nil)
			delete(p.model, at)
			continue
		}
		wantError(p.T, "Put", p.table(p.at).Put(ctx(), key, "c", startMillis, row.String(value)), nil)
		p.model[at] = value
	}
}

func (p *pair) check() {
	p.Helper()
	got := map[[2]int]string{}
	for r, err := range p.table(p.at).Scan(ctx(), Key(partitionKey(movingFrom)), nil, ScanOptions{}).All() {
		if err != nil {
			p.Fatal(err)
		}
		got[[2]int{keyNumber(r.Key()), int(r.Key()[1].Int64())}] = string(r.Cells()[0].Value)
	}
	if !maps.Equal(got, p.model) {
		p.Fatalf("store %d has %d rows, want %d", p.at, len(got), len(p.model))
	}
	for store := range p.rigs {
		for n := range movingFrom {
			if got := show(p.T, p.table(store), partitionKey(n), 0); got != fmt.Sprintf("c@%d=%d ", startMillis, n) {
				p.Fatalf("store %d, row %d, which does not move: %s", store, n, got)
			}
		}
	}
}

// handOver moves the part to the other store, in the steps of docs/moving.md. during is called after the first
// export.
func (p *pair) handOver(during func()) error {
	from, to := p.at, 1-p.at
	p.moves++
	opts := ExportOptions{Start: row.String(partitionKey(movingFrom))}
	first, err := p.table(from).Export(ctx(), fmt.Sprintf("/move%d", p.moves), opts)
	if err == nil {
		err = send(first, p.rigs[to].store)
	}
	if err != nil {
		return err
	}
	during()
	for _, q := range p.parts(from) {
		if err := p.table(from).Freeze(ctx(), q.ID, "it moves"); err != nil {
			return err
		}
	}
	opts.Base = first.Fragment
	second, err := p.table(from).Export(ctx(), fmt.Sprintf("/rest%d", p.moves), opts)
	if err == nil {
		err = send(second, p.rigs[to].store)
	}
	if err == nil {
		err = p.rigs[to].store.Ingest(ctx(), second.Fragment)
	}
	if err != nil {
		return err
	}
	return p.settle()
}

// settle ends a move, also one that a power loss has cut short: if the new store has the part, the old one
// gives it up.
func (p *pair) settle() error {
	from, to := p.at, 1-p.at
	moved := p.parts(to)[0].State != PartitionDetached
	for _, q := range p.parts(from) {
		var err error
		switch {
		case moved && q.State != PartitionDetached:
			err = p.table(from).Detach(ctx(), q.ID, "it has moved")
		case !moved && q.State == PartitionFrozen:
			err = p.table(from).Unfreeze(ctx(), q.ID)
		}
		if err != nil {
			return err
		}
	}
	if moved {
		p.at = to
	}
	return nil
}

// cutShort hands the part over and cuts the power of a store before its n-th call of the file system. It
// returns how many calls there were. The move ends after the restart, either way.
func (p *pair) cutShort(lost, n int) (calls int) {
	p.Helper()
	r := p.rigs[lost]
	disk, policy, seed := r.fs, vfs.CrashPolicies()[p.rng.IntN(len(vfs.CrashPolicies()))], p.rng.Uint64()
	cut := false
	p.fault[lost].Observe(vfs.Observer{Before: func(vfs.Call) {
		if calls++; calls == n {
			cut, r.fs = true, disk.Crash(policy, seed)
		}
	}})
	err := p.handOver(func() {})
	p.fault[lost].Observe(vfs.Observer{})
	if !cut {
		wantError(p.T, "a move", err, nil)
		return calls
	}
	r.store.Close() // its files are gone: this only frees memory
	p.fault[lost] = vfs.NewFault(r.fs, 1)
	r.exec = executortest.NewManual()
	opts := r.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = p.fault[lost], r.clock, r.exec
	if r.store, err = Open("/store", opts); err != nil {
		p.Fatal(err)
	}
	wantError(p.T, "settle", p.settle(), nil)
	return calls
}

// TestS8_APartitionMovesBackAndForth is a random history of two stores.
func TestS8_APartitionMovesBackAndForth(t *testing.T) {
	seeds, steps := uint64(10), 60
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, seed)
			for range steps {
				p.step()
				p.check()
			}
			for _, r := range p.rigs {
				r.reopen() // which deletes the files of a move that was cut short
				r.wantSound()
			}
			t.Logf("%d moves", p.moves)
		})
	}
}

func (p *pair) step() {
	p.Helper()
	here := p.rigs[p.at]
	switch p.rng.IntN(9) {
	case 0, 1, 2:
		p.write()
	case 3, 4:
		p.moveBesideSnapshot()
	case 5:
		calls := p.cutShort(p.rng.IntN(2), 1+p.rng.IntN(400))
		p.Logf("power cut in a move of %d calls", calls)
	case 6:
		wantError(p.T, "Compact", here.store.Compact(ctx()), nil)
	case 7:
		p.rigs[0].exec.RunAll()
		p.rigs[1].exec.RunAll()
	case 8:
		at := row.String(partitionKey(movingFrom + 1 + p.rng.IntN(dividedKeys-movingFrom-1)))
		if p.rng.IntN(2) == 0 {
			wantError(p.T, "Split", p.table(p.at).Split(ctx(), at), nil)
			break
		}
		wantError(p.T, "Merge", p.table(p.at).Merge(ctx(), at), nil)
	}
}

// moveBesideSnapshot moves the part, and reads it then through a snapshot from before.
func (p *pair) moveBesideSnapshot() {
	p.Helper()
	snapshot, err := p.rigs[1-p.at].store.Snapshot()
	wantError(p.T, "Snapshot", err, nil)
	defer snapshot.Close()
	wantError(p.T, "a move", p.handOver(p.write), nil)
	opts := ReadOptions{Snapshot: snapshot}
	_, err = p.table(p.at).Get(ctx(), Key(partitionKey(movingFrom), 0), opts)
	wantError(p.T, "a read at a snapshot from before", err, ErrDetached)
	err = nil
	for _, failed := range p.table(p.at).Scan(ctx(), nil, nil, ScanOptions{ReadOptions: opts}).All() {
		err = failed
	}
	wantError(p.T, "a scan at a snapshot from before", err, ErrDetached)
}

// TestS8_APowerLossLeavesAPartitionInOneStore cuts the power of one of the stores before a call of a move, brings
// the move to an end, and moves the partition once more.
func TestS8_APowerLossLeavesAPartitionInOneStore(t *testing.T) {
	points := 1000 // all
	if testing.Short() {
		points = 12
	}
	cut := func(t *testing.T, lost, n int) int {
		p := newPair(t, uint64(n))
		p.write()
		calls := p.cutShort(lost, n)
		p.check()
		p.write()
		wantError(t, "another move", p.handOver(p.write), nil)
		p.check()
		for _, r := range p.rigs {
			r.reopen() // which deletes the files of a move that was cut short
			r.wantSound()
		}
		return calls
	}
	for lost := range 2 {
		calls := cut(t, lost, -1)
		for n := 1; n <= calls; n += 1 + calls/points {
			t.Run(fmt.Sprintf("store %d, call %d of %d", lost, n, calls), func(t *testing.T) { cut(t, lost, n) })
		}
	}
}

// TestS8_APowerLossLeavesANewTableWholeOrAbsent cuts the power before each call of Ingest into an empty store.
func TestS8_APowerLossLeavesANewTableWholeOrAbsent(t *testing.T) {
	r := newRig(t, movingOptions)
	table := r.table("t", TableOptions{})
	fillAtRandom(t, rand.New(rand.NewPCG(2, 2)), table, 60)
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	want := dumpRange(t, table, "", "z")
	absent, whole, step := 0, 0, 1
	if testing.Short() {
		step = 7
	}
	for n := 1; ; n += step {
		other, fault := faultRig(t, movingOptions)
		wantError(t, "send", send(x, other.store), nil)
		calls, disk := 0, other.fs
		fault.Observe(vfs.Observer{Before: func(vfs.Call) {
			if calls++; calls == n {
				other.fs = disk.Crash(vfs.CrashPolicies()[n%len(vfs.CrashPolicies())], uint64(n))
			}
		}})
		err := other.store.Ingest(ctx(), x.Fragment)
		fault.Observe(vfs.Observer{})
		cut := other.fs != disk
		if cut {
			other.store.Close()
			other.open()
			if left, _ := other.fs.List("/store/staging"); len(left) > 0 {
				t.Fatalf("call %d: %v is left", n, left)
			}
		}
		moved, missing := other.store.Table("t")
		switch {
		case missing == nil && dumpRange(t, moved, "", "z") != want:
			t.Fatalf("call %d: the table has other rows", n)
		case missing == nil:
			whole++
		case err == nil:
			t.Fatalf("call %d: Ingest returned, and then: %v", n, missing)
		default:
			absent++
			wantError(t, "send again", send(x, other.store), nil)
			wantError(t, "Ingest again", other.store.Ingest(ctx(), x.Fragment), nil)
		}
		other.reopen() // which deletes what was left behind
		other.wantSound()
		if !cut {
			t.Logf("%d calls, the table was absent %d times and whole %d times", n, absent, whole)
			return
		}
	}
}

// TestS8_AFailedCallLeavesANewTableWholeOrAbsent lets each call of StageFile and Ingest fail, as with a full
// disk or as a broken one.
func TestS8_AFailedCallLeavesANewTableWholeOrAbsent(t *testing.T) {
	r := newRig(t, movingOptions)
	table := r.table("t", TableOptions{})
	fillAtRandom(t, rand.New(rand.NewPCG(6, 6)), table, 60)
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	want := dumpRange(t, table, "", "z")
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 1; ; n += step {
		for _, failure := range []error{syscall.ENOSPC, syscall.EIO} {
			other, fault := faultRig(t, movingOptions)
			fault.Add(vfs.Rule{Nth: int64(n), Action: vfs.FailWith(failure)})
			move := func() error {
				if err := send(x, other.store); err != nil {
					return err
				}
				return other.store.Ingest(ctx(), x.Fragment)
			}
			err := move()
			fault.Clear()
			if len(fault.Injected()) == 0 {
				t.Logf("%d calls", n-1)
				return
			}
			moved, missing := other.store.Table("t")
			if missing == nil && dumpRange(t, moved, "", "z") != want || missing != nil && err == nil {
				t.Fatalf("call %d fails with %v: %v, the table is there or has other rows", n, failure, err)
			}
			if errors.Is(err, ErrPoisoned) {
				other.store.Close()
				other.open()
				_, missing = other.store.Table("t")
			}
			if missing != nil {
				wantError(t, "again", move(), nil)
			}
			if got := dumpRange(t, other.table("t", TableOptions{}), "", "z"); got != want {
				t.Fatalf("call %d fails with %v: %v, and then the table has other rows", n, failure, err)
			}
			other.reopen()
			other.reopen() // which deletes what was left behind
			other.wantSound()
		}
	}
}

// TestS8_ATableFileWithValuesInManyFiles has more value files than an adoption keeps open, in an order that
// closes each before it is needed again.
func TestS8_ATableFileWithValuesInManyFiles(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 1 << 10}})
	table := r.table("t", TableOptions{})
	const files = 80
	for n := range files {
		for row := range 3 {
			put(t, table, partitionKey(row), n, "c", startMillis, strings.Repeat(fmt.Sprint(n, row), 1000))
		}
		wantError(t, "Flush", r.store.Flush(ctx()), nil)
	}
	wantError(t, "Compact", r.store.Compact(ctx()), nil)
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	if len(x.Files) <= files {
		t.Fatalf("%d files", len(x.Files))
	}
	other := newRig(t, Options{})
	wantError(t, "send", send(x, other.store), nil)
	wantError(t, "Ingest", other.store.Ingest(ctx(), x.Fragment), nil)
	if dumpRange(t, other.table("t", TableOptions{}), "", "z") != dumpRange(t, table, "", "z") {
		t.Error("other rows")
	}
	other.wantSound()
}
