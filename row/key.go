package row

// The order-preserving encoding of primary-key tuples:
//
//	key    = column*                               1 to 4 columns
//	column = tag payload
//	tag    = 01 minimum | 10 integer | 20 string | 28 binary | FE maximum
//	int    = 8 bytes big endian, sign bit flipped
//	bytes  = payload with 00 -> 00 FF, then 00 01; as the LAST column of the
//	         schema: the raw payload, with nothing after it
//
// bytes.Compare on two encodings orders them like the tuples: column by column, integers
// numerically with negative ones first, strings and binaries bytewise with a shorter prefix
// first, minimum below and maximum above everything. The tag depends on the type alone and is
// never FF, and a terminator (00 01) sorts below every continuation of the same payload (00 FF or
// a byte above 00), so the encoding of a partial tuple is a byte prefix of the encodings of all
// its extensions, and bounds them.
//
// The raw last column saves the scan and the terminator for the common case of a single string.
// It is correct only because nothing is ever appended to a row key and row keys are always stored
// with their length.
//
// Worked example, schema (string, integer, binary), tuple ("a\x00", -1, 0x00):
//
//	20 61 00FF 0001   10 7FFFFFFFFFFFFFFF   28 00

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of the key encoding. They are the engine's own bounds, chosen so that the length of a
// row key always fits 16 bits; front ends usually allow less.
const (
	MaxKeyColumns     = 4
	MaxKeyColumnBytes = 4096                                          // of one string or binary key column
	MaxKeyBytes       = MaxKeyColumns * (1 + 2*MaxKeyColumnBytes + 2) // 32,780
)

const (
	tagMin     = 0x01
	tagInteger = 0x10
	tagString  = 0x20
	tagBinary  = 0x28
	tagMax     = 0xFE

	escape        = 0x00
	escapedZero   = 0xFF
	terminator    = 0x01
	signBit       = 1 << 63
	integerLength = 8
)

// ErrBadKey reports a tuple that cannot be a key, or bytes that do not encode a key.
var ErrBadKey = errors.New("row: malformed primary key")

// AppendKey appends the encoding of the first len(tuple) columns of a key with `columns` columns
// in all. A tuple shorter than the schema gives a bound: a byte prefix of every key that begins
// with it. Min and Max are allowed anywhere and give bounds as well. Errors are ErrBadKey.
func AppendKey(dst []byte, columns int, tuple ...Value) ([]byte, error) {
	if columns < 1 || columns > MaxKeyColumns {
		return dst, fmt.Errorf("%w: %d key columns, want 1 to %d", ErrBadKey, columns, MaxKeyColumns)
	}
	if len(tuple) > columns {
		return dst, fmt.Errorf("%w: %d values for %d key columns", ErrBadKey, len(tuple), columns)
	}
	for i, v := range tuple {
		switch v.typ {
		case TypeMin:
			dst = append(dst, tagMin)
		case TypeMax:
			dst = append(dst, tagMax)
		case TypeInteger:
			dst = append(dst, tagInteger)
			dst = binary.BigEndian.AppendUint64(dst, v.bits^signBit)
		case TypeString, TypeBinary:
			if len(v.data) > MaxKeyColumnBytes {
				return dst, fmt.Errorf("%w: column %d has %d bytes, at most %d are allowed",
					ErrBadKey, i+1, len(v.data), MaxKeyColumnBytes)
			}
			tag := byte(tagString)
			if v.typ == TypeBinary {
				tag = tagBinary
			}
			dst = append(dst, tag)
			if i == columns-1 {
				dst = append(dst, v.data...)
			} else {
				dst = appendEscaped(dst, v.data)
			}
		default:
			return dst, fmt.Errorf("%w: column %d has type %s", ErrBadKey, i+1, v.typ)
		}
	}
	return dst, nil
}

func appendEscaped(dst, data []byte) []byte {
	for {
		i := bytes.IndexByte(data, escape)
		if i < 0 {
			dst = append(dst, data...)
			return append(dst, escape, terminator)
		}
		dst = append(dst, data[:i]...)
		dst = append(dst, escape, escapedZero)
		data = data[i+1:]
	}
}

// DecodeKey decodes a key, or a bound, of a schema with `columns` columns. The values share
// memory with key where no unescaping was needed. It decodes exactly the encodings that AppendKey
// can make. Errors are ErrBadKey.
func DecodeKey(key []byte, columns int) ([]Value, error) {
	return DecodeKeyTo(make([]Value, 0, columns), key, columns)
}

// DecodeKeyTo is DecodeKey, but appends to tuple, which must be empty.
func DecodeKeyTo(tuple []Value, key []byte, columns int) ([]Value, error) {
	var only Value
	if columns == 1 && DecodeOnly(&only, key) {
		return append(tuple, only), nil
	}
	for at := 0; at < len(key); {
		if len(tuple) == columns {
			return nil, fmt.Errorf("%w: bytes after column %d", ErrBadKey, columns)
		}
		v, n, err := decodeKeyColumn(key[at:], len(tuple) == columns-1)
		if err != nil {
			return nil, fmt.Errorf("%w (column %d, offset %d)", err, len(tuple)+1, at)
		}
		tuple = append(tuple, v)
		at += n
	}
	return tuple, nil
}

