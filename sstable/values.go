package sstable

// Reading the values of a data block. They lie in segments, which an iterator reads when its
// rows need them: from the cache, where they are parts of the block, or from the file, into
// the cache or into its own memory.

import "encoding/binary"

// headOf returns the head of a data block with segments, as stored, and its offset in the
// block. bad is what is wrong, or "".
func headOf(stored []byte) (head []byte, at int, bad string) {
	n := len(stored) - headLengthSize
	if n < 0 {
		return nil, 0, "block shorter than the length of its head"
	}
	length := binary.LittleEndian.Uint32(stored[n:])
	if uint64(length) > uint64(n) {
		return nil, 0, "head longer than its block"
	}
	at = n - int(length)
	return stored[at:n], at, ""
}

// openValues sets values to those of the current row. On an error it returns false, and the
// iterator stays on the row.
func (it *Iterator) openValues() bool {
	if it.row >= it.valueRow && it.row < it.valueRows {
		return true
	}
	b := it.block
	it.stored.Bytes = it.stored.Bytes[:0]
	it.shared = b.segments == 0
	if b.segments == 0 {
		it.values, it.valuesAt, it.valueRow, it.valueRows = b.data[b.valuesFrom:], 0, 0, b.rows
		return true
	}
	k := b.segmentOf(it.row)
	first := b.rowEnd.before(b.data, k)
	inOrder := k > 0 && first == it.valueRows
	it.valuesAt = b.valuesBefore(first)
	if (inOrder || k == 0 && it.run > 0) && it.readRest(k) {
		it.valueRow, it.valueRows = first, b.rows
		return true
	}
	it.valueRow, it.valueRows = first, int(b.rowEnd.at(b.data, k))
	if err := it.readSegment(k, b.valuesBefore(it.valueRows)-it.valuesAt, inOrder); err != nil {
		it.err = err
		it.valueRow, it.valueRows = 0, 0
		return false
	}
	return true
}

// readRest sets values to those of the segments from k on, if one access for all is better
// than up to eight: the file is mapped, the cache has no room for them, and segment k is not
// in it. It returns false if not, or if anything is wrong with them. Then segments are read
// one by one, so that rows of a sound segment can be read.
func (it *Iterator) readRest(k int) bool {
	r, b := it.r, it.block
	if k == b.segments-1 || it.opts.KeepStored || r.mapping == nil ||
		it.pin != nil && (!r.cached.Full(it.pin) || it.pin.Part(k, 0) != nil) {
		return false
	}
	return it.expandRest(k)
}

// expandRest sets values to those of the segments from k on, in memory of the iterator. It
// returns false if they are empty or anything is wrong with them. REQUIRES: valuesAt is where
// segment k begins.
func (it *Iterator) expandRest(k int) bool {
	r, b := it.r, it.block
	last := b.segments - 1
	n := b.valuesBefore(b.rows) - it.valuesAt
	if n == 0 {
		return false
	}
	begin, _ := r.index.blockRange(it.number)
	from, to := begin+int64(b.partEnd.before(b.data, k)), begin+int64(b.partEnd.at(b.data, last))
	dst := it.ownSegment(n)
	stored, err := it.access(from, to, to)
	if err != nil {
		return false
	}
	for at, done := from, 0; k <= last; k++ {
		end := begin + int64(b.partEnd.at(b.data, k))
		length := b.valuesBefore(int(b.rowEnd.at(b.data, k))) - it.valuesAt - done
		kind, body, bad := it.splitSegment(k, stored[at-from:end-from], at, false)
		if bad == "" {
			bad = it.expandSegment(dst[done:done+length], kind, body)
		}
		if bad != "" {
			it.window = nil // the next attempt reads the file again
			return false
		}
		at, done = end, done+length
	}
	it.values = dst
	return true
}

// ownSegment returns memory of the iterator for n bytes of values.
func (it *Iterator) ownSegment(n int) []byte {
	if cap(it.segment) < n+decodeSlack {
		it.segment = make([]byte, max(n+decodeSlack, 4<<10))
	}
	return it.segment[:n]
}

// expandSegment fills dst with the values of a segment. It returns what is wrong, or "".
func (it *Iterator) expandSegment(dst []byte, kind Compression, body []byte) (bad string) {
	length, bad := partLength(kind, body)
	if bad == "" && length != len(dst) {
		bad = "segment does not have the length of its values"
	}
	if bad == "" {
		bad = it.scratch.expand(dst, kind, body)
	}
	return bad
}

// readSegment sets values to those of segment k, of n bytes. If the segment before was read
// just before (inOrder), a call also reads the segments after it.
func (it *Iterator) readSegment(k, n int, inOrder bool) error {
	if it.pin != nil && n > 0 {
		if it.values = it.pin.Part(k, n); it.values != nil {
			it.shared = true
			return nil
		}
	}
	r, b := it.r, it.block
	begin, _ := r.index.blockRange(it.number)
	from, to := begin+int64(b.partEnd.before(b.data, k)), begin+int64(b.partEnd.at(b.data, k))
	upTo := to
	if inOrder {
		upTo = begin + int64(b.partEnd.at(b.data, b.segments-1))
	}
	keep := it.pin != nil && n > 0 && !it.opts.NoCacheFill && r.cached.Wants(it.pin, n, r.mapping != nil && r.warmth.warm())
	var dst []byte
	if keep {
		dst = r.cached.NewPart(n + decodeSlack)[:n]
	} else {
		dst = it.ownSegment(n)
	}
	stored, err := it.access(from, to, upTo)
	if err == nil {
		if bad := it.takeSegment(k, dst, stored, from, keep); bad != "" {
			err = it.damaged(begin, bad)
		}
	}
	switch {
	case err != nil && keep:
		r.cached.FreePart(dst)
	case keep:
		dst = r.cached.AddPart(it.pin, k, dst)
		it.shared = true
	}
	it.values = dst
	return err
}

// splitSegment verifies segment k, as stored at an offset, and splits it. If it came through
// the mapping, was verified lately and does not go to the cache, an iterator that believes
// skips the verification.
func (it *Iterator) splitSegment(k int, stored []byte, offset int64, keep bool) (kind Compression, body []byte, bad string) {
	mapped := it.mapped && it.opts.Believe
	if mapped && !keep && it.lately>>k&1 != 0 {
		return splitStored(stored)
	}
	kind, body, bad = checkStored(stored, &it.r.footer.uniqueID, offset)
	if bad == "" && mapped {
		it.r.verified.note(it.number, k, it.began)
	}
	return kind, body, bad
}

// takeSegment fills dst with the values of stored segment k. It returns what is wrong, or "".
func (it *Iterator) takeSegment(k int, dst, stored []byte, offset int64, keep bool) (bad string) {
	kind, body, bad := it.splitSegment(k, stored, offset, keep)
	if bad == "" {
		bad = it.expandSegment(dst, kind, body)
	}
	if it.opts.KeepStored && bad == "" {
		if kind != CompressNone {
			it.stored.Tried = uint8(kind) // a file has one compression
		}
		if it.valueRows-it.valueRow == 1 {
			it.stored.Form, it.stored.Bytes = uint8(kind), append(it.stored.Bytes, body...)
		}
	}
	return bad
}
