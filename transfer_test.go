package flagstone

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// dumpRange is all rows of a table from one partition key to another, with all versions.
func dumpRange(t *testing.T, table *Table, from, to string) string {
	t.Helper()
	var b strings.Builder
	for r, err := range table.Scan(ctx(), Key(from), Key(to), ScanOptions{}).All() {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%v: ", r.Key())
		for _, c := range r.Cells() {
			fmt.Fprintf(&b, "%s@%d=%d bytes %x ", c.Column, c.Version, len(c.Value), c.Value[:min(len(c.Value), 20)])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// fillAtRandom writes n rows at random, some with values that go to value files, and deletes some.
func fillAtRandom(t *testing.T, rng *rand.Rand, table *Table, n int) {
	t.Helper()
	for range n {
		key := Key(partitionKey(rng.IntN(dividedKeys)), rng.IntN(dividedRows))
		version := startMillis + rng.Int64N(1000)
		var err error
		switch rng.IntN(8) {
		case 0:
			err = table.Delete(ctx(), key)
		case 1:
			err = table.Put(ctx(), key, "large", version, row.String(strings.Repeat(fmt.Sprint(rng.Uint64()), 100)))
		default:
			err = table.Put(ctx(), key, "c", version, row.String(fmt.Sprint(rng.Uint64())))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// movingOptions are of stores with many small files, and with value files.
var movingOptions = Options{MemtableSize: 8 << 10, TableFileSize: 8 << 10, WALSegmentSize: 64 << 10, Seams: Seams{ValueThreshold: 1 << 10}}

// send stages the files of an export.
func send(x *Export, to *Store) error {
	for i, f := range x.Files {
		content, err := x.Open(i)
		if err == nil {
			err = to.StageFile(f.Name, f.Size, f.Checksum, content)
			content.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestS7_AnExportHasWhatWasThereAtItsMoment exports under load, writes, compacts and drops, and takes the export
// into an empty store.
func TestS7_AnExportHasWhatWasThereAtItsMoment(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	r := newRig(t, movingOptions)
	table := r.table("t", TableOptions{MaxVersions: 3})
	fillAtRandom(t, rng, table, 600)
	wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(13))), nil)
	fillAtRandom(t, rng, table, 50)
	low, high := partitionKey(10), partitionKey(30) // in the middle of partitions
	w, err := table.BulkLoad(ctx(), BulkOptions{})
	wantError(t, "BulkLoad", err, nil)
	for n := range 20 { // into files whose cells have an offset, beside the other rows
		wantError(t, "Put", w.Put(Key(partitionKey(20), dividedRows+n), BulkCell{"c", startMillis, row.String("loaded")}), nil)
	}
	wantError(t, "Commit", w.Commit(ctx()), nil)
	wantError(t, "Freeze", table.Freeze(ctx(), table.Partitions()[0].ID, "x"), nil)
	want := dumpRange(t, table, low, high)
	x, err := table.Export(ctx(), "/export", ExportOptions{Start: row.String(low), End: row.String(high)})
	wantError(t, "Export", err, nil)
	wantError(t, "Unfreeze", table.Unfreeze(ctx(), table.Partitions()[0].ID), nil)

	values := 0
	for _, f := range x.Files {
		if info, err := r.fs.Stat("/export/" + f.Name); err != nil || info.Size != f.Size || (f.Smallest == nil) != strings.HasSuffix(f.Name, ".val") {
			t.Errorf("%+v: %+v, %v", f, info, err)
		}
		if f.Smallest == nil {
			values++
		}
	}
	if values == 0 || len(x.Files) < 5 {
		t.Fatalf("%d files, of which %d are value files", len(x.Files), values)
	}
	fillAtRandom(t, rng, table, 600)
	wantError(t, "Compact", r.store.Compact(ctx()), nil)

	// A later one has only what is new.
	y, err := table.Export(ctx(), "/export 2", ExportOptions{Start: row.String(low), End: row.String(high), Base: x.Fragment})
	wantError(t, "Export", err, nil)
	fillAtRandom(t, rng, table, 20)
	z, err := table.Export(ctx(), "/export 3", ExportOptions{Start: row.String(low), End: row.String(high), Base: y.Fragment})
	wantError(t, "Export", err, nil)
	if len(y.Files) == 0 || len(z.Files) == 0 || len(z.Files) > 4 {
		t.Errorf("the second export has %d files, the third %d", len(y.Files), len(z.Files))
	}
	second := dumpRange(t, table, low, high)

	wantError(t, "DropTable", r.store.DropTable(ctx(), "t"), nil)
	r.exec.RunAll()
	wantError(t, "Close", r.store.Close(), nil)
	for _, c := range []struct {
		want    string
		exports []*Export
	}{{want, []*Export{x}}, {second, []*Export{x, y, z}}} {
		other := newRig(t, movingOptions)
		for _, x := range c.exports {
			wantError(t, "send", send(x, other.store), nil)
		}
		wantError(t, "Ingest", other.store.Ingest(ctx(), c.exports[len(c.exports)-1].Fragment), nil)
		moved, err := other.store.Table("t")
		wantError(t, "Table", err, nil)
		for range 2 {
			if got := dumpRange(t, moved, low, high); got != c.want {
				t.Errorf("the other store has\n%s, want\n%s", got, c.want)
			}
			_, err = moved.Get(ctx(), Key(partitionKey(9), 0), ReadOptions{})
			wantError(t, "Get below the range", err, ErrDetached)
			wantError(t, "Put behind the range", moved.Put(ctx(), Key(partitionKey(30), 0), "c", startMillis, row.String("x")), ErrDetached)
			wantError(t, "Compact", other.store.Compact(ctx()), nil)
		}
		other.wantSound()
	}
	for _, x := range []*Export{x, y, z} {
		wantError(t, "Release", x.Release(), nil)
	}
	if names, err := r.fs.List("/export"); err == nil {
		t.Errorf("the released export has %v", names)
	}
}

// TestS8_WhatLiesIsRefused changes a fragment or a file on its way.
func TestS8_WhatLiesIsRefused(t *testing.T) {
	r := newRig(t, movingOptions)
	table := r.table("t", TableOptions{})
	fillAtRandom(t, rand.New(rand.NewPCG(1, 1)), table, 300)
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	other := newRig(t, movingOptions)
	state := func() string { return fmt.Sprint(other.store.state().LastSeq, len(other.store.Tables())) }
	before := state()

	f := x.Files[0]
	for what, stage := range map[string]func(content io.Reader) error{
		"a path":         func(c io.Reader) error { return other.store.StageFile("../"+f.Name, f.Size, f.Checksum, c) },
		"another path":   func(c io.Reader) error { return other.store.StageFile("a/"+f.Name[2:], f.Size, f.Checksum, c) },
		"another name":   func(c io.Reader) error { return other.store.StageFile("CURRENT", f.Size, f.Checksum, c) },
		"no name":        func(c io.Reader) error { return other.store.StageFile("", f.Size, f.Checksum, c) },
		"capitals":       func(c io.Reader) error { return other.store.StageFile(strings.ToUpper(f.Name), f.Size, f.Checksum, c) },
		"a size":         func(c io.Reader) error { return other.store.StageFile(f.Name, f.Size+1, f.Checksum, c) },
		"a smaller size": func(c io.Reader) error { return other.store.StageFile(f.Name, f.Size-1, f.Checksum, c) },
		"a negative one": func(c io.Reader) error { return other.store.StageFile(f.Name, -1, f.Checksum, c) },
		"a checksum":     func(c io.Reader) error { return other.store.StageFile(f.Name, f.Size, f.Checksum+1, c) },
	} {
		content, err := x.Open(0)
		wantError(t, "Open", err, nil)
		wantError(t, what, stage(content), ErrInvalid)
		content.Close()
	}
	broken := errors.New("the line is broken")
	err = other.store.StageFile(f.Name, f.Size, f.Checksum, iotest.ErrReader(broken))
	if wantError(t, "a content that ends", err, broken); !strings.Contains(err.Error(), f.Name) {
		t.Errorf("which file is it? %v", err)
	}
	if names, _ := other.fs.List("/store/staging"); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
	wantError(t, "a fragment without files", other.store.Ingest(ctx(), x.Fragment), ErrInvalid)
	wantError(t, "send", send(x, other.store), nil)

	for i := range x.Fragment {
		bad := slices.Clone(x.Fragment)
		bad[i] ^= 1
		if err := other.store.Ingest(ctx(), bad); err == nil {
			t.Fatalf("byte %d of the fragment is another one, and it was taken", i)
		}
	}
	for what, change := range map[string]func(f *manifest.Fragment){
		"a size":         func(f *manifest.Fragment) { f.Files()[0].Size++ },
		"an id":          func(f *manifest.Fragment) { f.Files()[0].UniqueID[3]++ },
		"a checksum":     func(f *manifest.Fragment) { f.Files()[0].Checksum++ },
		"a bound":        func(f *manifest.Fragment) { f.Files()[0].Smallest = append(f.Files()[0].Smallest, 0) },
		"a count":        func(f *manifest.Fragment) { f.Files()[0].Rows++ },
		"a small number": func(f *manifest.Fragment) { f.Files()[0].SmallestSeq = 0 },
		"a large number": func(f *manifest.Fragment) { f.LastSeq = row.MaxSequence / 2 },
		"a last number":  func(f *manifest.Fragment) { f.LastSeq = 1 },
		"a time":         func(f *manifest.Fragment) { f.IssuedMillis += 1000 * 24 * 3600 * 1000 },
		"a watermark":    func(f *manifest.Fragment) { f.Table.Watermark = f.IssuedMillis },
		"a value file":   func(f *manifest.Fragment) { f.Values[0].Values-- },
		"its size":       func(f *manifest.Fragment) { f.Values[0].Size++ },
		"its checksum":   func(f *manifest.Fragment) { f.Values[0].Checksum++ },
		"no value file":  func(f *manifest.Fragment) { f.Values = f.Values[1:] },
		"a change log":   func(f *manifest.Fragment) { f.Table.Log = &manifest.ChangeLog{Of: 1} },
		"no partition":   func(f *manifest.Fragment) { f.Table.Partitions = nil },
		"no table":       func(f *manifest.Fragment) { f.Table = nil },
		"a service":      func(f *manifest.Fragment) { f.Table.Partitions[0].Service = manifest.Frozen },
		"an order":       func(f *manifest.Fragment) { slices.Reverse(f.Table.Partitions[0].Levels[0]) },
		"two levels": func(f *manifest.Fragment) {
			l := &f.Table.Partitions[0].Levels
			l[6] = append(l[6], l[0][0])
		},
		"a type of a key column": func(f *manifest.Fragment) { f.Table.Key[1].Type = row.TypeBinary },
		"a key column more": func(f *manifest.Fragment) {
			f.Table.Key = append(f.Table.Key, manifest.KeyColumn{Name: "x", Type: row.TypeString})
		},
		"a hidden table": func(f *manifest.Fragment) { f.Table.Name = "\x01change log 9" },
		"a limit of none": func(f *manifest.Fragment) {
			f.Table.PastLimits = []manifest.PastLimit{{MaxVersions: 0, LastSeq: 1}}
		},
		"an offset": func(f *manifest.Fragment) { f.Files()[0].SeqOffset++ },
		"a name":    func(f *manifest.Fragment) { f.Table.Name = "\x00" },
	} {
		f, err := manifest.DecodeFragment(x.Fragment)
		wantError(t, "DecodeFragment", err, nil)
		change(f)
		if err := other.store.Ingest(ctx(), f.Append(nil)); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if state() != before {
			t.Fatalf("%s: the store was changed: %s, %s before", what, state(), before)
		}
	}
	changeFiles(t, x, other, func(what string, err error) {
		if err == nil || state() != before {
			t.Fatalf("%s: it was taken, with %v: %s, %s before", what, err, state(), before)
		}
	})
	wantError(t, "Ingest", other.store.Ingest(ctx(), x.Fragment), nil)
	wantError(t, "Ingest again", other.store.Ingest(ctx(), x.Fragment), ErrInvalid)
	moved, err := other.store.Table("t")
	wantError(t, "Table", err, nil)
	if dumpRange(t, moved, "a", "z") != dumpRange(t, table, "a", "z") {
		t.Error("the other store has other rows")
	}
	other.wantSound()
}

// changeFiles sends each file of an export with a bit that is another one, and a checksum to which that is right,
// and calls refused with the outcome of Ingest. Then it sends the file as it is.
func changeFiles(t *testing.T, x *Export, to *rig, refused func(what string, err error)) {
	rng := rand.New(rand.NewPCG(3, 3))
	for i, f := range x.Files {
		content, err := to.fs.ReadFile("/store/staging/" + f.Name)
		wantError(t, "read "+f.Name, err, nil)
		for range 40 {
			bad := slices.Clone(content)
			at := rng.IntN(len(bad))
			bad[at] ^= 1 << rng.IntN(8)
			wantError(t, "StageFile", to.store.StageFile(f.Name, f.Size, xxhash.Sum64(bad), bytes.NewReader(bad)), nil)
			err := to.store.Ingest(ctx(), x.Fragment)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("file %d, byte %d: %v", i, at, err)
			}
			refused(fmt.Sprintf("file %d, byte %d", i, at), err)
		}
		wantError(t, "StageFile", to.store.StageFile(f.Name, f.Size, f.Checksum, bytes.NewReader(content)), nil)
	}
}

func TestS7_WhatCannotBeExported(t *testing.T) {
	r, table := halves(t, Options{})
	wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
	wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, "it is in rack 7"), nil)
	full, err := table.Export(ctx(), "/full", ExportOptions{End: row.String("p02")})
	wantError(t, "Export", err, nil)
	defer full.Release()
	for _, c := range []struct {
		dir  string
		opts ExportOptions
		want error
	}{
		{"/x", ExportOptions{}, ErrDetached},
		{"/x", ExportOptions{Start: row.String(partitionKey(7))}, ErrDetached},
		{"/x", ExportOptions{Start: row.Integer(7)}, ErrInvalid},
		{"/x", ExportOptions{End: row.Integer(7)}, ErrInvalid},
		{"/x", ExportOptions{Start: row.String("p03"), End: row.String("p03")}, ErrInvalid},
		{"/x", ExportOptions{Start: row.String("p03"), End: row.String("p02")}, ErrInvalid},
		{"/x", ExportOptions{End: row.String("")}, ErrInvalid},
		{"/x", ExportOptions{End: row.String("p02"), Base: []byte("not a fragment")}, ErrCorrupt},
		{"", ExportOptions{End: row.String("p02")}, ErrInvalid},
		{"/full", ExportOptions{End: row.String("p02")}, fs.ErrExist},
		{"/store", ExportOptions{End: row.String("p02")}, ErrInvalid},
		{"/store/staging", ExportOptions{End: row.String("p02")}, ErrInvalid},
		{"/store/val/../x", ExportOptions{End: row.String("p02")}, ErrInvalid},
	} {
		_, err := table.Export(ctx(), c.dir, c.opts)
		wantError(t, fmt.Sprintf("Export to %q with %+v", c.dir, c.opts), err, c.want)
		if c.want == fs.ErrExist {
			wantError(t, "Export into what is not empty", err, ErrInvalid)
		}
		if c.want == ErrCorrupt && !strings.Contains(err.Error(), `export of table "t": the base`) {
			t.Errorf("a base that is damaged, which no file of the store is: %v", err)
		}
	}
	x, err := table.Export(ctx(), "/x", ExportOptions{Start: row.String(""), End: row.String(partitionKey(5))})
	wantError(t, "Export", err, nil)
	other := newRig(t, Options{})
	wantError(t, "send", send(x, other.store), nil)
	wantError(t, "Ingest", other.store.Ingest(ctx(), x.Fragment), nil)
	if list := other.table("t", TableOptions{}).Partitions(); len(list) != 2 || list[0].State != PartitionServing || list[1].State != PartitionDetached {
		t.Errorf("%+v", list)
	}
	for range 2 {
		wantError(t, "Release", x.Release(), nil)
	}
	if names, err := r.fs.List("/x"); err == nil {
		t.Errorf("left: %v", names)
	}
}

// TestS8_WhatHoldsForRowsComesWithThem ingests rows into an empty store, and into a table that never had the
// options of before.
func TestS8_WhatHoldsForRowsComesWithThem(t *testing.T) {
	r := newRig(t, movingOptions)
	table := r.table("t", TableOptions{MaxVersions: 5, TTLSeconds: 1000, MaxVersionOffsetSeconds: 5000})
	fillAtRandom(t, rand.New(rand.NewPCG(4, 4)), table, 50)
	now := TableOptions{MaxVersions: 2, TTLSeconds: 1000, MaxVersionOffsetSeconds: 300}
	wantError(t, "Alter", table.Alter(ctx(), TableChange{Options: &now}), nil)
	believeClock(r.clock)
	put(t, table, partitionKey(3), 0, "c", r.store.NowMillis()+299_000, "new")
	r.clock.Advance(1100 * time.Second) // the watermark overtakes the time of the last write
	wantError(t, "Compact", r.store.Compact(ctx()), nil)
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)
	from := r.store.state()
	if from.Tables[0].Watermark == manifest.NoWatermark || len(from.Tables[0].PastLimits) != 1 || from.Tables[0].LargestOffset != 5000 {
		t.Fatalf("the test needs more: %+v", from.Tables[0])
	}
	for _, there := range []bool{false, true} {
		other := newRig(t, movingOptions)
		if there {
			table := other.table("t", now)
			put(t, table, partitionKey(1), 0, "c", startMillis, "of before")
			wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
			wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, ""), nil)
		}
		wantError(t, "send", send(x, other.store), nil)
		wantError(t, "Ingest", other.store.Ingest(ctx(), x.Fragment), nil)
		for range 2 {
			to := other.store.state()
			a, b := from.Tables[0], to.Tables[0]
			if b.Watermark != a.Watermark || !slices.Equal(b.PastLimits, a.PastLimits) || b.LargestOffset != 5000 || b.Options != a.Options {
				t.Errorf("%+v, want %+v", b, a)
			}
			if to.LastSeq < from.LastSeq || other.store.NowMillis() < from.IssuedMillis {
				t.Errorf("sequence number %d at %d ms, that of the rows is %d at %d", to.LastSeq, other.store.NowMillis(), from.LastSeq, from.IssuedMillis)
			}
			if got, want := dumpRange(t, other.table("t", now), "", "z"), dumpRange(t, table, "", "z"); got != want {
				t.Errorf("rows\n%s, want\n%s", got, want)
			}
			other.reopen()
		}
		different := now
		different.MaxVersions = 3
		wantError(t, "Alter", other.table("t", now).Alter(ctx(), TableChange{Options: &different}), nil)
		moved := other.table("t", now)
		wantError(t, "Freeze", moved.Freeze(ctx(), upper(moved).ID, ""), nil)
		wantError(t, "Detach", moved.Detach(ctx(), upper(moved).ID, ""), nil)
		wantError(t, "send", send(x, other.store), nil)
		wantError(t, "Ingest with other options", other.store.Ingest(ctx(), x.Fragment), ErrInvalid)
		wantError(t, "DiscardStaged", other.store.DiscardStaged(), nil)
		other.wantSound()
	}
}

