package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

func TestTheEndOfTheLogIsThatOfTheNewestSegment(t *testing.T) {
	s := NewState([16]byte{1})
	set := func(end LogEnd) {
		var e Edit
		e.NewestLog = end
		s = mustApply(t, s, &e)
	}
	closed := LogEnd{Segment: 3, Offset: 8192, Records: 5, Chain: 7}
	set(closed)
	set(LogEnd{Segment: 2})
	if s.NewestLog != closed {
		t.Errorf("an older segment took its place: %+v", s.NewestLog)
	}
	set(LogEnd{Segment: 4})
	if s.NewestLog != (LogEnd{Segment: 4}) {
		t.Errorf("a newer segment did not: %+v", s.NewestLog)
	}
	again, err := decodeSnapshot(appendSnapshot(nil, s), s.StoreID)
	if err != nil || again.NewestLog != s.NewestLog {
		t.Errorf("read back: %+v, %v", again, err)
	}
}

func TestApplyBuildsTheStateStepByStep(t *testing.T) {
	edits := smallEdits()
	s := mustApply(t, NewState(testStore), edits[:2]...)
	table, p := s.Partition(1)
	if table != s.Table(1) || table != s.TableByName("orders") || p != table.partitionFor(testKey(7, 7)) {
		t.Fatal("the ways to the partition differ")
	}
	if len(p.Levels[0]) != 2 || p.FlushedSeq != 20 || s.LastSeq != 25 || s.MinLog != 3 || s.NextFile != 10 {
		t.Errorf("after the flush: %+v of %+v", p, s)
	}
	s = mustApply(t, s, edits[2:]...)
	if s.fileCount() != 1 || s.File(3) == nil || s.File(1) != nil {
		t.Errorf("%d live files", s.fileCount())
	}
	table = s.Table(1)
	if table.Options.MaxVersions != 3 || table.LargestOffset != 86400 || table.Watermark != 1_699_000_000 || string(table.Annotations) != "front end" {
		t.Errorf("altered table: %+v", table)
	}
	if _, p := s.Partition(1); p != nil {
		t.Error("the split partition is still there")
	}
	for user, want := range map[int]uint64{0: 2, 39: 2, 40: 3, 99: 3} {
		if got := table.partitionFor(testKey(user, 0)).ID; got != want {
			t.Errorf("user %d is in partition %d, want %d", user, got, want)
		}
	}
	// The shared file lives until the second child deletes it.
	var left, right Edit
	left.DeleteFile(2, 6, 3)
	right.DeleteFile(3, 6, 3)
	s = mustApply(t, s, &left)
	if s.File(3) == nil {
		t.Error("a file is dead while a partition refers to it")
	}
	s = mustApply(t, s, &right)
	if s.File(3) != nil || s.fileCount() != 0 {
		t.Error("a file is live that nothing refers to")
	}
}

