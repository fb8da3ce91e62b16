package valuefile

// This file makes and undoes the packed form of values, which they have from the
// log on.

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/internal/assist"
)

const (
	// blockPiece is the length of what is compressed at once. A piece does not refer to
	// those before it: sources and binaries of a megabyte took 1 to 4 % more in pieces of so
	// much, JSON 22; in pieces of a quarter of it 4 to 13 and 49 %.
	blockPiece = 256 << 10
	// runPiece is the length of the pieces of a long run, which takes a few
	// microseconds.
	runPiece = 128 << 10
	// shortestRun is the length from which a run has a piece of its own: what it cuts
	// apart is compressed apart.
	shortestRun = 16 << 10
	// runProbe is the length of a run that is found by a look at its beginning.
	runProbe = 64
)

// Pack returns the packed form of a value, for Writer.AddPacked and Unpack; false
// if it does not save an eighth. A value is packed once, before it is logged, and
// takes this form wherever it goes. It lies in the buffer, which is grown as
// needed.
func Pack(buffer *[]byte, value []byte) (packed []byte, ok bool) {
	var few [64]piece // mostly enough
	plan := cut(few[:0], value)
	directory := directoryHead + len(plan)*entrySize
	dst := resize(buffer, directory+len(value)+len(plan)*blockOverhead+s2.MaxEncodedLen(blockPiece))
	packed = dst[:directory]
	for i, c := range plan {
		kind := 0
		if c.run {
			packed, kind = append(packed, value[c.from]), 1
		} else {
			packed = appendBlock(packed, value[c.from:c.to])
		}
		e := dst[directoryHead+i*entrySize:]
		binary.LittleEndian.PutUint32(e, uint32(c.to))
		binary.LittleEndian.PutUint32(e[4:], uint32((len(packed)-directory)<<1|kind))
		binary.LittleEndian.PutUint64(e[entrySum:], 0)
	}
	binary.LittleEndian.PutUint32(dst, uint32(len(plan))<<8)
	return packed, len(packed) < len(value)-len(value)/8
}

// cut appends the pieces that a value is to be compressed in: runs, and what is
// between them.
func cut(plan []piece, value []byte) []piece {
	done := 0
	add := func(to, length int, run bool) {
		// Pieces of about the same length.
		for n := (to - done + length - 1) / length; n > 0; n-- {
			end := done + (to-done)/n
			plan = append(plan, piece{from: done, to: end, run: run})
			done = end
		}
	}
	for at := 0; at < len(value); at += shortestRun / 2 {
		if at < done {
			continue
		}
		if begin, end := runAround(value, done, at); end-begin >= shortestRun {
			add(begin, blockPiece, false)
			add(end, runPiece, true)
		}
	}
	add(len(value), blockPiece, false)
	return plan
}

// runAround returns the place around at, not before from, where value repeats one
// byte. From at on it is at least runProbe bytes long, or not found.
func runAround(value []byte, from, at int) (begin, end int) {
	if at+runProbe >= len(value) || !bytes.Equal(value[at:at+runProbe], value[at+1:at+1+runProbe]) {
		return at, at
	}
	c := value[at]
	begin, end = at, at+runProbe
	for n := runProbe; n > 0; {
		if end+n <= len(value) && bytes.Equal(value[end:end+n], value[at:at+n]) {
			end += n
			n = min(2*n, end-at, 4096)
		} else {
			n /= 2
		}
	}
	for begin > from && value[begin-1] == c {
		begin--
	}
	return begin, end
}

// blockOverhead is the most that a block is longer than what it stands for, the
// encoder's own overhead left aside: length and end.
const blockOverhead = binary.MaxVarintLen32 + 1

// appendBlock appends an S2 block of src, whose last element is a literal of
// endLiteral bytes. REQUIRES: dst has room for the longest such block.
func appendBlock(dst, src []byte) []byte {
	// A block is a length and a sequence of elements. The encoder writes those of what
	// is before the literal, with its length, which may be a byte shorter.
	literal := min(len(src), endLiteral)
	body := src[:len(src)-literal]
	var length [binary.MaxVarintLen32]byte
	own := binary.PutUvarint(length[:], uint64(len(body)))
	size := binary.PutUvarint(length[:], uint64(len(src)))
	at := len(dst) + size - own
	block := s2.Encode(dst[at:cap(dst)], body)
	end := at + len(block)
	copy(dst[len(dst):cap(dst)], length[:size])
	return append(append(dst[:end], byte(literal-1)<<2), src[len(body):]...)
}

// Unpack makes buffer hold the value that was packed, and returns it. Helpers, if
// not nil, take a part of the work.
func Unpack(buffer *[]byte, packed []byte, helpers *assist.Helpers) ([]byte, error) {
	var value []byte
	p, raw, bad := parsePacked(packed)
	switch {
	case bad != "":
	case p.entries != nil:
		u := unpacking{buffer: buffer, known: true, helpers: helpers}
		value, bad, _ = u.pieces(&p, raw) // there is no mapping to fail
	default:
		value, bad = unpackBlock(buffer, raw, packed)
	}
	if bad != "" {
		return nil, fmt.Errorf("%w: packed value: %s", ErrCorrupt, bad)
	}
	return value, nil
}

// parsePacked returns the length of a value that has the packed form, its pieces
// unless it is of the time before them, and what is wrong, or "".
func parsePacked(packed []byte) (p pieces, raw int, bad string) {
	if len(packed) > 0 && packed[0] == 0 {
		return parsePieces(packed)
	}
	if raw, bad = blockLength(packed); bad == "" && raw <= len(packed) {
		bad = "it is not shorter than its value"
	}
	return p, raw, bad
}
