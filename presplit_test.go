package flagstone

// Tables that are made with several partitions. The model test, the crash test and the test of
// concurrent work have such tables, too.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// presplit makes a table of rows (string, integer) with partitions.
func (r *rig) presplit(name string, stream *StreamSpec, splits ...any) *Table {
	r.t.Helper()
	table, err := r.store.CreateTable(ctx(), TableSpec{
		Name: name, Stream: stream, SplitAt: Key(splits...),
		Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return table
}

func TestSplitKeysAreChecked(t *testing.T) {
	r := newRig(t, Options{})
	key := []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}
	var many []row.Value
	for n := range maxSplits + 1 {
		many = append(many, row.String(fmt.Sprint(n)))
	}
	for what, splits := range map[string][]row.Value{
		"an integer": Key("a", 5), "bytes": Key([]byte("a")), "a double": {row.Double(1)}, "Min": {row.Min()}, "Max": {row.Max()},
		"nothing": {{}}, "a value twice": Key("b", "a", "b"), "a long value": {row.Binary(make([]byte, row.MaxKeyColumnBytes+1))}, "too many": many,
	} {
		_, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: key, SplitAt: splits})
		wantError(t, "CreateTable split at "+what, err, ErrInvalid)
	}
	_, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", SplitAt: Key("a")})
	wantError(t, "CreateTable without a key, split", err, ErrInvalid)

	if _, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: key, SplitAt: many[1:]}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(many[1:], func(a, b row.Value) int { return slices.Compare(a.Bytes(), b.Bytes()) })
	r.crash(vfs.CrashLoseAll, 1)
	table := r.table("t", TableOptions{})
	if !slices.EqualFunc(table.Splits(), many[1:], row.Value.Equal) {
		t.Errorf("split at %v", table.Splits())
	}
	if info := table.Info(); info.Partitions != maxSplits+1 || info.SplitAt != nil {
		t.Errorf("described as %+v", info)
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	if splits := table.Splits(); splits != nil {
		t.Errorf("the dropped table is split at %v", splits)
	}
}

// TestEachPartitionHasAShardOfTheStream reads every shard before and after a crash, with the
// records in memory and in files.
func TestEachPartitionHasAShardOfTheStream(t *testing.T) {
	r := newRig(t, Options{})
	table := r.presplit("t", &StreamSpec{RetentionSeconds: 3600}, "c", "b", "e")
	var want [4][]string // by partition
	check := func(when string) {
		t.Helper()
		st := r.table("t", TableOptions{}).Stream()
		shards := st.Shards()
		if len(shards) != len(want) {
			t.Fatalf("%s: %d shards", when, len(shards))
		}
		for i, shard := range shards {
			pos, err := st.Oldest(ctx(), shard.ID)
			if err != nil {
				t.Fatal(err)
			}
			records, _ := readStream(t, st, pos, StreamLimits{Records: 3})
			var got []string
			for i := range records {
				got = append(got, records[i].Key[0].Text())
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: shard %d has %v, want %v", when, i, got, want[i])
			}
		}
	}
	for i := range 4 {
		b := r.store.NewBatch()
		for n, pk := range []string{"a", "e", "b", "zz", "d", "a\x00", "c"} {
			b.Row(table, Key(pk, 10*i+n)).Put("c", Now, row.Integer(1))
			at := []int{0, 3, 1, 3, 2, 0, 2}[n]
			want[at] = append(want[at], pk)
		}
		if err := r.store.Apply(ctx(), b); err != nil {
			t.Fatal(err)
		}
		check("written")
		if i == 1 {
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
			check("flushed")
		}
		r.crash(vfs.CrashLoseAll, uint64(i))
		check("recovered")
		table = r.table("t", TableOptions{})
	}
}

func TestACopyHasTheSamePartitions(t *testing.T) {
	r := newRig(t, Options{})
	table := r.presplit("t", nil, "m", "c")
	put(t, table, "x", 1, "c", 1, "v")
	if _, err := r.store.CopyTo(ctx(), "/copy", nil); err != nil {
		t.Fatal(err)
	}
	copied, err := Open("/copy", Options{Seams: Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	made, err := copied.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if splits := made.Splits(); !slices.EqualFunc(splits, Key("c", "m"), row.Value.Equal) {
		t.Errorf("split at %v", splits)
	}
	if got := show(t, made, "x", 1); got != show(t, table, "x", 1) {
		t.Errorf("the copy has %s", got)
	}
}

// TestAThousandIdlePartitionsMakeFewFiles: small memtables of a table are flushed into common files,
// by Flush and when the log is bounded. The store is sound and complete afterwards, also with
// what a crash left of it, and the files go with their tables.
func TestAThousandIdlePartitionsMakeFewFiles(t *testing.T) {
	const tables, partitions, rows = 20, 50, 10
	r := newRig(t, Options{WALSegmentSize: 1 << 20, MemoryBudget: 64 << 20})
	var splits []any
	for n := 1; n < partitions; n++ {
		splits = append(splits, fmt.Sprintf("%03d", n))
	}
	value := strings.Repeat("v", 1000)
	fill := func(column string) {
		t.Helper()
		for i := range tables {
			b := r.store.NewBatch()
			for n := range partitions * rows {
				b.Row(r.table(fmt.Sprint("t", i), TableOptions{}), Key(fmt.Sprintf("%03d", n%partitions), n)).Put(column, 1, row.String(value))
			}
			if err := r.store.Apply(ctx(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	files := func() (names []string) {
		for _, name := range r.fs.Files() {
			if strings.HasSuffix(name, ".sst") {
				names = append(names, name)
			}
		}
		return names
	}
	complete := func(columns int) {
		t.Helper()
		for i := range tables {
			n := 0
			for got, err := range r.table(fmt.Sprint("t", i), TableOptions{}).Scan(ctx(), nil, nil, ScanOptions{}).All() {
				if err != nil || len(got.Cells()) != columns {
					t.Fatalf("%v, %v", got, err)
				}
				n++
			}
			if n != partitions*rows {
				t.Errorf("table %d has %d rows", i, n)
			}
		}
	}
	for i := range tables {
		r.presplit(fmt.Sprint("t", i), nil, splits...)
	}
	fill("a")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if n := len(files()); n != tables {
		t.Errorf("%d files", n)
	}
	fill("b")
	r.crash(vfs.CrashKeepAll, 1)
	complete(2)
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if n := len(files()); n != 2*tables {
		t.Errorf("%d files", n)
	}
	complete(2)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil); err != nil || len(report.Problems) > 0 || report.TableFiles != 2*tables {
		t.Errorf("%+v, %v", report, err)
	}
	r.open()
	complete(2)
	for i := range tables {
		if err := r.store.DropTable(ctx(), fmt.Sprint("t", i)); err != nil {
			t.Fatal(err)
		}
	}
	r.exec.RunAll()
	if names := files(); len(names) > 0 {
		t.Errorf("files %v are left", names)
	}
}
