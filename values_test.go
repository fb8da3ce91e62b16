package flagstone

// Large values in value files, as a caller of the store sees them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// valueSize is that of the large values of these tests; the threshold is half.
const valueSize = 2000

func valueRig(t *testing.T) *rig {
	return newRig(t, Options{
		MemtableSize: 64 << 10, MemoryBudget: 256 << 10, TableFileSize: 32 << 10, WALSegmentSize: 128 << 10,
		Compression: CompressionNone, Seams: Seams{ValueThreshold: valueSize / 2},
	})
}

// large is the value of a row in a round.
func large(i, round int) string {
	return strings.Repeat(fmt.Sprintf("%03d.%02d/", i, round), valueSize/7+1)[:valueSize]
}

// fill puts a large and a small value into rows, and flushes.
func fill(t *testing.T, r *rig, table *Table, rows, round int) {
	t.Helper()
	for i := range rows {
		put(t, table, "p", i, "large", startMillis, large(i, round))
		put(t, table, "p", i, "small", startMillis, fmt.Sprint(i, ".", round))
	}
	flushAll(t, r)
}

func flushAll(t *testing.T, r *rig) {
	t.Helper()
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
}

// valueFiles returns the names of the value files on the disk.
func valueFiles(disk *vfs.Sim) (names []string) {
	for _, name := range disk.Files() {
		if strings.HasSuffix(name, ".val") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func checkLarge(t *testing.T, table *Table, sn *Snapshot, rows, round int) {
	t.Helper()
	for i := range rows {
		got, err := table.Get(ctx(), Key("p", i), ReadOptions{Snapshot: sn})
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := got.Value("large"); v.Text() != large(i, round) {
			t.Fatalf("row %d does not have its value of round %d", i, round)
		}
	}
	scan := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}})
	defer scan.Close()
	n := 0
	for ; scan.Next(); n++ {
		if v, _ := scan.Row().Value("large"); v.Text() != large(n, round) {
			t.Fatalf("a scan finds another value in row %d", n)
		}
	}
	if scan.Err() != nil || n != rows {
		t.Fatalf("%d rows, %v", n, scan.Err())
	}
}

func checkStore(t *testing.T, r *rig) CheckReport {
	t.Helper()
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil)
	if err != nil || len(report.Problems) > 0 {
		t.Fatal(err, report.Problems)
	}
	r.open()
	return report
}

