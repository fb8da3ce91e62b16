package upkeep

import (
	"slices"
	"testing"
)

// TestP04_ASegmentThatIsWrittenWhileTreesAreLookedAtIsNeeded writes to a tree after it was read,
// and begins a new log segment, before the next tree is read.
func TestP04_ASegmentThatIsWrittenWhileTreesAreLookedAtIsNeeded(t *testing.T) {
	for _, c := range []struct {
		trees []uint64 // the oldest segment of each
		want  uint64
	}{
		{[]uint64{0, 0, 0}, 7},
		{[]uint64{0, 9, 8}, 7}, // written to since
		{[]uint64{5, 0, 6}, 5},
		{nil, 7},
	} {
		newest := uint64(7)
		got := oldestNeeded(func() uint64 { return newest }, func(yield func(uint64) bool) {
			for segment := range slices.Values(c.trees) {
				if !yield(segment) {
					return
				}
				newest++ // and the segment before holds what was written to that tree
			}
		})
		if got != c.want {
			t.Errorf("trees with %v: %d is needed, want %d", c.trees, got, c.want)
		}
	}
}
