package offheap

// Chunks, the spans that they are divided into, and the slots of spans. The pool's mutex guards
// all of it. The book-keeping lies outside the memory, so that a user that writes beyond its
// allocation does not corrupt it.

import (
	"fmt"
	"math/bits"
)

const (
	chunkBits = 21
	chunkSize = 1 << chunkBits
	unitBits  = 16 // of the smallest span
	unitSize  = 1 << unitBits
	units     = chunkSize / unitSize
	orders    = chunkBits - unitBits + 1

	// Size classes, eight to each doubling, waste at most an eighth.
	stepBits      = 3
	smallestClass = 6  // 64 bytes
	largestClass  = 18 // 256 KiB: eight slots to a chunk
	classes       = (largestClass-smallestClass)<<stepBits + 1
	// minSlots is the least number of slots in a span, except for powers of two (see spanOrder).
	// It weighs the memory of a rarely used class against the rest at the end of a span.
	minSlots = 8

	freeSpan  = -2 // classes of spans that hold no slots
	wholeSpan = -1
)

// classOf returns the smallest class that holds n bytes.
func classOf(n int) (class int, ok bool) {
	if n <= 1<<smallestClass {
		return 0, true
	}
	if n > 1<<largestClass {
		return 0, false
	}
	log := bits.Len(uint(n-1)) - 1 // 1<<log < n <= 2<<log
	step := 1 << (log - stepBits)
	k := (n - 1<<log + step - 1) / step // 1..8
	return (log-smallestClass)<<stepBits + k, true
}

func classSize(class int) int {
	log := class>>stepBits + smallestClass
	return 1<<log + (class&(1<<stepBits-1))<<(log-stepBits)
}

// orderOf is the order of the smallest span of at least n bytes.
func orderOf(n int) int { return bits.Len(uint(max(n, 1)-1) >> unitBits) }

func spanSize(order int) int { return unitSize << order }

type chunk struct {
	memory []byte // chunkSize bytes
	mapped []byte // to be unmapped
	spans  [units]*span
}

// span is a part of a chunk, free or in use.
type span struct {
	chunk *chunk
	unit  int // index of its first unit
	order int
	class int // or freeSpan, wholeSpan

	slots  int
	unused []uint16 // free slots
	taken  []uint64 // bits of slots in use

	at int // in its list
}

func (s *span) memory() []byte {
	from := s.unit * unitSize
	to := from + spanSize(s.order)
	return s.chunk.memory[from:to:to]
}

// spanList is a list of spans; mostly the newest is used first.
type spanList []*span

func (l *spanList) push(s *span) {
	s.at = len(*l)
	*l = append(*l, s)
}

func (l *spanList) remove(s *span) {
	last := len(*l) - 1
	(*l)[s.at], (*l)[last].at = (*l)[last], s.at
	(*l)[last] = nil
	*l = (*l)[:last]
}

// newest returns the span that is used next, or nil.
func (l spanList) newest() *span {
	if len(l) == 0 {
		return nil
	}
	return l[len(l)-1]
}

// allocSpan takes a span of the order, and divides a larger one if there is none.
func (p *Pool) allocSpan(order, class int) *span {
	at := order
	for at < orders && len(p.free[at]) == 0 {
		at++
	}
	var s *span
	if at < orders {
		s = p.free[at].newest()
		p.free[at].remove(s)
	} else {
		s = p.newChunk()
	}
	for s.order > order {
		s.order--
		buddy := &span{chunk: s.chunk, unit: s.unit + 1<<s.order, order: s.order, class: freeSpan}
		s.chunk.spans[buddy.unit] = buddy
		p.free[buddy.order].push(buddy)
	}
	s.class = class
	return s
}

// newChunk maps a chunk and returns it as one span.
func (p *Pool) newChunk() *span {
	memory, mapped := p.mapHuge(chunkSize)
	c := &chunk{memory: memory, mapped: mapped}
	p.chunks[address(memory)/chunkSize] = c
	p.mapped += chunkSize
	s := &span{chunk: c, order: orders - 1, class: freeSpan}
	c.spans[0] = s
	return s
}

// mapHuge maps size bytes aligned to a chunk, of huge pages as far as they fill some. mapped is to be
// unmapped: it has a chunk more, which takes address space but no memory.
func (p *Pool) mapHuge(size int) (memory, mapped []byte) {
	mapped = p.source.Map(size + chunkSize)
	skip := int(-address(mapped) & (chunkSize - 1))
	memory = mapped[skip : skip+size : skip+size]
	adviseHuge(memory)
	return memory, mapped
}

