package sstable

// Reading the values of a data block. They lie in segments, which a block reader reads when
// rows need them: from the cache, where they are parts of the block, or from the file, into
// the cache or into its own memory.

import "encoding/binary"

// headLength is the length of a head, from the bytes that end its block.
func headLength(end []byte) uint32 { return binary.LittleEndian.Uint32(end) }

// headOf returns the head of a data block with segments, as stored, and its offset in the
// block. bad is what is wrong, or "".
func headOf(stored []byte) (head []byte, at int, bad string) {
	n := len(stored) - headLengthSize
	if n < 0 {
		return nil, 0, "block shorter than the length of its head"
	}
	length := headLength(stored[n:])
	if uint64(length) > uint64(n) {
		return nil, 0, "head longer than its block"
	}
	at = n - int(length)
	return stored[at:n], at, ""
}

// openValues sets values to those of a row, and mostly of rows near it. After an error there
// are none, and the block stays loaded.
func (b *blockReader) openValues(row int) error {
	d := b.block
	b.stored.Bytes = b.stored.Bytes[:0]
	b.shared = d.segments == 0
	if d.segments == 0 {
		b.values, b.valuesAt, b.valueRow, b.valueRows = d.data[d.valuesFrom:], 0, 0, d.rows
		return nil
	}
	k := d.segmentOf(row)
	first, end := d.segmentRows(k)
	inOrder := k > 0 && first == b.valueRows
	b.valuesAt = d.valuesBefore(first)
	n := d.valuesBefore(end) - b.valuesAt
	if b.pin != nil && n > 0 {
		if values := b.pin.Part(k, n); values != nil {
			b.values, b.valueRow, b.valueRows, b.shared = values, first, end, true
			return nil
		}
	}
	if (inOrder || k == 0 && b.bytes.run > 0) && b.readsRest(k) && b.readRest(k) {
		return nil
	}
	last := k // a segment that was read right after the one before is read with those after it
	if inOrder {
		last = d.segments - 1
	}
	b.valueRow, b.valueRows = first, end
	err := b.readSegment(k, n, last, b.keeps(n))
	if err != nil {
		b.valueRow, b.valueRows = 0, 0
	}
	return err
}

// keeps reports whether n bytes of values go to the cache when they are read.
func (b *blockReader) keeps(n int) bool {
	f := b.r
	return b.pin != nil && n > 0 && b.bytes.pattern != merge &&
		f.cached.Wants(b.pin, n, f.mapping != nil && f.residency.resident())
}

// readsRest reports whether to read the segments from k on by one access, which is better than
// up to eight: the file is mapped, and the cache has no room for them.
func (b *blockReader) readsRest(k int) bool {
	return k < b.block.segments-1 && b.bytes.pattern != merge && b.r.mapping != nil &&
		(b.pin == nil || b.r.cached.Full(b.pin))
}

// readRest sets values to those of the segments from k on, in memory of the reader. It returns
// false if they are empty or anything is wrong with them. Then segments are read one by one,
// so that rows of a sound segment can be read.
func (b *blockReader) readRest(k int) bool {
	d := b.block
	first, _ := d.segmentRows(k)
	at := d.valuesBefore(first)
	n := d.valuesBefore(d.rows) - at
	if n == 0 {
		return false
	}
	dst := b.ownValues(n)
	if b.readSegments(k, d.segments-1, d.segments-1, dst, false) != nil {
		return false
	}
	b.values, b.valuesAt, b.valueRow, b.valueRows, b.shared = dst, at, first, d.rows, false
	return true
}

// readSegment sets values to those of segment k, of n bytes, and keeps them in the cache if keep
// says so. A call of the file also reads the segments up to the last.
func (b *blockReader) readSegment(k, n, last int, keep bool) error {
	if !keep {
		b.values = b.ownValues(n)
		return b.readSegments(k, k, last, b.values, false)
	}
	c := b.r.cached
	dst := c.NewPart(n + decodeSlack)[:n]
	if err := b.readSegments(k, k, last, dst, true); err != nil {
		c.FreePart(dst)
		return err
	}
	b.values, b.shared = c.AddPart(b.pin, k, dst), true
	return nil
}

// readAll sets values to those of all rows that are not in the cache, for the owner of another
// reader: it adds them to the cache if that has room for them.
func (b *blockReader) readAll() {
	for k := range b.block.segments {
		n := b.block.segmentLength(k)
		if n == 0 || b.pin != nil && b.pin.Part(k, n) != nil {
			continue
		}
		if !b.keeps(n) || b.r.mapping != nil && b.r.cached.Full(b.pin) {
			b.readRest(0)
			return
		}
		if b.readSegment(k, n, k, true) != nil {
			return
		}
	}
}

// ownValues returns memory of the reader for n bytes of values.
func (b *blockReader) ownValues(n int) []byte {
	if cap(b.segment) < n+decodeSlack {
		b.segment = make([]byte, max(n+decodeSlack, 4<<10))
	}
	return b.segment[:n]
}

// readSegments fills dst with the values of the segments k to end. A call of the file also reads
// the segments up to the last. keep says that dst goes to the cache.
func (b *blockReader) readSegments(k, end, last int, dst []byte, keep bool) error {
	d := b.block
	begin, _ := b.r.index.blockRange(b.number)
	ends := func(k int) int64 { return begin + int64(d.partEnd.at(d.data, k)) }
	from := begin + int64(d.partEnd.before(d.data, k))
	if b.opts.Believe {
		b.began = b.r.verified.now()
		b.lately = b.r.verified.lately(b.number, b.began)
	}
	stored, err := b.bytes.read(from, ends(end), ends(last))
	if err != nil {
		return err
	}
	for at := from; k <= end; k++ {
		to, n := ends(k), len(dst) // the last one takes the rest
		if k < end {
			n = d.segmentLength(k)
		}
		kind, body, bad := b.split(k, stored[at-from:to-from], at, keep)
		if bad == "" {
			bad = b.expand(dst[:n], kind, body)
		}
		if bad != "" {
			return b.bytes.damaged(begin, bad)
		}
		at, dst = to, dst[n:]
	}
	return nil
}

// split verifies segment k, as stored at an offset, and splits it. If it came through the
// mapping, was verified lately and does not go to the cache, a reader that believes skips the
// verification.
func (b *blockReader) split(k int, stored []byte, offset int64, keep bool) (kind Compression, body []byte, bad string) {
	believes := b.opts.Believe && b.bytes.mapped
	if believes && !keep && b.lately>>k&1 != 0 {
		return splitStored(stored)
	}
	kind, body, bad = checkStored(stored, &b.r.footer.uniqueID, offset)
	if bad == "" && believes {
		b.r.verified.note(b.number, k, b.began)
	}
	return kind, body, bad
}

// expand fills dst with the values of a segment. It returns what is wrong, or "".
func (b *blockReader) expand(dst []byte, kind Compression, body []byte) (bad string) {
	length, bad := rawLength(kind, body, maxRawBlock)
	if bad == "" && length != len(dst) {
		bad = "segment does not have the length of its values"
	}
	if bad == "" {
		bad = b.bytes.scratch.expand(dst, kind, body)
	}
	if b.bytes.pattern == merge && bad == "" {
		if kind != CompressNone {
			b.stored.Tried = uint8(kind) // a file has one compression
		}
		if b.valueRows-b.valueRow == 1 {
			b.stored.Form, b.stored.Bytes = uint8(kind), append(b.stored.Bytes, body...)
		}
	}
	return bad
}
