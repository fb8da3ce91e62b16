package sstable

// Blocks that are loaded ahead. An iterator that goes from block to block lends
// pieces of its work, a few blocks each, to a processor that is idle: to read them,
// verify and decode heads and values, as it would itself. When it gets there it
// takes a block over with all its memory and goes on with what it does with rows.
//
//	current block    piece             piece             piece
//	  [ 7 ]          [ 8 9 10 11 ]     [ 12 13 14 15 ]   [ 16 17 18 19 ]
//	                 done by a helper  a helper is at it  offered
//
// A piece that no helper has begun is the iterator's own again, and read as if it
// had not been offered. If a helper is at the piece, the iterator does another in
// the meantime. What could not be loaded ahead, for whatever reason, is loaded when
// the iterator gets there: so an error is found where it belongs, and only if
// somebody gets there.
//
// How far ahead is bounded by how many blocks were read so far, so that little is in
// vain where a range ends; and nothing is lent while blocks come from the cache as
// they are.

import (
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/assist"
)

const (
	// Blocks in the page cache are lent by a few: 15 to 30 us of work.
	pieceBlocks = 4
	pieceBytes  = 64 << 10
	aheadBlocks = 24
	// Others in the size in which they are read.
	coldBlocks = 32
	coldAhead  = 2 * coldBlocks

	maxPieces = aheadBlocks / 2
	// wakeFrom is after how many blocks one behind the other a helper is woken: what
	// that costs is as much as to load a few. One that is awake is used from the second
	// on.
	wakeFrom = 16
	// A block of more stored bytes than that is not loaded ahead: it is enough work
	// by itself, and nobody knows how large it gets.
	maxAheadBlock = 256 << 10
)

// line is what an iterator has lent.
type line struct {
	stream   assist.Stream
	pieces   [maxPieces]*piece // a ring, in the order of blocks
	first, n int
	next     int // behind the blocks that were lent
	end      int // behind the blocks that are wanted; 0: not known yet
	reads    int // of the iterator, when it last looked ahead
	lending  bool
}

// piece is blocks to be loaded ahead, one behind the other.
type piece struct {
	assist.Task
	loader Iterator // which does it
	from   int      // number of the first block
	blocks []loaded // number -1: could not be loaded, or was not
	values bool     // those of the blocks too
	stop   atomic.Bool
	ready  bool // it was collected, as it is
	broken bool // a panic ended it
}

// pieces are kept between uses: what is in their memory makes no difference.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// Do loads the blocks: see assist.Work.
func (p *piece) Do() {
	l := &p.loader
	p.broken = true
	for i := range p.blocks {
		if p.stop.Load() {
			break
		}
		l.loaded, p.blocks[i] = p.blocks[i], l.loaded
		l.number = p.from + i
		if err := l.fetch(); err != nil {
			l.number, l.block = -1, nil
		} else if p.values {
			l.openAll()
		}
		l.loaded, p.blocks[i] = p.blocks[i], l.loaded
	}
	if l.scratch != nil {
		l.scratch.give()
		l.scratch, l.window = nil, nil
	}
	p.broken = false
}

// openAll makes the values of the loaded block be at hand: in the cache, if it has
// room for them, and else in the iterator's memory.
func (it *Iterator) openAll() {
	b, r := it.block, it.r
	k, missing := 0, false
	for ; k < b.segments; k++ {
		from, to := b.segmentRows(k)
		n := b.valuesBefore(to) - b.valuesBefore(from)
		if n == 0 || it.pin != nil && it.pin.Part(k, n) != nil {
			continue
		}
		missing = true
		if it.pin == nil || it.opts.NoCacheFill || r.mapping != nil && r.cached.Full(it.pin) || !r.cached.Wants(it.pin, n, false) {
			break
		}
		it.valuesAt = b.valuesBefore(from)
		if it.readSegment(k, n, true) != nil {
			return
		}
	}
	if missing && k < b.segments {
		it.valuesAt = 0
		if it.expandRest(0) {
			it.valueRow, it.valueRows, it.shared = 0, b.rows, false
		}
	}
}

// lookAhead lends the loading of blocks behind block i, which is about to be loaded,
// with their values or only their heads.
func (it *Iterator) lookAhead(i int, values bool) {
	a := &it.line
	if it.reads != a.reads {
		a.lending = true
	} else if a.n == 0 {
		a.lending = false // blocks come from the cache
	}
	a.reads = it.reads
	if !a.lending || it.opts.KeepStored || it.run < wakeFrom && !a.stream.Awake() {
		return
	}
	if a.end == 0 {
		a.end = it.wantedEnd()
	}
	blocks, ahead, bytes := pieceBlocks, aheadBlocks, int64(pieceBytes)
	if it.r.mapping == nil || !it.r.warmth.warm() {
		blocks, ahead, bytes = coldBlocks, coldAhead, int64(max(it.opts.ReadAhead, 1))
	}
	size := max(min((it.run+1)/2, blocks), 2)
	until := min(i+1+min(it.run+1, ahead), a.end)
	for a.n < maxPieces {
		from := it.beyondWindow(max(a.next, i+1), until)
		if from >= until || until-from < size && until < a.end {
			return
		}
		to := it.pieceEnd(from, min(from+size, until), bytes)
		if to == from || !a.stream.Willing() || !it.lendPiece(from, to, values) {
			return
		}
	}
}

