package flagstone

// What a move must not do to the rows, the clocks and the numbers of a store.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// expireOnce gives a table a watermark that none of its options explains any more: what was written before the hour
// that it takes is expired.
func expireOnce(t *testing.T, r *rig, table *Table) {
	forever := table.Info().Options
	briefly := forever
	briefly.TTLSeconds = 10
	wantError(t, "Alter", table.Alter(ctx(), TableChange{Options: &briefly}), nil)
	believeClock(r.clock)
	put(t, table, partitionKey(39), 0, "c", r.store.NowMillis()-100_000, "old")
	wantError(t, "Compact", r.store.Compact(ctx()), nil)
	wantError(t, "Alter", table.Alter(ctx(), TableChange{Options: &forever}), nil)
}

// TestS8_NoWatermarkHidesWhatTheOtherSideShows has a source or a target that once dropped what had expired, or a
// fragment that says so.
func TestS8_NoWatermarkHidesWhatTheOtherSideShows(t *testing.T) {
	const hour = 3600_000
	never, long := TableOptions{MaxVersionOffsetSeconds: 1 << 30}, TableOptions{TTLSeconds: 1000 * 86400}
	for _, c := range []struct {
		what           string
		options        TableOptions
		source, target bool  // have a watermark
		versions       int64 // of the rows that move
		says           func(f *manifest.Fragment)
		detached       bool // the whole target
		want           error
	}{
		{"that of the source", never, true, false, startMillis, nil, false, ErrInvalid},
		{"that of the source, and nothing to hide", never, true, false, startMillis, nil, true, nil},
		{"that of the target", never, false, true, startMillis, nil, false, ErrInvalid},
		{"that of the target, and nothing of it is served", never, false, true, startMillis, nil, true, ErrInvalid},
		{"that of the target, and all rows that move are newer", never, false, true, startMillis + hour, nil, false, nil},
		{"the same", never, true, true, startMillis, nil, false, nil},
		{"that of a source that lies", long, false, false, startMillis, func(f *manifest.Fragment) {
			f.IssuedMillis = startMillis + hour
			f.Table.Watermark = f.IssuedMillis / 1000
		}, false, ErrInvalid},
		{"one second more than is expired", long, false, false, startMillis, func(f *manifest.Fragment) {
			f.Table.Watermark = (startMillis+2*hour)/1000 - long.TTLSeconds + 1
		}, false, ErrInvalid},
		{"what is expired anyway", long, false, false, startMillis, func(f *manifest.Fragment) {
			f.Table.Watermark = (startMillis+2*hour)/1000 - long.TTLSeconds
		}, false, nil},
	} {
		source, target := newRig(t, movingOptions), newRig(t, movingOptions)
		from, to := source.table("t", c.options), target.table("t", c.options)
		if c.source {
			expireOnce(t, source, from)
		}
		if c.target {
			expireOnce(t, target, to)
		}
		for n := range 40 {
			put(t, from, partitionKey(n), 0, "c", c.versions, fmt.Sprint(n))
			put(t, to, partitionKey(n), 0, "c", startMillis, fmt.Sprint(n))
		}
		wantError(t, "Split", to.Split(ctx(), row.String(partitionKey(20))), nil)
		for _, p := range to.Partitions() {
			if c.detached || p.Start.Type() != 0 {
				wantError(t, "Freeze", to.Freeze(ctx(), p.ID, ""), nil)
				wantError(t, "Detach", to.Detach(ctx(), p.ID, ""), nil)
			}
		}
		x, err := from.Export(ctx(), "/x", ExportOptions{Start: row.String(partitionKey(20))})
		wantError(t, "Export", err, nil)
		f, err := manifest.DecodeFragment(x.Fragment)
		wantError(t, "DecodeFragment", err, nil)
		if c.says != nil {
			c.says(f)
		}
		for target.clock.NowMillis() < startMillis+2*hour {
			target.clock.Advance(time.Hour)
			target.store.trusted.Look()
		}
		moved, stays := dumpRange(t, from, partitionKey(20), "z"), ""
		if !c.detached {
			stays = dumpRange(t, to, "a", partitionKey(20))
		}
		wantError(t, "send", send(x, target.store), nil)
		err = target.store.Ingest(ctx(), f.Append(nil))
		wantError(t, c.what, err, c.want)
		if err != nil && !(strings.Contains(err.Error(), fmt.Sprint(f.Table.Watermark)) && strings.Contains(err.Error(), fmt.Sprint(to.core.Meta().Watermark))) {
			t.Errorf("%s: the error does not name both: %v", c.what, err)
		}
		wantError(t, "Compact", target.store.Compact(ctx()), nil)
		if !c.detached {
			if got := dumpRange(t, to, "a", partitionKey(20)); got != stays {
				t.Errorf("%s: what stays is\n%s, want\n%s", c.what, got, stays)
			}
		}
		if c.want == nil {
			if got := dumpRange(t, to, partitionKey(20), "z"); got != moved {
				t.Errorf("%s: what moved is\n%s, want\n%s", c.what, got, moved)
			}
		}
		target.wantSound()
	}
}

