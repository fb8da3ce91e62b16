package manifest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// Helpers of this package's tests: small states, and a generator of valid edits.

// These methods add to an edit; tests make many.

func (e *Edit) CreateTable(t *Table) { e.Created = append(e.Created, t) }

func (e *Edit) AlterTable(id uint64, options TableOptions, annotations []byte) {
	e.Altered = append(e.Altered, Alteration{Table: id, Options: options, Annotations: annotations})
}

func (e *Edit) DropTable(id uint64) { e.Dropped = append(e.Dropped, id) }

func (e *Edit) ReplacePartitions(table uint64, old []uint64, replacements []*Partition) {
	e.Replaced = append(e.Replaced, &Replacement{Table: table, Old: old, New: replacements})
}

func (e *Edit) AddFile(partition uint64, level int, file *FileMeta) {
	e.Added = append(e.Added, Addition{Partition: partition, Level: level, File: file})
}

func (e *Edit) AddValueFile(table uint64, file *ValueFile) {
	e.Values = append(e.Values, ValueAddition{Table: table, File: file})
}

func (e *Edit) DeleteFile(partition uint64, level int, number uint64) {
	e.Deleted = append(e.Deleted, Deletion{Partition: partition, Level: level, Number: number})
}

func (e *Edit) SetFlushed(partition, seq uint64) {
	e.Flushed = append(e.Flushed, Flush{Partition: partition, Seq: seq})
}

func (e *Edit) SetWatermark(table uint64, cutoff int64) {
	e.Watermarks = append(e.Watermarks, Watermark{Table: table, Cutoff: cutoff})
}

func (e *Edit) AddPastLimit(table uint64, maxVersions int64, lastSeq uint64) {
	limit := PastLimit{MaxVersions: maxVersions, LastSeq: lastSeq}
	e.PastLimits = append(e.PastLimits, TableLimit{Table: table, PastLimit: limit})
}

func (e *Edit) EndLog(log, until uint64) {
	e.Ended = append(e.Ended, LogEnding{Log: log, Until: until})
}

func (e *Edit) AddSeqTime(seq uint64, millis int64) {
	e.SeqTimes = append(e.SeqTimes, SeqTime{Seq: seq, Millis: millis})
}

var testStore = [16]byte{'t', 'e', 's', 't', ' ', 's', 't', 'o', 'r', 'e', 1, 2, 3, 4, 5, 6}

// testKey is a row key of the tables that testTable makes or, if the second number is negative,
// the bound of a partition key.
func testKey(user, item int) []byte {
	tuple := []row.Value{row.String(fmt.Sprintf("user%03d", user))}
	if item >= 0 {
		tuple = append(tuple, row.Integer(int64(item)))
	}
	key, err := row.AppendKey(nil, 2, tuple...)
	if err != nil {
		panic(err)
	}
	return key
}

func testTable(id, partition uint64, name string) *Table {
	return &Table{
		ID: id, Name: name,
		Key:           []KeyColumn{{Name: "user", Type: row.TypeString}, {Name: "item", Type: row.TypeInteger, AutoIncrement: true}},
		Options:       TableOptions{MaxVersions: 1, TTLSeconds: NeverExpires, MaxVersionOffsetSeconds: 86400},
		LargestOffset: 86400,
		Watermark:     NoWatermark,
		CreatedMillis: 1_700_000_000_000,
		Partitions:    []*Partition{{ID: partition, Epoch: 1}},
	}
}

// testFile describes a file with the keys of users first to last.
func testFile(number uint64, first, last int, seq uint64) *FileMeta {
	return &FileMeta{
		Number: number, UniqueID: [16]byte{1, byte(number), byte(number >> 8)}, Size: 8192 + int64(number), Checksum: number * 0x9E3779B97F4A7C15,
		Smallest: testKey(first, 0), Largest: testKey(last, 1_000_000),
		SmallestSeq: seq, LargestSeq: seq + 9,
		MinVersion: 1_700_000_000_000, MaxVersion: 1_700_000_001_000, Permanent: number%2 == 0,
		NewestTombstone: seq, Rows: 5, Cells: 10, Puts: 6, Tombstones: 2, CreatedMillis: 1_700_000_002_000,
	}
}