// violations are edits of a small state that break one rule each.
var violations = []struct {
	name string
	edit func(e *Edit)
	want string // part of the error
}{
	{"table id used", func(e *Edit) { e.CreateTable(testTable(1, 9, "x")) }, "table id 1 was used"},
	{"partition id used", func(e *Edit) { e.CreateTable(testTable(9, 1, "x")) }, "partition id 1 was used"},
	{"one partition id twice", func(e *Edit) {
		e.CreateTable(testTable(9, 9, "x"))
		e.CreateTable(testTable(10, 9, "y"))
	}, "partition id 9 was used"},
	{"table id 0", withTable(func(x *Table) { x.ID = 0 }), "table id 0"},
	{"huge table id", withTable(func(x *Table) { x.ID = 1 << 60 }), "has id"},
	{"huge partition id", withTable(func(x *Table) { x.Partitions[0].ID = 1 << 60 }), "partition with id"},
	{"table name taken", withTable(func(x *Table) { x.Name = "orders" }), `table "orders" exists`},
	{"no table name", withTable(func(x *Table) { x.Name = "" }), "name of 0 bytes"},
	{"long table name", withTable(func(x *Table) { x.Name = strings.Repeat("n", 513) }), "name of 513 bytes"},
	{"NUL in a table name", withTable(func(x *Table) { x.Name = "a\x00" }), "UTF-8 without NUL"},
	{"table name that is no UTF-8", withTable(func(x *Table) { x.Name = "\xff" }), "UTF-8 without NUL"},
	{"no key columns", withTable(func(x *Table) { x.Key = nil }), "0 key columns"},
	{"five key columns", withTable(func(x *Table) { x.Key = make([]KeyColumn, 5) }), "5 key columns"},
	{"no column name", withTable(func(x *Table) { x.Key[0].Name = "" }), "name of 0 bytes"},
	{"double as key", withTable(func(x *Table) { x.Key[0].Type = row.TypeDouble }), "type double"},
	{"minimum as key", withTable(func(x *Table) { x.Key[0].Type = row.TypeMin }), "type min"},
	{"one column name twice", withTable(func(x *Table) { x.Key[1].Name = "user" }), `two key columns "user"`},
	{"auto-increment first column", withTable(func(x *Table) { x.Key[0] = KeyColumn{"n", row.TypeInteger, true} }), "auto-increment"},
	{"auto-increment string", withTable(func(x *Table) { x.Key[1].Type = row.TypeString }), "auto-increment"},
	{"two auto-increment columns", withTable(func(x *Table) { x.Key = append(x.Key, KeyColumn{"n", row.TypeInteger, true}) }), "two auto-increment"},
	{"no versions", withTable(func(x *Table) { x.Options.MaxVersions = 0 }), "max versions 0"},
	{"time to live 0", withTable(func(x *Table) { x.Options.TTLSeconds = 0 }), "time to live 0"},
	{"negative offset", withTable(func(x *Table) { x.Options.MaxVersionOffsetSeconds = -1 }), "offset -1"},
	{"large annotations", withTable(func(x *Table) { x.Annotations = make([]byte, maxAnnotations+1) }), "annotations"},
	{"no partitions", withTable(func(x *Table) { x.Partitions = nil }), "no partitions"},
	{"key space begins late", withTable(func(x *Table) { x.Partitions[0].Start = testKey(1, -1) }), "starts at"},
	{"key space ends early", withTable(func(x *Table) { x.Partitions[0].End = testKey(1, -1) }), "ends at"},
	{"gap between partitions", withTable(func(x *Table) {
		x.Partitions = []*Partition{{ID: 9, End: testKey(1, -1)}, {ID: 10, Start: testKey(2, -1)}}
	}), "starts at"},
	{"empty partition range", withTable(func(x *Table) {
		k := testKey(1, -1)
		x.Partitions = []*Partition{{ID: 9, End: k}, {ID: 10, Start: k, End: k}, {ID: 11, Start: k}}
	}), "and ends at"},
	{"unbounded partition before others", withTable(func(x *Table) {
		x.Partitions = []*Partition{{ID: 9}, {ID: 10}}
	}), "but others follow"},
	{"bound inside of a partition key", withTable(func(x *Table) {
		k := testKey(1, 5)
		x.Partitions = []*Partition{{ID: 9, End: k}, {ID: 10, Start: k}}
	}), "inside of one partition key"},
	{"long bound", withTable(func(x *Table) {
		k := slices.Repeat([]byte{0xFD}, row.MaxKeyBytes+1)
		x.Partitions = []*Partition{{ID: 9, End: k}, {ID: 10, Start: k}}
	}), "bound of"},

	{"alter an unknown table", func(e *Edit) { e.AlterTable(5, TableOptions{MaxVersions: 1, TTLSeconds: 1}, nil) }, "no table with id 5"},
	{"alter to bad options", func(e *Edit) { e.AlterTable(1, TableOptions{}, nil) }, "max versions 0"},
	{"drop an unknown table", func(e *Edit) { e.DropTable(5) }, "no table with id 5"},
	{"watermark of an unknown table", func(e *Edit) { e.SetWatermark(5, 1) }, "no table with id 5"},
	{"past limit of an unknown table", func(e *Edit) { e.AddPastLimit(5, 1, 1) }, "no table with id 5"},
	{"past limit of no versions", func(e *Edit) { e.AddPastLimit(1, 0, 1) }, "past limit of 0 versions"},
	{"past limit of the future", func(e *Edit) { e.AddPastLimit(1, 1, row.MaxSequence+1) }, "past limit"},
	{"bad past limit", withTable(func(x *Table) { x.PastLimits = []PastLimit{{0, 1}} }), "past limit of 0 versions"},
	{"past limits that do not fall", withTable(func(x *Table) { x.PastLimits = []PastLimit{{5, 1}, {5, 2}} }), "out of order"},
	{"past limits that do not rise", withTable(func(x *Table) { x.PastLimits = []PastLimit{{5, 2}, {4, 2}} }), "out of order"},
	{"too many past limits", withTable(func(x *Table) {
		for i := range maxPastLimits + 1 {
			x.PastLimits = append(x.PastLimits, PastLimit{MaxVersions: int64(100 - i), LastSeq: uint64(i)})
		}
	}), "9 past limits"},
	{"change log of an unknown table", withTable(func(x *Table) { x.Log = &ChangeLog{Of: 5} }), "not there"},
	{"change log of itself", withTable(func(x *Table) { x.Log = &ChangeLog{Of: x.ID} }), "not there"},
	{"change log that ends before it begins", withTable(func(x *Table) { x.Log = &ChangeLog{Of: 1, After: 3, Until: 2} }), "from 3 to 2"},
	{"change log of a column without a name", withTable(func(x *Table) { x.Log = &ChangeLog{Of: 1, Before: []string{""}} }), "name of 0 bytes"},
	{"two change logs", func(e *Edit) {
		for i := range uint64(2) {
			x := testTable(9+i, 9+i, string('x'+rune(i)))
			x.Log = &ChangeLog{Of: 1}
			e.CreateTable(x)
		}
	}, "two change logs"},
	{"change log of a change log", func(e *Edit) {
		for i := range uint64(2) {
			x := testTable(9+i, 9+i, string('x'+rune(i)))
			x.Log = &ChangeLog{Of: 1 + 8*i}
			e.CreateTable(x)
		}
	}, "another change log"},
	{"end of what is no change log", func(e *Edit) { e.EndLog(1, 7) }, "no change log"},
	{"end of a change log before it begins", func(e *Edit) {
		withTable(func(x *Table) { x.Log = &ChangeLog{Of: 1, After: 8} })(e)
		e.EndLog(9, 7)
	}, "from 8 to 7"},
	{"drop without the change log", func(e *Edit) {
		withTable(func(x *Table) { x.Log = &ChangeLog{Of: 1} })(e)
		e.DropTable(1)
	}, "without its change log"},
	{"flush of an unknown partition", func(e *Edit) { e.SetFlushed(5, 1) }, "no partition with id 5"},
	{"flushed sequence number falls", func(e *Edit) { e.SetFlushed(1, 19) }, "flushed up to 20, not 19"},
	{"sequence number too large", func(e *Edit) { e.LastSeq = row.MaxSequence + 1 }, "above the largest"},

	{"delete an unknown file", func(e *Edit) { e.DeleteFile(1, 0, 7) }, "no file 7 at level 0"},
	{"delete from another level", func(e *Edit) { e.DeleteFile(1, 1, 1) }, "no file 1 at level 1"},
	{"delete twice", func(e *Edit) { e.DeleteFile(1, 0, 1); e.DeleteFile(1, 0, 1) }, "no file 1"},
	{"level 7", func(e *Edit) { e.AddFile(1, 7, testFile(5, 0, 1, 30)) }, "no level 7"},
	{"level -1", func(e *Edit) { e.DeleteFile(1, -1, 1) }, "no level -1"},
	{"file listed twice", func(e *Edit) { e.AddFile(1, 3, testFile(1, 0, 50, 1)) }, "already lists file 1"},
	{"file with another description", func(e *Edit) {
		f := testFile(1, 0, 50, 1)
		f.Size++
		e.DeleteFile(1, 0, 1)
		e.AddFile(1, 3, f)
	}, "another description"},
	{"file of another table", func(e *Edit) {
		e.CreateTable(testTable(9, 9, "x"))
		e.AddFile(9, 0, testFile(1, 0, 50, 1))
	}, "belongs to table 1"},
	{"file number not allocated", func(e *Edit) { e.AddFile(1, 0, testFile(10, 0, 1, 30)) }, "never allocated"},
	{"file number 0", withFile(func(f *FileMeta) { f.Number = 0 }), "file number 0"},
	{"empty file", withFile(func(f *FileMeta) { f.Size = 0 }), "size 0"},
	{"no bounds", withFile(func(f *FileMeta) { f.Smallest = nil }), "bounds of 0"},
	{"long bound of a file", withFile(func(f *FileMeta) { f.Largest = make([]byte, row.MaxKeyBytes+1) }), "bounds of"},
	{"bounds crossed", withFile(func(f *FileMeta) { f.Smallest, f.Largest = f.Largest, f.Smallest }), "above largest"},
	{"sequence numbers crossed", withFile(func(f *FileMeta) { f.SmallestSeq = f.LargestSeq + 1 }), "sequence numbers"},
	{"tombstone from the future", withFile(func(f *FileMeta) { f.NewestTombstone = f.LargestSeq + 1 }), "newest tombstone"},
	{"no rows", withFile(func(f *FileMeta) { f.Rows = 0 }), "0 rows"},
	{"fewer cells than rows", withFile(func(f *FileMeta) { f.Cells = 4 }), "4 cells"},
	{"more puts than cells", withFile(func(f *FileMeta) { f.Puts = 11 }), "11 puts"},
	{"more tombstones than cells", withFile(func(f *FileMeta) { f.Tombstones = 5 }), "5 tombstones"},
	{"overlap with the file before", func(e *Edit) {
		e.AddFile(1, 1, testFile(4, 0, 50, 30))
		e.AddFile(1, 1, testFile(5, 50, 60, 30))
	}, "overlaps"},
	{"overlap with the file behind", func(e *Edit) {
		e.AddFile(1, 1, testFile(4, 50, 60, 30))
		e.AddFile(1, 1, testFile(5, 40, 55, 30))
	}, "overlaps"},
	{"same first key", func(e *Edit) {
		e.AddFile(1, 1, testFile(4, 50, 60, 30))
		e.AddFile(1, 1, testFile(5, 50, 50, 30))
	}, "overlaps"},
	{"file outside of its partition", func(e *Edit) {
		x := testTable(9, 9, "x")
		k := testKey(50, -1)
		x.Partitions = []*Partition{{ID: 9, End: k}, {ID: 10, Start: k}}
		e.CreateTable(x)
		e.AddFile(10, 0, testFile(5, 10, 49, 30))
	}, "outside of partition 10"},

	{"replace in an unknown table", func(e *Edit) { e.ReplacePartitions(5, []uint64{1}, []*Partition{{ID: 9}}) }, "no table with id 5"},
	{"replace nothing", func(e *Edit) { e.ReplacePartitions(1, nil, []*Partition{{ID: 9}}) }, "no neighbouring partitions"},
	{"replace an unknown partition", func(e *Edit) { e.ReplacePartitions(1, []uint64{5}, []*Partition{{ID: 9}}) }, "no neighbouring partitions"},
	{"replace too many", func(e *Edit) { e.ReplacePartitions(1, []uint64{1, 2}, []*Partition{{ID: 9}}) }, "no neighbouring partitions"},
	{"replace by nothing", func(e *Edit) { e.ReplacePartitions(1, []uint64{1}, nil) }, "no partitions"},
	{"split with a used id", withSplit(func(l, r *Partition) { l.ID = 1 }), "was used"},
	{"split with one id twice", withSplit(func(l, r *Partition) { r.ID = l.ID }), "twice"},
	{"split that leaves a gap", withSplit(func(l, r *Partition) { r.Start = testKey(41, -1) }), "starts at"},
	{"split with the old epoch", withSplit(func(l, r *Partition) { r.Epoch = 1 }), "epoch"},
	{"split that claims to be flushed", withSplit(func(l, r *Partition) { l.FlushedSeq = 21 }), "flushed up to 21"},
	{"split that loses a file", withSplit(func(l, r *Partition) { r.Levels[0] = r.Levels[0][:1] }), "different files"},
	{"split that moves a file", withSplit(func(l, r *Partition) {
		l.Levels[3] = l.Levels[0][:1]
		l.Levels[0] = l.Levels[0][1:]
	}), "different files"},
	{"split that adds a file", withSplit(func(l, r *Partition) { l.Levels[4] = []*FileMeta{testFile(5, 0, 1, 1)} }), "different files"},
	{"split with a cut at no start", withSplit(func(l, r *Partition) { l.Cut = true }), "no start"},
	{"frozen for too long a reason", func(e *Edit) { e.Services = []ServiceChange{{1, Frozen, strings.Repeat("x", 600)}} }, "600 bytes"},
	{"serving for a reason", func(e *Edit) { e.Services = []ServiceChange{{1, Serving, "x"}} }, "a reason not to"},
	{"detached in place", func(e *Edit) { e.Services = []ServiceChange{{1, Detached, "x"}} }, "is detached"},
	{"unknown service", func(e *Edit) { e.Services = []ServiceChange{{1, 3, "x"}} }, "service 3"},
	{"frozen by a split", withSplit(func(l, r *Partition) { l.Service = Frozen }), "is frozen"},
	{"detached with files", withSplit(func(l, r *Partition) { l.Service = Detached }), "has files"},
	{"cut at no start", func(e *Edit) { e.Cuts = []uint64{1} }, "no start"},
	{"cut of an unknown partition", func(e *Edit) { e.Cuts = []uint64{77} }, "partition with id 77"},
	{"split with files out of order", withSplit(func(l, r *Partition) { slices.Reverse(l.Levels[0]) }), "different files"},
}

