package sstable

// Arrays of unsigned integers, as blocks store them:
//
//	array = descriptor base deltas
//	descriptor = 1 byte: low four bits  width w of a delta, 0 to 8 bytes
//	                     high four bits length of the base, 0 to 8 bytes
//	base       = little endian
//	deltas     = n times w bytes, little endian; element i is base + delta i
//
// The writer takes the smallest element as the base if that makes the deltas narrower, and
// otherwise base 0. An array whose elements are all equal has w = 0 and takes no space
// but its base. So what a block has in common (one value type, no second timestamp) costs
// a few bytes for the whole block.
//
// Example: 1000, 1003, 1250 -> 21 E803 00 03 FA
//
// Ends of parts that lie one after the other, in data blocks from version 3 on:
//
//	ends = step array
//	step = uvarint, the length of the shortest part
//
// End i is (i+1)*step more than element i of the array. If all parts have one length, the
// array is all zero and takes no space.
//
// Example: 14, 28, 42 -> 0E 00
//
// n is not stored; it follows from the counts in the block's header. arrayPad zero bytes
// follow the arrays of a block, so that any element can be loaded as eight bytes and
// masked. Then the only branch is whether the width is 0. (Rejected: widths 1, 2, 4, 8
// only, which need a switch per load and more space; bit packing, which needs shifts
// across words.)

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// padding follows the last array of a block.
const (
	padding  = "\x00\x00\x00\x00\x00\x00\x00\x00"
	arrayPad = len(padding)
)

// uints locates an array in a block's bytes. It is small, because a parsed block has many
// of them, and gets find it in no processor cache.
type uints struct {
	base uint64
	off  uint32 // of the first delta
	// form has the width of a delta in its low bits. Above it is the step: what each
	// element adds to the one before, beside the deltas.
	form uint32
}

const (
	widthBits = 4
	maxStep   = 1<<(32-widthBits) - 1
)

// The step of every array of ends fits in form.
const _ = uint(maxStep - maxRawBlock)

func (u *uints) width() int { return int(u.form & (1<<widthBits - 1)) }

// mask selects the bits of a delta. A shift by 64 gives 0, and so a mask of ones.
func (u *uints) mask() uint64 { return 1<<(8*u.width()) - 1 }

// at returns element i. Most arrays of most blocks have no deltas, and then it does not
// wait for a line of data. REQUIRES: i is in range, data is the parsed block.
func (u *uints) at(data []byte, i int) uint64 {
	x := u.base + uint64(i)*uint64(u.form>>widthBits)
	if w := u.form & (1<<widthBits - 1); w != 0 {
		x += binary.LittleEndian.Uint64(data[int(u.off)+i*int(w):]) & (1<<(8*w) - 1)
	}
	return x
}

// before returns element i-1 of an array of ends, or 0 for i = 0: it is where part i begins.
func (u *uints) before(data []byte, i int) int {
	if i == 0 {
		return 0
	}
	return int(u.at(data, i-1))
}

// length is how long part i is, of an array of ends. It is not inlined, so loops over all parts of a
// block that is loaded do without it.
func (u *uints) length(data []byte, i int) uint64 {
	return u.at(data, i) - uint64(u.before(data, i))
}

// bit is 1 for true.
func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// byteLen is the number of bytes that x needs, 0 for 0.
func byteLen(x uint64) int { return (bits.Len64(x) + 7) / 8 }

// appendUints appends the encoding of values.
func appendUints(dst []byte, values []uint64) []byte {
	if len(values) == 0 {
		return append(dst, 0)
	}
	low, high := slices.Min(values), slices.Max(values)
	base, width := uint64(0), byteLen(high)
	if w := byteLen(high - low); w < width {
		base, width = low, w
	}
	n := byteLen(base)
	dst = append(dst, byte(width)|byte(n)<<4)
	dst = appendLittle(dst, base, n)
	if width == 0 {
		return dst
	}
	for _, v := range values {
		dst = appendLittle(dst, v-base, width)
	}
	return dst
}

// appendEnds appends the encoding of ends, and overwrites ends. REQUIRES: they do not fall.
func appendEnds(dst []byte, ends []uint64) []byte {
	step, before := uint64(math.MaxUint32), uint64(0)
	for _, end := range ends {
		step, before = min(step, end-before), end
	}
	if len(ends) == 0 {
		step = 0
	}
	for i := range ends {
		ends[i] -= uint64(i+1) * step
	}
	return appendUints(binary.AppendUvarint(dst, step), ends)
}

// appendLittle appends the low n bytes of v.
func appendLittle(dst []byte, v uint64, n int) []byte {
	return binary.LittleEndian.AppendUint64(dst, v)[:len(dst)+n]
}

// cursor reads a block's header and arrays. bad keeps the first thing that is wrong; all
// reads after that return zero.
type cursor struct {
	data    []byte
	at      int
	bad     string
	noSteps bool // arrays of ends have no step: see steps
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

// bytes reads n bytes, without copying them.
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
	u.form, u.off = uint32(width), uint32(c.at)
	if width > 0 && n > c.rest()/width {
		c.fail(what + " cut short")
		return uints{}
	}
	c.at += n * width
	return u
}

// steps reads the head of an array of n ends, and skips its deltas. limit bounds the step.
func (c *cursor) steps(n, limit int, what string) uints {
	if c.noSteps {
		return c.uints(n, what)
	}
	step := c.count(limit, what)
	if n == 0 && step != 0 {
		c.fail(what + " without parts")
	}
	u := c.uints(n, what)
	u.form |= uint32(step) << widthBits
	u.base += uint64(step)
	return u
}

// end checks that no bytes are left, and returns what is wrong, or "".
func (c *cursor) end() (bad string) {
	if c.rest() != 0 {
		c.fail("bytes left over")
	}
	return c.bad
}

// pad reads the zero bytes after the arrays.
func (c *cursor) pad() {
	if string(c.bytes(arrayPad, "padding")) != padding {
		c.fail("padding is not zero")
	}
}

// ends checks an array of n ends and returns the last one. The ends must not fall, and the
// last must not exceed limit.
func (c *cursor) ends(u *uints, n, limit int, what string) int {
	if c.bad != "" || n == 0 {
		return 0
	}
	last, ok := u.at(c.data, n-1), u.base <= uint64(limit)
	if u.width() != 0 { // or else the ends rise by the step: n and step are bounded, so nothing overflows
		before := uint64(0)
		for i := range n {
			end := u.at(c.data, i)
			ok = ok && end >= before
			before = end
		}
	}
	if !ok || last > uint64(limit) {
		c.fail(what + " out of order or range")
		return 0
	}
	return int(last)
}