// smallEdits builds a state step by step: a table, flushed files, a compaction, a split. The
// golden file holds them too.
func smallEdits() []*Edit {
	var create, flush, compact, split Edit
	create.CreateTable(testTable(1, 1, "orders"))
	create.Issued = new(int64(1_700_000_000_500))
	create.nextFile = 10

	flush.AddFile(1, 0, testFile(1, 0, 50, 1))
	flush.AddFile(1, 0, testFile(2, 10, 90, 11))
	flush.SetFlushed(1, 20)
	flush.LastSeq = 25
	flush.MinLog = 3
	flush.AddSeqTime(20, 1_700_000_002_000)

	whole := testFile(3, 0, 90, 11)
	compact.DeleteFile(1, 0, 1)
	compact.DeleteFile(1, 0, 2)
	compact.AddFile(1, 6, whole)
	compact.SetWatermark(1, 1_699_000_000)

	left := &Partition{ID: 2, End: testKey(40, -1), Epoch: 2, FlushedSeq: 20}
	right := &Partition{ID: 3, Start: testKey(40, -1), Epoch: 2, FlushedSeq: 20}
	left.Levels[6], right.Levels[6] = []*FileMeta{whole}, []*FileMeta{whole}
	split.ReplacePartitions(1, []uint64{1}, []*Partition{left, right})
	split.AlterTable(1, TableOptions{MaxVersions: 3, TTLSeconds: 3600, MaxVersionOffsetSeconds: 60}, []byte("front end"))
	split.AddPastLimit(1, 9, 20)
	return []*Edit{&create, &flush, &compact, &split}
}

// clockEdit has a wall clock that has been a day ahead for four minutes.
func clockEdit() *Edit {
	var e Edit
	e.Clock = &TrustedClock{Millis: 1_700_000_000_500, Ahead: 86_400_000, Stood: 240_000}
	return &e
}

func mustApply(t interface{ Fatalf(string, ...any) }, s *State, edits ...*Edit) *State {
	for i, e := range edits {
		next, err := s.Apply(e)
		if err != nil {
			t.Fatalf("edit %d: %v", i, err)
		}
		s = next
	}
	return s
}

// image is the encoding of a state, for comparisons.
func image(s *State) string {
	if s == nil {
		return "nothing"
	}
	return string(appendSnapshot(slices.Clone(s.StoreID[:]), s))
}

// randomEdit returns a valid edit of some kind. It may be empty.
func randomEdit(rng *rand.Rand, s *State) *Edit {
	e := &Edit{}
	e.nextFile = s.NextFile + 3
	if rng.IntN(3) == 0 {
		e.LastSeq = s.LastSeq + rng.Uint64N(5)
		e.Issued = new(rng.Int64N(1000))
		e.MinLog = s.MinLog + rng.Uint64N(2)
		e.NewestLog = LogEnd{Segment: max(s.NewestLog.Segment+rng.Uint64N(2), 1), Offset: int64(rng.Uint64N(2)), Chain: rng.Uint64()}
		e.AddSeqTime(s.LastSeq+1, rng.Int64N(1_000_000))
		e.Clock = &TrustedClock{Millis: rng.Int64N(1000), Ahead: rng.Int64N(2), Stood: rng.Int64N(2)}
	}
	if len(s.Tables) == 0 || rng.IntN(12) == 0 {
		e.CreateTable(testTable(s.NextTable, s.NextPartition, fmt.Sprintf("table%d", s.NextTable)))
		return e
	}
	t := s.Tables[rng.IntN(len(s.Tables))]
	p := t.Partitions[rng.IntN(len(t.Partitions))]
	switch rng.IntN(8) {
	case 0:
		if rng.IntN(4) == 0 {
			e.DropTable(t.ID)
			return e
		}
		e.AlterTable(t.ID, TableOptions{MaxVersions: 1 + rng.Int64N(9), TTLSeconds: 1 + rng.Int64N(99), MaxVersionOffsetSeconds: rng.Int64N(99)}, []byte{1})
		e.SetWatermark(t.ID, rng.Int64N(100))
		e.AddPastLimit(t.ID, t.Options.MaxVersions, s.LastSeq)
	case 1:
		randomSplit(rng, s, t, p, e)
	case 2:
		randomMerge(s, t, e)
	case 3, 4:
		randomCompaction(rng, s, t, p, e)
	default:
		f := randomFile(rng, s, p)
		randomValues(rng, s, t, f, e)
		e.AddFile(p.ID, 0, f)
		e.SetFlushed(p.ID, max(p.FlushedSeq, f.LargestSeq))
	}
	return e
}

func randomFile(rng *rand.Rand, s *State, p *Partition) *FileMeta {
	for {
		first := rng.IntN(100)
		f := testFile(s.NextFile, first, first+rng.IntN(100-first), s.LastSeq+1)
		if p.Contains(f.Smallest) && p.Contains(f.Largest) {
			return f
		}
		if p.Contains(f.Smallest) {
			f.Largest = f.Smallest
			return f
		}
	}
}