// TestS7_AnExportBesideWritersIsOfOneMoment has writers of pairs of rows, in two partitions.
func TestS7_AnExportBesideWritersIsOfOneMoment(t *testing.T) {
	open := func() *Store {
		opts := movingOptions
		opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
		store, err := Open("/store", opts)
		wantError(t, "Open", err, nil)
		t.Cleanup(func() { store.Close() })
		return store
	}
	store := open()
	table, err := store.CreateTable(ctx(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeInteger}}, SplitAt: Key(100),
	})
	wantError(t, "CreateTable", err, nil)
	var written [4]atomic.Int64 // how often
	var wait sync.WaitGroup
	stop := make(chan struct{})
	for w := range written {
		wait.Go(func() {
			for n := int64(1); ; n++ {
				b := store.NewBatch()
				for _, key := range []int{w, w + 100} {
					b.Row(table, Key(key)).Put("c", n, row.Integer(n))
				}
				if err := store.Apply(ctx(), b); err != nil {
					t.Error(err)
					return
				}
				written[w].Store(n)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		for w := range written {
			for written[w].Load() < int64(100*round+1) {
				runtime.Gosched()
			}
		}
		var before [4]int64
		for w := range written {
			before[w] = written[w].Load()
		}
		x, err := table.Export(ctx(), fmt.Sprint("/export", round), ExportOptions{})
		wantError(t, "Export", err, nil)
		other := open()
		wantError(t, "send", send(x, other), nil)
		wantError(t, "Ingest", other.Ingest(ctx(), x.Fragment), nil)
		moved, err := other.Table("t")
		wantError(t, "Table", err, nil)
		for w := range written {
			var versions [2]int64
			for i := range versions {
				r, err := moved.Get(ctx(), Key(w+100*i), ReadOptions{})
				if err != nil || r == nil {
					t.Fatal(r, err)
				}
				versions[i] = r.Cells()[0].Version
			}
			if n := versions[0]; n != versions[1] || n < before[w] || n > written[w].Load()+1 {
				t.Errorf("writer %d: %v, of %d written before and %d after", w, versions, before[w], written[w].Load())
			}
		}
		wantError(t, "Release", x.Release(), nil)
	}
	close(stop)
	wait.Wait()
}

// TestS8_AStreamHasNoRecordsOfRowsThatMove has a stream at the target, whose range goes and comes back.
func TestS8_AStreamHasNoRecordsOfRowsThatMove(t *testing.T) {
	source := newRig(t, movingOptions)
	fillAtRandom(t, rand.New(rand.NewPCG(5, 5)), source.table("t", TableOptions{MaxVersions: 2}), 50)
	x, err := source.table("t", TableOptions{}).Export(ctx(), "/export", ExportOptions{})
	wantError(t, "Export", err, nil)

	r := newRig(t, movingOptions)
	table := r.streamed("t", StreamSpec{})
	put(t, table, "a", 1, "c", startMillis, "before")
	wantError(t, "Freeze", table.Freeze(ctx(), upper(table).ID, ""), nil)
	wantError(t, "a write", table.Put(ctx(), Key("a", 1), "c", startMillis, row.String("x")), ErrFrozen)
	wantError(t, "Detach", table.Detach(ctx(), upper(table).ID, ""), nil)
	wantError(t, "send", send(x, r.store), nil)
	wantError(t, "Ingest", r.store.Ingest(ctx(), x.Fragment), nil)
	put(t, table, "a", 2, "c", startMillis, "after")
	for range 2 {
		stream := r.table("t", TableOptions{}).Stream()
		var keys []string
		for _, shard := range stream.Shards() {
			pos, err := stream.Oldest(ctx(), shard.ID)
			wantError(t, "Oldest", err, nil)
			records, _ := readStream(t, stream, pos, StreamLimits{})
			for i := range records {
				keys = append(keys, fmt.Sprint(records[i].Key))
			}
		}
		if want := []string{fmt.Sprint(Key("a", 1)), fmt.Sprint(Key("a", 2))}; !slices.Equal(keys, want) {
			t.Errorf("the stream has records of %v, want %v", keys, want)
		}
		r.reopen()
	}
	r.wantSound()
}
