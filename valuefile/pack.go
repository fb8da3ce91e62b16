package valuefile

// Packing and unpacking values. Values are in packed form from the log on.

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/s2"
)

const (
	// blockPiece is the length that is compressed at once. A piece does not refer to earlier
	// ones. In pieces of this length, sources and binaries of a megabyte took 1 to 4 % more
	// space, JSON 22 %; in pieces of a quarter of it 4 to 13 % and 49 %.
	blockPiece = 256 << 10
	// runPiece is the length of the pieces of a long run, each of which takes a few microseconds.
	runPiece = 128 << 10
	// shortestRun is the length from which a run is a piece of its own. The parts before and
	// after such a run are compressed separately.
	shortestRun = 16 << 10
	// runProbe is how many bytes are checked to detect a run.
	runProbe = 64
)

// pack returns the packed form of a value, for Writer.AddPacked and Unpack; false if it does not
// save an eighth. A value is packed once, before it is logged, and keeps this form everywhere.
// The result is in the buffer, which is grown as needed.
func pack(buffer *[]byte, value []byte) (packed []byte, ok bool) {
	var few [64]piece // enough for most values
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

// PackTo calls use with the packed form of a value, in memory that use must not keep. It reports
// whether it did: see pack.
func PackTo(value []byte, use func(packed []byte)) bool {
	scratch := scratches.Get().(*[]byte)
	defer giveScratch(scratch)
	packed, ok := pack(scratch, value)
	if ok {
		use(packed)
	}
	return ok
}

// cut appends the pieces of a value: runs, and the parts between them.
func cut(plan []piece, value []byte) []piece {
	done := 0
	add := func(to, length int, run bool) {
		// Make pieces of about the same length.
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

// runAround returns the run of one byte around at, not beginning before from. It finds only runs
// that go on for at least runProbe bytes from at on.
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

// blockOverhead is how many bytes a block may be longer than its data, besides the encoder's own
// overhead: the length and the end.
const blockOverhead = binary.MaxVarintLen32 + 1

// appendBlock appends an S2 block of src, whose last element is a literal of
// endLiteral bytes. REQUIRES: dst has room for the longest such block.
func appendBlock(dst, src []byte) []byte {
	// A block is a length and a sequence of elements. The encoder writes the elements of the part
	// before the literal, and its length, which may be a byte shorter than the full one.
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

// Unpack unpacks a value into buffer, which is grown as needed, and returns it.
func Unpack(buffer *[]byte, packed []byte) ([]byte, error) {
	var value []byte
	p, raw, bad := parsePacked(packed)
	switch {
	case bad != "":
	case p.entries != nil:
		value, bad = p.unpack(buffer, raw, true)
	default:
		value, bad = unpackBlock(buffer, raw, packed)
	}
	if bad != "" {
		return nil, fmt.Errorf("%w: packed value: %s", ErrCorrupt, bad)
	}
	return value, nil
}

// PackedAway is how many bytes longer a value is than its packed form.
func PackedAway(packed []byte) int {
	_, raw, _ := parsePacked(packed)
	return max(raw-len(packed), 0)
}

// parsePacked returns the length of a packed value and its pieces, which an old block does not
// have; bad says what is wrong, or is "".
func parsePacked(packed []byte) (p pieces, raw int, bad string) {
	if len(packed) > 0 && packed[0] == 0 {
		return parsePieces(packed)
	}
	if raw, bad = blockLength(packed); bad == "" && raw <= len(packed) {
		bad = "it is not shorter than its value"
	}
	return p, raw, bad
}
