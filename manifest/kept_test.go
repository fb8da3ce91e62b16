package manifest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// applied is the state after edits, all of which must be valid.
func applied(t *testing.T, s *State, edits ...*Edit) *State {
	t.Helper()
	for _, e := range edits {
		next, err := s.Apply(e)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

func keptTable(id, partition uint64, name string) *Edit {
	return &Edit{Issued: new(int64(id) * 10), LastSeq: id, Created: []*Table{{
		ID: id, Name: name, Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}, Options: TableOptions{MaxVersions: 1, TTLSeconds: NeverExpires},
		Watermark: NoWatermark, Partitions: []*Partition{{ID: partition}},
	}}}
}

// notesOf shows the notes of a state: number, time, and whether an edit repeats the change.
func notesOf(s *State) string {
	var list []string
	for _, n := range s.Kept.Notes {
		list = append(list, fmt.Sprintf("%d@%d %s %v", n.Number, n.Micros, n.What, len(n.Edit) > 0))
	}
	return strings.Join(list, ", ")
}

func TestAStateNotesWhatTheKeptLogLacks(t *testing.T) {
	file := &FileMeta{Number: 1, Size: 1, Smallest: []byte("a"), Largest: []byte("b"), SmallestSeq: 1, LargestSeq: 1, Rows: 1, Cells: 1, Puts: 1}
	flushed := *file
	flushed.Number = 2
	s := applied(t, NewState([16]byte{1}), keptTable(1, 1, "unnoted"), &Edit{Keep: &LogKeeping{From: 5, Limit: 100}})
	replayed := s
	s = applied(t, s, keptTable(2, 2, "a"),
		&Edit{Altered: []Alteration{{Table: 2, Options: TableOptions{MaxVersions: 3, TTLSeconds: NeverExpires}}}},
		&Edit{nextFile: 10, LastSeq: 9, Added: []Addition{{Partition: 1, File: file}}},
		&Edit{Added: []Addition{{Partition: 1, File: &flushed}}, Flushed: []Flush{{Partition: 1, Seq: 9}}},
		&Edit{Dropped: []uint64{2}},
	)
	want := "2@20000 the creation of table a true, 3@20000 an alteration of table a true, 4@20000 a bulk load into table unnoted false, 5@20000 the deletion of table a true"
	if got := notesOf(s); got != want || s.Kept.Changes != 5 {
		t.Errorf("notes %s\nwant  %s", got, want)
	}
	again, err := decodeSnapshot(appendSnapshot(nil, s), s.StoreID)
	if err != nil || !reflect.DeepEqual(again.Kept, s.Kept) {
		t.Errorf("the snapshot reads as %+v, %v", again, err)
	}
	for i, wants := range []string{"a 1", "a 3", "a 3", ""} {
		if len(s.Kept.Notes[i].Edit) == 0 {
			continue
		}
		e, err := DecodeEdit(s.Kept.Notes[i].Edit)
		if err != nil {
			t.Fatal(err)
		}
		replayed = applied(t, replayed, e)
		got := ""
		if table := replayed.Table(2); table != nil {
			got = fmt.Sprint(table.Name, " ", table.Options.MaxVersions)
		}
		if got != wants {
			t.Errorf("after note %d: %q, want %q", i, got, wants)
		}
	}
	s = applied(t, s, &Edit{Keep: &LogKeeping{From: 7, Noted: 3}}, &Edit{Keep: &LogKeeping{From: 6}})
	if got := fmt.Sprint(s.Kept.From, s.Kept.Limit, len(s.Kept.Notes)); got != "7 100 2" {
		t.Errorf("kept from, limit, notes: %s", got)
	}
	s = applied(t, s, &Edit{Keep: &LogKeeping{Limit: -1}}, &Edit{Keep: &LogKeeping{From: 9}}, keptTable(3, 3, "b"))
	if !reflect.DeepEqual(s.Kept, KeptLog{Changes: 5}) {
		t.Errorf("the log is not kept any more: %+v", s.Kept)
	}
	if s = applied(t, s, &Edit{Keep: &LogKeeping{From: 9, Limit: 1}}); s.Kept.Changes != 6 {
		t.Errorf("the time without notes counts as a change: %+v", s.Kept)
	}
}

func TestNotesAreBounded(t *testing.T) {
	s := applied(t, NewState([16]byte{1}), keptTable(1, 1, "a"), &Edit{Keep: &LogKeeping{From: 1, Limit: 1}})
	alter := func(annotations int) *Edit {
		return &Edit{Altered: []Alteration{{Table: 1, Options: TableOptions{MaxVersions: 1, TTLSeconds: NeverExpires}, Annotations: make([]byte, annotations)}}}
	}
	for range maxNotes + 5 {
		s = applied(t, s, alter(1))
	}
	if n := len(s.Kept.Notes); n != maxNotes || s.Kept.Notes[0].Number != 7 {
		t.Errorf("%d notes, the first of change %d", n, s.Kept.Notes[0].Number)
	}
	if s = applied(t, s, alter(200<<10), alter(100<<10)); len(s.Kept.Notes) != 1 {
		t.Errorf("%d notes of 300 KiB", len(s.Kept.Notes))
	}
	if s = applied(t, s, alter(300<<10)); len(s.Kept.Notes) != 0 {
		t.Errorf("%d notes, the last one alone is too large", len(s.Kept.Notes))
	}
}
