package flagstone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// streamed makes a table with a stream.
func (r *rig) streamed(name string, spec StreamSpec) *Table {
	r.t.Helper()
	if spec.RetentionSeconds == 0 {
		spec.RetentionSeconds = 3600
	}
	table, err := r.store.CreateTable(ctx(), TableSpec{
		Name: name, Options: TableOptions{MaxVersions: 2}, Stream: &spec,
		Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return table
}

// readStream reads a stream to its end, page by page.
func readStream(t *testing.T, st *Stream, pos StreamPosition, limits StreamLimits) ([]StreamRecord, StreamPosition) {
	t.Helper()
	var all []StreamRecord
	for {
		page, err := st.Read(ctx(), pos, limits)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Records...)
		pos = page.Next
		if !page.More {
			return all, pos
		}
	}
}

func oldest(t *testing.T, st *Stream) StreamPosition {
	t.Helper()
	pos, err := st.Oldest(ctx(), st.Shards()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

func showRecord(r *StreamRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", [...]string{"", "put", "update", "delete"}[r.Action], r.Key)
	for i := range r.Cells {
		c := r.Cells[i]
		c.Seq = 0
		fmt.Fprintf(&b, " %s", strings.ReplaceAll(c.String(), "#0", ""))
	}
	for i := range r.Before {
		fmt.Fprintf(&b, " before %s", strings.ReplaceAll(r.Before[i].String(), "#0", ""))
	}
	return b.String()
}

// TestALoopOverAStreamGoesOnFromItsPosition: where it ended early, with its last record again.
func TestALoopOverAStreamGoesOnFromItsPosition(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{})
	const records = 2500 // several pages
	b := r.store.NewBatch()
	for n := range records {
		b.Row(table, Key("p", n)).Put("c", Now, row.Integer(1))
	}
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	st := table.Stream()
	pos, next := oldest(t, st), 0
	for _, end := range []int{0, 999, 1000, 1001, records, records} {
		for record, err := range st.Records(ctx(), &pos) {
			if err != nil || record.Key[1].Int64() != int64(next) {
				t.Fatalf("record %d: %v, %v", next, record, err)
			}
			if next == end {
				break
			}
			next++
		}
		if next != end {
			t.Fatalf("ended at record %d; want %d", next, end)
		}
	}
	if _, end := readStream(t, st, pos, StreamLimits{}); pos.After != end.After || pos.AsOf != end.AsOf {
		t.Errorf("at the end the position is %+v; want %+v", pos, end)
	}
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{}}); err != nil {
		t.Fatal(err)
	}
	for record, err := range st.Records(ctx(), &pos) {
		if !errors.Is(err, ErrStreamNotFound) || record != nil {
			t.Errorf("of a disabled stream: %v, %v", record, err)
		}
	}
}