// beyondWindow returns the first of the blocks from on that does not begin in what
// the iterator has read already, or until.
func (it *Iterator) beyondWindow(from, until int) int {
	for n := int64(len(it.window)); n > 0 && from < until; from++ {
		if at, _ := it.r.index.blockRange(from); at < it.from || at >= it.from+n {
			break
		}
	}
	return from
}

// wantedEnd returns the number behind the last block that may hold wanted rows.
func (it *Iterator) wantedEnd() int {
	x := &it.r.index
	if it.opts.End == nil {
		return x.blocks
	}
	return x.firstBlock(max(x.search(it.opts.End), 0) + 1)
}

// pieceEnd returns the end of a piece that begins with block from and goes up to
// block to, but not over so many bytes; it is from if that block is too large.
func (it *Iterator) pieceEnd(from, to int, bytes int64) int {
	begin, _ := it.r.index.blockRange(from)
	for i := from; i < to; i++ {
		at, end := it.r.index.blockRange(i)
		if end-at > maxAheadBlock || end-begin > bytes && i > from {
			return i
		}
	}
	return to
}

// lendPiece offers the blocks [from, to).
func (it *Iterator) lendPiece(from, to int, values bool) bool {
	a := &it.line
	p := pieces.Get().(*piece)
	p.from, p.values, p.ready = from, values, false
	p.stop.Store(false)
	for cap(p.blocks) < to-from {
		p.blocks = append(p.blocks[:cap(p.blocks)], loaded{})
	}
	p.blocks = p.blocks[:to-from]
	for i := range p.blocks {
		p.blocks[i].number = -1
	}
	l := &p.loader
	l.r, l.opts = it.r, it.opts
	l.opts.Memory = nil // a piece has its own
	l.first, l.reads, l.run, l.ahead = noScan, 0, 2, l.opts.ReadAhead
	_, l.readEnd = it.r.index.blockRange(to - 1)
	if !a.stream.Offer(&p.Task, p) {
		p.give(it.r)
		return false
	}
	a.pieces[(a.first+a.n)%maxPieces] = p
	a.n++
	a.next = to
	it.readEnd = it.lentFrom(0)
	return true
}

// give takes the memory of a piece that is collected back.
func (p *piece) give(r *Reader) {
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.pin != nil {
			r.cached.Release(b.pin)
			b.pin = nil
		}
		b.trim()
		b.block, b.values, b.valueRow, b.valueRows = nil, nil, 0, 0
	}
	if p.broken { // nobody knows what is in its memory
		if p.loader.pin != nil {
			r.cached.Release(p.loader.pin)
			p.loader.pin = nil
		}
		return
	}
	p.loader.r, p.loader.opts = nil, IterOptions{}
	pieces.Put(p)
}

// fromLine makes block i the loaded one, if it was loaded ahead.
func (it *Iterator) fromLine(i int) bool {
	a := &it.line
	p := a.pieces[a.first]
	if i >= p.from+len(p.blocks) {
		it.dropPiece()
		if a.n == 0 {
			return false
		}
		p = a.pieces[a.first]
	}
	if i < p.from {
		return false
	}
	if !p.ready {
		for p.Underway() && it.doAnother() {
		}
		helped := a.stream.Collect(&p.Task)
		p.ready = true
		if helped {
			it.reads += p.loader.reads
			a.lending = a.lending && p.loader.reads > 0
		}
	}
	b := &p.blocks[i-p.from]
	if b.number != i {
		it.readEnd = it.lentFrom(1)
		return false
	}
	it.loaded, *b = *b, it.loaded
	return true
}

// doAnother does the first piece that waits for a helper; false if there is none.
func (it *Iterator) doAnother() bool {
	a := &it.line
	for n := range a.n {
		p := a.pieces[(a.first+n)%maxPieces]
		if !p.Waiting() {
			continue
		}
		if !a.stream.Collect(&p.Task) {
			p.Do()
		}
		p.ready = true
		it.reads += p.loader.reads
		return true
	}
	return false
}

// lentFrom returns where piece n of the line begins in the file, up to which the
// iterator may read by itself.
func (it *Iterator) lentFrom(n int) int64 {
	a := &it.line
	if n >= a.n {
		return it.r.footer.dataLength
	}
	from, _ := it.r.index.blockRange(a.pieces[(a.first+n)%maxPieces].from)
	return from
}

// dropPiece gives back the first piece.
func (it *Iterator) dropPiece() {
	a := &it.line
	p := a.pieces[a.first]
	a.pieces[a.first] = nil
	a.first = (a.first + 1) % maxPieces
	a.n--
	p.give(it.r)
	it.readEnd = it.lentFrom(0)
}

// leaveLine gives up what was lent.
func (it *Iterator) leaveLine() {
	a := &it.line
	if a.next == 0 {
		return
	}
	for n := range a.n { // so that none is begun while another is waited for
		a.pieces[(a.first+n)%maxPieces].stop.Store(true)
	}
	for a.n > 0 {
		a.stream.Cancel(&a.pieces[a.first].Task)
		it.dropPiece()
	}
	*a = line{stream: a.stream, end: a.end, reads: it.reads}
}