func withTable(change func(*Table)) func(*Edit) {
	return func(e *Edit) {
		x := testTable(9, 9, "x")
		change(x)
		e.CreateTable(x)
	}
}

func withFile(change func(*FileMeta)) func(*Edit) {
	return func(e *Edit) {
		f := testFile(5, 0, 50, 30)
		change(f)
		e.AddFile(1, 2, f)
	}
}

func withSplit(change func(left, right *Partition)) func(*Edit) {
	return func(e *Edit) {
		cut := testKey(40, -1)
		left := &Partition{ID: 9, End: cut, Epoch: 2, FlushedSeq: 20}
		right := &Partition{ID: 10, Start: cut, Epoch: 2, FlushedSeq: 20}
		for _, p := range []*Partition{left, right} {
			p.Levels[0] = []*FileMeta{testFile(1, 0, 50, 1), testFile(2, 10, 90, 11)}
		}
		change(left, right)
		e.ReplacePartitions(1, []uint64{1}, []*Partition{left, right})
	}
}

func TestApplyRefusesEveryViolation(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()[:2]...)
	before := image(s)
	for _, c := range violations {
		var e Edit
		c.edit(&e)
		next, err := s.Apply(&e)
		if !errors.Is(err, ErrInvalidEdit) || next != nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
		if image(s) != before {
			t.Fatalf("%s: the refused edit changed the state", c.name)
		}
	}
	var split, create Edit
	withSplit(func(l, r *Partition) {})(&split)
	create.CreateTable(testTable(9, 11, "x"))
	create.AddFile(9, 2, testFile(5, 0, 30, 30))
	mustApply(t, s, &split, &create)
}