func changeRow(t *testing.T, table *Table, n int, change func(tx *RowTx)) {
	t.Helper()
	err := table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error {
		change(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAStreamTellsWhatWasDone makes every kind of change, and reads the records
// from memory, from the log after a crash, and from files.
func TestAStreamTellsWhatWasDone(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{Before: []string{"c", "gone"}})
	other := r.table("other", TableOptions{})
	changeRow(t, table, 1, func(tx *RowTx) {
		tx.PutRow()
		tx.Put("d", startMillis, row.Integer(1))
		tx.Put("c", startMillis, row.String("one"))
	})
	put(t, other, "p", 1, "c", startMillis, "not in the stream")
	changeRow(t, table, 1, func(tx *RowTx) { tx.Put("c", startMillis+1, row.String("two")) })
	changeRow(t, table, 1, func(tx *RowTx) {
		tx.DeleteVersion("c", startMillis+1) // with a trim of the store's own
		tx.DeleteColumn("d")
		tx.Put("d", startMillis+5, row.Boolean(true))
	})
	changeRow(t, table, 2, func(tx *RowTx) { tx.PutRow() })
	changeRow(t, table, 1, func(tx *RowTx) { tx.DeleteRow() })
	changeRow(t, table, 1, func(*RowTx) {}) // nothing
	if err := table.Update(ctx(), Key("p", 1), func(context.Context, *RowTx) error { return context.Canceled }); err != context.Canceled {
		t.Fatal(err)
	}
	batch := r.store.NewBatch()
	batch.Row(other, Key("p", 3)).Put("c", startMillis, row.Integer(1))
	batch.Row(table, Key("p", 3)).Put("c", startMillis, row.Integer(1))
	batch.Row(table, Key("p", 4)).Put("e", startMillis, row.Double(1.5))
	if err := r.store.Apply(ctx(), batch); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`put ["p" 1] c@1700000000000:put="one" d@1700000000000:put=1`,
		`update ["p" 1] c@1700000000001:put="two" before c@1700000000000:put="one"`,
		`update ["p" 1] c@1700000000001:delete-version d@max:trim d@1700000000005:put=true before c@1700000000001:put="two"`,
		`put ["p" 2]`,
		`delete ["p" 1] before c@1700000000000:put="one"`,
		`update ["p" 3] c@1700000000000:put=1`,
		`update ["p" 4] e@1700000000000:put=1.5`,
	}
	check := func(when string) {
		t.Helper()
		table, err := r.store.Table("t")
		if err != nil {
			t.Fatal(err)
		}
		for _, limits := range []StreamLimits{{}, {Records: 1}, {Records: 3}, {Bytes: 1}, {Bytes: 25}} {
			records, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), limits)
			var got []string
			for i := range records {
				got = append(got, showRecord(&records[i]))
				if i > 0 && (records[i].Sequence <= records[i-1].Sequence || records[i].Micros < records[i-1].Micros) {
					t.Errorf("%s: record %d is not behind the one before", when, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, limits %+v:\n%s\nwant\n%s", when, limits, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if r.store.Metrics().VisibleSequence == 0 {
			t.Error("nothing is visible")
		}
	}
	check("in memory")
	r.crash(vfs.CrashLoseAll, 1)
	check("after a crash")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	check("flushed")
	r.reopen()
	check("reopened")
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	check("compacted")
	if err := r.store.Checkpoint(ctx(), "/checkpoint"); err != nil {
		t.Fatal(err)
	}
	if len(r.store.Tables()) != 2 {
		t.Errorf("the change log is listed: %d tables", len(r.store.Tables()))
	}
	report, err := checkStoreIn(r, "/checkpoint")
	if err != nil || len(report.Problems) > 0 || report.Tables != 2 {
		t.Errorf("check of the checkpoint: %+v, %v", report, err)
	}
}

func checkStoreIn(r *rig, dir string) (CheckReport, error) {
	return Check(ctx(), dir, Options{Seams: Seams{FS: r.fs, Clock: r.clock}}, nil)
}

// TestLargeRecordsArePieced writes values that do not fit one cell together.
func TestLargeRecordsArePieced(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{Before: []string{"a", "b"}})
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	for range 2 {
		changeRow(t, table, 1, func(tx *RowTx) {
			tx.Put("a", startMillis, row.Binary(big))
			tx.Put("b", startMillis, row.Binary(big))
		})
	}
	for _, when := range []string{"in memory", "reopened"} {
		table, err := r.store.Table("t")
		if err != nil {
			t.Fatal(err)
		}
		records, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{Records: 1})
		if len(records) != 2 || len(records[0].Before) != 0 || len(records[1].Before) != 2 {
			t.Fatalf("%s: %d records", when, len(records))
		}
		for _, c := range slices.Concat(records[0].Cells, records[1].Cells, records[1].Before) {
			if string(c.Value) != string(big) {
				t.Errorf("%s: column %s has %d bytes that are not what was put", when, c.Column, len(c.Value))
			}
		}
		r.reopen()
	}
}

