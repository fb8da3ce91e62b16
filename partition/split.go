package partition

import (
	"bytes"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// Anchor says that about Bytes bytes of a tree lie between the anchor before it
// (in the same run) and Key, which is a row key or the beginning of one.
type Anchor struct {
	Key   []byte
	Bytes int64
}

// AnchorShare is how many anchors of a run there are in a piece of the size that
// the caller of Anchors has in mind.
const AnchorShare = 16

// Anchors describes how the tree's data is spread over its keys, from the
// indexes of its table files and from estimates of its memtables: no data block
// is read. The anchors of all runs come in ascending order; table files count
// with their stored, compressed size. Anchors of one table file are apart bytes
// or one block from each other, whichever is more, so that what this costs
// depends on the number of pieces and files, not on the size of the data.
func (t *Tree) Anchors(apart int64) ([]Anchor, error) {
	s := t.pin()
	defer s.unref()
	var anchors []Anchor
	for _, m := range s.memories {
		anchors = append(anchors, memoryAnchors(m, apart)...)
	}
	for _, level := range s.version.levels {
		for _, f := range level {
			found, err := fileAnchors(f, apart)
			if err != nil {
				return nil, err
			}
			anchors = append(anchors, found...)
		}
	}
	anchors = slices.DeleteFunc(anchors, func(a Anchor) bool { return !t.Contains(a.Key) })
	slices.SortFunc(anchors, func(a, b Anchor) int { return bytes.Compare(a.Key, b.Key) })
	return anchors, nil
}

// fileAnchors returns anchors that are at least apart bytes from each other.
func fileAnchors(f *tableFile, apart int64) (anchors []Anchor, err error) {
	r, err := f.reader()
	if err != nil {
		return nil, err
	}
	var before int64
	var keys []byte // of the anchors: when it moves, they keep what they have
	r.WalkIndex(apart, func(key []byte, offset int64) bool {
		from := len(keys)
		keys = append(keys, key...)
		anchors = append(anchors, Anchor{keys[from:len(keys):len(keys)], offset - before})
		before = offset
		return true
	})
	return append(anchors, Anchor{f.meta.Largest, r.DataSize() - before}), nil
}

// memoryAnchors returns anchors that are about apart bytes from each other, at
// random. A memtable does not know how large its rows are, only how large they
// are on average.
func memoryAnchors(m *memory, apart int64) (anchors []Anchor) {
	rows := int64(m.table.Rows())
	if rows == 0 {
		return nil
	}
	used := m.table.Used()
	m.table.Sample(apart/max(used/rows, 1), func(key []byte) {
		anchors = append(anchors, Anchor{Key: bytes.Clone(key)}) // the caller keeps it longer than the memtable
	})
	for i := range anchors {
		anchors[i].Bytes = used / int64(len(anchors))
	}
	return anchors
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

// CutPoints returns the partition-key values that divide ascending anchors into
// pieces of about pieceBytes, at most limit of them. A piece ends at the first
// anchor at which it is large enough, at a boundary between partition keys; so
// it is too large by at most one anchor of each run, and by one partition key.
func CutPoints(anchors []Anchor, columns int, pieceBytes int64, limit int) (points []row.Value) {
	var size int64
	var last []byte // encoding of the newest point
	for _, a := range anchors {
		if size >= pieceBytes && len(points) < limit {
			v, ok := row.PartitionValueAt(a.Key, columns)
			encoded, err := row.AppendKey(nil, columns, v)
			if ok && err == nil && bytes.Compare(encoded, last) > 0 {
				points = append(points, v)
				last, size = encoded, 0
			}
		}
		size += a.Bytes
	}
	return points
}
