package sstable

// Arrays of unsigned integers, as blocks store them:
//
//	array = descriptor base deltas
//	descriptor = 1 byte: low four bits  width w of a delta, 0 to 8 bytes
//	                     high four bits length of the base, 0 to 8 bytes
//	base       = little endian
//	deltas     = n times w bytes, little endian; element i is base + delta i
//
// The writer takes the smallest element as the base if that makes the deltas
// narrower, and otherwise base 0. An array whose elements are all equal has
// w = 0 and takes no space but its base; so what is common to a block (one
// value type, no second timestamp) costs a few bytes for the whole block.
//
// Example: 1000, 1003, 1250 -> 21 E803 00 03 FA
//
// n is not stored; it follows from the counts in the block's header. All
// arrays of a block are followed by arrayPad zero bytes, so that any element
// may be loaded as eight bytes and masked: no branch depends on the width.
// (Rejected: widths 1, 2, 4, 8 only, which need a switch per load and more
// space; bit packing, which needs shifts across words.)

import (
	"encoding/binary"
	"math/bits"
)

// arrayPad zero bytes follow the last array of a block.
const arrayPad = 8

// uints locates an array in a block's bytes.
type uints struct {
	base  uint64
	mask  uint64
	off   uint32 // of the first delta
	width uint32
}

// at returns element i. REQUIRES: i is in range, data is the parsed block.
func (u *uints) at(data []byte, i int) uint64 {
	return u.base + binary.LittleEndian.Uint64(data[int(u.off)+i*int(u.width):])&u.mask
}

// before returns element i-1 of an array of ends, which is where part i
// begins: 0 for the first.
func (u *uints) before(data []byte, i int) int {
	if i == 0 {
		return 0
	}
	return int(u.at(data, i-1))
}

// byteLen is the number of bytes that x needs, 0 for 0.
func byteLen(x uint64) int { return (bits.Len64(x) + 7) / 8 }

// appendUints appends the encoding of values.
func appendUints(dst []byte, values []uint64) []byte {
	if len(values) == 0 {
		return append(dst, 0)
	}
	low, high := values[0], values[0]
	for _, v := range values[1:] {
		low, high = min(low, v), max(high, v)
	}
	base, width := uint64(0), byteLen(high)
	if w := byteLen(high - low); w < width {
		base, width = low, w
	}
	n := byteLen(base)
	dst = append(dst, byte(width)|byte(n)<<4)
	dst = appendLittle(dst, base, n)
	switch width {
	case 0:
	case 1:
		for _, v := range values {
			dst = append(dst, byte(v-base))
		}
	case 2:
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(v-base))
		}
	default:
		for _, v := range values {
			dst = appendLittle(dst, v-base, width)
		}
	}
	return dst
}

// appendLittle appends the low n bytes of v.
func appendLittle(dst []byte, v uint64, n int) []byte {
	for ; n > 0; n-- {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

// cursor reads a block's header and arrays. The first thing that is wrong is
// kept in bad, and everything read afterwards is zero.
type cursor struct {
	data []byte
	at   int
	bad  string
}

func (c *cursor) fail(what string) {
	if c.bad == "" {
		c.bad = what
	}
}

func (c *cursor) rest() int { return len(c.data) - c.at }

func (c *cursor) byte(what string) byte {
	if c.bad != "" || c.rest() < 1 {
		c.fail(what + " cut short")
		return 0
	}
	c.at++
	return c.data[c.at-1]
}

// count reads a uvarint of at most limit.
func (c *cursor) count(limit int, what string) int {
	v := c.uvarint(what)
	if v > uint64(limit) {
		c.fail(what + " too large")
		return 0
	}
	return int(v)
}

// uvarint reads a uvarint, which must be in its shortest form.
func (c *cursor) uvarint(what string) uint64 {
	if c.bad != "" {
		return 0
	}
	v, n := binary.Uvarint(c.data[c.at:])
	if n <= 0 || n > 1 && c.data[c.at+n-1] == 0 {
		c.fail(what + " malformed")
		return 0
	}
	c.at += n
	return v
}

// varint reads a zig-zag varint.
func (c *cursor) varint(what string) int64 {
	v := c.uvarint(what)
	return int64(v>>1) ^ -int64(v&1)
}

// bytes reads n bytes, sharing memory.
func (c *cursor) bytes(n int, what string) []byte {
	if c.bad != "" || n > c.rest() {
		c.fail(what + " cut short")
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at : c.at]
}

// uints reads the head of an array of n elements and skips its deltas.
func (c *cursor) uints(n int, what string) uints {
	descriptor := c.byte(what)
	width, baseLen := int(descriptor&0x0F), int(descriptor>>4)
	if width > 8 || baseLen > 8 || n == 0 && descriptor != 0 {
		c.fail(what + " has a bad descriptor")
		return uints{}
	}
	var u uints
	for i, b := range c.bytes(baseLen, what) {
		u.base |= uint64(b) << (8 * i)
	}
	u.mask = ^uint64(0) >> (64 - 8*width) // a shift by 64 gives 0
	u.width = uint32(width)
	u.off = uint32(c.at)
	if width > 0 && n > c.rest()/width {
		c.fail(what + " cut short")
		return uints{}
	}
	c.at += n * width
	return u
}

// pad reads the zero bytes after the arrays.
func (c *cursor) pad() {
	for _, b := range c.bytes(arrayPad, "padding") {
		if b != 0 {
			c.fail("padding is not zero")
		}
	}
}

// ends checks an array of n ends, which must not fall, and returns the last,
// which must not exceed limit.
func (c *cursor) ends(u *uints, n, limit int, what string) int {
	if c.bad != "" {
		return 0
	}
	before := uint64(0)
	for i := range n {
		end := u.at(c.data, i)
		if end < before || end > uint64(limit) {
			c.fail(what + " out of order or range")
			return 0
		}
		before = end
		if u.width == 0 {
			break // all the others are equal
		}
	}
	return int(before)
}
