package valuefile

// The packed form of a value: pieces that are decoded and verified independently. A directory holds
// their places.
//
//	directory  0         1   (a block, see block.go, never begins with 0)
//	           pieces    3   how many, at least 1
//	           entry    16   for each piece:
//	             end      4  where it ends in the value
//	             content  4  twice where its content ends, from the directory's end on; + 1 for a run
//	             checksum 8  xxhash64 of its content; zero outside of value files
//	contents   of the pieces, adjacent: an S2 block, or of a run its byte
//
// A run is one repeated byte, so zero padding is read at the speed of memory. S2 decodes it eight
// bytes at a time, and each eight wait for those before.
//
// The last bytes of an S2 block are a literal of endLiteral bytes. S2 does a copy byte by byte if
// it ends closer than ten bytes to the end of the destination: 1150 instead of 32 microseconds
// for a megabyte.

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/row"
)

const (
	directoryHead = 4
	entrySize     = 16
	entrySum      = 8 // offset of the checksum
	endLiteral    = 16
)

// pieces is a packed value.
type pieces struct {
	entries  []byte
	contents []byte
}

// piece is one piece: its place in the value, and its content.
type piece struct {
	from, to int
	run      bool
	checksum uint64
	content  []byte
}

// directorySize returns the size of the directory at the start of content, at most all of
// content.
func directorySize(content []byte) int {
	if len(content) < directoryHead {
		return len(content)
	}
	n := int(binary.LittleEndian.Uint32(content) >> 8)
	return min(len(content), directoryHead+n*entrySize)
}

// parsePieces finds the pieces of a packed value and its length; bad says what is wrong, or is
// "". It looks only at the last piece.
func parsePieces(content []byte) (p pieces, raw int, bad string) {
	size := directorySize(content)
	if size < directoryHead+entrySize || content[0] != 0 || (size-directoryHead)%entrySize != 0 {
		return p, 0, "directory of pieces is cut short"
	}
	p = pieces{entries: content[directoryHead:size], contents: content[size:]}
	raw, end, _ := p.ends(p.len() - 1)
	switch {
	case raw > row.MaxValueBytes || raw <= len(content):
		return p, 0, "its length is not that of a value"
	case end != len(p.contents):
		return p, 0, "pieces do not end where the record does"
	}
	return p, raw, ""
}

func (p *pieces) len() int { return len(p.entries) / entrySize }

// ends returns where piece i ends in the value and in the contents, and whether it is a run.
func (p *pieces) ends(i int) (to, contentTo int, run bool) {
	e := p.entries[i*entrySize:]
	content := binary.LittleEndian.Uint32(e[4:])
	return int(binary.LittleEndian.Uint32(e)), int(content >> 1), content&1 != 0
}

// walk calls use with each piece, until one is wrong or use says that it is. bad says what is wrong,
// or is "".
func (p *pieces) walk(use func(i int, c piece) (bad string)) (bad string) {
	from, contentFrom := 0, 0
	for i := range p.len() {
		to, contentTo, run := p.ends(i)
		if from >= to || to > row.MaxValueBytes || contentFrom >= contentTo || contentTo > len(p.contents) {
			return "pieces out of order"
		}
		c := piece{
			from: from, to: to, run: run, content: p.contents[contentFrom:contentTo],
			checksum: binary.LittleEndian.Uint64(p.entries[i*entrySize+entrySum:]),
		}
		if run {
			if len(c.content) != 1 {
				return "a run of more than a byte"
			}
		} else if n, err := s2.DecodedLen(c.content); err != nil || n != to-from {
			return "a piece does not have its declared length"
		}
		if bad := use(i, c); bad != "" {
			return bad
		}
		from, contentFrom = to, contentTo
	}
	return ""
}

// verify checks a piece against its checksum; bad says what is wrong, or is "".
func (c *piece) verify() (bad string) {
	if xxhash.Sum64(c.content) != c.checksum {
		return "checksum of a piece does not match"
	}
	return ""
}

// verify checks all pieces; bad says what is wrong, or is "".
func (p *pieces) verify() (bad string) {
	return p.walk(func(_ int, c piece) string { return c.verify() })
}

// seal sets the checksums of the pieces in a directory; bad says what is wrong with them, or is
// "".
func (p *pieces) seal(directory []byte) (bad string) {
	return p.walk(func(i int, c piece) string {
		binary.LittleEndian.PutUint64(directory[directoryHead+i*entrySize+entrySum:], xxhash.Sum64(c.content))
		return ""
	})
}

// unpack decodes all pieces into the buffer, to a value of raw bytes. Unless known is true, it
// verifies each piece first; bad says what is wrong, or is "".
func (p *pieces) unpack(buffer *[]byte, raw int, known bool) (value []byte, bad string) {
	value = resize(buffer, raw)
	bad = p.walk(func(_ int, c piece) (bad string) {
		if !known {
			bad = c.verify()
		}
		switch {
		case bad != "":
			return bad
		case c.to > len(value):
			return "pieces out of order"
		case c.run:
			fill(value[c.from:c.to], c.content[0])
		default:
			if _, err := s2.Decode(value[c.from:c.to:c.to], c.content); err != nil {
				return "a piece does not decompress"
			}
		}
		return ""
	})
	return value, bad
}

// fill makes all of dst the byte c.
func fill(dst []byte, c byte) {
	if c == 0 {
		clear(dst)
		return
	}
	const first = 4096 // stays in the L1 cache
	dst[0] = c
	for n := 1; n < len(dst); {
		n += copy(dst[n:], dst[:min(n, first)])
	}
}
