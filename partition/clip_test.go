package partition

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

const (
	clipKeys     = 40  // partition keys of two rows each
	clipValue    = 300 // the longest value
	clipRowBound = clipValue + 100
)

func clipKey(n int) []byte { return key(fmt.Sprintf("p%02d", n/2), n%2) }

func clipBound(t testing.TB, pk int) []byte {
	b, err := row.AppendKey(nil, 2, row.String(fmt.Sprintf("p%02d", pk)))
	must(t, err)
	return b
}

// family is a tree that was divided, with what its rows should be.
type family struct {
	*rig
	rt    *rapid.T
	want  map[string]string // as read prints them, without absent rows
	whole []*manifest.FileMeta
	trees []*Tree
	cuts  [][]byte
}

// newFamily fills files of random rows at random levels of one tree, older data deeper, and divides it.
func newFamily(t *testing.T, rt *rapid.T) *family {
	f := &family{rig: newRig(t), rt: rt, want: map[string]string{}}
	f.env.Table.Compression = sstable.CompressNone
	var e manifest.Edit
	for level := bottomLevel; level >= 0; level-- {
		files := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(rt, "files")
		if level == 0 {
			files += rapid.IntRange(0, 2).Draw(rt, "more files")
		}
		var rows []int
		for i := range files {
			if level == 0 || i == 0 {
				rows = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.IntRange(0, 2*clipKeys-1), rapid.Just(true), 0, clipKeys).Draw(rt, "rows")))
			}
			part := rows
			if level > 0 {
				part = rows[i*len(rows)/files : (i+1)*len(rows)/files]
			}
			if len(part) > 0 {
				meta := f.file(part)
				e.Added = append(e.Added, manifest.Addition{Partition: 1, Level: level, File: meta})
				f.whole = append(f.whole, meta)
			}
		}
	}
	e.Flushed = []manifest.Flush{{Partition: 1, Seq: f.seq}}
	state, err := f.log.Commit(&e)
	must(t, err)
	f.tree.Close()
	f.tree = NewTree(f.env, testTable, state.Table(testTable).Partitions[0])
	pks := slices.Sorted(maps.Keys(rapid.MapOfN(rapid.IntRange(1, clipKeys-1), rapid.Just(true), 1, 3).Draw(rt, "cuts")))
	for _, pk := range pks {
		f.cuts = append(f.cuts, clipBound(t, pk))
	}
	before, anchors := stored(f.tree), anchored(t, f.tree)
	f.trees = f.divide(f.cuts...)
	for _, tree := range f.trees {
		before -= stored(tree)
		anchors -= anchored(t, tree)
	}
	if slack := int64(len(f.whole) * len(f.trees)); max(before, -before) > slack || anchors != 0 {
		rt.Errorf("the trees have %d bytes less than the one that was divided, their anchors %d", before, anchors)
	}
	return f
}

// file writes a table file of these rows; some are deleted.
func (f *family) file(rows []int) *manifest.FileMeta {
	out := newOutput(f.env, false)
	w, err := out.NewTable()
	must(f.t, err)
	for _, n := range rows {
		f.seq++
		k := clipKey(n)
		cells := []row.Cell{{Version: row.MaxVersion, Kind: row.KindDeleteRow}}
		delete(f.want, string(k))
		if rapid.IntRange(0, 4).Draw(f.rt, "put") > 0 {
			value := f.value()
			cells = []row.Cell{{Version: 1, Kind: row.KindRowMarker}, putCell("c", 1, value)}
			f.want[string(k)] = "row c@1=" + value
		}
		must(f.t, w.StartRow(k))
		for _, c := range cells {
			c.Seq = f.seq
			must(f.t, w.AddCell(&c))
		}
	}
	must(f.t, w.Finish())
	return out.metas[0]
}

// value returns a value that no other row has.
func (f *family) value() string {
	return fmt.Sprint(f.seq, strings.Repeat("x", rapid.IntRange(0, clipValue-10).Draw(f.rt, "length")))
}

