package instances

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/row"
)

// Value is a value as JSON: a string, a number or a boolean. A number with a point or an exponent is a double,
// one without an integer. Other values are objects with one member:
//
//	{"binary": "00ff"}     bytes, in hexadecimal
//	{"string": "ff"}       the bytes of a string that is not UTF-8, in hexadecimal
//	{"double": "NaN"}      or "+Inf", "-Inf"
type Value struct{ row.Value }

// special is a value that is neither a string nor a number nor a boolean of JSON.
type special struct {
	Binary *string `json:"binary,omitempty"`
	String *string `json:"string,omitempty"`
	Double *string `json:"double,omitempty"`
}

// MarshalJSON writes the value. It fails for bounds and for no value.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.Type() {
	case row.TypeInteger:
		return strconv.AppendInt(nil, v.Int64(), 10), nil
	case row.TypeBoolean:
		return strconv.AppendBool(nil, v.Bool()), nil
	case row.TypeDouble:
		f := v.Float64()
		text := strconv.FormatFloat(f, 'g', -1, 64)
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return json.Marshal(special{Double: &text})
		case !strings.ContainsAny(text, ".e"):
			text += ".0"
		}
		return []byte(text), nil
	case row.TypeString:
		if !utf8.Valid(v.Bytes()) {
			return json.Marshal(special{String: new(hex.EncodeToString(v.Bytes()))})
		}
		return json.Marshal(v.Text())
	case row.TypeBinary:
		return json.Marshal(special{Binary: new(hex.EncodeToString(v.Bytes()))})
	}
	return nil, fmt.Errorf("a value of type %s has no JSON", v.Type())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(text []byte) (err error) {
	switch text = bytes.TrimSpace(text); text[0] {
	case '"':
		var s string
		err = json.Unmarshal(text, &s)
		v.Value = row.String(s)
	case 't', 'f':
		var b bool
		err = json.Unmarshal(text, &b)
		v.Value = row.Boolean(b)
	case '{':
		v.Value, err = parseSpecial(text)
	case 'n', '[':
		err = noValue(text)
	default:
		if bytes.ContainsAny(text, ".eE") {
			v.Value, err = ParseValue(row.TypeDouble, string(text))
		} else {
			v.Value, err = ParseValue(row.TypeInteger, string(text))
		}
	}
	return err
}

func parseSpecial(text []byte) (row.Value, error) {
	var s special
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&s); {
	case err != nil: // the object has other members
	case s.Binary != nil && s.String == nil && s.Double == nil:
		return ParseValue(row.TypeBinary, *s.Binary)
	case s.String != nil && s.Binary == nil && s.Double == nil:
		b, err := hex.DecodeString(*s.String)
		return row.StringBytes(b), err
	case s.Double != nil && s.Binary == nil && s.String == nil:
		return ParseValue(row.TypeDouble, *s.Double)
	}
	return row.Value{}, noValue(text)
}

func noValue(text []byte) error {
	const most = 60 // bytes that are shown
	more := ""
	if len(text) > most {
		text, more = text[:most], "..."
	}
	return fmt.Errorf(`%s%s is no value: want a string, a number, a boolean, {"binary": hexadecimal}, {"string": hexadecimal} or {"double": "NaN"}`, text, more)
}

// wanted says what a text of a type is.
var wanted = map[row.Type]string{row.TypeBoolean: ": want true or false", row.TypeBinary: ": want two hexadecimal digits for each byte"}

// ParseValue reads a value of an attribute type as people write it: an integer or a double in decimal, a boolean as
// true or false, a string as it is, bytes in hexadecimal. Errors match ErrInvalid.
func ParseValue(of row.Type, text string) (v row.Value, err error) {
	switch of {
	case row.TypeInteger:
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		v = row.Integer(n)
	case row.TypeDouble:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v = row.Double(f)
	case row.TypeBoolean:
		if text != "true" && text != "false" {
			err = ErrInvalid
		}
		v = row.Boolean(text == "true")
	case row.TypeBinary:
		var b []byte
		b, err = hex.DecodeString(text)
		v = row.Binary(b)
	case row.TypeString:
		return row.String(text), nil
	default:
		err = ErrInvalid
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return row.Value{}, fmt.Errorf("%w: %q is beyond the values of type %s", ErrInvalid, text, of)
	case err != nil:
		return row.Value{}, fmt.Errorf("%w: %q is no value of type %s%s", ErrInvalid, text, of, wanted[of])
	}
	return v, nil
}

// Text writes a value as ParseValue reads it. It is empty for bounds and for no value.
func (v Value) Text() string {
	switch v.Type() {
	case row.TypeBinary:
		return hex.EncodeToString(v.Bytes())
	case row.TypeString:
		return string(v.Bytes())
	case row.TypeMin, row.TypeMax, row.TypeNone:
		return ""
	}
	return v.Value.String()
}

// keyText is Text of a value of a partition key; nil for the zero Value.
func keyText(v row.Value) *string {
	if v.Type() == row.TypeNone {
		return nil
	}
	return new(Value{v}.Text())
}
