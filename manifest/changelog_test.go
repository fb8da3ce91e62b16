package manifest

import (
	"reflect"
	"testing"
)

// TestATableHasOneChangeLogAtATime makes, ends and drops a log, and makes the next, before the
// first is dropped too.
func TestATableHasOneChangeLogAtATime(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()[:1]...)
	logOfTable1 := func(id, after uint64) *Edit {
		x := testTable(id, id, "log"+string('a'+rune(id)))
		x.Log = &ChangeLog{Of: 1, After: after, Before: []string{"c", "d"}}
		var e Edit
		e.CreateTable(x)
		return &e
	}
	s = mustApply(t, s, logOfTable1(9, 100))
	if l := s.openLog(1); l == nil || l.ID != 9 {
		t.Fatalf("the open log is %+v", l)
	}
	var end Edit
	end.EndLog(9, 120)
	s = mustApply(t, s, &end)
	if l := s.openLog(1); l != nil || s.LastSeq != 120 {
		t.Fatalf("the open log is %+v, the last sequence number %d", l, s.LastSeq)
	}
	if _, err := s.Apply(&end); err == nil {
		t.Error("a log ended twice")
	}
	s = mustApply(t, s, logOfTable1(10, 130))
	for seq, want := range map[uint64][2]bool{
		100: {false, false}, 101: {true, false}, 120: {true, false}, 121: {false, false}, 131: {false, true},
	} {
		if got := [2]bool{s.Table(9).Log.Holds(seq), s.Table(10).Log.Holds(seq)}; got != want {
			t.Errorf("%d is in the logs: %v, want %v", seq, got, want)
		}
	}
	again, err := decodeSnapshot(appendSnapshot(nil, s), testStore)
	if err != nil || !reflect.DeepEqual(again.Table(9).Log, s.Table(9).Log) || again.openLog(1).ID != 10 {
		t.Errorf("read back: %+v, %v", again, err)
	}
	var drop Edit
	drop.DropTable(10)
	drop.DropTable(9)
	drop.DropTable(1)
	if s = mustApply(t, s, &drop); len(s.Tables) != 0 {
		t.Errorf("%d tables are left", len(s.Tables))
	}
}
