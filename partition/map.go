package partition

import (
	"bytes"
	"slices"
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

// Below returns the partition that holds the keys directly below key; nil is unbounded.
func (m *Map) Below(key []byte) *Tree {
	if key == nil {
		return m.trees[len(m.trees)-1]
	}
	return m.trees[max(m.from(key)-1, 0)]
}

// from returns the position of the first partition that starts at or above key.
func (m *Map) from(key []byte) int {
	return sort.Search(len(m.trees), func(i int) bool { return bytes.Compare(m.trees[i].start, key) >= 0 })
}

// With returns a map in which made replaces the neighbouring trees old.
func (m *Map) With(old, made []*Tree) *Map {
	at := slices.Index(m.trees, old[0])
	return NewMap(slices.Concat(m.trees[:at], made, m.trees[at+len(old):]))
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
		to = m.from(end)
	}
	return m.trees[from:max(to, from)]
}
