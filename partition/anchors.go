package partition

// Anchors: how much data lies between which keys.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
)

// Anchors says how data is spread over the keys: each anchor has a key, which is a row key or
// the beginning of one, and the approximate number of bytes between the anchor before it (of the
// same run) and that key. The zero value is an empty list.
//
// Every request for split points makes lists of some thousand anchors and throws them away. So
// the lists hold no pointers for the garbage collector: the keys stand in one buffer, and most
// comparisons need only the eight bytes of the key that stand beside the size.
type Anchors struct {
	keys     []byte
	list     []anchor
	unsorted bool
}

// anchor is one entry of a list; its key is a piece of the list's buffer.
type anchor struct {
	head     uint64 // the key's first eight bytes, big endian, with zeros after its end
	from, to int
	bytes    int64
}

// Add appends an anchor; it copies the key.
func (a *Anchors) Add(key []byte, size int64) {
	var head [8]byte
	copy(head[:], key)
	from := len(a.keys)
	a.keys = append(a.keys, key...)
	added := anchor{binary.BigEndian.Uint64(head[:]), from, len(a.keys), size}
	if n := len(a.list); n > 0 && !a.unsorted {
		a.unsorted = a.compare(a.list[n-1], added) > 0
	}
	a.list = append(a.list, added)
}

// Append adds all anchors of b.
func (a *Anchors) Append(b *Anchors) {
	if len(a.list) == 0 {
		*a = *b
		return
	}
	for _, x := range b.list {
		a.Add(b.key(x), x.bytes)
	}
}

// All goes through the anchors in ascending order. The keys must not be changed.
func (a *Anchors) All() iter.Seq2[[]byte, int64] {
	a.sort()
	return func(yield func(key []byte, size int64) bool) {
		for _, x := range a.list {
			if !yield(a.key(x), x.bytes) {
				return
			}
		}
	}
}

func (a *Anchors) key(x anchor) []byte { return a.keys[x.from:x.to:x.to] }

func (a *Anchors) compare(x, y anchor) int {
	if c := cmp.Compare(x.head, y.head); c != 0 {
		return c
	}
	return bytes.Compare(a.key(x), a.key(y))
}

// sort puts the anchors of several runs into one order. Anchors of one run, or of files that do
// not overlap, are already in order.
func (a *Anchors) sort() {
	if a.unsorted {
		slices.SortFunc(a.list, a.compare)
		a.unsorted = false
	}
}

// grow makes room for n more anchors with keys of about keyBytes each.
func (a *Anchors) grow(n, keyBytes int) {
	a.list = slices.Grow(a.list, n)
	a.keys = slices.Grow(a.keys, n*keyBytes)
}
