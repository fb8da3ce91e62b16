package server

import (
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file converts the parts that several messages share, to and from the service's types.
// proto2 checks neither that strings are UTF-8 nor that enumeration numbers are known, so both
// are checked here.

// checkTexts refuses strings that are not UTF-8.
func checkTexts(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return parseFailed()
		}
	}
	return nil
}

// checkEnum refuses a number that the enumeration lacks; names comes from the generated code.
func checkEnum[E ~int32](names map[int32]string, value E) error {
	if _, ok := names[int32(value)]; !ok {
		return parseFailed()
	}
	return nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ---- Rows -----------------------------------------------------------------

// encodeRow returns the blob of a row that was read. Without a row it returns an empty slice,
// not nil, because the field is required.
func encodeRow(r *ots.Row) []byte {
	if r == nil {
		return []byte{}
	}
	const headerSize = 4
	blob := plainbuffer.AppendHeader(make([]byte, 0, headerSize+plainbuffer.RowSize(r)))
	return plainbuffer.AppendResultRow(blob, r)
}

// encodeWritten returns the blob of the row that a write returns, or nil.
func encodeWritten(r *ots.Row) []byte {
	if r == nil {
		return nil
	}
	return encodeRow(r)
}

func encodeKey(key []ots.KeyValue) []byte {
	return plainbuffer.AppendKey(plainbuffer.AppendHeader(nil), key)
}

// ---- Capacity -------------------------------------------------------------

// capacity always sets both fields: clients read them without checking for presence.
func capacity(read, write int32) *otspb.CapacityUnit {
	return &otspb.CapacityUnit{Read: &read, Write: &write}
}

func consumed(c ots.CapacityUnit) *otspb.ConsumedCapacity {
	return &otspb.ConsumedCapacity{CapacityUnit: capacity(c.Read, c.Write)}
}

func reservedThroughput(t *otspb.ReservedThroughput) ots.ReservedThroughput {
	return ots.ReservedThroughput{Read: t.CapacityUnit.Read, Write: t.CapacityUnit.Write}
}

// ---- Schemas --------------------------------------------------------------

// keyColumns converts the schema of a new table. A type that keys may not have becomes
// row.TypeNone, which the service refuses.
func keyColumns(schema []*otspb.PrimaryKeySchema) ([]ots.KeyColumn, error) {
	columns := make([]ots.KeyColumn, 0, len(schema))
	for _, s := range schema {
		if err := checkTexts(*s.Name); err != nil {
			return nil, err
		}
		c := ots.KeyColumn{Name: *s.Name}
		switch *s.Type {
		case otspb.PrimaryKeyType_INTEGER:
			c.Type = row.TypeInteger
		case otspb.PrimaryKeyType_STRING:
			c.Type = row.TypeString
		case otspb.PrimaryKeyType_BINARY:
			c.Type = row.TypeBinary
		}
		if s.Option != nil {
			if err := checkEnum(otspb.PrimaryKeyOption_name, *s.Option); err != nil {
				return nil, err
			}
			c.AutoIncrement = true
		}
		columns = append(columns, c)
	}
	return columns, nil
}

func keySchema(columns []ots.KeyColumn) []*otspb.PrimaryKeySchema {
	schema := make([]*otspb.PrimaryKeySchema, 0, len(columns))
	for i := range columns {
		s := &otspb.PrimaryKeySchema{Name: &columns[i].Name}
		switch columns[i].Type {
		case row.TypeInteger:
			s.Type = otspb.PrimaryKeyType_INTEGER.Enum()
		case row.TypeString:
			s.Type = otspb.PrimaryKeyType_STRING.Enum()
		case row.TypeBinary:
			s.Type = otspb.PrimaryKeyType_BINARY.Enum()
		}
		if columns[i].AutoIncrement {
			s.Option = otspb.PrimaryKeyOption_AUTO_INCREMENT.Enum()
		}
		schema = append(schema, s)
	}
	return schema
}

// partitionRanges decodes the partitions of a new table, whose bounds are bare values.
func partitionRanges(ranges []*otspb.PartitionRange) (partitions []ots.PartitionRange, err error) {
	for _, r := range ranges {
		var p ots.PartitionRange
		if p.Begin, err = plainbuffer.DecodeVariant(r.Begin); err == nil {
			p.End, err = plainbuffer.DecodeVariant(r.End)
		}
		if err != nil {
			return nil, err
		}
		partitions = append(partitions, p)
	}
	return partitions, nil
}

func definedColumns(schema []*otspb.DefinedColumnSchema) ([]ots.DefinedColumn, error) {
	var columns []ots.DefinedColumn
	for _, s := range schema {
		if err := checkTexts(*s.Name); err != nil {
			return nil, err
		}
		c := ots.DefinedColumn{Name: *s.Name}
		switch *s.Type {
		case otspb.DefinedColumnType_DCT_INTEGER:
			c.Type = row.TypeInteger
		case otspb.DefinedColumnType_DCT_DOUBLE:
			c.Type = row.TypeDouble
		case otspb.DefinedColumnType_DCT_BOOLEAN:
			c.Type = row.TypeBoolean
		case otspb.DefinedColumnType_DCT_STRING:
			c.Type = row.TypeString
		case otspb.DefinedColumnType_DCT_BLOB:
			c.Type = row.TypeBinary
		default:
			return nil, refuse(ots.CodeParameterInvalid, "Invalid type for attribute column")
		}
		columns = append(columns, c)
	}
	return columns, nil
}

func definedSchema(columns []ots.DefinedColumn) []*otspb.DefinedColumnSchema {
	var schema []*otspb.DefinedColumnSchema
	for i := range columns {
		s := &otspb.DefinedColumnSchema{Name: &columns[i].Name}
		switch columns[i].Type {
		case row.TypeInteger:
			s.Type = otspb.DefinedColumnType_DCT_INTEGER.Enum()
		case row.TypeDouble:
			s.Type = otspb.DefinedColumnType_DCT_DOUBLE.Enum()
		case row.TypeBoolean:
			s.Type = otspb.DefinedColumnType_DCT_BOOLEAN.Enum()
		case row.TypeString:
			s.Type = otspb.DefinedColumnType_DCT_STRING.Enum()
		case row.TypeBinary:
			s.Type = otspb.DefinedColumnType_DCT_BLOB.Enum()
		}
		schema = append(schema, s)
	}
	return schema
}