// DecodeOnly decodes a key of one column into v, if that is a string or a binary, as most are.
// Otherwise it returns false, and DecodeKeyTo decodes the key or returns the error.
func DecodeOnly(v *Value, key []byte) bool {
	if len(key) == 0 || len(key) > 1+MaxKeyColumnBytes {
		return false
	}
	switch key[0] {
	case tagString:
		v.typ = TypeString
	case tagBinary:
		v.typ = TypeBinary
	default:
		return false
	}
	v.bits, v.data = 0, key[1:]
	return true
}

func decodeKeyColumn(b []byte, last bool) (v Value, n int, err error) {
	switch tag := b[0]; tag {
	case tagMin:
		return Min(), 1, nil
	case tagMax:
		return Max(), 1, nil
	case tagInteger:
		if len(b) < 1+integerLength {
			return Value{}, 0, fmt.Errorf("%w: integer cut short", ErrBadKey)
		}
		return Integer(int64(binary.BigEndian.Uint64(b[1:]) ^ signBit)), 1 + integerLength, nil
	case tagString, tagBinary:
		typ := TypeString
		if tag == tagBinary {
			typ = TypeBinary
		}
		if last {
			if len(b)-1 > MaxKeyColumnBytes {
				return Value{}, 0, fmt.Errorf("%w: %d bytes", ErrBadKey, len(b)-1)
			}
			return Value{typ: typ, data: b[1:]}, len(b), nil
		}
		data, n, err := unescape(b[1:])
		return Value{typ: typ, data: data}, n + 1, err
	default:
		return Value{}, 0, fmt.Errorf("%w: tag %#02x", ErrBadKey, tag)
	}
}

// unescape reads an escaped payload with its terminator and returns the
// payload and the number of bytes read.
func unescape(b []byte) (data []byte, n int, err error) {
	escaped := false // otherwise data can share b's memory
	for at := 0; ; at += 2 {
		i := bytes.IndexByte(b[at:], escape)
		if at += i; i < 0 || at+1 >= len(b) {
			return nil, 0, fmt.Errorf("%w: unterminated bytes", ErrBadKey)
		}
		switch b[at+1] {
		case terminator:
			data = b[:at:at]
			if escaped {
				data = bytes.ReplaceAll(data, []byte{escape, escapedZero}, []byte{0})
			}
			if len(data) > MaxKeyColumnBytes {
				return nil, 0, fmt.Errorf("%w: %d bytes", ErrBadKey, len(data))
			}
			return data, at + 2, nil
		case escapedZero:
			escaped = true
		default:
			return nil, 0, fmt.Errorf("%w: escape %#02x", ErrBadKey, b[at+1])
		}
	}
}

// PartitionPrefix returns the part of a row key that encodes its first column, the partition key.
// Keys with the same prefix are always in the same partition. The second result is false if the
// bytes are not a key. A key with a single column is its own prefix.
func PartitionPrefix(key []byte, columns int) ([]byte, bool) {
	if len(key) == 0 {
		return nil, false
	}
	_, n, err := decodeKeyColumn(key, columns == 1)
	if err != nil {
		return nil, false
	}
	return key[:n:n], true
}

// PartitionValueAt returns the partition-key value at which to split a table near bound. That is
// the first column of bound. If bound is only the beginning of a key, as index separators are, it
// is the smallest completion of that. The second result is false if bound does not begin with a
// key column.
func PartitionValueAt(bound []byte, columns int) (Value, bool) {
	if len(bound) == 0 {
		return Value{}, false
	}
	v, _, err := decodeKeyColumn(bound, columns == 1)
	if err == nil {
		return v, v.typ.IsKeyType()
	}
	switch bound[0] {
	case tagInteger:
		whole := make([]byte, 1+integerLength)
		copy(whole, bound)
		v, _, err = decodeKeyColumn(whole, false)
	case tagString, tagBinary:
		whole := bytes.Clone(bound)
		if whole[len(whole)-1] == escape { // cut in the middle of a pair
			whole = whole[:len(whole)-1]
		}
		v, _, err = decodeKeyColumn(append(whole, escape, terminator), false)
	}
	return v, err == nil
}

// Successor returns the smallest byte string above every string that begins with prefix, or nil
// if there is none (a prefix of FF bytes only, which no key encoding has).
func Successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			s := append(make([]byte, 0, i+1), prefix[:i+1]...)
			s[i]++
			return s
		}
	}
	return nil
}

// CommonPrefix returns the length of the longest common prefix of two keys.
func CommonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
