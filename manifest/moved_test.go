package manifest

import (
	"slices"
	"testing"
)

// TestPartitionsAreFrozenDetachedAndFilledAgain takes the partition from keys 40 on through all it can
// serve.
func TestPartitionsAreFrozenDetachedAndFilledAgain(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	look := func(id uint64, service Service, epoch uint64, files bool) {
		t.Helper()
		_, p := s.Partition(id)
		if p == nil || p.Service != service || p.Epoch != epoch || p.hasFiles() != files {
			t.Fatalf("partition %d: %+v", id, p)
		}
		read, err := decodeSnapshot(appendSnapshot(nil, s), testStore)
		if err != nil || image(read) != image(s) {
			t.Fatalf("read back as another state: %v", err)
		}
	}
	s = mustApply(t, s, &Edit{Services: []ServiceChange{{3, Frozen, "moving"}}})
	look(3, Frozen, 3, true)
	if _, err := s.Apply(&Edit{Replaced: []*Replacement{{Table: 1, Old: []uint64{3}, New: []*Partition{
		{ID: 9, Start: testKey(40, -1), Epoch: 4, FlushedSeq: 20, Levels: s.Tables[0].Partitions[1].Levels},
	}}}}); err == nil {
		t.Fatal("a replacement lets a frozen partition serve")
	}
	s = mustApply(t, s, &Edit{Replaced: []*Replacement{{Table: 1, Old: []uint64{3}, After: 30, New: []*Partition{
		{ID: 4, Start: testKey(40, -1), Epoch: 4, FlushedSeq: 30, Service: Detached, Reason: "moved"},
	}}}})
	look(4, Detached, 4, false)
	if len(s.SeqTimes) == 0 || s.File(3) == nil {
		t.Fatal("the other partition lost its file, or the state its times")
	}
	var add Edit
	add.AddFile(4, 2, testFile(5, 41, 50, 30))
	if _, err := s.Apply(&add); err == nil {
		t.Fatal("a detached partition got a file")
	}
	if _, err := s.Apply(&Edit{Services: []ServiceChange{{4, Serving, ""}}}); err == nil {
		t.Fatal("a detached partition serves, without its rows")
	}
	back := &Partition{ID: 5, Start: testKey(40, -1), Epoch: 5, FlushedSeq: 90}
	back.Levels[2] = []*FileMeta{testFile(6, 41, 90, 80)}
	s = mustApply(t, s, &Edit{Replaced: []*Replacement{{Table: 1, Old: []uint64{4}, After: 90, New: []*Partition{back}}}})
	look(5, Serving, 5, true)
	want := []SeqTime{{90, s.IssuedMillis}}
	if !slices.Equal(s.SeqTimes, want) || s.LastSeq != 90 {
		t.Errorf("rows came, the times of sequence numbers are %v, last %d", s.SeqTimes, s.LastSeq)
	}
	// An edit that was worked out before may come behind.
	s = mustApply(t, s, &Edit{SeqTimes: []SeqTime{{60, s.IssuedMillis + 1}}})
	if !slices.Equal(s.SeqTimes, want) {
		t.Errorf("a point of before rows came was taken: %v", s.SeqTimes)
	}
}

// TestATableThatComesWithFilesEndsTheTimes is the same for a new table.
func TestATableThatComesWithFilesEndsTheTimes(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	x := testTable(9, 9, "x")
	mustApply(t, s, &Edit{Created: []*Table{x}})
	x.Partitions[0].Levels[1] = []*FileMeta{testFile(5, 1, 2, 9)}
	if next := mustApply(t, s, &Edit{Created: []*Table{x}}); !slices.Equal(next.SeqTimes, []SeqTime{{s.LastSeq, s.IssuedMillis}}) {
		t.Errorf("times %v", next.SeqTimes)
	}
}
