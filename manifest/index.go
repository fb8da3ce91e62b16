package manifest

import (
	"cmp"
	"iter"
	"slices"
)

// index is an immutable map from numbers to values. An edit copies the list of pages, and those
// pages of up to pageSpan entries that it changes, so it costs little in a store of a hundred
// thousand files. The index is made for numbers given out in ascending order, like those of files
// and partitions.
type index[V any] struct {
	pages []*page[V] // ascending by number, none empty
}

// pageSpan is how many consecutive numbers share a page.
const pageSpan = 64

type page[V any] struct {
	number  uint64 // of the page: an entry's number / pageSpan
	entries []entry[V]
	maker   *maker // the editor that made the page
}

// maker tells an editor from others. It is not the editor itself, so that no page keeps an earlier
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

// indexEditor makes the next version of an index. It copies what it changes, once.
type indexEditor[V any] struct {
	index[V]
	maker *maker
}

func (x index[V]) edit() indexEditor[V] {
	return indexEditor[V]{index: index[V]{pages: slices.Clone(x.pages)}, maker: new(maker)}
}

// writable returns the page at this place, which it copies unless this editor made it.
func (e *indexEditor[V]) writable(at int) *page[V] {
	if p := e.pages[at]; p.maker != e.maker {
		e.pages[at] = &page[V]{number: p.number, entries: slices.Clone(p.entries), maker: e.maker}
	}
	return e.pages[at]
}

// set adds or replaces the value of a number.
func (e *indexEditor[V]) set(number uint64, value V) {
	at, found := e.find(number)
	if !found {
		e.pages = slices.Insert(e.pages, at, &page[V]{number: number / pageSpan, maker: e.maker})
	}
	p := e.writable(at)
	slot, found := p.find(number)
	if !found {
		p.entries = slices.Insert(p.entries, slot, entry[V]{number: number})
	}
	p.entries[slot].value = value
}

// remove removes a number. REQUIRES: it is there.
func (e *indexEditor[V]) remove(number uint64) {
	at, _ := e.find(number)
	p := e.writable(at)
	slot, _ := p.find(number)
	p.entries = slices.Delete(p.entries, slot, slot+1)
	if len(p.entries) == 0 {
		e.pages = slices.Delete(e.pages, at, at+1)
	}
}
