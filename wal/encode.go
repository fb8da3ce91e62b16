package wal

// Encoding records as frames in the buffer of the next group.

import "encoding/binary"

// pieces reads through a list of slices as if they were one.
type pieces struct {
	list [][]byte
	used int // of list[0]
}

func (p *pieces) read(dst []byte) {
	for len(dst) > 0 {
		n := copy(dst, p.list[0][p.used:])
		dst = dst[n:]
		if p.used += n; p.used == len(p.list[0]) {
			p.list, p.used = p.list[1:], 0
		}
	}
}

// encode adds a record of n bytes. Callers hold mu and have made room.
func (w *Writer) encode(stream uint32, position uint64, payload pieces, n int) {
	if n <= maxBundled {
		w.join(stream, position, payload, n)
		return
	}
	w.endBundle()
	// Reserve for all frames of the record and the padding of the last block at once: the buffer
	// would otherwise grow, and be copied, once per frame.
	w.reserve(int(recordSize(n)) + frameHeaderSize)
	for rest := n; rest > 0; {
		size := min(rest, maxPayload)
		kind := frameMiddle
		switch first, last := rest == n, rest == size; {
		case first && last:
			kind = frameFull
		case first:
			kind = frameFirst
		case last:
			kind = frameLast
		}
		payload = w.put(frame{kind: kind, stream: stream, position: position}, payload, size)
		rest -= size
	}
	w.cur.head.Records++
}

// bundle is the frame at the end of the buffer that small records join. endBundle fills in its
// header.
type bundle struct {
	open   bool
	start  int // in the buffer
	stream uint32
	first  uint64 // positions
	last   uint64
}

// join adds a small record to the open bundle, or starts a new bundle.
func (w *Writer) join(stream uint32, position uint64, payload pieces, n int) {
	o := &w.bundle
	if o.open && (stream != o.stream || position-o.last >= maxStep || len(w.buf)-o.start >= bundleSize) {
		w.endBundle()
	}
	start := len(w.buf)
	step := uint64(1)
	if o.open {
		step += position - o.last
	} else {
		*o = bundle{open: true, start: start, stream: stream, first: position}
		w.extend(frameHeaderSize)
	}
	o.last = position
	var head [entryHeader]byte
	k := binary.PutUvarint(head[:], step)
	k += binary.PutUvarint(head[k:], uint64(n))
	b := w.extend(k + n)
	copy(b, head[:k])
	payload.read(b[k:])
	w.cur.head.Offset += int64(len(w.buf) - start)
	w.cur.head.Records++
}

// endBundle completes the bundle at the end of the buffer, if there is one.
func (w *Writer) endBundle() {
	o := &w.bundle
	if !o.open {
		return
	}
	o.open = false
	w.cur.head.Offset -= int64(len(w.buf) - o.start) // complete adds it
	clear(w.extend(-len(w.buf) & 7))
	b := w.buf[o.start:]
	w.complete(b, len(b)-frameHeaderSize, frame{kind: frameBundle, stream: o.stream, position: o.first})
}

// put adds one frame with the next n bytes of payload, and returns the rest of the payload.
func (w *Writer) put(f frame, payload pieces, n int) pieces {
	b := w.extend(paddedSize(n))
	payload.read(b[frameHeaderSize : frameHeaderSize+n])
	clear(b[frameHeaderSize+n:])
	w.complete(b, n, f)
	return payload
}

// complete fills in the header of the frame b at the end of the buffer. The payload and the zeros
// behind it are already in place.
func (w *Writer) complete(b []byte, n int, f frame) {
	f.durable = w.cur.durable
	sum := putFrameHeader(b, n, f, w.cur.seed, w.cur.head.Offset)
	w.cur.head.add(int64(len(b)), sum)
}

// pad ends the last frame and fills the last block of the buffer. If a padding frame does not fit
// into the rest of a block, it takes the next block as well.
func (w *Writer) pad() {
	room := -len(w.buf) & (blockSize - 1)
	if w.bundle.open {
		clear(w.extend(room))
		w.cur.head.Offset += int64(room)
		w.endBundle()
		return
	}
	if room == 0 {
		return
	}
	if room < frameHeaderSize {
		room += blockSize
	}
	b := w.extend(room)
	clear(b[frameHeaderSize:])
	w.complete(b, room-frameHeaderSize, frame{kind: framePadding})
}

// putTrailer adds the frame that ends a segment. REQUIRES: everything before it is durable.
func (w *Writer) putTrailer() {
	payload := binary.LittleEndian.AppendUint64(nil, w.cur.head.Records)
	payload = binary.LittleEndian.AppendUint64(payload, w.cur.head.Chain)
	w.put(frame{kind: frameTrailer}, pieces{list: [][]byte{payload}}, trailerPayload)
}
