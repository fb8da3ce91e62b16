package keydesign

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Errors of splicing match one of these.
var (
	// ErrField reports a value that does not fit its field.
	ErrField = errors.New("keydesign: value does not fit the field")
	// ErrKey reports a string that is not a key of the splice.
	ErrKey = errors.New("keydesign: not a key of this splice")
)

// DefaultConnector joins the parts of spliced keys. It sorts below letters, digits, and most
// other characters of names.
const DefaultConnector = ','

type fieldKind int

const (
	kindText fieldKind = iota
	kindUnsigned
	kindInteger
)

// Field is one part of a spliced key.
type Field struct {
	name  string
	kind  fieldKind
	width int
}

// Text is a string of any length in which every byte sorts above the connector, so that "shop"
// and what follows it sorts before "shop-books". The last field may have any bytes.
func Text(name string) Field { return Field{name: name, kind: kindText} }

// Unsigned is a number from 0 with at most width decimal digits, 1 to 19. It is padded with
// zeros, so that 9 sorts before 10. Choose a width for the largest number there will ever be: it
// cannot be changed later.
func Unsigned(name string, width int) Field {
	return Field{name: name, kind: kindUnsigned, width: width}
}

// Integer is any int64. It takes 20 digits: 2^63 is added, so that negative numbers sort first.
func Integer(name string) Field { return Field{name: name, kind: kindInteger, width: 20} }

// Splice makes one string from several values. The strings sort, byte by byte, like the tuples
// of values, and can be split again.
type Splice struct {
	connector byte
	fields    []Field
}

// NewSplice describes a spliced key. The connector must sort below digits and letters.
func NewSplice(connector byte, fields ...Field) (*Splice, error) {
	if len(fields) == 0 {
		return nil, errors.New("keydesign: a splice needs fields")
	}
	if connector >= '0' {
		return nil, fmt.Errorf("keydesign: connector %q does not sort below digits", connector)
	}
	for _, f := range fields {
		if f.kind == kindUnsigned && (f.width < 1 || f.width > 19) {
			return nil, fmt.Errorf("keydesign: field %s is %d digits wide, want 1 to 19", f.name, f.width)
		}
	}
	return &Splice{connector: connector, fields: append([]Field(nil), fields...)}, nil
}

// SafeConnector returns a connector for texts like the given ones: DefaultConnector if all their
// bytes sort above it, or else the largest byte below all of them. ok is false if none is
// printable.
func SafeConnector(texts ...string) (connector byte, ok bool) {
	lowest := byte('0')
	for _, t := range texts {
		for i := range len(t) {
			lowest = min(lowest, t[i])
		}
	}
	// A space is printable, but easily lost.
	if lowest <= '!' {
		return 0, false
	}
	if DefaultConnector < lowest {
		return DefaultConnector, true
	}
	return lowest - 1, true
}

// Join makes a key from one value for each field: string for Text, int or int64 for the others.
// Errors match ErrField.
func (s *Splice) Join(values ...any) (string, error) {
	if len(values) != len(s.fields) {
		return "", fmt.Errorf("%w: %d values for %d fields", ErrField, len(values), len(s.fields))
	}
	return s.join(values)
}

// Range returns the bounds, low inclusive and high exclusive, of the keys that begin with the
// given values: at least one, and fewer than there are fields.
func (s *Splice) Range(values ...any) (low, high string, err error) {
	if len(values) == 0 || len(values) >= len(s.fields) {
		return "", "", fmt.Errorf("%w: %d values for a range over %d fields", ErrField, len(values), len(s.fields))
	}
	prefix, err := s.join(values)
	if err != nil {
		return "", "", err
	}
	return prefix + string([]byte{s.connector}), prefix + string([]byte{s.connector + 1}), nil
}

func (s *Splice) join(values []any) (string, error) {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(s.connector)
		}
		part, err := s.part(i, v)
		if err != nil {
			return "", err
		}
		b.WriteString(part)
	}
	return b.String(), nil
}

// part is the form of a field's value in a key.
func (s *Splice) part(i int, value any) (string, error) {
	f := &s.fields[i]
	if f.kind == kindText {
		text, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("%w: %s is text, got %T", ErrField, f.name, value)
		}
		for j := range len(text) {
			if i < len(s.fields)-1 && text[j] <= s.connector {
				return "", fmt.Errorf("%w: %s %q holds %q, which does not sort above the connector %q",
					ErrField, f.name, text, text[j], s.connector)
			}
		}
		return text, nil
	}
	var n int64
	switch v := value.(type) {
	case int64:
		n = v
	case int:
		n = int64(v)
	default:
		return "", fmt.Errorf("%w: %s is a number, got %T", ErrField, f.name, value)
	}
	if f.kind == kindInteger {
		return fmt.Sprintf("%020d", uint64(n)^1<<63), nil
	}
	text := strconv.FormatInt(n, 10)
	if n < 0 || len(text) > f.width {
		return "", fmt.Errorf("%w: %s is %d, want 0 to %s", ErrField, f.name, n, strings.Repeat("9", f.width))
	}
	return strings.Repeat("0", f.width-len(text)) + text, nil
}

// Split splits a key into its values: a string for Text, an int64 for the others. Errors match
// ErrKey.
func (s *Splice) Split(key string) ([]any, error) {
	parts := strings.SplitN(key, string([]byte{s.connector}), len(s.fields))
	if len(parts) != len(s.fields) {
		return nil, fmt.Errorf("%w: %q has %d parts, want %d", ErrKey, key, len(parts), len(s.fields))
	}
	values := make([]any, len(parts))
	for i, part := range parts {
		f := &s.fields[i]
		if f.kind == kindText {
			values[i] = part
			continue
		}
		n, err := strconv.ParseUint(part, 10, 64)
		if f.kind == kindInteger {
			n ^= 1 << 63
		} else if n > math.MaxInt64 {
			err = strconv.ErrRange
		}
		if err != nil || len(part) != f.width {
			return nil, fmt.Errorf("%w: %s is %q, want %d digits", ErrKey, f.name, part, f.width)
		}
		values[i] = int64(n)
	}
	return values, nil
}
