package sstable

// Loading blocks ahead. An iterator that goes from block to block offers pieces of its
// work, a few blocks each, to an idle processor. A helper reads the blocks, verifies and
// decodes their heads and values, as the iterator would. When the iterator gets there,
// it takes over each block with all its memory, and goes on with the rows.
//
//	current block    piece             piece             piece
//	  [ 7 ]          [ 8 9 10 11 ]     [ 12 13 14 15 ]   [ 16 17 18 19 ]
//	                 done by a helper  a helper is at it  offered
//
// If no helper has begun a piece, the iterator takes it back and reads its blocks as
// usual. If a helper is at the piece, the iterator does another one in the meantime.
// Blocks that could not be loaded ahead are loaded when the iterator gets there. So an
// error appears at its own block, and only if the iterator gets there.
//
// The iterator looks no further ahead than it has read so far, so that little work is
// wasted where a range ends. It offers nothing while blocks come from the cache.

import (
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/assist"
)

const (
	// Sizes of pieces and look-ahead, for blocks in the page cache: a piece is 15 to 30 us of work.
	pieceBlocks = 4
	pieceBytes  = 64 << 10
	aheadBlocks = 24
	// The same for other blocks. A piece is as large as a read.
	coldBlocks = 32
	coldAhead  = 2 * coldBlocks

	maxPieces = aheadBlocks / 2
	// wakeFrom is how many consecutive blocks an iterator loads before it wakes a helper:
	// that costs as much as loading a few blocks. A helper that is awake is used from the
	// second block on.
	wakeFrom = 16
	// A block of more stored bytes is not loaded ahead. It is enough work by itself,
	// and its raw size is not known.
	maxAheadBlock = 256 << 10
)

// line is what an iterator has offered and not taken back.
type line struct {
	stream   assist.Stream
	pieces   [maxPieces]*piece // a ring, in the order of blocks
	first, n int
	next     int // number after the last block that was offered
	end      int // number after the last wanted block; 0: not known yet
	reads    int // reads of the iterator when it last looked ahead
	lending  bool
}

// piece is consecutive blocks to load ahead.
type piece struct {
	assist.Task
	loader Iterator // does the work
	from   int      // number of the first block
	blocks []loaded // number -1: not loaded
	values bool     // load the values of the blocks too
	stop   atomic.Bool
	ready  bool // it was collected
	broken bool // a panic ended it
}

// pieces keeps memory between uses. Its content makes no difference.
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

// openAll loads the values of the block: into the cache, if it has room for them, or
// else into the iterator's memory.
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

// lookAhead offers the loading of blocks after block i, which is about to be loaded. With
// values, a piece includes the values of its blocks, and otherwise only their heads.
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

// beyondWindow returns the first of the blocks [from, until) that does not begin in the
// window that the iterator has read, or until.
func (it *Iterator) beyondWindow(from, until int) int {
	for n := int64(len(it.window)); n > 0 && from < until; from++ {
		if at, _ := it.r.index.blockRange(from); at < it.from || at >= it.from+n {
			break
		}
	}
	return from
}

// wantedEnd returns the number after the last block that may hold wanted rows.
func (it *Iterator) wantedEnd() int {
	x := &it.r.index
	if it.opts.End == nil {
		return x.blocks
	}
	return x.firstBlock(max(x.search(it.opts.End), 0) + 1)
}

// pieceEnd returns the end of a piece that begins with block from, goes up to block to,
// and has at most so many bytes. It is from if that block is too large.
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

// lendPiece offers the blocks [from, to). It returns false if the offer was refused.
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
	l.opts.Memory = nil // a piece has its own memory
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

// give frees what a collected piece holds, and keeps its memory for other pieces.
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
	if p.broken { // its memory is in an unknown state
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

// doAnother does the first piece that waits for a helper. It returns false if there is none.
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

// lentFrom returns the file offset where piece n of the line begins. The iterator reads
// by itself only up to there.
func (it *Iterator) lentFrom(n int) int64 {
	a := &it.line
	if n >= a.n {
		return it.r.footer.dataLength
	}
	from, _ := it.r.index.blockRange(a.pieces[(a.first+n)%maxPieces].from)
	return from
}

// dropPiece removes the first piece of the line.
func (it *Iterator) dropPiece() {
	a := &it.line
	p := a.pieces[a.first]
	a.pieces[a.first] = nil
	a.first = (a.first + 1) % maxPieces
	a.n--
	p.give(it.r)
	it.readEnd = it.lentFrom(0)
}

// leaveLine takes back all pieces.
func (it *Iterator) leaveLine() {
	a := &it.line
	if a.next == 0 {
		return
	}
	for n := range a.n { // so that no helper begins one while Cancel waits for another
		a.pieces[(a.first+n)%maxPieces].stop.Store(true)
	}
	for a.n > 0 {
		a.stream.Cancel(&a.pieces[a.first].Task)
		it.dropPiece()
	}
	*a = line{stream: a.stream, end: a.end, reads: it.reads}
}
