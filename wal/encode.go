package wal

// Framing records into the buffer of the group to come.

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

// encode adds the frames of a record of n bytes. Between frames it writes when
// the buffer is full; after makeRoom only a record larger than maxGroup makes
// it. Callers hold mu.
func (w *Writer) encode(stream uint32, position uint64, payload pieces, n int) error {
	for rest := n; ; {
		size := min(rest, maxPayload)
		if len(w.buf)+paddedSize(size) > maxGroup {
			if err := w.writeOut(false); err != nil {
				return err
			}
		}
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
		if rest -= size; rest == 0 {
			w.cur.head.records++
			return nil
		}
	}
}

// put adds one frame with the next n bytes of payload, and returns what is
// left of that.
func (w *Writer) put(f frame, payload pieces, n int) pieces {
	b := w.extend(paddedSize(n))
	payload.read(b[frameHeaderSize : frameHeaderSize+n])
	clear(b[frameHeaderSize+n:])
	w.complete(b, n, f)
	return payload
}

// complete fills in the header of the frame at the end of the buffer: its
// extent is b, its payload and the zeros behind that are in place.
func (w *Writer) complete(b []byte, n int, f frame) {
	f.durable = w.cur.durable
	sum := putFrameHeader(b, n, f, w.cur.seed, w.cur.head.offset)
	w.cur.head.add(int64(len(b)), sum)
}

// pad fills the last block of the buffer. A padding frame that does not fit
// into what is left of a block takes the next one as well.
func (w *Writer) pad() {
	room := -len(w.buf) & (BlockSize - 1)
	if room == 0 {
		return
	}
	if room < frameHeaderSize {
		room += BlockSize
	}
	b := w.extend(room)
	clear(b[frameHeaderSize:])
	w.complete(b, room-frameHeaderSize, frame{kind: framePadding})
}

// putTrailer adds the frame that ends a segment. All before it is durable.
func (w *Writer) putTrailer() {
	at := w.cur.head
	b := w.extend(paddedSize(trailerPayload))
	binary.LittleEndian.PutUint64(b[frameHeaderSize:], at.records)
	binary.LittleEndian.PutUint64(b[frameHeaderSize+8:], at.chain)
	w.complete(b, trailerPayload, frame{kind: frameTrailer})
}