// randomCompaction compacts all files of a partition into one at a deep level, or moves one
// down.
func randomCompaction(rng *rand.Rand, s *State, t *Table, p *Partition, e *Edit) {
	if files := p.Levels[6]; len(files) > 0 && len(p.Levels[5]) == 0 && rng.IntN(2) == 0 {
		e.AddFile(p.ID, 5, files[0])
		e.DeleteFile(p.ID, 6, files[0].Number)
		return
	}
	for level, files := range p.Levels {
		for _, f := range files {
			e.DeleteFile(p.ID, level, f.Number)
		}
	}
	f := randomFile(rng, s, p)
	randomValues(rng, s, t, f, e)
	e.AddFile(p.ID, 6, f)
}

// testValueFile describes a value file of five values.
func testValueFile(number uint64) *ValueFile {
	return &ValueFile{
		Number: number, UniqueID: [16]byte{2, byte(number)}, Size: 1072, Checksum: number * 31, Values: 5, Bytes: 1000,
		CreatedMillis: 1_700_000_003_000,
	}
}

// randomValues lets a file that an edit adds refer to value files of its table, and to a new
// one.
func randomValues(rng *rand.Rand, s *State, t *Table, f *FileMeta, e *Edit) {
	for u := range s.ValueFiles() {
		if u.Table == t.ID && len(f.Values) < 3 && rng.IntN(2) == 0 {
			f.Values = append(f.Values, ValueUse{File: u.Number, Values: 1, Bytes: 1 + rng.Uint64N(u.Bytes)})
		}
	}
	if rng.IntN(2) == 0 {
		v := testValueFile(s.NextFile + 1)
		e.AddValueFile(t.ID, v)
		f.Values = append(f.Values, ValueUse{File: v.Number, Values: 3, Bytes: 600})
	}
}

func randomSplit(rng *rand.Rand, s *State, t *Table, p *Partition, e *Edit) {
	cut := testKey(1+rng.IntN(99), -1)
	if len(t.Partitions) > 6 || !p.Contains(cut) || bytes.Equal(cut, p.Start) {
		return
	}
	left := &Partition{ID: s.NextPartition, Start: p.Start, End: cut, Epoch: p.Epoch + 1, FlushedSeq: p.FlushedSeq, Cut: p.Cut}
	right := &Partition{ID: s.NextPartition + 1, Start: cut, End: p.End, Epoch: p.Epoch + 1, FlushedSeq: p.FlushedSeq, Cut: rng.IntN(2) == 0}
	if right.Cut && rng.IntN(2) == 0 {
		right.Cut, e.Cuts = false, []uint64{right.ID}
	}
	for level, files := range p.Levels {
		left.Levels[level] = filesIn(left, files)
		right.Levels[level] = filesIn(right, files)
	}
	e.ReplacePartitions(t.ID, []uint64{p.ID}, []*Partition{left, right})
}

func lists(p *Partition, number uint64) bool {
	return slices.ContainsFunc(slices.Concat(p.Levels[:]...), func(f *FileMeta) bool { return f.Number == number })
}

// randomMerge merges the first two partitions, if they share no files.
func randomMerge(s *State, t *Table, e *Edit) {
	if len(t.Partitions) < 2 {
		return
	}
	a, b := t.Partitions[0], t.Partitions[1]
	merged := &Partition{ID: s.NextPartition, End: b.End, Epoch: max(a.Epoch, b.Epoch) + 1, FlushedSeq: min(a.FlushedSeq, b.FlushedSeq)}
	for level := range merged.Levels {
		for _, f := range append(slices.Clone(a.Levels[level]), b.Levels[level]...) {
			if lists(a, f.Number) && lists(b, f.Number) || a.Overlaps(f.Smallest, f.Largest) && b.Overlaps(f.Smallest, f.Largest) {
				return
			}
			merged.Levels[level] = append(merged.Levels[level], f)
		}
	}
	slices.SortFunc(merged.Levels[0], compareL0)
	e.ReplacePartitions(t.ID, []uint64{a.ID, b.ID}, []*Partition{merged})
}

// Holds reports whether the mutation with this sequence number belongs to the log.
func (l *ChangeLog) Holds(seq uint64) bool {
	return seq > l.After && (l.Until == 0 || seq <= l.Until)
}

// TableByName returns the table with this name, or nil.
func (s *State) TableByName(name string) *Table {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// partitionFor returns the partition whose range holds the row key.
func (t *Table) partitionFor(key []byte) *Partition {
	return t.Partitions[slices.IndexFunc(t.Partitions, func(p *Partition) bool { return endsAbove(p.End, key) })]
}

// fileCount returns the number of live files, a shared file counted once.
func (s *State) fileCount() int { return len(slices.Collect(s.files.all())) }

// Contains reports whether the partition's range holds the row key.
func (p *Partition) Contains(key []byte) bool { return p.Overlaps(key, key) }