// TestS8_FragmentsDoNotMoveTheClockOn ingests several fragments, each with a time that is later by a day.
func TestS8_FragmentsDoNotMoveTheClockOn(t *testing.T) {
	const day = 24 * 3600 * 1000
	leader, _ := newLeader(t, movingOptions)
	for _, target := range []*rig{newRig(t, movingOptions), leader} {
		source := newRig(t, movingOptions)
		for i := range 3 {
			name := fmt.Sprint("t", i)
			table := source.table(name, TableOptions{})
			put(t, table, "a", 0, "c", startMillis, "x")
			x, err := table.Export(ctx(), "/"+name, ExportOptions{})
			wantError(t, "Export", err, nil)
			f, err := manifest.DecodeFragment(x.Fragment)
			wantError(t, "DecodeFragment", err, nil)
			f.IssuedMillis = startMillis + int64(i+1)*(day-1000)
			wantError(t, "send", send(x, target.store), nil)
			want := ErrInvalid
			if i == 0 {
				want = nil
			}
			wantError(t, name, target.store.Ingest(ctx(), f.Append(nil)), want)
			f.IssuedMillis = startMillis + day - 1000 // the clock is there
			if i > 0 {
				wantError(t, name, target.store.Ingest(ctx(), f.Append(nil)), nil)
			}
		}
		if got := target.store.NowMillis(); got != startMillis+day-1000 {
			t.Errorf("the clock is at %d", got-startMillis)
		}
	}
}

// TestS7_AnExportIsWhatAStoreTakes has a partition more than a fragment may have.
func TestS7_AnExportIsWhatAStoreTakes(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: -1})
	var at []row.Value
	for n := range 1000 {
		at = append(at, row.String(fmt.Sprintf("p%05d", n)))
	}
	table, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}}, SplitAt: at})
	wantError(t, "CreateTable", err, nil)
	wantError(t, "Split", table.Split(ctx(), row.String("p00500x")), nil)
	_, err = table.Export(ctx(), "/all", ExportOptions{})
	wantError(t, "Export", err, ErrInvalid)
	x, err := table.Export(ctx(), "/rest", ExportOptions{Start: row.String("p00000")})
	wantError(t, "Export", err, nil)
	other := newRig(t, Options{})
	wantError(t, "Ingest", other.store.Ingest(ctx(), x.Fragment), nil)
}

