package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

// drawEdit draws an edit with any content that can be encoded, valid or not.
func drawEdit(t *rapid.T) *Edit {
	e := &Edit{
		nextFile: rapid.Uint64().Draw(t, "next file"),
		MinLog:   rapid.Uint64().Draw(t, "min log"),
		LastSeq:  rapid.Uint64().Draw(t, "last seq"),
	}
	if rapid.Bool().Draw(t, "has newest log") {
		u := rapid.Uint64()
		e.NewestLog = LogEnd{
			Segment: rapid.Uint64Min(1).Draw(t, "segment"), Offset: int64(u.Draw(t, "end")),
			Records: u.Draw(t, "records"), Chain: u.Draw(t, "chain"),
		}
	}
	if rapid.Bool().Draw(t, "has external") {
		u := rapid.Uint64()
		point := LogPoint{Index: u.Draw(t, "index"), Seq: u.Draw(t, "seq"), Micros: rapid.Int64().Draw(t, "micros"), Fence: u.Draw(t, "fence")}
		e.External = &External{LogPoint: point, Highest: u.Draw(t, "highest")}
	}
	if rapid.Bool().Draw(t, "has issued") {
		e.Issued = new(rapid.Int64().Draw(t, "issued"))
	}
	some := func(label string, draw func()) {
		for range rapid.IntRange(0, 2).Draw(t, label) {
			draw()
		}
	}
	id := func() uint64 { return rapid.Uint64().Draw(t, "id") }
	level := func() int { return rapid.IntRange(0, NumLevels-1).Draw(t, "level") }
	some("seq times", func() { e.AddSeqTime(id(), rapid.Int64().Draw(t, "millis")) })
	some("created", func() { e.CreateTable(drawTable(t)) })
	some("altered", func() { e.AlterTable(id(), drawOptions(t), drawBytes(t)) })
	some("dropped", func() { e.DropTable(id()) })
	some("replaced", func() {
		r := &Replacement{Table: id(), After: id()}
		some("old", func() { r.Old = append(r.Old, id()) })
		some("new", func() { r.New = append(r.New, drawPartition(t)) })
		e.Replaced = append(e.Replaced, r)
	})
	some("services", func() {
		e.Services = append(e.Services, ServiceChange{id(), Service(rapid.IntRange(0, 2).Draw(t, "service")), string(drawBytes(t))})
	})
	some("cuts", func() { e.Cuts = append(e.Cuts, id()) })
	some("deleted", func() { e.DeleteFile(id(), level(), id()) })
	some("added", func() { e.AddFile(id(), level(), drawFile(t)) })
	some("flushed", func() { e.SetFlushed(id(), id()) })
	some("past limits", func() { e.AddPastLimit(id(), rapid.Int64().Draw(t, "versions"), id()) })
	some("value files", func() { e.AddValueFile(id(), drawValueFile(t)) })
	some("watermarks", func() { e.SetWatermark(id(), rapid.Int64().Draw(t, "cutoff")) })
	some("ended logs", func() { e.EndLog(id(), id()) })
	some("clock", func() { e.Clock = new(drawClock(t)) })
	some("keep", func() {
		e.Keep = &LogKeeping{From: id(), Limit: rapid.Int64().Draw(t, "limit"), Noted: id()}
	})
	return e
}

func drawClock(t *rapid.T) TrustedClock {
	return TrustedClock{
		Millis: rapid.Int64().Draw(t, "trusted"), Ahead: rapid.Int64().Draw(t, "ahead"), Stood: rapid.Int64().Draw(t, "stood"),
	}
}

// drawBytes draws nil instead of an empty slice, as decoding does.
func drawBytes(t *rapid.T) []byte {
	if b := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "bytes"); len(b) > 0 {
		return b
	}
	return nil
}

func drawOptions(t *rapid.T) TableOptions {
	return TableOptions{
		MaxVersions: rapid.Int64().Draw(t, "max versions"), TTLSeconds: rapid.Int64().Draw(t, "time to live"),
		MaxVersionOffsetSeconds: rapid.Int64().Draw(t, "offset"),
	}
}

