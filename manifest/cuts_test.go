package manifest

import "testing"

// TestACutOfAUserStaysThroughSplitsAndMerges has partitions as they are written now, and as versions
// wrote them that marked no cuts.
func TestACutOfAUserStaysThroughSplitsAndMerges(t *testing.T) {
	for _, c := range []struct {
		what string
		p    Partition
		want bool
	}{
		{"the only partition of a table", Partition{}, false},
		{"the first one", Partition{End: testKey(30, -1)}, false},
		{"one of before the mark that the table was made with", Partition{Start: testKey(10, -1)}, true},
		{"one of before the mark, from a split", Partition{Start: testKey(10, -1), Epoch: 1}, false},
		{"a marked one", Partition{Start: testKey(10, -1), Cut: true}, true},
		{"a marked one, from a split", Partition{Start: testKey(10, -1), Epoch: 7, Cut: true}, true},
	} {
		if c.p.UserCut() != c.want {
			t.Errorf("%s: a user's cut: %v", c.what, !c.want)
		}
		halves := c.p.Divide(testKey(20, -1), 8, 9)
		if halves[0].UserCut() != c.want || halves[1].UserCut() {
			t.Errorf("%s, split: %v and %v", c.what, halves[0].UserCut(), halves[1].UserCut())
		}
		halves[1].Cut = true
		if got := Join(halves[0], halves[1], 10); got.UserCut() != c.want {
			t.Errorf("%s, merged: a user's cut: %v", c.what, !c.want)
		}
	}
}

func TestACutIsMarkedByOneEdit(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	_, before := s.Partition(3)
	next := mustApply(t, s, &Edit{Cuts: []uint64{3}})
	_, after := next.Partition(3)
	if before.UserCut() || !after.UserCut() || image(s) == image(next) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	read, err := decodeSnapshot(appendSnapshot(nil, next), testStore)
	if err != nil || image(read) != image(next) {
		t.Errorf("read back as another state: %v", err)
	}
}