func TestAMergeIsRefusedWhileOneSideHasCompactedASharedFileAway(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	var trimmed Edit
	trimmed.DeleteFile(2, 6, 3)
	trimmed.AddFile(2, 6, testFile(4, 0, 39, 11))
	s = mustApply(t, s, &trimmed)

	merge := func(files ...*FileMeta) *Edit {
		p := &Partition{ID: 4, Epoch: 3, FlushedSeq: 20}
		p.Levels[6] = files
		var e Edit
		e.ReplacePartitions(1, []uint64{2, 3}, []*Partition{p})
		return &e
	}
	// File 3 reaches into the left half, where file 4 has replaced it.
	for _, files := range [][]*FileMeta{{s.File(4), s.File(3)}, {s.File(3)}, {s.File(4)}} {
		if _, err := s.Apply(merge(files...)); !errors.Is(err, ErrInvalidEdit) {
			t.Errorf("merge of %d files: error %v", len(files), err)
		}
	}
	var other Edit
	other.DeleteFile(3, 6, 3)
	other.AddFile(3, 6, testFile(5, 40, 90, 11))
	s = mustApply(t, s, &other)
	s = mustApply(t, s, merge(s.File(4), s.File(5)))
	if got := len(s.Table(1).Partitions); got != 1 {
		t.Errorf("%d partitions", got)
	}
}

