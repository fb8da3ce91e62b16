package manifest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrCorrupt reports bytes that are not a manifest, or a damaged one. The error names the file
// and the offset.
var ErrCorrupt = errors.New("manifest: corrupt")

// errNewer reports a file or record that a newer version of Flagstone wrote and this one cannot
// read. Nothing was changed.
var errNewer = errors.New("manifest: written by a newer version of Flagstone")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// The form of a payload:
//
//	payload = format field*
//	format  = 1 byte, 1
//	field   = tag length body
//	tag     = uvarint; length = uvarint, of the body in bytes
//
// Tags ascend within a message, and only those of lists are repeated. Varints are as in
// encoding/binary, in their shortest form: an unsigned number is a uvarint, a signed one is
// zig-zag. A field whose value is 0, false or empty is left out, and refused if it is there, unless
// docs/format-manifest.md marks it as always there. So each edit has one encoding. A reader may skip an unknown tag with bit 6 (0x40) set; it refuses
// any other unknown tag.
const (
	encodingFormat = 1
	ignorableBit   = 1 << 6
)

// codec encodes a payload, or decodes it. A list of fields is one function that calls a method of
// the codec for each field, in ascending order of tags. The same function serves both directions:
// encoding reads the variables that it is given pointers to, decoding sets them. Encoding writes
// to none of them, since other goroutines may read them.
type codec struct {
	decoding bool
	// bytes are those written so far or, in decoding, those of the message or body that are left.
	bytes []byte

	// The rest serves decoding only.
	err  error  // the first one; it ends the decoding
	room int    // how many more items lists may have; 0 is no bound
	what string // the message, for errors
	tag  uint64 // of the field, or of the last field if the codec is between fields
}

// encode appends a payload.
func encode(dst []byte, fields func(*codec)) []byte {
	c := codec{bytes: append(dst, encodingFormat)}
	fields(&c)
	return c.bytes
}

// decode is the inverse of encode. Errors match ErrCorrupt or errNewer.
func decode(b []byte, what string, fields func(*codec)) error {
	switch {
	case len(b) == 0:
		return corrupt("%s without a format", what)
	case b[0] > encodingFormat:
		return fmt.Errorf("%w: %s of format %d, this version reads %d", errNewer, what, b[0], encodingFormat)
	case b[0] != encodingFormat:
		return corrupt("%s of format %d", what, b[0])
	}
	c := codec{decoding: true, what: what, bytes: b[1:]}
	fields(&c)
	c.end()
	return c.err
}

func (c *codec) fail(format string, args ...any) {
	c.err = cmp.Or(c.err, corrupt("%s: "+format, append([]any{c.what}, args...)...))
}

// field encodes a field if present is true, or decodes it if it is there, and reports whether it
// did. body encodes or decodes the whole body.
func (c *codec) field(tag uint64, present bool, body func()) bool {
	if c.decoding {
		after, found := c.find(tag)
		if found {
			body()
			if len(c.bytes) != 0 {
				c.fail("field %d has %d bytes too many", tag, len(c.bytes))
			}
			c.bytes = after
		}
		return found
	}
	if present {
		c.bytes = append(binary.AppendUvarint(c.bytes, tag), 0)
		start := len(c.bytes)
		body()
		length := uint64(len(c.bytes) - start)
		c.bytes[start-1] = byte(length)
		if length >= 0x80 { // it takes more than one byte
			c.bytes = slices.Replace(c.bytes, start-1, start, binary.AppendUvarint(nil, length)...)
		}
	}
	return present
}

// find goes into the body of the field with this tag, if the message has one. It returns the
// bytes after the body. Fields with smaller tags are unknown, or were decoded before.
func (c *codec) find(want uint64) (after []byte, found bool) {
	for c.err == nil && len(c.bytes) > 0 {
		if next, n := binary.Uvarint(c.bytes); n > 0 && next > want {
			break
		}
		last := c.tag
		var tag, length uint64
		c.tag = 0
		c.numbers(&tag, &length)
		switch {
		case length > uint64(len(c.bytes)):
			c.fail("field %d of %d bytes, %d are left", tag, length, len(c.bytes))
		case tag == 0 || tag < last:
			c.fail("field %d after field %d", tag, last)
		case c.err != nil || tag == want || tag&ignorableBit != 0:
		case tag == last:
			c.fail("field %d twice", tag)
		default:
			c.err = fmt.Errorf("%w: %s has a field %d", errNewer, c.what, tag)
		}
		if c.err != nil {
			break
		}
		c.tag, after = tag, c.bytes[length:]
		if tag == want {
			c.bytes = c.bytes[:length:length]
			return after, true
		}
		c.bytes = after
	}
	return nil, false
}

