package partition

import (
	"bytes"
	"slices"
)

// Map is the ordered set of partitions of one table. Their ranges cover the key space exactly
// once. It is immutable; a split or a merge of partitions makes a new one.
type Map struct {
	trees  []*Tree  // ascending by start
	starts [][]byte // of the trees, side by side: a search touches few cache lines
}

// NewMap makes a map of trees, given in ascending order.
func NewMap(trees []*Tree) *Map {
	m := &Map{trees: trees, starts: make([][]byte, len(trees))}
	var all []byte
	for _, t := range trees {
		all = append(all, t.start...)
	}
	for i, t := range trees {
		m.starts[i], all = all[:len(t.start)], all[len(t.start):]
	}
	return m
}

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
	i, _ := slices.BinarySearchFunc(m.starts, key, bytes.Compare)
	return i
}

// With returns a map in which made replaces the neighbouring trees old.
func (m *Map) With(old, made []*Tree) *Map {
	at := slices.Index(m.trees, old[0])
	return NewMap(slices.Concat(m.trees[:at], made, m.trees[at+len(old):]))
}

// index returns the position of the last partition that starts at or below key.
func (m *Map) index(key []byte) int {
	i, found := slices.BinarySearchFunc(m.starts, key, bytes.Compare)
	if found {
		return i
	}
	return i - 1
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
