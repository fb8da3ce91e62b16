package partition

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// TestScansLoseOnlyToLevel0: scans lose time to the runs that a compaction would merge away, and
// none in a tree with at most one file. A seek loses more where the table files exceed the memory.
func TestScansLoseOnlyToLevel0(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { scansLose(t, newRig(t), lostToSeek) })
	t.Run("beyond memory", func(t *testing.T) {
		r := newRig(t)
		r.limitMemory(1)
		scansLose(t, r, lostToFarSeek)
	})
}

func scansLose(t *testing.T, r *rig, toSeek int) {
	for files := range 4 {
		before := r.tree.lost.total()
		it := r.tree.NewIterator()
		rows := 0
		for ok := it.SeekRow(nil); ok; ok = it.NextRow() {
			rows++
		}
		must(t, it.Close())
		extra := max(files-1, 0)
		if lost := int(r.tree.lost.total() - before); lost != extra*toSeek+min(extra, 1)*rows*lostToStep {
			t.Errorf("a scan of %d rows in %d files lost %d ns", rows, files, lost)
		}
		r.put(key("p", files), "c", 1, fmt.Sprint(files))
		r.put(key("p", 9), "c", 1, fmt.Sprint(files)) // so that the files overlap
		r.flush()
	}
}

// TestTheReadsAloneDecideWhenATreeIsNoticed does the same gets once with one Getter and once with
// many, as a pool returns them: they pin the tree in different stripes.
func TestTheReadsAloneDecideWhenATreeIsNoticed(t *testing.T) {
	const keys, gets = 3, 40_000
	noticed := func(getters int) (at []int) {
		r := newRig(t)
		for range 2 {
			for n := range keys {
				r.put(key("p", n), "c", 1, "v")
			}
			r.flush()
		}
		several := make([]Getter, getters)
		dst := new(row.Collector)
		for i := range gets {
			g, before := &several[i%getters], r.noticed
			g.Pin(r.tree)
			dst.Reset()
			view := mvcc.View{Seq: row.MaxSequence, Cutoff: mvcc.NoExpiry}
			exists, err := g.Get(key("p", i%7%keys), view, &mvcc.Selection{}, dst, 0)
			if g.Unpin(); err != nil || !exists {
				t.Fatal(exists, err)
			}
			if r.noticed > before {
				at = append(at, i)
			}
		}
		return at
	}
	one, many := noticed(1), noticed(5)
	if len(one) < 2 || !slices.Equal(one, many) {
		t.Errorf("noticed at the gets %v with one getter, %v with several", one, many)
	}
}

// TestACompactionForReadsNeedsRoom: what is reason enough to compact level 0 where the page cache has room for
// it, and where the table files exceed the memory.
func TestACompactionForReadsNeedsRoom(t *testing.T) {
	const room, crowded = 1 << 30, 1
	for _, c := range []struct {
		memory   int64
		activity Activity
		lost     int // nanoseconds for each byte of level 0
		want     bool
	}{
		{room, Quiet, 0, false}, {room, Quiet, 1, true}, {room, Idle, 0, true}, {room, Unread, 0, true},
		{crowded, Quiet, 1, false}, {crowded, Quiet, 26, true}, {crowded, Idle, 1, false}, {crowded, Idle, 26, true},
		{crowded, Unread, 0, true}, {crowded, Unread, 1, true}, // reads lost something before
	} {
		r := newRig(t)
		r.limitMemory(c.memory)
		for n := range 2 {
			r.put(key("p", n), "c", 1, "v")
			r.put(key("p", 9), "c", 1, "v")
			r.flush()
		}
		r.tree.lose(0, c.lost*int(totalSize(r.tree.Meta().Levels[0])))
		if did, err := r.tree.Compact(c.activity, nil); did != c.want || err != nil {
			t.Errorf("%+v: compacted %t, %v", c, did, err)
		}
	}
}

// limitMemory lets the rig's machine have so much memory. REQUIRES: there are no table files yet.
func (r *rig) limitMemory(memory int64) {
	r.env.Files = tablefiles.New(machine{r.fault, memory}, testDir, tablefiles.Options{Access: tablefiles.AccessDirect}, r)
}

// machine is a file system on a machine of so much memory.
type machine struct {
	vfs.FS
	memory int64
}

func (m machine) Memory() int64 { return m.memory }