// end ends a message: it skips ignorable fields that are left, and refuses others.
func (c *codec) end() {
	for c.field(math.MaxUint64, false, func() { c.bytes = nil }) {
	}
}

// list is a field for each item.
func list[T any](c *codec, tag uint64, items *[]T, body func(*T)) {
	for i := 0; ; i++ {
		more := c.field(tag, i < len(*items), func() {
			if c.decoding {
				*items = append(*items, *new(T))
				if c.room--; c.room == 0 {
					c.fail("too many items in lists")
				}
			}
			body(&(*items)[i])
		})
		if !more {
			return
		}
	}
}

// message is a message inside of a body, which it takes to its end.
func message[M any](c *codec, what string, m **M, fields func(*M, *codec)) {
	outer, tag := c.what, c.tag
	c.what, c.tag = what, 0
	fields(made(c, m), c)
	c.end()
	c.what, c.tag = outer, tag
}

// messages is a field for each message.
func messages[M any](c *codec, tag uint64, what string, items *[]*M, fields func(*M, *codec)) {
	list(c, tag, items, func(m **M) { message(c, what, m, fields) })
}

// made returns a variable that is allocated when it is decoded.
func made[T any](c *codec, v **T) *T {
	if c.decoding {
		*v = new(T)
	}
	return *v
}

// value is a field that is left out if it is zero.
func value[T comparable](c *codec, tag uint64, v *T, body func()) {
	var zero T
	if c.field(tag, *v != zero, body) && *v == zero {
		c.fail("field %d is zero, which is left out", tag)
	}
}

func (c *codec) uint(tag uint64, v *uint64) { value(c, tag, v, func() { c.unsigned(v) }) }

func (c *codec) int(tag uint64, v *int64) { value(c, tag, v, func() { c.signed(v) }) }

// flag is a field of the number 1.
func (c *codec) flag(tag uint64, v *bool) {
	n := uint64(1)
	if c.field(tag, *v, func() { c.unsigned(&n) }) && c.decoding {
		*v = true
	}
	if n != 1 {
		c.fail("field %d is not 1", tag)
	}
}

// uniqueID is a field of 16 bytes.
func (c *codec) uniqueID(tag uint64, id *[16]byte) { value(c, tag, id, func() { c.fixed(id[:]) }) }

// checksum is a field of 8 bytes, little endian.
func (c *codec) checksum(tag uint64, sum *uint64) {
	value(c, tag, sum, func() {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], *sum)
		c.fixed(b[:])
		if c.decoding {
			*sum = binary.LittleEndian.Uint64(b[:])
		}
	})
}

// fixed is a body of known length.
func (c *codec) fixed(b []byte) {
	switch {
	case !c.decoding:
		c.bytes = append(c.bytes, b...)
	case len(c.bytes) != len(b):
		c.fail("field %d has %d bytes, want %d", c.tag, len(c.bytes), len(b))
	default:
		copy(b, c.bytes)
		c.bytes = nil
	}
}

// text is a field of bytes.
func text[B []byte | string](c *codec, tag uint64, v *B) {
	if c.field(tag, len(*v) != 0, func() { rest(c, v) }) && len(*v) == 0 {
		c.fail("field %d is empty, which is left out", tag)
	}
}

// rest is what is left of a body.
func rest[B []byte | string](c *codec, v *B) {
	if c.decoding {
		*v = B(append([]byte(nil), c.bytes...))
		c.bytes = nil
	} else {
		c.bytes = append(c.bytes, *v...)
	}
}

// numbers are numbers in a body, one after the other: *uint64, *int64, or *int, which is a level.
func (c *codec) numbers(values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case *uint64:
			c.unsigned(v)
		case *int64:
			c.signed(v)
		case *int:
			n := uint64(*v)
			c.unsigned(&n)
			if n >= NumLevels {
				c.fail("field %d: level %d", c.tag, n)
			} else if c.decoding {
				*v = int(n)
			}
		default:
			panic("manifest: a number of another type")
		}
	}
}

func (c *codec) unsigned(v *uint64) {
	if !c.decoding {
		c.bytes = binary.AppendUvarint(c.bytes, *v)
		return
	}
	n, size := binary.Uvarint(c.bytes)
	if size <= 0 || size > 1 && c.bytes[size-1] == 0 {
		c.fail("field %d: malformed number", c.tag)
		c.bytes = nil
		return
	}
	*v, c.bytes = n, c.bytes[size:]
}

func (c *codec) signed(v *int64) {
	n := uint64(*v)<<1 ^ uint64(*v>>63)
	c.unsigned(&n)
	if c.decoding {
		*v = int64(n>>1) ^ -int64(n&1)
	}
}
