package compaction_test

import (
	"math"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// valuesInput has two table files of 100 bytes in the last level, which refer to value files 10
// and 11 of 1000 bytes.
func valuesInput(live10, live11 uint64, first, second []manifest.ValueUse) compaction.Input {
	file := func(number uint64, smallest, largest string, uses []manifest.ValueUse) *manifest.FileMeta {
		return &manifest.FileMeta{
			Number: number, Size: 100, Smallest: []byte(smallest), Largest: []byte(largest), Rows: 10, Cells: 20, Puts: 10,
			MinVersion: 1, MaxVersion: 2, Values: uses,
		}
	}
	var levels compaction.Levels
	levels[6] = []*manifest.FileMeta{file(1, "a", "c", first), file(2, "d", "f", second)}
	usage := map[uint64]manifest.ValueUsage{
		10: {ValueFile: &manifest.ValueFile{Number: 10, Bytes: 1000}, Live: live10},
		11: {ValueFile: &manifest.ValueFile{Number: 11, Bytes: 1000}, Live: live11},
	}
	return compaction.Input{
		Levels: &levels,
		Policy: mvcc.Policy{
			ExpiryCutoff: mvcc.NoExpiry, Views: []mvcc.View{{Seq: row.MaxSequence, Cutoff: math.MaxInt64}},
		},
		Values: func(number uint64) (manifest.ValueUsage, bool) {
			u, ok := usage[number]
			return u, ok
		},
	}
}

func TestGarbageInValueFilesIsPicked(t *testing.T) {
	use := func(file, bytes uint64) []manifest.ValueUse {
		return []manifest.ValueUse{{File: file, Values: 1, Bytes: bytes}}
	}
	for _, c := range []struct {
		what   string
		in     compaction.Input
		picked uint64 // 0: nothing
	}{
		{"nothing is garbage", valuesInput(1000, 1000, use(10, 1000), use(11, 1000)), 0},
		{"less than half is", valuesInput(501, 1000, use(10, 501), use(11, 1000)), 0},
		{"half is", valuesInput(500, 1000, use(10, 500), use(11, 1000)), 1},
		{"more of the second", valuesInput(400, 100, use(10, 400), use(11, 100)), 2},
		{"two share a file", valuesInput(300, 1000, use(10, 100), use(10, 200)), 2},
		{"so little of it is the file's that its rewrite costs more than it frees", valuesInput(500, 1000, use(10, 20), use(11, 1000)), 0},
	} {
		got := compaction.Pick(c.in)
		switch {
		case c.picked == 0 && got != nil:
			t.Errorf("%s: picked %+v", c.what, got)
		case c.picked == 0:
		case got == nil || len(got.Upper) != 1 || got.Upper[0].Number != c.picked || got.Reason != compaction.ReasonReclaim ||
			got.Level != 6 || got.OutputLevel != 6 || got.Move || got.Drop:
			t.Errorf("%s: picked %+v, want file %d", c.what, got, c.picked)
		default:
			c.in.Running = []*compaction.Candidate{got}
			if again := compaction.Pick(c.in); again != nil && again.Upper[0].Number == c.picked {
				t.Errorf("%s: picked twice", c.what)
			}
		}
	}
}

// TestLargeValuesFillLevel0: level 0 is compacted after as many flushed bytes as without value
// files, so that overwritten values return their space.
func TestLargeValuesFillLevel0(t *testing.T) {
	in := valuesInput(1000, 1000, nil, nil)
	f := *in.Levels[6][0]
	f.Number = 3
	in.Levels[0] = []*manifest.FileMeta{&f}
	in.Config = compaction.Config{L0Size: 1000}
	if got := compaction.Pick(in); got != nil {
		t.Fatalf("a small file: picked %+v", got)
	}
	f.Values = []manifest.ValueUse{{File: 10, Values: 9, Bytes: 900}}
	if got := compaction.Pick(in); got == nil || got.Reason != compaction.ReasonL0 {
		t.Fatalf("a small file that refers to much: picked %+v", got)
	}
}

func TestAValueFileIsStaleFromHalfGarbageOn(t *testing.T) {
	for live, want := range map[uint64]bool{0: true, 50: true, 51: false, 100: false, 150: false} {
		u := manifest.ValueUsage{ValueFile: &manifest.ValueFile{Bytes: 100}, Live: live}
		if got := compaction.StaleValues(u); got != want {
			t.Errorf("%d of 100 bytes alive: stale %t", live, got)
		}
	}
}
