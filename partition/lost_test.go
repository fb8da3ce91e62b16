package partition

import (
	"fmt"
	"testing"
)

// TestScansLoseOnlyToLevel0: scans lose time to the runs that a compaction would merge away, and
// none in a tree with at most one file.
func TestScansLoseOnlyToLevel0(t *testing.T) {
	r := newRig(t)
	for files := range 4 {
		before := r.tree.lost.total()
		it := r.tree.NewIterator()
		rows := 0
		for ok := it.SeekRow(nil); ok; ok = it.NextRow() {
			rows++
		}
		must(t, it.Close())
		extra := max(files-1, 0)
		if lost := int(r.tree.lost.total() - before); lost != extra*lostToSeek+min(extra, 1)*rows*lostToStep {
			t.Errorf("a scan of %d rows in %d files lost %d ns", rows, files, lost)
		}
		r.put(key("p", files), "c", 1, fmt.Sprint(files))
		r.put(key("p", 9), "c", 1, fmt.Sprint(files)) // so that the files overlap
		r.flush()
	}
}
