package row

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Type is the type of a Value. The numbers are part of the on-disk format.
type Type uint8

// The five attribute types; String, Integer and Binary are also key types.
// Min and Max exist only as bounds of key ranges.
const (
	TypeNone    Type = 0 // no value, as in a tombstone
	TypeInteger Type = 1
	TypeDouble  Type = 2
	TypeBoolean Type = 3
	TypeString  Type = 4
	TypeBinary  Type = 5
	TypeMin     Type = 14 // sorts below every key value
	TypeMax     Type = 15 // sorts above every key value
)

// String returns the name of the type for error messages and tools.
func (t Type) String() string {
	switch {
	case t <= TypeBinary:
		return [...]string{"none", "integer", "double", "boolean", "string", "binary"}[t]
	case t == TypeMin:
		return "min"
	case t == TypeMax:
		return "max"
	}
	return "type(" + strconv.Itoa(int(t)) + ")"
}

// IsKeyType reports whether a primary-key column may have this type.
func (t Type) IsKeyType() bool {
	return t == TypeInteger || t == TypeString || t == TypeBinary
}

// IsAttributeType reports whether an attribute cell may have this type.
func (t Type) IsAttributeType() bool { return t >= TypeInteger && t <= TypeBinary }

// Value is one typed value: an attribute, a primary-key column, or a bound. The zero Value has
// TypeNone. A Value is immutable; the functions of this package share the byte slice of a String
// or Binary, and do not copy it, unless they say otherwise.
type Value struct {
	typ  Type
	bits uint64 // integer, double (IEEE-754 bits) or boolean (0 or 1)
	data []byte // string or binary
}

// Integer makes a 64-bit signed integer value.
func Integer(v int64) Value { return Value{typ: TypeInteger, bits: uint64(v)} }

// Double makes a 64-bit floating point value.
func Double(v float64) Value { return Value{typ: TypeDouble, bits: math.Float64bits(v)} }

// Boolean makes a boolean value.
func Boolean(v bool) Value {
	if v {
		return Value{typ: TypeBoolean, bits: 1}
	}
	return Value{typ: TypeBoolean}
}

// String makes a string value. The caller must ensure that the bytes are UTF-8.
func String(v string) Value { return Value{typ: TypeString, data: []byte(v)} }

// StringBytes makes a string value from bytes, which it keeps.
func StringBytes(v []byte) Value { return Value{typ: TypeString, data: v} }

// Binary makes a binary value from bytes, which it keeps.
func Binary(v []byte) Value { return Value{typ: TypeBinary, data: v} }

// Min is the bound below every value of a key column.
func Min() Value { return Value{typ: TypeMin} }

// Max is the bound above every value of a key column.
func Max() Value { return Value{typ: TypeMax} }

// Type returns the value's type.
func (v Value) Type() Type { return v.typ }

// Int64 returns an integer value; zero for other types.
func (v Value) Int64() int64 {
	if v.typ != TypeInteger {
		return 0
	}
	return int64(v.bits)
}

// Float64 returns a double value; zero for other types.
func (v Value) Float64() float64 {
	if v.typ != TypeDouble {
		return 0
	}
	return math.Float64frombits(v.bits)
}

// Bool returns a boolean value; false for other types.
func (v Value) Bool() bool { return v.typ == TypeBoolean && v.bits != 0 }

// Bytes returns the bytes of a string or binary value, without a copy; nil
// for other types.
func (v Value) Bytes() []byte { return v.data }

// Text returns the bytes of a string or binary value as a string.
func (v Value) Text() string { return string(v.data) }

// Size returns the size of the value in bytes for capacity accounting: 8 for integer and double,
// 1 for boolean, the length for string and binary.
func (v Value) Size() int {
	switch v.typ {
	case TypeInteger, TypeDouble:
		return 8
	case TypeBoolean:
		return 1
	}
	return len(v.data)
}

// Clone returns a value that shares no memory with v.
func (v Value) Clone() Value {
	v.data = bytes.Clone(v.data)
	return v
}

// String formats the value for logs and test failures.
func (v Value) String() string {
	switch v.typ {
	case TypeInteger:
		return strconv.FormatInt(v.Int64(), 10)
	case TypeDouble:
		return strconv.FormatFloat(v.Float64(), 'g', -1, 64)
	case TypeBoolean:
		return strconv.FormatBool(v.Bool())
	case TypeString:
		return strconv.Quote(string(v.data))
	case TypeBinary:
		return fmt.Sprintf("0x%x", v.data)
	}
	return v.typ.String()
}

// Equal reports whether two values have the same type and the same content.
// Doubles are compared by their bits, so a NaN equals itself.
func (v Value) Equal(w Value) bool {
	return v.typ == w.typ && v.bits == w.bits && string(v.data) == string(w.data)
}

// ErrBadValue reports stored bytes that are not a value of their declared type.
var ErrBadValue = errors.New("row: malformed value")

// AppendPayload appends the stored form of an attribute value: 8 bytes little
// endian for integer and double, one byte for boolean, the raw bytes for
// string and binary. The type is stored beside it, in the cell.
func (v Value) AppendPayload(dst []byte) []byte {
	switch v.typ {
	case TypeInteger, TypeDouble:
		return binary.LittleEndian.AppendUint64(dst, v.bits)
	case TypeBoolean:
		return append(dst, byte(v.bits))
	}
	return append(dst, v.data...)
}

// PayloadValue is the inverse of AppendPayload. A string or binary value shares the payload's
// memory. It returns ErrBadValue for a payload that does not fit the type.
func PayloadValue(t Type, payload []byte) (Value, error) {
	switch t {
	case TypeInteger, TypeDouble:
		if len(payload) != 8 {
			return Value{}, fmt.Errorf("%w: %s of %d bytes", ErrBadValue, t, len(payload))
		}
		return Value{typ: t, bits: binary.LittleEndian.Uint64(payload)}, nil
	case TypeBoolean:
		if len(payload) != 1 || payload[0] > 1 {
			return Value{}, fmt.Errorf("%w: boolean of %d bytes", ErrBadValue, len(payload))
		}
		return Value{typ: t, bits: uint64(payload[0])}, nil
	case TypeString, TypeBinary:
		return Value{typ: t, data: payload}, nil
	}
	return Value{}, fmt.Errorf("%w: %s", ErrBadValue, t)
}
