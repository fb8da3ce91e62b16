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
	k, last, before := d.segmentOf(row), d.segments-1, b.valueRows
	n := b.span(k, k)
	if b.pin != nil && n > 0 {
		if values := b.pin.Part(k, n); values != nil {
			b.values, b.shared = values, true
			return nil
		}
	}
	inOrder := k > 0 && b.valueRow == before
	if (inOrder || k == 0 && b.bytes.run > 0) && b.readsRest(k) && b.readValues(k, last, last, false) == nil {
		return nil
	}
	// The segment is read alone, even if something is wrong with the rest: then the rows of a sound
	// segment can still be read.
	if !inOrder {
		last = k
	}
	return b.readValues(k, k, last, b.keeps(n))
}

// span sets the rows whose values are open, or will be, to those of the segments k to end. It
// returns how many bytes the values take.
func (b *blockReader) span(k, end int) (n int) {
	d := b.block
	b.valueRow, b.valueRows = d.rowEnd.before(d.data, k), int(d.rowEnd.at(d.data, end))
	b.valuesAt = d.valuesBefore(b.valueRow)
	return d.valuesBefore(b.valueRows) - b.valuesAt
}

// keeps reports whether n bytes of values go to the cache when they are read.
func (b *blockReader) keeps(n int) bool {
	f := b.r
	cheap := f.residency.resident() && (f.mapping != nil || f.residency.elapsed != nil)
	return b.pin != nil && n > 0 && b.bytes.pattern != merge && f.cached.Wants(b.pin, n, cheap)
}

// readsRest reports whether to read the segments from k on by one access, which is better than
// up to eight: the file is mapped, and the cache has no room for them. Early in a scan, a run of a merge whose
// described rows end in segment k may not come to the rest.
func (b *blockReader) readsRest(k int) bool {
	if d := b.block; b.bytes.run < 2 && b.described > 0 && b.described <= int(d.rowEnd.at(d.data, k)) {
		return false
	}
	return k < b.block.segments-1 && b.bytes.pattern != merge && b.r.mapping != nil &&
		(b.pin == nil || b.r.cached.Full(b.pin))
}

// readAll sets values to those of all rows that are not in the cache, for the owner of another
// reader: it adds them to the cache if that has room for them.
func (b *blockReader) readAll() {
	for k := range b.block.segments {
		n := b.block.segmentLength(k)
		if n == 0 || b.pin != nil && b.pin.Part(k, n) != nil {
			continue
		}
		if last := b.block.segments - 1; !b.keeps(n) || b.r.mapping != nil && b.r.cached.Full(b.pin) {
			_ = b.readValues(0, last, last, false)
			return
		}
		if b.readValues(k, k, k, true) != nil {
			return
		}
	}
}

// readValues sets values to those of the segments k to end, and keeps them in the cache if keep
// says so; then end is k. A call of the file also reads the segments up to the last. After an error
// no values are open.
func (b *blockReader) readValues(k, end, last int, keep bool) error {
	n, c := b.span(k, end), b.r.cached
	var dst []byte
	if keep {
		dst = c.NewPart(n + decodeSlack)[:n]
	} else {
		dst = b.ownValues(n)
	}
	err := b.readSegments(k, end, last, dst, keep)
	switch {
	case err == nil && keep:
		dst = c.AddPart(b.pin, k, dst)
	case err != nil:
		b.valueRow, b.valueRows = 0, 0
		if keep {
			c.FreePart(dst)
			dst = nil
		}
	}
	b.values, b.shared = dst, keep
	return err
}

// ownValues returns memory of the reader for n bytes of values.
func (b *blockReader) ownValues(n int) []byte {
	if cap(b.segment) < n+decodeSlack {
		b.segment = make([]byte, max(n+decodeSlack, 4<<10))
	}
	return b.segment[:n]
}

// readSegments fills dst with the values of the segments k to end, as readValues says.
func (b *blockReader) readSegments(k, end, last int, dst []byte, keep bool) error {
	d := b.block
	begin, _ := b.r.index.blockRange(b.number)
	ends := func(k int) int64 { return begin + int64(d.partEnd.at(d.data, k)) }
	from := begin + int64(d.partEnd.before(d.data, k))
	if b.opts.Believe {
		b.began, b.lately = b.r.verified.begin(b.number)
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
		s, bad := b.split(k, stored[at-from:to-from], at, keep)
		if bad == "" {
			bad = b.expand(dst[:n], s)
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
func (b *blockReader) split(k int, stored []byte, offset int64, keep bool) (s storedBlock, bad string) {
	believes := b.opts.Believe && b.bytes.mapped
	if believes && !keep && b.lately>>k&1 != 0 {
		return splitStored(stored, maxRawBlock)
	}
	s, bad = checkStored(stored, &b.r.footer.uniqueID, offset, maxRawBlock)
	if bad == "" && believes {
		b.r.verified.note(b.number, k, b.began)
	}
	return s, bad
}

// expand fills dst with the values of a segment. It returns what is wrong, or "".
func (b *blockReader) expand(dst []byte, s storedBlock) (bad string) {
	if s.raw != len(dst) {
		return "segment does not have the length of its values"
	}
	bad = b.bytes.scratch.expand(dst, s)
	if b.bytes.pattern == merge && bad == "" {
		if s.kind != CompressNone {
			b.stored.Tried = uint8(s.kind) // a file has one compression
		}
		if b.valueRows-b.valueRow == 1 {
			b.stored.Form, b.stored.Bytes = uint8(s.kind), append(b.stored.Bytes, s.body...)
		}
	}
	return bad
}