// stored is the size of a tree without its memtable.
func stored(tree *Tree) int64 {
	s := tree.pin()
	defer s.unref()
	return tree.ApproximateSize() - s.mutable().table.Used()
}

// anchored is how many bytes a tree's anchors have.
func anchored(t *testing.T, tree *Tree) (total int64) {
	anchors, err := tree.Anchors(1000)
	must(t, err)
	for _, size := range anchors.All() {
		total += size
	}
	return total
}

// checkSizes compares what the trees believe of each file with the rows that it has in their ranges.
// The first key counts from the block where it may begin, and the end up to the block before, so that
// a size is wrong by at most a block at each bound, and by what blocks differ in overhead.
func (f *family) checkSizes() {
	for _, tree := range f.trees {
		for level, files := range tree.Levels() {
			for i, c := range files {
				whole := tree.Meta().Levels[level][i]
				inside, total := f.rowBytes(tree, whole)
				exact := whole.Size * inside / total
				if slack := 2*int64(256+clipRowBound) + whole.Size/10; c != whole && max(exact-c.Size, c.Size-exact) > slack {
					f.rt.Errorf("file %d has %d of its %d bytes in tree %d, and is taken for %d", c.Number, exact, whole.Size, tree.id, c.Size)
				}
				if (c.Tombstones == 0) != (whole.Tombstones == 0) || (c.Puts == 0) != (whole.Puts == 0) || c.Size == 0 {
					f.rt.Errorf("file %d is empty in tree %d: %+v", c.Number, tree.id, c)
				}
				if bytes.Compare(c.Smallest, tree.start) < 0 || tree.end != nil && bytes.Compare(c.Largest, tree.end) > 0 {
					f.rt.Errorf("file %d goes from %x to %x, tree %d from %x to %x", c.Number, c.Smallest, c.Largest, tree.id, tree.start, tree.end)
				}
				if (c != whole) == tree.Meta().Holds(whole) {
					f.rt.Errorf("file %d in tree %d: clipped %t", c.Number, tree.id, c != whole)
				}
			}
		}
	}
}

// rowBytes scans a file for the bytes of all its rows, and of those in a tree's range.
func (f *family) rowBytes(tree *Tree, meta *manifest.FileMeta) (inside, total int64) {
	file := f.env.Files.Ref(meta)
	defer file.Unref()
	r, err := file.Reader()
	must(f.t, err)
	var it sstable.Iterator
	it.Init(r, sstable.IterOptions{})
	defer it.Close()
	for ok := it.First(); ok; ok = it.NextRow() {
		it.FirstCell()
		size := int64(len(it.RowKey()) + len(it.Cell().Value) + 10)
		if total += size; tree.Contains(it.RowKey()) {
			inside += size
		}
	}
	must(f.t, it.Error())
	return inside, total
}

// checkRows compares all rows of all trees.
func (f *family) checkRows() {
	got := map[string]string{}
	for i, tree := range f.trees {
		keys, rows, err := scan(tree, row.MaxSequence, i%2 == 0)
		must(f.t, err)
		for _, k := range keys {
			if !tree.Contains([]byte(k)) {
				f.rt.Errorf("tree %d shows row %x", tree.id, k)
			}
			got[k] = rows[k]
			if one, err := get(tree, []byte(k), row.MaxSequence); err != nil || one != rows[k] {
				f.rt.Errorf("row %x is %s, in a scan %s: %v", k, one, rows[k], err)
			}
		}
	}
	if !maps.Equal(got, f.want) {
		f.rt.Fatalf("%d rows, want %d:\n%v\n%v", len(got), len(f.want), got, f.want)
	}
}