// TestS8_TwoRangesThatShareAFileMoveOnAsOne moves them one after the other, then both, and merges them.
func TestS8_TwoRangesThatShareAFileMoveOnAsOne(t *testing.T) {
	source, target := newRig(t, Options{Seams: Seams{ValueThreshold: 1 << 10}}), newRig(t, Options{Seams: Seams{ValueThreshold: 1 << 10}})
	from := source.table("t", TableOptions{})
	for n := range 40 {
		put(t, from, partitionKey(n), 0, "c", startMillis, fmt.Sprint(n))
		put(t, from, partitionKey(n), 1, "c", startMillis, strings.Repeat(fmt.Sprint(n), 1000))
	}
	for _, n := range []int{10, 20} {
		x, err := from.Export(ctx(), fmt.Sprint("/x", n), ExportOptions{Start: row.String(partitionKey(n)), End: row.String(partitionKey(n + 10))})
		wantError(t, "Export", err, nil)
		wantError(t, "send", send(x, target.store), nil)
		wantError(t, "Ingest", target.store.Ingest(ctx(), x.Fragment), nil)
		wantError(t, "Delete", from.Delete(ctx(), Key(partitionKey(25), 0)), nil) // the second one has another file beside
	}
	to, both := target.table("t", TableOptions{}), ExportOptions{Start: row.String(partitionKey(10)), End: row.String(partitionKey(30))}
	want := dumpRange(t, to, partitionKey(10), partitionKey(30))
	for _, change := range []func() error{
		func() error { return nil },
		func() error { return to.Merge(ctx(), row.String(partitionKey(20))) },
		func() error { return target.store.Compact(ctx()) },
	} {
		wantError(t, "a change of the target", change(), nil)
		x, err := to.Export(ctx(), "/y", both)
		wantError(t, "Export", err, nil)
		third := newRig(t, movingOptions)
		wantError(t, "send", send(x, third.store), nil)
		both.Base = x.Fragment
		y, err := to.Export(ctx(), "/z", both)
		if err != nil || len(y.Files) > 0 {
			t.Fatalf("%v, %v", y, err)
		}
		wantError(t, "Ingest", third.store.Ingest(ctx(), y.Fragment), nil)
		for _, table := range []*Table{to, third.table("t", TableOptions{})} {
			if got := dumpRange(t, table, partitionKey(10), partitionKey(30)); got != want {
				t.Errorf("rows\n%s, want\n%s", got, want)
			}
		}
		wantError(t, "Release", errors.Join(x.Release(), y.Release()), nil)
		both.Base = nil
		third.wantSound()
	}
	target.wantSound()
}

// TestS8_EpochsOfAnotherStoreMeanNothing has the largest ones.
func TestS8_EpochsOfAnotherStoreMeanNothing(t *testing.T) {
	for _, there := range []bool{false, true} {
		source, target := newRig(t, movingOptions), newRig(t, movingOptions)
		put(t, source.table("t", TableOptions{}), "a", 0, "c", startMillis, "x")
		if there {
			table := target.table("t", TableOptions{})
			wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
			wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, ""), nil)
		}
		x, err := source.table("t", TableOptions{}).Export(ctx(), "/x", ExportOptions{})
		wantError(t, "Export", err, nil)
		f, err := manifest.DecodeFragment(x.Fragment)
		wantError(t, "DecodeFragment", err, nil)
		f.Table.Partitions[0].Epoch = math.MaxUint64
		wantError(t, "send", send(x, target.store), nil)
		wantError(t, "Ingest", target.store.Ingest(ctx(), f.Append(nil)), nil)
		table := target.table("t", TableOptions{})
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(7))), nil)
		wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
		wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, ""), nil)
	}
}

// TestS8_AFileThatCannotBeReadDoesNotLie has an error of the disk at each call of an ingest.
func TestS8_AFileThatCannotBeReadDoesNotLie(t *testing.T) {
	r := newRig(t, movingOptions)
	fillAtRandom(t, rand.New(rand.NewPCG(2, 2)), r.table("t", TableOptions{}), 60)
	x, err := r.table("t", TableOptions{}).Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	for n := int64(1); ; n++ {
		other, fault := faultRig(t, movingOptions)
		wantError(t, "send", send(x, other.store), nil)
		fault.Add(vfs.Rule{Nth: n, Action: vfs.FailWith(syscall.EIO)})
		err := other.store.Ingest(ctx(), x.Fragment)
		fault.Clear()
		if len(fault.Injected()) == 0 {
			break
		}
		if errors.Is(err, ErrInvalid) {
			t.Fatalf("call %d: %v", n, err)
		}
	}
}

