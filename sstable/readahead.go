package sstable

// Loading blocks ahead. A block reader that goes from block to block offers pieces of its
// work, a few blocks each, to an idle processor. A helper reads the blocks, verifies and
// decodes their heads and values, as its owner would. When the owner gets there,
// it takes over each block with all its memory, and goes on with the rows.
//
//	current block    piece             piece             piece
//	  [ 7 ]          [ 8 9 10 11 ]     [ 12 13 14 15 ]   [ 16 17 18 19 ]
//	                 done by a helper  a helper is at it  offered
//
// If no helper has begun a piece, the owner takes it back and reads its blocks as
// usual. If a helper is at the piece, the owner does another one in the meantime.
// Blocks that could not be loaded ahead are loaded when the owner gets there. So an
// error appears at its own block, and only if the owner gets there.
//
// The owner looks no further ahead than it has read so far, so that little work is
// wasted where a range ends. It offers nothing while blocks come from the cache.

import (
	"slices"
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
	// wakeFrom is how many consecutive blocks a block reader loads before it wakes a helper:
	// that costs as much as loading a few blocks. A helper that is awake is used from the
	// second block on.
	wakeFrom = 16
	// A block of more stored bytes is not loaded ahead. It is enough work by itself,
	// and its raw size is not known.
	maxAheadBlock = 256 << 10
)

// readAhead is what a block reader has offered and not taken back.
type readAhead struct {
	stream   assist.Stream
	pieces   [maxPieces]*piece // the first n, in the order of blocks
	n        int
	next     int // number after the last block that was offered
	end      int // number after the last block that may hold wanted rows; 0: not known yet
	reads    int // reads of the owner when it last looked ahead
	offering bool
}

// piece is consecutive blocks to load ahead.
type piece struct {
	assist.Task
	loader blockReader // does the work
	from   int         // number of the first block
	blocks []loadedBlock
	values bool // load the values of the blocks too
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
		l.loadedBlock, p.blocks[i] = p.blocks[i], l.loadedBlock
		if err := l.fetch(p.from + i); err == nil && p.values {
			l.readAll()
		}
		l.loadedBlock, p.blocks[i] = p.blocks[i], l.loadedBlock
	}
	l.bytes.free()
	p.broken = false
}

// offer offers the loading of blocks after block i, which b is about to load. With values, a
// piece includes the values of its blocks, and otherwise only their heads.
func (a *readAhead) offer(b *blockReader, i int, values bool) {
	a.offering = b.bytes.reads != a.reads || a.offering && a.n > 0 // or else blocks come from the cache
	a.reads = b.bytes.reads
	run := b.bytes.run
	if !a.offering || b.bytes.pattern == merge || run < wakeFrom && !a.stream.Awake() {
		return
	}
	if a.end == 0 {
		a.end = b.r.index.blocks
		if end := b.opts.End; end != nil {
			a.end = b.r.index.firstBlock(max(b.r.index.search(end), 0) + 1)
		}
	}
	blocks, ahead, bytes := pieceBlocks, aheadBlocks, int64(pieceBytes)
	if b.r.mapping == nil || !b.r.residency.resident() {
		blocks, ahead, bytes = coldBlocks, coldAhead, int64(max(b.bytes.most, 1))
	}
	size := max(min((run+1)/2, blocks), 2)
	until := min(i+1+min(run+1, ahead), a.end)
	for a.n < maxPieces {
		from := b.beyondWindow(max(a.next, i+1), until)
		if from >= until || until-from < size && until < a.end {
			return
		}
		to := b.r.index.pieceEnd(from, min(from+size, until), bytes)
		if to == from || !a.stream.Willing() || !a.offerPiece(b, from, to, values) {
			return
		}
	}
}

// beyondWindow returns the first of the blocks [from, until) that does not begin in the
// window that was read last, or until.
func (b *blockReader) beyondWindow(from, until int) int {
	for from < until {
		if at, _ := b.r.index.blockRange(from); !b.bytes.inWindow(at, at+1) {
			break
		}
		from++
	}
	return from
}

// pieceEnd returns the end of a piece that begins with block from, goes up to block to,
// and has at most so many bytes. It is from if that block is too large.
func (x *index) pieceEnd(from, to int, bytes int64) int {
	begin, _ := x.blockRange(from)
	for i := from; i < to; i++ {
		at, end := x.blockRange(i)
		if end-at > maxAheadBlock || end-begin > bytes && i > from {
			return i
		}
	}
	return to
}

