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

// Anchors describes how the tree's data is spread over its keys, from the
// indexes of its table files and from estimates of its memtables: no data block
// is read. The anchors of all runs come in ascending order; table files count
// with their stored, compressed size.
func (t *Tree) Anchors() ([]Anchor, error) {
	s := t.pin()
	defer s.unref()
	var anchors []Anchor
	for _, m := range s.memories {
		anchors = append(anchors, memoryAnchors(m)...)
	}
	for _, level := range s.version.levels {
		for _, f := range level {
			found, err := fileAnchors(f, 0)
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

// A memtable does not know how large its rows are, only how large they are on
// average. Up to maxAnchorRows of them share an anchor, fewer if it has few.
const (
	maxAnchorRows = 16
	fewAnchors    = 256
)

func memoryAnchors(m *memory) (anchors []Anchor) {
	rows := int64(m.table.Rows())
	if rows == 0 {
		return nil
	}
	perRow := max(m.table.Used()/rows, 1)
	share := min(max(rows/fewAnchors, 1), maxAnchorRows)
	it := m.table.NewIterator()
	defer it.Close()
	since := int64(0) // rows since the last anchor
	for ok := it.First(); ok; ok = it.NextRow() {
		if since++; since == share {
			anchors = append(anchors, Anchor{bytes.Clone(it.RowKey()), perRow * since})
			since = 0
		}
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
