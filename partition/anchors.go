package partition

// Anchors: how much data lies between which keys.

import (
	"bytes"
	"iter"
	"slices"
)

// Anchors says how data is spread over the keys: each anchor has a key, which is a row key or
// the beginning of one, and the approximate number of bytes between the anchor before it (of the
// same run) and that key. The zero value is an empty list.
type Anchors struct {
	keys []byte // of anchors: one allocation has many
	list []anchor
}

type anchor struct {
	key   []byte
	bytes int64
}

// Add appends an anchor; it copies the key.
func (a *Anchors) Add(key []byte, size int64) {
	from := len(a.keys)
	a.keys = append(a.keys, key...)
	a.list = append(a.list, anchor{a.keys[from:len(a.keys):len(a.keys)], size})
}

// Append adds all anchors of b.
func (a *Anchors) Append(b *Anchors) { a.list = append(a.list, b.list...) }

// All goes through the anchors in ascending order. The keys must not be changed.
func (a *Anchors) All() iter.Seq2[[]byte, int64] {
	// Anchors of one run, or of files that do not overlap, are already in order.
	slices.SortFunc(a.list, func(x, y anchor) int { return bytes.Compare(x.key, y.key) })
	return func(yield func(key []byte, size int64) bool) {
		for _, x := range a.list {
			if !yield(x.key, x.bytes) {
				return
			}
		}
	}
}