// offerPiece offers the blocks [from, to). It returns false if the offer was refused.
func (a *readAhead) offerPiece(b *blockReader, from, to int, values bool) bool {
	p := pieces.Get().(*piece)
	p.from, p.values, p.ready = from, values, false
	p.stop.Store(false)
	p.blocks = p.blocks[:cap(p.blocks)] // with the memory of each
	p.blocks = slices.Grow(p.blocks, max(to-from-len(p.blocks), 0))[:to-from]
	for i := range p.blocks {
		p.blocks[i].number = -1
	}
	l := &p.loader
	l.r, l.opts = b.r, b.opts
	_, end := b.r.index.blockRange(to - 1)
	l.bytes = byteReader{ // a piece has its own memory
		f: b.bytes.f, most: b.bytes.most, pattern: b.bytes.pattern, began: noScan, end: end, run: 2, ahead: b.bytes.most,
	}
	if !a.stream.Offer(&p.Task, p) {
		p.give(b.r)
		return false
	}
	a.pieces[a.n] = p
	a.n++
	a.next = to
	a.limit(b, 0)
	return true
}

// give frees what a collected piece holds, and keeps its memory for other pieces.
func (p *piece) give(r *Reader) {
	for i := range p.blocks {
		p.blocks[i].release(r)
		p.blocks[i].trim()
	}
	if p.broken { // its memory is in an unknown state
		p.loader.release(r)
		return
	}
	p.loader.r, p.loader.opts, p.loader.bytes.f = nil, IterOptions{}, nil
	pieces.Put(p)
}

// take makes block i the one that b has loaded, if it was loaded ahead.
func (a *readAhead) take(b *blockReader, i int) bool {
	if p := a.pieces[0]; i >= p.from+len(p.blocks) {
		a.drop(b)
	}
	p := a.pieces[0]
	if a.n == 0 || i < p.from {
		return false
	}
	if !p.ready {
		for p.Underway() && a.doAnother(b) {
		}
		if a.collect(b, p, false) {
			a.offering = a.offering && p.loader.bytes.reads > 0
		}
	}
	ahead := &p.blocks[i-p.from]
	if ahead.number != i {
		a.limit(b, 1)
		return false
	}
	b.loadedBlock, *ahead = *ahead, b.loadedBlock
	_, b.bytes.last = b.r.index.blockRange(i)
	return true
}

// collect takes a piece back, and reports whether a helper did it. If none did, the owner does it
// if do says so.
func (a *readAhead) collect(b *blockReader, p *piece, do bool) (helped bool) {
	if helped = a.stream.Collect(&p.Task); !helped && do {
		p.Do()
	}
	p.ready = true
	b.bytes.reads += p.loader.bytes.reads
	return helped
}

// doAnother does the first piece that waits for a helper. It returns false if there is none.
func (a *readAhead) doAnother(b *blockReader) bool {
	n := slices.IndexFunc(a.pieces[:a.n], func(p *piece) bool { return p.Waiting() })
	if n >= 0 {
		a.collect(b, a.pieces[n], true)
	}
	return n >= 0
}

// limit lets b read by itself only up to where piece n begins.
func (a *readAhead) limit(b *blockReader, n int) {
	b.bytes.end = b.r.footer.dataLength
	if n < a.n {
		b.bytes.end, _ = b.r.index.blockRange(a.pieces[n].from)
	}
}

// drop removes the first piece.
func (a *readAhead) drop(b *blockReader) {
	p := a.pieces[0]
	a.n = copy(a.pieces[:], a.pieces[1:a.n])
	p.give(b.r)
	a.limit(b, 0)
}

// leave takes back all pieces.
func (a *readAhead) leave(b *blockReader) {
	if a.next == 0 {
		return
	}
	for _, p := range a.pieces[:a.n] { // so that no helper begins one while Cancel waits for another
		p.stop.Store(true)
	}
	for a.n > 0 {
		a.stream.Cancel(&a.pieces[0].Task)
		a.drop(b)
	}
	*a = readAhead{stream: a.stream, end: a.end, reads: b.bytes.reads}
}
