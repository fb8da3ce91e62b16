package partition

import (
	"bytes"

	"github.com/flagstone-db/flagstone/row"
)

// AnchorShare is how many anchors of a run there are in a piece of the size that
// the caller of Anchors has in mind.
const AnchorShare = 16

// Anchors describes how the tree's data is spread over its keys, from the
// indexes of its table files and from estimates of its memtables: no data block
// is read. Table files count with their stored, compressed size. Anchors of one
// table file are apart bytes or one block from each other, whichever is more, so
// that what this costs depends on the number of pieces and files, not on the
// size of the data.
func (t *Tree) Anchors(apart int64) (*Anchors, error) {
	s := t.pin()
	defer s.unref()
	found := new(Anchors)
	count, keyBytes := 0, 0
	for _, level := range s.version.levels {
		for _, f := range level {
			count += int(f.meta.Size/max(apart, 1)) + 2
			keyBytes = max(keyBytes, min(len(f.meta.Largest), 64))
		}
	}
	found.grow(min(count, maxAnchorsAhead), keyBytes)
	for _, m := range s.memories {
		t.addMemory(found, m, apart)
	}
	for _, level := range s.version.levels {
		for _, f := range level {
			if err := t.addFile(found, f, apart); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// maxAnchorsAhead bounds the anchors that room is made for at once.
const maxAnchorsAhead = 1 << 12

// addFile adds anchors that are at least apart bytes from each other.
func (t *Tree) addFile(to *Anchors, f *tableFile, apart int64) error {
	r, err := f.reader()
	if err != nil {
		return err
	}
	var before int64
	r.WalkIndex(apart, func(key []byte, offset int64) bool {
		t.add(to, key, offset-before)
		before = offset
		return true
	})
	t.add(to, f.meta.Largest, r.DataSize()-before)
	return nil
}

// add adds an anchor if it is the tree's: files of a tree that was divided can
// reach beyond it.
func (t *Tree) add(to *Anchors, key []byte, size int64) {
	if t.Contains(key) {
		to.Add(key, size)
	}
}

// addMemory adds anchors that are about apart bytes from each other, at random. A
// memtable does not know how large its rows are, only how large they are on
// average.
func (t *Tree) addMemory(to *Anchors, m *memory, apart int64) {
	rows := int64(m.table.Rows())
	if rows == 0 {
		return
	}
	used := m.table.Used()
	first := len(to.list)
	m.table.Sample(apart/max(used/rows, 1), func(key []byte) {
		t.add(to, key, 0)
	})
	sampled := to.list[first:]
	for i := range sampled {
		sampled[i].bytes = used / int64(len(sampled))
	}
}

// ApproximateSize is about how many bytes the tree holds, in memory and on
// disk.
func (t *Tree) ApproximateSize() (size int64) {
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories {
		size += m.table.Used()
	}
	for _, level := range s.version.meta.Levels {
		for _, f := range level {
			size += f.Size
			for _, use := range f.Values {
				size += int64(use.Bytes)
			}
		}
	}
	return size
}

// CutPoints returns the partition-key values that divide anchors into pieces of about pieceBytes, at most limit of them. A piece ends at the first
// anchor at which it is large enough, at a boundary between partition keys; so
// it is too large by at most one anchor of each run, and by one partition key.
func CutPoints(anchors *Anchors, columns int, pieceBytes int64, limit int) (points []row.Value) {
	var size int64
	var last, next []byte // encodings of the newest point and of one that may follow
	for key, bytesBefore := range anchors.All() {
		if size >= pieceBytes && len(points) < limit {
			if v, ok := row.PartitionValueAt(key, columns); ok {
				encoded, err := row.AppendKey(next[:0], columns, v)
				if err == nil && bytes.Compare(encoded, last) > 0 {
					points = append(points, v)
					next, last, size = last, encoded, 0
				}
			}
		}
		size += bytesBefore
	}
	return points
}
