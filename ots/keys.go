package ots

// This file checks primary keys: their values (no table needed) and their fit to a table's
// schema (PROTOCOL 5.5, 6.4).

import (
	"bytes"
	"unicode/utf8"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// keyUse is the purpose of a key, which decides the values it may hold.
type keyUse int

const (
	keyOfRead  keyUse = iota // one row, to be read
	keyOfWrite               // one row, to be written
	keyOfBound               // a bound of a range: may hold minimum and maximum
)

// checkKey checks the values of a key, without a table.
func (l *Limits) checkKey(key []KeyValue, use keyUse) *Error {
	if len(key) > l.KeyColumns {
		return invalidPK("Validate PK size fail. Input: %d, Meta: %d at most.", len(key), l.KeyColumns)
	}
	for i := range key {
		k := &key[i]
		if err := l.checkColumnName(k.Name); err != nil {
			return err
		}
		if k.AutoIncrement {
			if use == keyOfWrite {
				continue
			}
			return invalid("PKAutoIncr can't be used for read operations.")
		}
		if err := l.checkKeyValue(k, use); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limits) checkKeyValue(k *KeyValue, use keyUse) *Error {
	switch t := k.Value.Type(); {
	case t == row.TypeNone:
		return invalid("No value is given for primary key name: '%s'.", k.Name)
	case t == row.TypeInteger:
	case t == row.TypeString || t == row.TypeBinary:
		if n := len(k.Value.Bytes()); n > l.KeyColumnBytes {
			return invalid("The length of primary key column: '%s' exceeds the MaxLength:%d with CurrentLength:%d.",
				k.Name, l.KeyColumnBytes, n)
		}
		if t == row.TypeString && !utf8.Valid(k.Value.Bytes()) {
			return invalid("Value of column %s must be UTF8 encoding.", k.Name)
		}
	case isBound(t) && use == keyOfBound:
	default:
		return invalid("%s is an invalid type for the primary key.", typeName(t))
	}
	return nil
}

func isBound(t row.Type) bool { return t == row.TypeMin || t == row.TypeMax }

// isKeyColumn reports whether a key names the column.
func isKeyColumn(key []KeyValue, name string) bool {
	for i := range key {
		if key[i].Name == name {
			return true
		}
	}
	return false
}

// matchKey checks a key against a table's schema: all columns, in order, by name and type. The
// placeholder for a generated value fits only an auto-increment column. Errors are
// OTSInvalidPK.
func matchKey(schema []flagstone.KeyColumn, key []KeyValue) *Error {
	if len(key) != len(schema) {
		return invalidPK("Validate PK size fail. Input: %d, Meta: %d.", len(key), len(schema))
	}
	for i := range key {
		if key[i].Name != schema[i].Name {
			return invalidPK("Validate PK name fail. Input: %s, Meta: %s.", key[i].Name, schema[i].Name)
		}
		if key[i].AutoIncrement {
			if !schema[i].AutoIncrement {
				return invalidPK("Validate PK type fail. Input: VT_AUTO_INCREMENT, Meta: %s.", typeName(schema[i].Type))
			}
			continue
		}
		if t := key[i].Value.Type(); t != schema[i].Type && !isBound(t) {
			return invalidPK("Validate PK type fail. Input: %s, Meta: %s.", typeName(t), typeName(schema[i].Type))
		}
	}
	return nil
}

func keyTuple(key []KeyValue) []row.Value {
	tuple := make([]row.Value, len(key))
	for i := range key {
		tuple[i] = key[i].Value
	}
	return tuple
}

// compareKeys orders two tuples that fit one schema of `columns` columns.
func compareKeys(columns int, a, b []row.Value) (int, error) {
	x, err := row.AppendKey(nil, columns, a...)
	if err != nil {
		return 0, err
	}
	y, err := row.AppendKey(nil, columns, b...)
	if err != nil {
		return 0, err
	}
	return bytes.Compare(x, y), nil
}

// nameKey names the values of a stored key. A tuple shorter than the schema gives a prefix.
func nameKey(schema []flagstone.KeyColumn, tuple []row.Value) []KeyValue {
	key := make([]KeyValue, len(tuple))
	for i := range tuple {
		key[i] = KeyValue{Name: schema[i].Name, Value: tuple[i]}
	}
	return key
}