// TestStreamsComeAndGo disables and enables a stream; power is lost at every
// moment.
func TestStreamsComeAndGo(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	if table.Stream() != nil {
		t.Fatal("a stream from the beginning")
	}
	put(t, table, "p", 1, "c", startMillis, "before the stream")
	enable := TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 60, Annotations: []byte("a")}}}
	disable := TableChange{Stream: &StreamChange{}}
	wantError(t, "no retention", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{}}}), ErrInvalid)
	for _, before := range [][]string{{""}, {strings.Repeat("x", row.MaxColumnBytes+1)}, make([]string, 2000)} {
		spec := &StreamSpec{RetentionSeconds: 60, Before: before}
		wantError(t, "columns that cannot be", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: spec}}), ErrInvalid)
	}
	wantError(t, "disable none", table.Alter(ctx(), disable), nil)
	var before uint64
	for round := range 3 {
		wantError(t, "enable", table.Alter(ctx(), enable), nil)
		wantError(t, "enable twice", table.Alter(ctx(), enable), ErrStreamExists)
		st := table.Stream()
		info := st.Info()
		if info.ID <= before || info.RetentionSeconds != 60 || string(info.Annotations) != "a" || table.Info().Stream == nil {
			t.Fatalf("the stream is %+v after %d", info, before)
		}
		before = info.ID
		pos := oldest(t, st)
		put(t, table, "p", 2, "c", startMillis, fmt.Sprint("in round ", round))
		r.crash(vfs.CrashLoseAll, uint64(round))
		table = r.table("t", TableOptions{})
		st = table.Stream()
		if st == nil || st.Info().ID != before {
			t.Fatal("the stream is gone after a crash")
		}
		if records, _ := readStream(t, st, pos, StreamLimits{}); len(records) != 1 {
			t.Fatalf("%d records", len(records))
		}
		_, err := st.Read(ctx(), StreamPosition{Shard: 99}, StreamLimits{})
		wantError(t, "another shard", err, ErrStreamNotFound)
		wantError(t, "disable", table.Alter(ctx(), disable), nil)
		_, err = st.Read(ctx(), pos, StreamLimits{})
		wantError(t, "read a disabled stream", err, ErrStreamNotFound)
		_, err = st.Oldest(ctx(), pos.Shard)
		wantError(t, "seek in a disabled stream", err, ErrStreamNotFound)
		if table.Stream() != nil || table.Info().Stream != nil || st.Info().ID != 0 {
			t.Error("a stream that was disabled is there")
		}
		put(t, table, "p", 3, "c", startMillis, "between streams")
	}
	for _, m := range r.store.Metrics().Tables {
		if m.Name != "t" {
			t.Errorf("what is left is %s", m.Name)
		}
	}
	wantError(t, "enable", table.Alter(ctx(), enable), nil)
	wantError(t, "drop", r.store.DropTable(ctx(), "t"), nil)
	if n := len(r.store.Metrics().Tables); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	_, err := r.store.CreateTable(ctx(), TableSpec{Name: "\x01x", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	wantError(t, "a name of the store's own", err, ErrInvalid)
}

// TestPowerIsLostWhileAStreamIsChanged cuts the power before each call that changes the disk
// while a stream is enabled, written to and disabled. Afterwards there is a stream with every
// write since it was enabled, or no stream.
func TestPowerIsLostWhileAStreamIsChanged(t *testing.T) {
	for calls := 0; ; calls++ {
		r, fault := faultRig(t, Options{})
		table := r.table("t", TableOptions{})
		var after *vfs.Sim
		made := 0
		fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
			if c.Op&vfs.OpMutating != 0 && after == nil {
				if made++; made > calls {
					after = r.fs.Crash(vfs.CrashLoseAll, uint64(calls))
				}
			}
		}})
		var acked []int
		failed := func(err error) bool { // as everything must after the cut
			if err != nil && after == nil {
				t.Fatal(err)
			}
			return err != nil
		}
		write := func(n int) {
			if after == nil && !failed(table.Put(ctx(), Key("p", n), "c", startMillis, row.String("x"))) {
				acked = append(acked, n)
			}
		}
		alter := func(c *StreamSpec) (done bool) {
			return after == nil && !failed(table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: c}}))
		}
		enabled := alter(&StreamSpec{RetentionSeconds: 60})
		write(1)
		if after == nil {
			failed(r.store.Flush(ctx()))
		}
		write(2)
		alter(nil)
		fault.Observe(vfs.Observer{})
		if after == nil {
			if calls == 0 {
				t.Fatal("nothing was written")
			}
			return
		}
		r.store.Close()
		r.fs = after
		r.open()
		table = r.table("t", TableOptions{})
		st := table.Stream()
		if st == nil {
			if enabled && len(acked) < 2 {
				t.Errorf("after %d calls: the stream is gone", calls)
			}
			if n := len(r.store.Metrics().Tables); n != 1 {
				t.Errorf("after %d calls: a change log without a stream is left", calls)
			}
			r.store.Close()
			continue
		}
		records, _ := readStream(t, st, oldest(t, st), StreamLimits{})
		var got []int
		for i := range records {
			got = append(got, int(records[i].Key[1].Int64()))
		}
		if len(got) < len(acked) || !slices.IsSorted(got) || count(t, table, ScanOptions{}) != len(got) {
			t.Errorf("after %d calls: records of %v, acknowledged %v", calls, got, acked)
		}
		r.store.Close()
	}
}

