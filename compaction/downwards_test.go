package compaction_test

import (
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
)

func TestDownwardsLeavesNothingOlderBehind(t *testing.T) {
	var levels compaction.Levels
	levels[0] = []*manifest.FileMeta{file(1, "a", "d"), file(2, "c", "f"), file(3, "p", "r")}
	levels[4] = []*manifest.FileMeta{file(4, "e", "h"), file(5, "i", "k"), file(6, "s", "z")}
	levels[6] = []*manifest.FileMeta{file(7, "a", "b"), file(8, "g", "m"), file(9, "n", "o"), file(10, "t", "u")}
	for _, c := range []struct{ start, end, want string }{
		{"a", "b", "[1 2 4] [7 8]"}, // 2 overlaps 1, 4 overlaps 2, 8 overlaps 4
		{"i", "j", "[5] [8]"},
		{"n", "o", "nothing"}, // only in the last level
		{"q", "q0", "[3] []"},
		{"l", "", "[3 6] [8 9 10]"},
		{"", "", "[1 2 3 4 5 6] [7 8 9 10]"},
	} {
		var end []byte
		if c.end != "" {
			end = []byte(c.end)
		}
		got := "nothing"
		if d := compaction.Downwards(&levels, []byte(c.start), end); d != nil {
			var ups, lows []uint64
			for _, files := range d.Inputs[:manifest.NumLevels-1] {
				for _, f := range files {
					ups = append(ups, f.Number)
				}
			}
			for _, f := range d.Lower {
				lows = append(lows, f.Number)
			}
			got = fmt.Sprint(ups, " ", lows)
		}
		if got != c.want {
			t.Errorf("from %q to %q: %s, want %s", c.start, c.end, got, c.want)
		}
	}
}