// TestS8_APartOfAPartitionComesWithoutACut has ranges from its middle, which a store may join again.
func TestS8_APartOfAPartitionComesWithoutACut(t *testing.T) {
	source, target := newRig(t, movingOptions), newRig(t, movingOptions)
	from := source.table("t", TableOptions{})
	for n := range 40 {
		put(t, from, partitionKey(n), 0, "c", startMillis, "x")
	}
	for _, n := range []int{10, 20} {
		x, err := from.Export(ctx(), fmt.Sprint("/x", n), ExportOptions{Start: row.String(partitionKey(n)), End: row.String(partitionKey(n + 10))})
		wantError(t, "Export", err, nil)
		wantError(t, "send", send(x, target.store), nil)
		wantError(t, "Ingest", target.store.Ingest(ctx(), x.Fragment), nil)
	}
	for _, p := range target.table("t", TableOptions{}).Partitions() {
		if p.Cut {
			t.Errorf("%+v", p)
		}
	}
}

// TestS9_ACopyBesideADetachmentKeepsWhatNeverExpires or fails.
func TestS9_ACopyBesideADetachmentKeepsWhatNeverExpires(t *testing.T) {
	r, to := newRig(t, movingOptions), newRig(t, movingOptions)
	options := TableOptions{TTLSeconds: 86400}
	table, made := r.table("t", options), to.table("t", options)
	for n := range 2 {
		b := r.store.NewBatch()
		b.Row(table, Key("a", n)).PutRow()
		wantError(t, "Apply", r.store.Apply(ctx(), b), nil)
	}
	at, err := r.store.Snapshot()
	wantError(t, "Snapshot", err, nil)
	defer at.Close()
	c, want := copier{to: to.store, at: at, batch: to.store.NewBatch()}, error(nil)
	for row, err := range table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: at}}).All() {
		wantError(t, "Scan", err, nil)
		wantError(t, "a row", c.row(ctx(), table, made, row), want)
		if want == nil {
			wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
			wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, ""), nil)
		}
		want = ErrDetached
	}
}

// TestS9_ASnapshotReadsOnWhatWasThere while a partition beside comes, with which the store would merge it.
func TestS9_ASnapshotReadsOnWhatWasThere(t *testing.T) {
	source, target := newRig(t, movingOptions), newRig(t, movingOptions)
	from := source.table("t", TableOptions{})
	for n := range 40 {
		put(t, from, partitionKey(n), 0, "c", startMillis, "x")
	}
	var before *Snapshot
	for _, n := range []int{10, 20} {
		x, err := from.Export(ctx(), fmt.Sprint("/x", n), ExportOptions{Start: row.String(partitionKey(n)), End: row.String(partitionKey(n + 10))})
		wantError(t, "Export", err, nil)
		wantError(t, "send", send(x, target.store), nil)
		wantError(t, "Ingest", target.store.Ingest(ctx(), x.Fragment), nil)
		if before == nil {
			before, err = target.store.Snapshot()
			wantError(t, "Snapshot", err, nil)
		}
	}
	to := target.table("t", TableOptions{})
	for _, open := range []bool{true, false} {
		for range 4 {
			target.wait(time.Hour)
		}
		serving := 0
		for _, p := range to.Partitions() {
			if p.State == PartitionServing {
				serving++
			}
		}
		if open != (serving == 2) {
			t.Errorf("%d partitions, the snapshot is open: %v", serving, open)
		}
		if open {
			_, err := to.Get(ctx(), Key(partitionKey(10), 0), ReadOptions{Snapshot: before})
			wantError(t, "Get", err, nil)
			_, err = to.Get(ctx(), Key(partitionKey(20), 0), ReadOptions{Snapshot: before})
			wantError(t, "Get of what came later", err, ErrDetached)
			before.Close()
		}
	}
}