// freeSpan makes a span free and joins it with its buddies.
func (p *Pool) freeSpan(s *span) {
	c := s.chunk
	s.class = freeSpan
	for s.order < orders-1 {
		buddy := c.spans[s.unit^1<<s.order]
		if buddy == nil || buddy.class != freeSpan || buddy.order != s.order {
			break
		}
		p.free[buddy.order].remove(buddy)
		if buddy.unit < s.unit {
			s, buddy = buddy, s
		}
		c.spans[buddy.unit] = nil
		s.order++
	}
	p.free[s.order].push(s)
	p.trim(max(p.idle, 0))
}

// trim unmaps free chunks, large allocations first, until at most keep bytes of them are left.
func (p *Pool) trim(keep int64) {
	idle := int64(len(p.free[orders-1])) * chunkSize
	for i := range p.kept {
		idle += p.kept[i].size()
	}
	for ; len(p.kept) > 0 && idle > keep; p.unmapKept(0) {
		idle -= p.kept[0].size()
	}
	for l := &p.free[orders-1]; int64(len(*l))*chunkSize > keep; {
		s := l.newest()
		l.remove(s)
		delete(p.chunks, address(s.chunk.memory)/chunkSize)
		p.source.Unmap(s.chunk.mapped)
		p.mapped -= chunkSize
	}
}

// spanOrder is the order of spans with slots of a size. A power of two divides even the smallest
// span that holds it. Such sizes are mostly of things that grow by doubling, of which few are
// alive at once; with eight slots to a span, a single one of 256 KiB would take a whole chunk.
func spanOrder(size int) int {
	if size&(size-1) == 0 {
		return orderOf(size)
	}
	return min(orderOf(minSlots*size), orders-1)
}

func (p *Pool) allocSlot(class int) []byte {
	size := classSize(class)
	s := p.partial[class].newest()
	if s == nil {
		s = p.allocSpan(spanOrder(size), class)
		s.slots = spanSize(s.order) / size
		s.taken = make([]uint64, (s.slots+63)/64)
		s.unused = make([]uint16, s.slots)
		for i := range s.unused {
			s.unused[i] = uint16(s.slots - 1 - i) // the first slot is used first
		}
		p.partial[class].push(s)
		p.slack.Add(int64(spanSize(s.order)))
	}
	p.slack.Add(-int64(size))
	i := int(s.unused[len(s.unused)-1])
	s.unused = s.unused[:len(s.unused)-1]
	s.taken[i/64] |= 1 << (i % 64)
	if len(s.unused) == 0 {
		p.partial[class].remove(s)
	}
	return s.memory()[i*size : (i+1)*size : (i+1)*size]
}

// freeIn frees the allocation at an address of a chunk.
func (p *Pool) freeIn(c *chunk, at uintptr) {
	offset := int(at - address(c.memory))
	unit := offset / unitSize
	s := c.spans[unit]
	for s == nil || s.unit+1<<s.order <= unit {
		unit-- // a span covers every unit up to the next span
		s = c.spans[unit]
	}
	offset -= s.unit * unitSize
	switch {
	case s.class == wholeSpan && offset == 0:
		p.inUse -= int64(spanSize(s.order))
		p.freeSpan(s)
	case s.class >= 0 && offset%classSize(s.class) == 0:
		p.freeSlot(s, offset/classSize(s.class))
	default:
		panic(fmt.Sprintf("offheap: free of %#x, which is not allocated", at))
	}
}

func (p *Pool) freeSlot(s *span, i int) {
	if i >= s.slots || s.taken[i/64]&(1<<(i%64)) == 0 {
		panic(fmt.Sprintf("offheap: slot %d of a span of class %d is freed but not allocated", i, s.class))
	}
	size := classSize(s.class)
	p.inUse -= int64(size)
	p.slack.Add(int64(size))
	s.taken[i/64] &^= 1 << (i % 64)
	if len(s.unused) == 0 {
		p.partial[s.class].push(s)
	}
	s.unused = append(s.unused, uint16(i))
	if len(s.unused) == s.slots {
		p.partial[s.class].remove(s)
		p.slack.Add(-int64(spanSize(s.order)))
		s.unused, s.taken = nil, nil
		p.freeSpan(s)
	}
}