func TestCountersNeverFall(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	var e Edit
	e.nextFile = 1
	e.LastSeq = 1
	e.MinLog = 1
	e.Issued = new(int64(1))
	e.SetWatermark(1, 1)
	e.AlterTable(1, TableOptions{MaxVersions: 1, TTLSeconds: 1}, nil)
	n := mustApply(t, s, &e)
	if n.NextFile != s.NextFile || n.LastSeq != s.LastSeq || n.MinLog != s.MinLog || n.IssuedMillis != s.IssuedMillis {
		t.Errorf("counters fell from %+v to %+v", s, n)
	}
	if n.Table(1).Watermark != s.Table(1).Watermark || n.Table(1).LargestOffset != 86400 {
		t.Errorf("watermark or largest offset fell: %+v", n.Table(1))
	}
}

func TestTheLastSequenceNumberCoversFilesFlushesAndTimes(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()[:1]...)
	var file, flush, time Edit
	file.AddFile(1, 0, testFile(1, 0, 1, 91))
	flush.SetFlushed(1, 150)
	time.AddSeqTime(200, 5)
	for i, c := range []struct {
		edit *Edit
		want uint64
	}{{&file, 100}, {&flush, 150}, {&time, 200}} {
		if s = mustApply(t, s, c.edit); s.LastSeq != c.want {
			t.Errorf("step %d: last sequence number %d, want %d", i, s.LastSeq, c.want)
		}
	}
}

