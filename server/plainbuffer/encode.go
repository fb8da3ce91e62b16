package plainbuffer

import (
	"encoding/binary"
	"fmt"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// AppendHeader appends the header of a blob, which precedes its first row.
func AppendHeader(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(dst, header)
}

// AppendRow appends one row in the form of requests and stream records: each cell with its
// value, operation and version, as far as present. It panics on a value type that the format
// lacks.
func AppendRow(dst []byte, r *ots.Row, ext *Extension) []byte {
	return appendRow(dst, r.Key, r.Cells, r.DeleteMarker, ext, false)
}

// AppendResultRow appends one row in the form of answers: every cell has a version and no
// operation, which some clients cannot read there.
func AppendResultRow(dst []byte, r *ots.Row) []byte {
	return appendRow(dst, r.Key, r.Cells, false, nil, true)
}

// AppendKey appends one row of key columns only: a split point, or the start of the next page.
func AppendKey(dst []byte, key []ots.KeyValue) []byte {
	return appendRow(dst, key, nil, false, nil, false)
}

// RowSize returns an upper bound of the encoded size of a row, without header and extension.
func RowSize(r *ots.Row) int {
	const perCell = 1 + 1 + 4 + 1 + 4 + 1 + 4 + 2 + 9 + 2 // everything except name and payload
	size := 1 + 1 + 1 + 2
	for i := range r.Key {
		size += perCell + len(r.Key[i].Name) + r.Key[i].Value.Size()
	}
	for i := range r.Cells {
		size += perCell + len(r.Cells[i].Name) + r.Cells[i].Value.Size()
	}
	return size
}

func appendRow(dst []byte, key []ots.KeyValue, cells []ots.Cell, deleted bool, ext *Extension, result bool) []byte {
	var rowCRC byte
	dst = append(dst, tagRowKey)
	for i := range key {
		var crc byte
		dst, crc = appendName(dst, key[i].Name)
		dst, crc = appendKeyValue(dst, crc, &key[i])
		dst = append(dst, tagCellChecksum, crc)
		rowCRC = crcByte(rowCRC, crc)
	}
	if len(cells) > 0 {
		dst = append(dst, tagRowData)
	}
	for i := range cells {
		var crc byte
		dst, crc = appendCell(dst, &cells[i], result)
		rowCRC = crcByte(rowCRC, crc)
	}
	if deleted {
		dst = append(dst, tagDeleteMarker)
		rowCRC = crcByte(rowCRC, 1)
	} else {
		rowCRC = crcByte(rowCRC, 0)
	}
	if ext != nil {
		dst = appendExtension(dst, ext)
	}
	return append(dst, tagRowChecksum, rowCRC)
}

func appendCell(dst []byte, c *ots.Cell, result bool) ([]byte, byte) {
	dst, crc := appendName(dst, c.Name)
	if c.Value.Type() != row.TypeNone {
		dst, crc = appendValue(dst, crc, c.Value)
	}
	hasOp := c.Op != ots.OpPut && !result
	if hasOp {
		dst = append(dst, tagCellOp, byte(c.Op))
	}
	if c.HasVersion || result {
		dst = append(dst, tagCellTimestamp)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Version))
		crc = crcInt64(crc, c.Version)
	}
	if hasOp {
		crc = crcByte(crc, byte(c.Op))
	}
	return append(dst, tagCellChecksum, crc), crc
}

func appendName(dst []byte, name string) ([]byte, byte) {
	dst = append(dst, tagCell, tagCellName)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(name)))
	at := len(dst)
	dst = append(dst, name...)
	return dst, crcBytes(0, dst[at:])
}

func appendKeyValue(dst []byte, crc byte, kv *ots.KeyValue) ([]byte, byte) {
	if kv.AutoIncrement && kv.Value.Type() == row.TypeNone {
		dst = append(dst, tagCellValue, 1, 0, 0, 0, typeAutoIncrement)
		return dst, crcByte(crc, typeAutoIncrement)
	}
	return appendValue(dst, crc, kv.Value)
}

// appendValue appends tag, length and variant, and returns the checksum including the variant.
func appendValue(dst []byte, crc byte, v row.Value) ([]byte, byte) {
	dst = append(dst, tagCellValue, 0, 0, 0, 0)
	at := len(dst)
	dst = AppendVariant(dst, v)
	binary.LittleEndian.PutUint32(dst[at-4:], uint32(len(dst)-at))
	return dst, crcBytes(crc, dst[at:])
}

// AppendVariant appends a bare value, type and payload, as in filters and matrices.
func AppendVariant(dst []byte, v row.Value) []byte {
	switch v.Type() {
	case row.TypeInteger:
		return v.AppendPayload(append(dst, typeInteger))
	case row.TypeDouble:
		return v.AppendPayload(append(dst, typeDouble))
	case row.TypeBoolean:
		return v.AppendPayload(append(dst, typeBoolean))
	case row.TypeString, row.TypeBinary:
		typ := byte(typeString)
		if v.Type() == row.TypeBinary {
			typ = typeBinary
		}
		dst = append(dst, typ)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Size()))
		return v.AppendPayload(dst)
	case row.TypeMin:
		return append(dst, typeMin)
	case row.TypeMax:
		return append(dst, typeMax)
	}
	panic(fmt.Sprintf("plainbuffer: a value of type %s has no encoding", v.Type()))
}

// variantSize is the number of bytes that AppendVariant appends.
func variantSize(v row.Value) int {
	switch v.Type() {
	case row.TypeMin, row.TypeMax:
		return 1
	case row.TypeString, row.TypeBinary:
		return 1 + 4 + v.Size()
	}
	return 1 + v.Size()
}

func appendExtension(dst []byte, ext *Extension) []byte {
	dst = append(dst, tagExtension)
	dst = binary.LittleEndian.AppendUint32(dst, extensionSize)
	dst = append(dst, tagSeqInfo)
	dst = binary.LittleEndian.AppendUint32(dst, seqInfoSize)
	dst = append(dst, tagSeqEpoch)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(ext.Epoch))
	dst = append(dst, tagSeqTimestamp)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(ext.Timestamp))
	dst = append(dst, tagSeqRowIndex)
	return binary.LittleEndian.AppendUint32(dst, uint32(ext.RowIndex))
}