func drawTable(t *rapid.T) *Table {
	table := &Table{
		ID: rapid.Uint64().Draw(t, "table"), Name: rapid.String().Draw(t, "name"), Options: drawOptions(t),
		LargestOffset: rapid.Int64().Draw(t, "largest offset"), Watermark: rapid.Int64().Draw(t, "watermark"),
		CreatedMillis: rapid.Int64().Draw(t, "created"), Annotations: drawBytes(t),
	}
	for range rapid.IntRange(0, 3).Draw(t, "columns") {
		table.Key = append(table.Key, KeyColumn{
			Name: rapid.String().Draw(t, "column"), Type: row.Type(rapid.Byte().Draw(t, "type")),
			AutoIncrement: rapid.Bool().Draw(t, "auto-increment"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "past limits") {
		table.PastLimits = append(table.PastLimits, PastLimit{
			MaxVersions: rapid.Int64().Draw(t, "versions"), LastSeq: rapid.Uint64().Draw(t, "past seq"),
		})
	}
	if rapid.Bool().Draw(t, "log") {
		table.Log = &ChangeLog{
			Of: rapid.Uint64().Draw(t, "of"), After: rapid.Uint64().Draw(t, "after"), Until: rapid.Uint64().Draw(t, "until"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "before") {
			table.Log.Before = append(table.Log.Before, string(drawBytes(t)))
		}
		for range rapid.IntRange(0, 2).Draw(t, "shards") {
			s := &Shard{ID: rapid.Uint64().Draw(t, "shard"), Start: drawBytes(t), End: drawBytes(t), After: rapid.Uint64().Draw(t, "shard after")}
			for range rapid.IntRange(0, 2).Draw(t, "parents") {
				s.Parents = append(s.Parents, rapid.Uint64().Draw(t, "parent"))
			}
			table.Log.Shards = append(table.Log.Shards, s)
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "partitions") {
		table.Partitions = append(table.Partitions, drawPartition(t))
	}
	return table
}

func drawPartition(t *rapid.T) *Partition {
	p := &Partition{
		ID: rapid.Uint64().Draw(t, "partition"), Start: drawBytes(t), End: drawBytes(t),
		Epoch: rapid.Uint64().Draw(t, "epoch"), FlushedSeq: rapid.Uint64().Draw(t, "flushed"), Cut: rapid.Bool().Draw(t, "cut"),
	}
	if p.Service = Service(rapid.IntRange(0, 2).Draw(t, "service")); p.Service != Serving {
		p.Reason = string(drawBytes(t))
	}
	for range rapid.IntRange(0, 3).Draw(t, "files") {
		level := rapid.IntRange(0, NumLevels-1).Draw(t, "level")
		p.Levels[level] = append(p.Levels[level], drawFile(t))
	}
	return p
}

func drawFile(t *rapid.T) *FileMeta {
	u := func(label string) uint64 { return rapid.Uint64().Draw(t, label) }
	i := func(label string) int64 { return rapid.Int64().Draw(t, label) }
	f := &FileMeta{
		Number: u("number"), Size: i("size"), Checksum: u("checksum"), Smallest: drawBytes(t), Largest: drawBytes(t),
		SmallestSeq: u("smallest seq"), LargestSeq: u("largest seq"), MinVersion: i("min version"), MaxVersion: i("max version"),
		Permanent: rapid.Bool().Draw(t, "permanent"), NewestTombstone: u("newest tombstone"),
		SeqOffset: u("offset"), Rows: u("rows"), Cells: u("cells"), Puts: u("puts"), Tombstones: u("tombstones"), CreatedMillis: i("created"),
	}
	copy(f.UniqueID[:], drawBytes(t))
	for range rapid.IntRange(0, 2).Draw(t, "values") {
		f.Values = append(f.Values, ValueUse{File: u("value file"), Values: u("referenced"), Bytes: u("referenced bytes")})
	}
	return f
}

func drawValueFile(t *rapid.T) *ValueFile {
	u := func(label string) uint64 { return rapid.Uint64().Draw(t, label) }
	f := &ValueFile{
		Number: u("number"), Size: rapid.Int64().Draw(t, "size"), Checksum: u("checksum"),
		Values: u("values"), Bytes: u("bytes"), CreatedMillis: rapid.Int64().Draw(t, "created"),
	}
	copy(f.UniqueID[:], drawBytes(t))
	return f
}

func TestEditsReadBackAsTheyWereMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEdit(t)
		b := AppendEdit(nil, e)
		got, err := DecodeEdit(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("%x\nreads as %+v\nwant     %+v", b, got, e)
		}
	})
}

// TestEveryFieldIsEncoded: a field added to one of these types must be added to the encoding and
// to the drawing functions above.
func TestEveryFieldIsEncoded(t *testing.T) {
	for _, c := range []struct {
		v    any
		want int
	}{
		{LogEnd{}, 4}, {LogPoint{}, 4}, {External{}, 2}, {Edit{}, 22}, {LogKeeping{}, 3}, {LogNote{}, 4}, {LogOrigin{}, 3}, {KeptLog{}, 4}, {TrustedClock{}, 3}, {ChangeLog{}, 5}, {Shard{}, 5}, {Replacement{}, 4}, {ValueFile{}, 7}, {ValueUse{}, 3}, {Table{}, 11}, {PastLimit{}, 2}, {KeyColumn{}, 3}, {TableOptions{}, 3}, {Partition{}, 9}, {FileMeta{}, 19}, {SeqTime{}, 2},
		{State{}, 14 + 3}, // three are indexes
	} {
		if got := reflect.TypeOf(c.v).NumField(); got != c.want {
			t.Errorf("%T has %d fields, the encoding and its tests know %d", c.v, got, c.want)
		}
	}
}

// Tags of the documented format, apart from those in the code that is tested.
const (
	editMinLog    = 2
	editLastSeq   = 3
	editIssued    = 4
	editSeqTime   = 5
	editCreated   = 6
	editAltered   = 7
	editReplaced  = 9
	editDeleted   = 10
	editAdded     = 11
	editPastLimit = 14
	editClock     = 17

	stateValueFile = 9
	stateClock     = 10

	tableName        = 2
	tableKeyColumn   = 3
	tableOptions     = 4
	tableAnnotations = 8
	tablePartition   = 9
	tablePastLimit   = 10
	partitionFile    = 6
	partitionCut     = 7
	partitionService = 8

	fileNumber    = 1
	fileUniqueID  = 2
	fileChecksum  = 4
	filePermanent = 11
)

func rawField(tag uint64, body ...byte) []byte {
	b := binary.AppendUvarint(nil, tag)
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestDamagedEditsAreRefused(t *testing.T) {
	format := []byte{encodingFormat}
	tableWith := func(fields ...[]byte) []byte {
		return join(format, rawField(editCreated, join(append([][]byte{rawField(tableOptions, 2, 1, 0)}, fields...)...)...))
	}
	fileWith := func(fields ...[]byte) []byte {
		return join(format, rawField(editAdded, append([]byte{1, 0}, join(fields...)...)...))
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, ErrCorrupt},
		{"format 0", []byte{0}, ErrCorrupt},
		{"format 2", []byte{2}, errNewer},
		{"unknown field", join(format, rawField(63)), errNewer},
		{"unknown field of a table", tableWith(rawField(63)), errNewer},
		{"unknown field of a file", fileWith(rawField(63)), errNewer},
		{"unknown field of a partition", tableWith(rawField(tablePartition, rawField(63)...)), errNewer},
		{"unknown field of a replacement", join(format, rawField(editReplaced, rawField(63)...)), errNewer},
		{"tag 0", join(format, rawField(0)), ErrCorrupt},
		{"tags descend", join(format, rawField(editLastSeq, 1), rawField(editMinLog, 1)), ErrCorrupt},
		{"one field twice", join(format, rawField(editMinLog, 1), rawField(editMinLog, 1)), ErrCorrupt},
		{"issued twice", join(format, rawField(editIssued, 1), rawField(editIssued, 1)), ErrCorrupt},
		{"zero", join(format, rawField(editMinLog, 0)), ErrCorrupt},
		{"number cut short", join(format, rawField(editMinLog, 0x80)), ErrCorrupt},
		{"number of more than 64 bits", join(format, rawField(editMinLog, bytes.Repeat([]byte{0xFF}, 10)...)), ErrCorrupt},
		{"number in a long form", join(format, rawField(editMinLog, 0x81, 0x00)), ErrCorrupt},
		{"tag in a long form", join(format, []byte{0x82, 0x00, 1, 1}), ErrCorrupt},
		{"bytes after a number", join(format, rawField(editMinLog, 1, 1)), ErrCorrupt},
		{"body longer than the rest", join(format, []byte{editMinLog, 2, 1}), ErrCorrupt},
		{"body length of 2^63", join(format, []byte{editMinLog}, binary.AppendUvarint(nil, 1<<63)), ErrCorrupt},
		{"level 7", join(format, rawField(editDeleted, 1, 7, 1)), ErrCorrupt},
		{"huge level", join(format, rawField(editDeleted, append([]byte{1}, binary.AppendUvarint(nil, math.MaxUint64)...)...)), ErrCorrupt},
		{"seq time cut short", join(format, rawField(editSeqTime, 1)), ErrCorrupt},
		{"options cut short", join(format, rawField(editAltered, 1, 2, 3)), ErrCorrupt},
		{"table without options", join(format, rawField(editCreated)), ErrCorrupt},
		{"options after the name's place", tableWith(rawField(tableName, 'a')), ErrCorrupt},
		{"key column cut short", join(format, rawField(editCreated, rawField(tableKeyColumn, 1)...)), ErrCorrupt},
		{"auto-increment 2", join(format, rawField(editCreated, rawField(tableKeyColumn, 1, 2, 'a')...)), ErrCorrupt},
		{"empty annotations", tableWith(rawField(tableAnnotations)), ErrCorrupt},
		{"levels descend", tableWith(rawField(tablePartition, join(rawField(partitionFile, 3), rawField(partitionFile, 2))...)), ErrCorrupt},
		{"cut 2", tableWith(rawField(tablePartition, rawField(partitionCut, 2)...)), ErrCorrupt},
		{"service 0", tableWith(rawField(tablePartition, rawField(partitionService, 0)...)), ErrCorrupt},
		{"service 3", tableWith(rawField(tablePartition, rawField(partitionService, 3)...)), ErrCorrupt},
		{"empty service", tableWith(rawField(tablePartition, rawField(partitionService)...)), ErrCorrupt},
		{"clock cut short", join(format, rawField(editClock, 2, 2)), ErrCorrupt},
		{"bytes after a clock", join(format, rawField(editClock, 2, 2, 2, 2)), ErrCorrupt},
		{"clock twice", join(format, rawField(editClock, 2, 2, 2), rawField(editClock, 2, 2, 2)), ErrCorrupt},
		{"past limit cut short", join(format, rawField(editPastLimit, 1, 2)), ErrCorrupt},
		{"bytes after a past limit", tableWith(rawField(tablePastLimit, 2, 1, 1)), ErrCorrupt},
		{"short unique id", fileWith(rawField(fileUniqueID, 1)), ErrCorrupt},
		{"zero unique id", fileWith(rawField(fileUniqueID, make([]byte, 16)...)), ErrCorrupt},
		{"short checksum", fileWith(rawField(fileChecksum, 1)), ErrCorrupt},
		{"permanent 2", fileWith(rawField(filePermanent, 2)), ErrCorrupt},
	} {
		if e, err := DecodeEdit(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: edit %+v, error %v, want %v", c.name, e, err, c.want)
		}
	}
}

func TestIgnorableFieldsAreSkippedEverywhere(t *testing.T) {
	unknown := rawField(ignorableBit|1, 1, 2, 3)
	file := append([]byte{1, 0}, join(rawField(fileNumber, 9), unknown)...)
	table := join(rawField(tableOptions, 2, 1, 0), rawField(tablePartition, unknown...), unknown)
	b := join([]byte{encodingFormat}, rawField(editMinLog, 7), rawField(editCreated, table...), rawField(editReplaced, unknown...),
		rawField(editAdded, file...), unknown, unknown)
	e, err := DecodeEdit(b)
	if err != nil {
		t.Fatal(err)
	}
	if e.MinLog != 7 || len(e.Created) != 1 || len(e.Created[0].Partitions) != 1 || len(e.Replaced) != 1 || e.Added[0].File.Number != 9 {
		t.Errorf("edit %+v", e)
	}
}

func TestSnapshotsThatBreakARuleAreRefused(t *testing.T) {
	good := mustApply(t, NewState(testStore), smallEdits()...)
	for _, c := range []struct {
		name   string
		change func(*State)
		want   string
	}{
		{"nothing changed", func(s *State) {}, ""},
		{"no counters", func(s *State) { s.NextFile = 0 }, "counter is missing"},
		{"file above the counter", func(s *State) { s.NextFile = 3 }, "never allocated"},
		{"table above the counter", func(s *State) { s.NextTable = 1 }, "counters below"},
		{"partition above the counter", func(s *State) { s.NextPartition = 3 }, "counters below"},
		{"flush above the counter", func(s *State) { s.LastSeq = 19; s.SeqTimes = nil }, "counters below"},
		{"times out of order", func(s *State) { s.SeqTimes = []SeqTime{{2, 2}, {2, 3}} }, "out of order"},
		{"time of a later write", func(s *State) { s.SeqTimes = []SeqTime{{1000, 2}} }, "out of order"},
		{"too many times", func(s *State) {
			s.LastSeq, s.SeqTimes = 5000, nil
			for i := range MaxSeqTimes + 1 {
				s.SeqTimes = append(s.SeqTimes, SeqTime{uint64(i + 1), int64(i + 1)})
			}
		}, "points"},
		{"one table twice", func(s *State) { s.Tables = append(s.Tables, s.Tables[0]) }, "after table"},
		{"bad table", func(s *State) {
			x := *s.Tables[0]
			x.Options.MaxVersions = 0
			s.Tables = []*Table{&x}
		}, "max versions"},
		{"huge counter", func(s *State) { s.MinLog = 1 << 60 }, "above the largest"},
	} {
		s := *good
		c.change(&s)
		_, err := decodeSnapshot(appendSnapshot(nil, &s), s.StoreID)
		if c.want == "" && err == nil {
			continue
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
	if _, err := decodeSnapshot(join(appendSnapshot(nil, good), rawField(stateClock, 0, 0, 0)), testStore); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a clock that says nothing: error %v", err)
	}
	if _, err := decodeSnapshot(join(appendSnapshot(nil, good), rawField(63)), testStore); !errors.Is(err, errNewer) {
		t.Errorf("unknown field: error %v", err)
	}
}

func FuzzDecodeEdit(f *testing.F) {
	for _, e := range smallEdits() {
		f.Add(AppendEdit(nil, e))
	}
	base := mustApply(f, NewState(testStore), smallEdits()...)
	f.Add(appendSnapshot(nil, base))
	f.Add(appendSnapshot(nil, lineageState(f)))
	base = mustApply(f, base, logEdit(base, 1, 30))
	f.Add(AppendEdit(nil, &Edit{Replaced: []*Replacement{{
		Table: 1, Old: []uint64{2, 3}, New: []*Partition{{ID: 9, Epoch: 3, Levels: base.Tables[0].Partitions[0].Levels}}, After: 40,
	}}}))
	f.Add(AppendEdit(nil, &Edit{Cuts: []uint64{3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeSnapshot(b, testStore); err == nil {
			again, err := decodeSnapshot(appendSnapshot(nil, s), testStore)
			if err != nil || image(again) != image(s) {
				t.Fatalf("snapshot %x changes when it is written again: %v", b, err)
			}
		} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer) {
			t.Fatalf("error %v", err)
		}
		e, err := DecodeEdit(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer) {
				t.Fatalf("error %v", err)
			}
			return
		}
		// Each edit has one encoding, apart from fields that were skipped.
		again := AppendEdit(nil, e)
		if len(again) >= len(b) && !bytes.Equal(again, b) {
			t.Fatalf("%x reads as an edit that is written as %x", b, again)
		}
		if next, err := base.Apply(e); err == nil {
			if _, err := decodeSnapshot(appendSnapshot(nil, next), testStore); err != nil {
				t.Fatalf("an edit was applied whose result cannot be read back: %v", err)
			}
		} else if !errors.Is(err, ErrInvalidEdit) {
			t.Fatalf("error %v", err)
		}
	})
}