// TestPastLimitsCoverEveryLimitThatWasLowered: for each sequence number, the past limits must
// name at least the largest limit of versions that may have been in force when it was written.
func TestPastLimitsCoverEveryLimitThatWasLowered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustApply(t, NewState(testStore), smallEdits()[:1]...)
		var added []PastLimit
		for range rapid.IntRange(1, 20).Draw(t, "limits") {
			p := PastLimit{
				MaxVersions: rapid.Int64Range(1, 30).Draw(t, "versions"), LastSeq: rapid.Uint64Range(0, 60).Draw(t, "seq"),
			}
			added = append(added, p)
			var e Edit
			e.AddPastLimit(1, p.MaxVersions, p.LastSeq)
			s = mustApply(t, s, &e)
			if err := checkSchema(s.Table(1)); err != nil {
				t.Fatal(err)
			}
		}
		limitAt := func(limits []PastLimit, seq uint64) (versions int64) {
			for _, l := range limits {
				if seq <= l.LastSeq {
					versions = max(versions, l.MaxVersions)
				}
			}
			return versions
		}
		for seq := range uint64(62) {
			if got, want := limitAt(s.Table(1).PastLimits, seq), limitAt(added, seq); got < want {
				t.Fatalf("sequence number %d: %d versions, want at least %d of %v", seq, got, want, added)
			}
		}
	})
}

func TestSeqAtOrBeforeNeverCoversALaterWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := NewState(testStore)
		written := []int64{0} // the time of each sequence number
		clock := int64(0)
		for range rapid.IntRange(1, 3000).Draw(t, "points") {
			for range rng.IntN(3) {
				clock += rng.Int64N(10)
				written = append(written, clock)
			}
			var e Edit
			e.AddSeqTime(uint64(len(written)-1), clock)
			s = mustApply(t, s, &e)
		}
		if len(s.SeqTimes) > MaxSeqTimes {
			t.Fatalf("%d points", len(s.SeqTimes))
		}
		for range 50 {
			millis := rng.Int64N(clock + 10)
			for seq := s.SeqAtOrBefore(millis); seq > 0; seq-- {
				if written[seq] > millis {
					t.Fatalf("sequence number %d was written at %d, after %d", seq, written[seq], millis)
				}
			}
		}
		if n := len(s.SeqTimes); n > 0 && s.SeqAtOrBefore(clock) != s.SeqTimes[n-1].Seq {
			t.Fatal("the newest point is not found")
		}
	})
}

