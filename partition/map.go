package partition

import (
	"bytes"
	"sort"
)

// Map is the ordered set of partitions of one table. Their ranges cover the key space exactly
// once. It is immutable; a split or a merge of partitions makes a new one.
type Map struct {
	trees []*Tree // ascending by start
}

// NewMap makes a map of trees, given in ascending order.
func NewMap(trees []*Tree) *Map { return &Map{trees: trees} }

// Trees returns the partitions in ascending order. The slice is shared.
func (m *Map) Trees() []*Tree { return m.trees }

// Find returns the partition that holds the key.
func (m *Map) Find(key []byte) *Tree {
	if len(m.trees) == 1 {
		return m.trees[0]
	}
	return m.trees[m.index(key)]
}

// index returns the position of the last partition that starts at or below key.
func (m *Map) index(key []byte) int {
	return sort.Search(len(m.trees), func(i int) bool {
		return bytes.Compare(m.trees[i].start, key) > 0
	}) - 1
}

// Between returns the partitions that overlap [start, end), ascending; a nil
// end is unbounded.
func (m *Map) Between(start, end []byte) []*Tree {
	from := m.index(start)
	to := len(m.trees)
	if end != nil {
		to = sort.Search(len(m.trees), func(i int) bool {
			return bytes.Compare(m.trees[i].start, end) >= 0
		})
	}
	return m.trees[from:max(to, from)]
}