func TestAnUpdateOfASmallColumnDoesNotWriteTheLargeOneAgain(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 50
	fill(t, r, table, rows, 0)
	files := valueFiles(r.fs)
	if len(files) == 0 {
		t.Fatal("no value files")
	}
	for round := range 20 {
		for i := range rows {
			put(t, table, "p", i, "small", startMillis, fmt.Sprint(i, ".", round))
		}
		flushAll(t, r)
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if after := valueFiles(r.fs); !slices.Equal(after, files) {
		t.Fatalf("value files %v, after updates of a small column %v", files, after)
	}
	checkLarge(t, table, nil, rows, 0)
	if report := checkStore(t, r); report.Values != rows || report.ValueFiles != len(files) {
		t.Fatalf("%+v", report)
	}
	checkLarge(t, r.table("t", TableOptions{}), nil, rows, 0)
}

func TestGarbageInValueFilesIsReturned(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 100
	for round := range 6 {
		for i := range rows {
			if round < 4 || i%5 != 0 { // some values stay, in files full of garbage
				put(t, table, "p", i, "large", startMillis, large(i, round))
			}
		}
		flushAll(t, r)
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	// Without further writes, the store finds the remaining garbage by itself.
	for range 3 {
		r.clock.Advance(upkeep.IdlePeriod)
		r.exec.RunAll()
	}
	m := r.store.Metrics().Tables[0]
	if alive := int64(rows * valueSize); m.ValueBytes > 2*alive+alive/2 || m.ValueBytes-m.ValueGarbage < alive {
		t.Fatalf("%d bytes in value files with %d of garbage, for %d bytes of values", m.ValueBytes, m.ValueGarbage, alive)
	}
	if onDisk := len(valueFiles(r.fs)); onDisk != m.ValueFiles {
		t.Fatalf("%d value files on disk, %d count", onDisk, m.ValueFiles)
	}
	for i := range rows {
		round := 5
		if i%5 == 0 {
			round = 3
		}
		if got, want := show(t, table, "p", i), fmt.Sprintf("large@%d=%s ", startMillis, large(i, round)); got != want {
			t.Fatalf("row %d: %.60q, want %.60q", i, got, want)
		}
	}
	checkStore(t, r)

	// The deletion of everything returns everything.
	table = r.table("t", TableOptions{})
	for i := range rows {
		if err := table.Update(ctx(), Key("p", i), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	if left := valueFiles(r.fs); len(left) > 0 {
		t.Fatalf("value files of no value: %v", left)
	}
}

func TestP06_SnapshotsAndScansKeepValueFiles(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 60
	fill(t, r, table, rows, 0)
	scan := table.Scan(ctx(), nil, nil, ScanOptions{})
	defer scan.Close()
	if !scan.Next() {
		t.Fatal(scan.Err())
	}
	pinned := valueFiles(r.fs)
	for round := 1; round < 4; round++ {
		fill(t, r, table, rows, round)
		if err := r.store.Compact(ctx()); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
	}
	for _, name := range pinned {
		if !slices.Contains(valueFiles(r.fs), name) {
			t.Fatalf("%s is gone while a scan reads it", name)
		}
	}
	for i := 1; scan.Next(); i++ {
		if v, _ := scan.Row().Value("large"); v.Text() != large(i, 0) {
			t.Fatalf("row %d of the scan changed", i)
		}
	}
	if err := errors.Join(scan.Err(), scan.Close()); err != nil {
		t.Fatal(err)
	}
	sn, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for round := 4; round < 8; round++ {
		fill(t, r, table, rows, round)
		if err := r.store.Compact(ctx()); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
	}
	checkLarge(t, table, sn, rows, 3)
	checkLarge(t, table, nil, rows, 7)
	sn.Close()
	fill(t, r, table, rows, 8)
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	if n, m := len(valueFiles(r.fs)), r.store.Metrics().Tables[0]; n != m.ValueFiles || m.ValueBytes > 3*rows*valueSize {
		t.Fatalf("%d value files on disk after the snapshot was closed, %+v", n, m)
	}
}

func TestAProjectionDoesNotReadValueFiles(t *testing.T) {
	r, fault := faultRig(t, Options{Seams: Seams{ValueThreshold: valueSize / 2}})
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 20
	fill(t, r, table, rows, 0)
	reads := 0
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if strings.HasSuffix(c.Name, ".val") {
			reads++
		}
	}})
	for i := range rows {
		got, err := table.Get(ctx(), Key("p", i), ReadOptions{Columns: []string{"small"}})
		if err != nil || len(got.Cells()) != 1 {
			t.Fatal(err)
		}
	}
	scan := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Columns: []string{"small"}}})
	defer scan.Close()
	for scan.Next() {
	}
	for range 3 {
		put(t, table, "p", 1, "small", startMillis, "again")
		flushAll(t, r)
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if reads > 0 {
		t.Fatalf("%d calls to value files", reads)
	}
	checkLarge(t, table, nil, rows, 0)
	if reads < rows {
		t.Fatalf("%d calls to value files for %d values: the test sees nothing", reads, rows)
	}
}

func TestValuesOfOneRowShareNoMemoryWithAnother(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 2})
	for i := range 4 {
		put(t, table, "p", i, "a", startMillis, large(i, 0))
		put(t, table, "p", i, "a", startMillis+1, large(i, 1))
		put(t, table, "p", i, "b", startMillis, large(i, 2))
		put(t, table, "p", i, "c", startMillis, "small")
	}
	flushAll(t, r)
	want := func(i int) string {
		return fmt.Sprintf("a@%d=%s a@%d=%s b@%d=%s c@%d=small ", startMillis+1, large(i, 1), startMillis, large(i, 0), startMillis, large(i, 2), startMillis)
	}
	var rows []*Row
	for i := range 4 {
		got, err := table.Get(ctx(), Key("p", i), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, got, got.Clone())
	}
	scan := table.Scan(ctx(), nil, nil, ScanOptions{})
	defer scan.Close()
	for i := 0; scan.Next(); i++ {
		if got := cells(scan.Row()); got != want(i) {
			t.Fatalf("row %d of a scan: %.40q", i, got)
		}
		rows = append(rows, scan.Row().Clone())
	}
	var reused Row
	for i := range 4 {
		if found, err := table.GetInto(ctx(), Key("p", i), ReadOptions{}, &reused); !found || err != nil {
			t.Fatal(found, err)
		}
		if got := cells(&reused); got != want(i) {
			t.Fatalf("row %d into a used row: %.40q", i, got)
		}
	}
	for n, got := range rows {
		i := n / 2
		if n >= 8 {
			i = n - 8
		}
		if cells(got) != want(i) {
			t.Fatalf("row %d changed after it was returned", i)
		}
	}
	// A read-modify-write sees the value, not the reference.
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		got, err := tx.Get(ReadOptions{})
		if err != nil {
			return err
		}
		if cells(got) != want(1) {
			t.Errorf("in a transaction: %.40q", cells(got))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestP08_ADamagedValueFailsItsReadersAndNoOthers(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 10
	fill(t, r, table, rows, 0)
	name := valueFiles(r.fs)[0]
	damage(t, r.fs, name, 3*(valueSize+20)+500) // in the fourth value
	for i := range rows {
		got, err := table.Get(ctx(), Key("p", i), ReadOptions{})
		if i != 3 {
			if v, _ := got.Value("large"); err != nil || v.Text() != large(i, 0) {
				t.Fatalf("row %d: %v", i, err)
			}
			continue
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), fmt.Sprint("offset ", 3*(valueSize+20))) {
			t.Fatalf("the damaged row: %v", err)
		}
		if got, err := table.Get(ctx(), Key("p", i), ReadOptions{Columns: []string{"small"}}); err != nil || len(got.Cells()) != 1 {
			t.Fatalf("the other column of the damaged row: %v", err)
		}
	}
	// A compaction that leaves the value in its file succeeds; one that would have to move it
	// fails, and loses nothing.
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil)
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Error(), name) ||
		!strings.Contains(report.Problems[0].Error(), fmt.Sprint("offset ", 3*(valueSize+20))) {
		t.Fatal(err, report.Problems)
	}
}