func TestSeqTimesThatDoNotRiseAreDropped(t *testing.T) {
	var e Edit
	for _, p := range []SeqTime{{10, 100}, {10, 110}, {11, 100}, {9, 120}, {12, 90}, {20, 200}} {
		e.AddSeqTime(p.Seq, p.Millis)
	}
	s := mustApply(t, NewState(testStore), &e)
	if want := []SeqTime{{10, 100}, {20, 200}}; !slices.Equal(s.SeqTimes, want) {
		t.Errorf("points %v, want %v", s.SeqTimes, want)
	}
	for millis, want := range map[int64]uint64{99: 0, 100: 10, 199: 10, 200: 20, 1000: 20} {
		if got := s.SeqAtOrBefore(millis); got != want {
			t.Errorf("at %d: %d, want %d", millis, got, want)
		}
	}
}

// TestStatesAreImmutableAndSurviveTheirEncoding: readers share a state, so no edit may change
// it. A state that was built by edits equals its decoded snapshot.
func TestStatesAreImmutableAndSurviveTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := NewState(testStore)
		var states []*State
		var images []string
		for range rapid.IntRange(1, 60).Draw(t, "edits") {
			e := randomEdit(rng, s)
			again, err := DecodeEdit(AppendEdit(nil, e))
			if err != nil {
				t.Fatal(err)
			}
			next := mustApply(t, s, e)
			if image(next) != image(mustApply(t, s, again)) {
				t.Fatal("the decoded edit has another effect")
			}
			states, images = append(states, s), append(images, image(s))
			s = next
		}
		for i := range states {
			if image(states[i]) != images[i] {
				t.Fatalf("state %d was changed by later edits", i)
			}
		}
		read, err := decodeSnapshot(appendSnapshot(nil, s), s.StoreID)
		if err != nil {
			t.Fatal(err)
		}
		if image(read) != image(s) {
			t.Fatal("the snapshot reads back as another state")
		}
		checkIndexes(t, s)
		checkIndexes(t, read)
	})
}

// checkIndexes compares the indexes of a state with what they index.
func checkIndexes(t *rapid.T, s *State) {
	files := map[uint64]int{}
	values := map[uint64]ValueUsage{}
	partitions := 0
	for _, table := range s.Tables {
		if s.TableByName(table.Name) != table || s.Table(table.ID) != table {
			t.Fatalf("table %d is not found", table.ID)
		}
		for _, p := range table.Partitions {
			partitions++
			if owner, found := s.Partition(p.ID); owner != table || found != p {
				t.Fatalf("partition %d is not found", p.ID)
			}
			for _, level := range p.Levels {
				for _, f := range level {
					if files[f.Number]++; files[f.Number] > 1 {
						continue
					}
					for _, use := range f.Values {
						u := values[use.File]
						values[use.File] = ValueUsage{Table: table.ID, Files: u.Files + 1, Live: u.Live + use.Bytes}
					}
				}
			}
		}
	}
	owners := len(slices.Collect(s.owners.all()))
	if owners != partitions || s.fileCount() != len(files) {
		t.Fatalf("%d of %d partitions, %d of %d files",
			owners, partitions, s.fileCount(), len(files))
	}
	for u := range s.ValueFiles() {
		want := values[u.Number]
		if want.ValueFile = u.ValueFile; u != want {
			t.Fatalf("value file %d is counted as %+v, want %+v", u.Number, u, want)
		}
		delete(values, u.Number)
	}
	if len(values) > 0 {
		t.Fatalf("value files are missing: %v", values)
	}
	for number, refs := range files {
		if ref, ok := s.files.get(number); !ok || ref.refs != refs {
			t.Fatalf("file %d has %d references, counted as %d", number, refs, ref.refs)
		}
	}
}

func TestUnknownNumbersAreNotFound(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	for _, n := range []uint64{0, 1, 64, 1 << 40} {
		if n != 1 && s.Table(n) != nil || s.File(n) != nil {
			t.Errorf("%d is found", n)
		}
		if _, p := s.Partition(n); p != nil {
			t.Errorf("partition %d is found", n)
		}
	}
	if s.TableByName("") != nil || s.TableByName("zebra") != nil {
		t.Error("a table that does not exist is found")
	}
}
