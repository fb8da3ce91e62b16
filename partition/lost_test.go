package partition

import (
	"fmt"
	"testing"
)

// TestScansLoseOnlyToLevel0: to the runs that would not be there if it were merged,
// and so nothing in a tree without files, or with one.
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
		r.put(key("p", 9), "c", 1, fmt.Sprint(files)) // so that the files lie over each other
		r.flush()
	}
}
