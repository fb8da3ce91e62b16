package plainbuffer

import (
	"encoding/binary"
	"slices"

	"github.com/flagstone-db/flagstone/ots"
)

// The SimpleRowMatrix format, a denser form of the rows of a range, which a client may request.
// Integers are little endian:
//
//	matrix  = "SRM0" data_offset:int32 option_offset:int32 pk_count:int32 attr_count:int32
//	          name* options row* 01 crc8       crc8 of every byte before it
//	name    = len:int16 bytes                  key columns, then attribute columns
//	options = 0A full:byte 03 row_count:int32  full is 1 if rows have their whole key
//	row     = 02 variant*                      one for each name; 06 if absent
//
// The columns are the union over the rows of the block. Each cell is the newest version of its
// column, without the version number. Readers stop at option 03, so it comes last.
//
// Worked example: the vector simple_row_matrix in testdata.

const (
	matrixMagic      = "SRM0"
	matrixHeaderSize = 4 + 4*4

	matrixRow       = 0x02
	matrixFooter    = 0x01
	optionFullKeys  = 0x0A
	optionRowCount  = 0x03
	optionsByteSize = 2 + 5
)

// AppendMatrix appends the rows as one block. If the block would exceed most bytes, it returns
// false before it allocates memory for it. All rows must have the same key columns; fullKeys
// says whether these are all key columns of the table.
func AppendMatrix(dst []byte, rows []ots.Row, fullKeys bool, most int) ([]byte, bool) {
	start := len(dst)
	var keyNames []string
	if len(rows) > 0 {
		for i := range rows[0].Key {
			keyNames = append(keyNames, rows[0].Key[i].Name)
		}
	}
	columns, size := matrixColumns(rows, keyNames, most)
	if size > most {
		return dst, false
	}
	dst = slices.Grow(dst, size)
	dst = append(dst, matrixMagic...)
	dst = append(dst, make([]byte, matrixHeaderSize-len(matrixMagic))...)
	for _, name := range slices.Concat(keyNames, columns) {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(name)))
		dst = append(dst, name...)
	}
	options := len(dst) - start
	dst = append(dst, optionFullKeys, 0, optionRowCount)
	if fullKeys {
		dst[len(dst)-2] = 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(rows)))

	head := dst[start:]
	binary.LittleEndian.PutUint32(head[4:], uint32(options+optionsByteSize))
	binary.LittleEndian.PutUint32(head[8:], uint32(options))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(keyNames)))
	binary.LittleEndian.PutUint32(head[16:], uint32(len(columns)))

	for i := range rows {
		dst = appendMatrixRow(dst, &rows[i], columns)
	}
	dst = append(dst, matrixFooter)
	return append(dst, crcBytes(0, dst[start:])), true
}

func appendMatrixRow(dst []byte, r *ots.Row, columns []string) []byte {
	dst = append(dst, matrixRow)
	for i := range r.Key {
		dst = AppendVariant(dst, r.Key[i].Value)
	}
	at := 0 // cells and columns are both in ascending order of names
	for _, name := range columns {
		if at == len(r.Cells) || r.Cells[at].Name != name {
			dst = append(dst, typeNull)
			continue
		}
		dst = AppendVariant(dst, r.Cells[at].Value)
		for at < len(r.Cells) && r.Cells[at].Name == name {
			at++ // older versions
		}
	}
	return dst
}

// matrixColumns returns the names of all cells, ascending, each once, and the size of the
// block. The size grows with every cell, so it stops above most.
func matrixColumns(rows []ots.Row, keyNames []string, most int) (columns []string, size int) {
	size = matrixHeaderSize + optionsByteSize + 2 + len(rows) // with the footer, and the first byte of each row
	for _, name := range keyNames {
		size += 2 + len(name)
	}
	seen := make(map[string]struct{})
	for i := range rows {
		for j := range rows[i].Key {
			size += variantSize(rows[i].Key[j].Value)
		}
		for j := range rows[i].Cells {
			c := &rows[i].Cells[j]
			if j > 0 && rows[i].Cells[j-1].Name == c.Name {
				continue // an older version
			}
			size += variantSize(c.Value) - 1 // instead of the byte for an absent column
			if _, ok := seen[c.Name]; !ok {
				seen[c.Name] = struct{}{}
				columns = append(columns, c.Name)
				size += 2 + len(c.Name) + len(rows)
			}
		}
		if size > most {
			return nil, size
		}
	}
	slices.Sort(columns)
	return columns, size
}