// step does something to one of the trees.
func (f *family) step() {
	tree := rapid.SampledFrom(f.trees).Draw(f.rt, "tree")
	compact := func(activity Activity) func() {
		return func() {
			_, err := tree.Compact(activity, nil)
			must(f.t, err)
		}
	}
	write := func() {
		k := clipKey(rapid.IntRange(0, 2*clipKeys-1).Draw(f.rt, "row"))
		tree := NewMap(f.trees).Find(k)
		m := &row.Mutation{Table: testTable, Key: k, DeleteRow: true}
		delete(f.want, string(k))
		if rapid.Bool().Draw(f.rt, "put") {
			value := f.value()
			m.DeleteRow, m.Cells = false, []row.Cell{putCell("c", 1, value)}
			f.want[string(k)] = "row c@1=" + value
		}
		f.apply(tree, m, 1)
	}
	steps := map[string]func(){
		"write": write,
		"flush": func() { f.flushTree(tree) },
		"busy":  compact(Busy),
		"quiet": compact(Quiet),
		"idle":  compact(Idle),
		"range": func() {
			from := rapid.IntRange(0, clipKeys).Draw(f.rt, "from")
			_, _, err := tree.CompactRange(clipBound(f.t, from), clipBound(f.t, rapid.IntRange(from, clipKeys).Draw(f.rt, "to")))
			must(f.t, err)
		},
	}
	steps[rapid.SampledFrom(slices.Sorted(maps.Keys(steps))).Draw(f.rt, "step")]()
}

func (f *family) flushTree(tree *Tree) {
	f.rotate(tree)
	_, err := tree.Flush(row.MaxSequence, settled)
	must(f.t, err)
}

// settle runs compactions of idle trees until none is due.
func (f *family) settle() {
	for _, tree := range f.trees {
		f.flushTree(tree)
		for n := 0; ; n++ {
			did, err := tree.Compact(Trimmed, nil)
			must(f.t, err)
			if !did {
				break
			}
			if n == 1000 {
				f.rt.Fatalf("compactions of tree %d do not end", tree.id)
			}
		}
	}
}

// TestTreesOfSharedFilesAreTrimmed divides a tree and lets its pieces live, until no file reaches
// beyond one of them.
func TestTreesOfSharedFilesAreTrimmed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFamily(t, rt)
		defer func() {
			for _, tree := range f.trees {
				tree.Close()
			}
		}()
		f.env.Compaction.IdleDepth = rapid.SampledFrom([]int{2, 10}).Draw(rt, "depth")
		f.checkSizes()
		f.checkRows()
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			f.step()
		}
		f.checkSizes()
		f.checkRows()
		f.settle()
		f.checkRows()
		for _, tree := range f.trees {
			if !tree.Trimmed() || tree.Levels() != &tree.Meta().Levels {
				rt.Errorf("files of tree %d still reach beyond it", tree.id)
			}
		}
		for _, meta := range f.whole {
			shared := NewMap(f.trees).Find(meta.Smallest) != NewMap(f.trees).Find(meta.Largest)
			if shared && f.log.State().File(meta.Number) != nil {
				rt.Errorf("file %d, which trees shared, is still there", meta.Number)
			}
		}
	})
}

// TestAFileThatCannotBeOpenedHasASize: the estimate falls back to a half, and a read returns the
// error.
func TestAFileThatCannotBeOpenedHasASize(t *testing.T) {
	r := newRig(t)
	for n := range 100 {
		r.put(clipKey(n%80), "c", 1, fmt.Sprint(n))
	}
	r.flush()
	whole := stored(r.tree)
	left, right := r.split(clipBound(t, 4))
	defer left.Close()
	defer right.Close()
	broken := errors.New("broken")
	r.fault.Add(vfs.Rule{Ops: vfs.OpOpen, Glob: "*.sst", Times: 2, Action: vfs.FailWith(broken)})
	if size := stored(left); size != whole/2 {
		t.Errorf("%d of %d bytes", size, whole)
	}
	if _, err := get(left, clipKey(1), row.MaxSequence); !errors.Is(err, broken) {
		t.Errorf("a read: %v", err)
	}
	if size := stored(right); size < whole*8/10 || size > whole {
		t.Errorf("%d of %d bytes, which are 36 rows of 40", size, whole)
	}
}