// damage flips a bit of a file.
func damage(t *testing.T, disk *vfs.Sim, name string, at int64) {
	t.Helper()
	f, err := disk.OpenReadWrite("/"+strings.TrimPrefix(name, "/"), vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestP08_ADamagedValueThatIsMovedFailsTheMerge(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 10
	fill(t, r, table, rows, 0)
	name := valueFiles(r.fs)[0]
	damage(t, r.fs, name, 3*(valueSize+20)+500)
	for i := 4; i < rows; i++ {
		put(t, table, "p", i, "large", startMillis, large(i, 1))
	}
	if err := r.store.Compact(ctx()); err != nil { // now most of the file is garbage
		t.Fatal(err)
	}
	r.clock.Advance(upkeep.IdlePeriod)
	r.exec.RunAll() // and the rest should be moved
	if !slices.Contains(valueFiles(r.fs), name) {
		t.Fatalf("%s is gone, with values that could not be moved", name)
	}
	for i := range 3 {
		if got, err := table.Get(ctx(), Key("p", i), ReadOptions{}); err != nil || len(got.Cells()) != 2 {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	if _, err := table.Get(ctx(), Key("p", 3), ReadOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if n := len(valueFiles(r.fs)); n != r.store.Metrics().Tables[0].ValueFiles {
		t.Fatalf("%d value files on disk: a merge that failed left its own", n)
	}
}

func TestP13_AMissingValueFileIsRefusedByName(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	fill(t, r, table, 10, 0)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	name := valueFiles(r.fs)[0]
	// A file to which nothing refers is removed, once its number was assigned.
	stray, err := r.fs.Create("/store/"+manifest.ValueName(1), vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stray.Close()
	r.open()
	if left := valueFiles(r.fs); slices.Contains(left, "/store/"+filepath.ToSlash(manifest.ValueName(1))) {
		t.Fatalf("an orphan was left: %v", left)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.fs.Rename("/"+strings.TrimPrefix(name, "/"), "/aside"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("/store", Options{Seams: Seams{FS: r.fs}}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(name)) {
		t.Fatal(err)
	}
	report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil)
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Error(), filepath.Base(name)) {
		t.Fatal(err, report.Problems)
	}
	if err := r.fs.Rename("/aside", "/"+strings.TrimPrefix(name, "/")); err != nil {
		t.Fatal(err)
	}
	r.opts.ReadOnly = true
	r.open()
	checkLarge(t, r.table("t", TableOptions{}), nil, 10, 0)
}

func TestACheckpointTakesValueFilesAlong(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 40
	fill(t, r, table, rows, 0)
	if err := r.store.Checkpoint(ctx(), "/copy"); err != nil {
		t.Fatal(err)
	}
	for round := 1; round < 4; round++ { // the originals go away
		fill(t, r, table, rows, round)
		if err := r.store.Compact(ctx()); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
	}
	report, err := Check(ctx(), "/copy", Options{Seams: Seams{FS: r.fs}}, nil)
	if err != nil || len(report.Problems) > 0 || report.Values != rows {
		t.Fatal(err, report)
	}
	copied, err := Open("/copy", Options{Seams: Seams{FS: r.fs, ValueThreshold: valueSize / 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	table, err = copied.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	checkLarge(t, table, nil, rows, 0)
}

func TestSizesAndSplitPointsCountLargeValues(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows, size = 40, 1 << 20 // the index counts them by a few megabytes
	value := row.Binary(bytes.Repeat([]byte("v"), size))
	for i := range rows {
		err := table.Update(ctx(), Key(fmt.Sprintf("p%02d", i), 0), func(_ context.Context, tx *RowTx) error { tx.Put("c", startMillis, value); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if i%8 == 7 {
			flushAll(t, r)
		}
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if got := table.ApproximateSize(); got < rows*size || got > rows*size+rows*1000 {
		t.Fatalf("size %d, want about %d", got, rows*size)
	}
	points, err := table.SplitPoints(context.Background(), 10*size, 0)
	if err != nil || len(points) < 2 || len(points) > 4 {
		t.Fatalf("%d split points, want three or so: %v", len(points), err)
	}
}

func TestValueFilesGoWithTheirTable(t *testing.T) {
	r := valueRig(t)
	table := r.table("t", TableOptions{MaxVersions: 1})
	other := r.table("other", TableOptions{MaxVersions: 1})
	fill(t, r, table, 20, 0)
	fill(t, r, other, 20, 0)
	all := len(valueFiles(r.fs))
	scan := table.Scan(ctx(), nil, nil, ScanOptions{})
	defer scan.Close()
	if !scan.Next() {
		t.Fatal(scan.Err())
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	if n := len(valueFiles(r.fs)); n != all {
		t.Fatalf("%d value files of %d, while a scan reads the dropped table", n, all)
	}
	if v, _ := scan.Row().Value("large"); v.Text() != large(0, 0) {
		t.Fatal("the scan's row changed")
	}
	if err := scan.Close(); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	if n := len(valueFiles(r.fs)); n == 0 || n >= all || n != r.store.Metrics().Tables[0].ValueFiles {
		t.Fatalf("%d value files of %d are left", n, all)
	}
	checkLarge(t, other, nil, 20, 0)
}

func TestExpiredValuesAreReturnedUnread(t *testing.T) {
	r, fault := faultRig(t, Options{Seams: Seams{ValueThreshold: valueSize / 2}})
	table := r.table("t", TableOptions{MaxVersions: 1, TTLSeconds: 600})
	fill(t, r, table, 20, 0)
	if len(valueFiles(r.fs)) == 0 {
		t.Fatal("no value files")
	}
	reads := 0
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if strings.HasSuffix(c.Name, ".val") && c.Op == vfs.OpReadAt {
			reads++
		}
	}})
	for range 90 { // the clock has to stand for an hour
		r.clock.Advance(upkeep.IdlePeriod)
		r.exec.RunAll()
	}
	if left := valueFiles(r.fs); len(left) > 0 || reads > 0 {
		t.Fatalf("value files %v are left, %d reads", left, reads)
	}
}

// TestPlainValuesAreStoredAsTheyAre puts the same text with and without Options.PlainValues into one
// store, and reads both with either.
func TestPlainValuesAreStoredAsTheyAre(t *testing.T) {
	const size = 64 << 10
	text := strings.Repeat("large values of text shrink to a part of this. ", size/47+1)[:size]
	r := newRig(t, Options{})
	var before []string
	for i, plain := range []bool{false, true, false} {
		r.opts.PlainValues = plain
		r.reopen()
		table := r.table("t", TableOptions{MaxVersions: 1})
		put(t, table, "p", i, "large", startMillis, text)
		flushAll(t, r)
		added := slices.DeleteFunc(valueFiles(r.fs), func(name string) bool { return slices.Contains(before, name) })
		before = append(before, added...)
		if len(added) != 1 {
			t.Fatalf("plain %t: the new value files are %q", plain, added)
		}
		info, err := r.fs.Stat(added[0])
		if err != nil {
			t.Fatal(err)
		}
		if plain != (info.Size >= size) {
			t.Errorf("plain %t: a value of %d bytes is in a file of %d", plain, size, info.Size)
		}
		for row := range i + 1 {
			got, err := table.Get(ctx(), Key("p", row), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if v, _ := got.Value("large"); v.Text() != text {
				t.Errorf("plain %t: the value of row %d differs", plain, row)
			}
		}
	}
}

// TestRecordsOfStreamsAreCompressed: they do not come packed, since none of what was put is large.
func TestRecordsOfStreamsAreCompressed(t *testing.T) {
	const columns, size = 20, 10 << 10
	for _, plain := range []bool{false, true} {
		r := newRig(t, Options{PlainValues: plain})
		table := r.streamed("t", StreamSpec{})
		err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
			for i := range columns {
				tx.Put(fmt.Sprint("c", i), startMillis, row.String(strings.Repeat("text ", size/5)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		flushAll(t, r)
		var bytes int64
		for _, name := range valueFiles(r.fs) {
			info, err := r.fs.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Size
		}
		if shrunk := bytes < columns*size/10; bytes == 0 || shrunk == plain {
			t.Errorf("plain %t: a record of %d bytes takes %d", plain, columns*size, bytes)
		}
	}
}