// TestManyWritersOneStream writes rows on many goroutines and reads the stream meanwhile: each
// write is there once, those of a row in order, and early and late reads agree.
func TestManyWritersOneStream(t *testing.T) {
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		store, err := Open(t.TempDir(), Options{Sync: sync, MemtableSize: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, store: store}
		table := r.streamed("t", StreamSpec{})
		manyWriters(t, table)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func manyWriters(t *testing.T, table *Table) {
	const writers, writes = 8, 200
	st := table.Stream()
	pos := oldest(t, st)
	begin := pos
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range writes {
				put(t, table, "p", i%3, fmt.Sprint("writer", w), int64(startMillis+i), fmt.Sprint(i))
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	var early []StreamRecord
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		var got []StreamRecord
		got, pos = readStream(t, st, pos, StreamLimits{Records: 50})
		early = append(early, got...)
	}
	late, _ := readStream(t, st, begin, StreamLimits{})
	if len(early) != writers*writes || len(late) != len(early) {
		t.Fatalf("%d records while written, %d later, want %d", len(early), len(late), writers*writes)
	}
	next := map[string]int64{}
	for i := range early {
		if showRecord(&early[i]) != showRecord(&late[i]) || early[i].Sequence != late[i].Sequence {
			t.Fatalf("record %d was %s, is %s", i, showRecord(&early[i]), showRecord(&late[i]))
		}
		c := &early[i].Cells[0]
		if got, want := c.Version, startMillis+next[string(c.Column)]; got != want {
			t.Fatalf("record %d: %s has version %d, want %d", i, c.Column, got, want)
		}
		next[string(c.Column)]++
	}
}

// TestWhatAStreamHandsOutIsDurable: also with SyncNone.
func TestWhatAStreamHandsOutIsDurable(t *testing.T) {
	r := newRig(t, Options{Sync: SyncNone})
	table := r.streamed("t", StreamSpec{})
	pos := oldest(t, table.Stream())
	put(t, table, "p", 1, "c", startMillis, "x")
	records, _ := readStream(t, table.Stream(), pos, StreamLimits{})
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	r.crash(vfs.CrashLoseAll, 1)
	if got := show(t, r.table("t", TableOptions{}), "p", 1); got != "c@1700000000000=x " {
		t.Errorf("after the crash the row is %s", got)
	}
}

// TestAPositionAheadOfARestoredStoreIsRefused: a reader that read further in the lost store must
// not skip writes after the restore.
func TestAPositionAheadOfARestoredStoreIsRefused(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{})
	put(t, table, "p", 1, "c", startMillis, "x")
	_, early := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{})
	wantError(t, "checkpoint", r.store.Checkpoint(ctx(), "/copy"), nil)
	put(t, table, "p", 2, "c", startMillis, "lost")
	put(t, table, "p", 3, "c", startMillis, "lost")
	_, late := readStream(t, table.Stream(), early, StreamLimits{})
	opts := r.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = r.fs, r.clock, r.exec
	restored, err := Open("/copy", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if table, err = restored.Table("t"); err != nil {
		t.Fatal(err)
	}
	put(t, table, "p", 4, "c", startMillis, "y")
	if records, _ := readStream(t, table.Stream(), early, StreamLimits{}); len(records) != 1 {
		t.Errorf("%d records behind a position of the checkpoint", len(records))
	}
	_, err = table.Stream().Read(ctx(), late, StreamLimits{})
	wantError(t, "a position of later", err, ErrStreamTrimmed)
}

// TestTransactionsInAStream commits and aborts transactions: each change of one
// that was committed is a record, all at one time, and what columns held before
// is what the transaction saw.
func TestTransactionsInAStream(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{Before: []string{"c"}})
	put(t, table, "p", 1, "c", startMillis, "zero")
	begin := func() *Transaction {
		tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	set := func(tx *Transaction, n int, value string) {
		if err := tx.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error {
			tx.Put("c", startMillis, row.String(value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	aborted := begin()
	set(aborted, 1, "never")
	aborted.Abort()
	tx := begin()
	set(tx, 1, "one")
	set(tx, 2, "other")
	set(tx, 1, "two")
	wantError(t, "commit", tx.Commit(ctx()), nil)
	open := begin() // over another stream
	set(open, 1, "three")
	set(open, 1, strings.Repeat("four", 20_000))
	all, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{})
	wantError(t, "disable", table.Alter(ctx(), TableChange{Stream: &StreamChange{}}), nil)
	spec := &StreamSpec{RetentionSeconds: 60, Before: []string{"c"}}
	wantError(t, "enable", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: spec}}), nil)
	wantError(t, "commit", open.Commit(ctx()), nil)
	for _, when := range []string{"in memory", "after a crash", "flushed"} {
		later, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{})
		if when == "in memory" {
			all = append(all, later...)
		}
		copy(all[4:], later)
		var got []string
		for i := range all {
			got = append(got, strings.ReplaceAll(showRecord(&all[i]), "@1700000000000", ""))
		}
		want := []string{
			`update ["p" 1] c:put="zero"`,
			`update ["p" 1] c:put="one" before c:put="zero"`,
			`update ["p" 2] c:put="other"`,
			`update ["p" 1] c:put="two" before c:put="one"`,
			`update ["p" 1] c:put="three" before c:put="two"`,
			`update ["p" 1] c:put="` + strings.Repeat("four", 20_000) + `" before c:put="three"`,
		}
		if !slices.Equal(got, want) || all[1].Micros != all[3].Micros {
			t.Errorf("%s:\n%.2000s", when, strings.Join(got, "\n"))
		}
		if when == "in memory" {
			r.crash(vfs.CrashLoseAll, 1)
		} else if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		table = r.table("t", TableOptions{})
	}
}

// TestAStreamOutlivesItsTable: a caller that races with the drop of a table gets an error.
func TestAStreamOutlivesItsTable(t *testing.T) {
	r := newRig(t, Options{})
	table := r.streamed("t", StreamSpec{})
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	stream := table.Stream()
	if stream == nil {
		t.Fatal("there is no stream")
	}
	if _, err := stream.Oldest(ctx(), 0); !errors.Is(err, ErrStreamNotFound) {
		t.Errorf("%v, want ErrStreamNotFound", err)
	}
}
