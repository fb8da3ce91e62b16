package manifest

import (
	"cmp"
	"iter"
	"slices"
)

// index is a map from numbers to values. A State's is immutable; set and remove change one that
// edit has made. An edit copies the list of pages, and those pages of up to pageSpan entries that it
// changes, so it costs little in a store of a hundred thousand files. The index is made for numbers
// given out in ascending order, like those of files and partitions.
type index[V any] struct {
	pages []*page[V] // ascending by number, none empty
	maker *maker     // of the pages that may be changed
}

// pageSpan is how many consecutive numbers share a page.
const pageSpan = 64

type page[V any] struct {
	number  uint64 // of the page: an entry's number / pageSpan
	entries []entry[V]
	maker   *maker // of the index for which the page was made
}

// maker tells an index from others. It is not the index itself, so that no page keeps an earlier
// version of its index in memory.
type maker struct{ _ byte }

type entry[V any] struct {
	number uint64
	value  V
}

func (x *index[V]) find(number uint64) (at int, found bool) {
	return slices.BinarySearchFunc(x.pages, number/pageSpan, func(p *page[V], n uint64) int {
		return cmp.Compare(p.number, n)
	})
}

func (p *page[V]) find(number uint64) (slot int, found bool) {
	return slices.BinarySearchFunc(p.entries, number, func(e entry[V], n uint64) int {
		return cmp.Compare(e.number, n)
	})
}

// get returns the value of a number.
func (x *index[V]) get(number uint64) (value V, ok bool) {
	if at, found := x.find(number); found {
		if slot, found := x.pages[at].find(number); found {
			return x.pages[at].entries[slot].value, true
		}
	}
	return value, false
}

// all walks the values in ascending order of their numbers.
func (x *index[V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, p := range x.pages {
			for _, e := range p.entries {
				if !yield(e.value) {
					return
				}
			}
		}
	}
}

// edit returns a copy that may be changed.
func (x *index[V]) edit() index[V] { return index[V]{pages: slices.Clone(x.pages), maker: new(maker)} }

// writable returns the page at this place, which it copies unless it was made for this index.
func (x *index[V]) writable(at int) *page[V] {
	if p := x.pages[at]; p.maker != x.maker {
		x.pages[at] = &page[V]{number: p.number, entries: slices.Clone(p.entries), maker: x.maker}
	}
	return x.pages[at]
}

// set adds or replaces the value of a number.
func (x *index[V]) set(number uint64, value V) {
	at, found := x.find(number)
	if !found {
		x.pages = slices.Insert(x.pages, at, &page[V]{number: number / pageSpan, maker: x.maker})
	}
	p := x.writable(at)
	slot, found := p.find(number)
	if !found {
		p.entries = slices.Insert(p.entries, slot, entry[V]{number: number})
	}
	p.entries[slot].value = value
}

// remove removes a number. REQUIRES: it is there.
func (x *index[V]) remove(number uint64) {
	at, _ := x.find(number)
	p := x.writable(at)
	slot, _ := p.find(number)
	p.entries = slices.Delete(p.entries, slot, slot+1)
	if len(p.entries) == 0 {
		x.pages = slices.Delete(x.pages, at, at+1)
	}
}
