package plainbuffer

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// The decoder reads untrusted bytes: it compares every length with the remaining input, accepts
// tags only in the one legal order, and allocates memory in proportion to the input. It does
// not check what depends on a table (names, sizes, key types).

// MaxCells is the largest number of cells, key cells included, in the rows of one request: a
// little more than 200 rows of 1,024 columns. A cell takes at least eleven bytes on the wire
// and ten times that in memory.
const MaxCells = 210_000

// RequestRows decodes the rows of one request and bounds their cells together. Rows share the
// names of columns in the same positions. The zero value is ready.
type RequestRows struct {
	cells int        // of all rows
	last  []ots.Cell // of the previous row
}

// Row decodes a blob with a single row, as all row fields of requests are. It ignores bytes
// after the row's checksum, because the Node.js SDK appends some. Values share memory with the
// blob. Errors are *ots.Error with the messages of PROTOCOL 11.2.
func (q *RequestRows) Row(blob []byte) (ots.Row, error) {
	d := decoder{rest: blob, size: len(blob), part: partKey, limit: MaxCells - q.cells, last: q.last}
	r, ext, err := d.blobRow()
	if err == nil && ext != nil {
		err = d.broken("unexpected extension")
	}
	if err != nil {
		return ots.Row{}, err
	}
	q.cells += len(r.Key) + len(r.Cells)
	q.last = r.Cells
	return r, nil
}

// DecodeRow decodes the row of a request with a single row.
func DecodeRow(blob []byte) (ots.Row, error) { return new(RequestRows).Row(blob) }

// DecodeRows decodes a blob of any number of rows and nothing after them: the rows of a range,
// or a stream record with its extension. It returns one extension per row, nil if the row has
// none.
func DecodeRows(blob []byte) ([]ots.Row, []*Extension, error) {
	if len(blob) == 0 {
		return nil, nil, nil
	}
	d := decoder{rest: blob, size: len(blob), part: partKey, limit: len(blob)}
	var rows []ots.Row
	var exts []*Extension
	r, ext, err := d.blobRow()
	for {
		if err != nil {
			return nil, nil, err
		}
		rows, exts = append(rows, r), append(exts, ext)
		if len(d.rest) == 0 {
			return rows, exts, nil
		}
		r, ext, err = d.row()
	}
}

// DecodeVariant decodes a bare value: type and payload, and nothing after it. It refuses the
// placeholder of auto-increment columns.
func DecodeVariant(b []byte) (row.Value, error) {
	d := decoder{size: len(b)}
	v, auto, err := d.variant(b, "")
	if err == nil && auto {
		err = d.broken("unexpected auto-increment placeholder")
	}
	return v, err
}

// The message of an error depends on the part of the row where it occurs.
const (
	partKey  = "Input encoded PK broken"
	partCell = "Cell data broken"
)

type decoder struct {
	rest []byte // not read yet
	size int    // of the whole input, for offsets in messages
	part string

	limit int        // largest number of cells of this row
	last  []ots.Cell // of the previous row, to share names
}

func (d *decoder) broken(format string, args ...any) error {
	part := d.part
	if part == "" {
		part = partCell
	}
	return invalid("%s, %s at offset %d.", part, fmt.Sprintf(format, args...), d.size-len(d.rest))
}

func invalid(format string, args ...any) error {
	return &ots.Error{Code: ots.CodeParameterInvalid, Message: fmt.Sprintf(format, args...)}
}

// take cuts n bytes off the input.
func (d *decoder) take(n uint64, what string) ([]byte, error) {
	if n > uint64(len(d.rest)) {
		return nil, d.broken("%s of %d bytes is longer than the %d bytes left", what, n, len(d.rest))
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b, nil
}

// takeSized cuts off a len32 and as many bytes as it says.
func (d *decoder) takeSized(what string) ([]byte, error) {
	n, err := d.take(4, what)
	if err != nil {
		return nil, err
	}
	return d.take(uint64(binary.LittleEndian.Uint32(n)), what)
}

// skipTag reads the tag if it comes next.
func (d *decoder) skipTag(tag byte) bool {
	if len(d.rest) > 0 && d.rest[0] == tag {
		d.rest = d.rest[1:]
		return true
	}
	return false
}

func (d *decoder) wantTag(tag byte, what string) error {
	if !d.skipTag(tag) {
		return d.broken("expected %s", what)
	}
	return nil
}

func (d *decoder) blobRow() (ots.Row, *Extension, error) {
	h, err := d.take(4, "header")
	if err == nil && binary.LittleEndian.Uint32(h) != header {
		err = d.broken("wrong header")
	}
	if err != nil {
		return ots.Row{}, nil, err
	}
	return d.row()
}

func (d *decoder) row() (r ots.Row, ext *Extension, err error) {
	d.part = partKey
	if err := d.wantTag(tagRowKey, "the key section"); err != nil {
		return r, nil, err
	}
	var crc byte
	const usualKeyColumns = 4
	for d.skipTag(tagCell) {
		if r.Key == nil {
			r.Key = make([]ots.KeyValue, 0, usualKeyColumns)
		}
		switch len(r.Key) {
		case row.MaxKeyColumns: // no table has more
			return r, nil, &ots.Error{Code: ots.CodeInvalidPK, Message: fmt.Sprintf(
				"Validate PK size fail. Input: more than %d, Meta: %[1]d at most.", row.MaxKeyColumns)}
		case d.limit:
			return r, nil, tooManyCells()
		}
		kv, cellCRC, err := d.keyCell()
		if err != nil {
			return r, nil, err
		}
		r.Key = append(r.Key, kv)
		crc = crcByte(crc, cellCRC)
	}
	if r.Key == nil {
		return r, nil, d.broken("expected a key cell")
	}
	d.part = partCell
	if d.skipTag(tagRowData) {
		if r.Cells, crc, err = d.dataCells(crc, d.limit-len(r.Key)); err != nil {
			return r, nil, err
		}
	}
	r.DeleteMarker = d.skipTag(tagDeleteMarker)
	if r.DeleteMarker {
		crc = crcByte(crc, 1)
	} else {
		crc = crcByte(crc, 0)
	}
	if d.skipTag(tagExtension) {
		if ext, err = d.extension(); err != nil {
			return r, nil, err
		}
	}
	if err := d.checksum(tagRowChecksum, "row checksum", crc); err != nil {
		return r, nil, err
	}
	return r, ext, nil
}

func tooManyCells() error {
	return invalid("The number of cells in the request exceeds the limit, limit count: %d.", MaxCells)
}

// sameName returns the name of the previous cell, or of the cell in the same position of the
// previous row, if it is equal to name; else "".
func (d *decoder) sameName(cells []ots.Cell, name []byte) string {
	if n := len(cells); n > 0 && cells[n-1].Name == string(name) {
		return cells[n-1].Name
	}
	if n := len(cells); n < len(d.last) && d.last[n].Name == string(name) {
		return d.last[n].Name
	}
	return ""
}

func (d *decoder) dataCells(crc byte, limit int) ([]ots.Cell, byte, error) {
	const usualCells = 12
	var cells []ots.Cell
	for d.skipTag(tagCell) {
		if len(cells) == limit {
			return nil, 0, tooManyCells()
		}
		c, cellCRC, err := d.dataCell(cells)
		if err != nil {
			return nil, 0, err
		}
		if cells == nil {
			const smallestCell = 11 // a delete of a column with a name of one byte
			cells = make([]ots.Cell, 0, min(1+len(d.rest)/smallestCell, usualCells))
		}
		cells = append(cells, c)
		crc = crcByte(crc, cellCRC)
	}
	if cells == nil {
		return nil, 0, d.broken("expected an attribute cell")
	}
	return cells, crc, nil
}

func (d *decoder) keyCell() (kv ots.KeyValue, crc byte, err error) {
	name, crc, err := d.name()
	if err != nil {
		return kv, 0, err
	}
	kv.Name = string(name)
	if !d.skipTag(tagCellValue) {
		return kv, 0, invalid("No value is given for primary key name '%s'.", kv.Name)
	}
	if kv.Value, kv.AutoIncrement, crc, err = d.value(kv.Name, crc); err != nil {
		return kv, 0, err
	}
	if d.skipTag(tagCellOp) {
		return kv, 0, invalid("OpType cannot be given for primary key: '%s'.", kv.Name)
	}
	if d.skipTag(tagCellTimestamp) {
		return kv, 0, invalid("Timestamp cannot be given for primary key: '%s'.", kv.Name)
	}
	return kv, crc, d.checksum(tagCellChecksum, "cell checksum", crc)
}

// dataCell reads an attribute cell. before are the cells of the row so far.
func (d *decoder) dataCell(before []ots.Cell) (c ots.Cell, crc byte, err error) {
	name, crc, err := d.name()
	if err != nil {
		return c, 0, err
	}
	if c.Name = d.sameName(before, name); c.Name == "" {
		c.Name = string(name)
	}
	if d.skipTag(tagCellValue) {
		var auto bool
		if c.Value, auto, crc, err = d.value(c.Name, crc); err != nil {
			return c, 0, err
		}
		if auto || !c.Value.Type().IsAttributeType() {
			return c, 0, invalid("Invalid type for attribute column: '%s'.", c.Name)
		}
	}
	if d.skipTag(tagCellOp) {
		if c.Op, err = d.op(); err != nil {
			return c, 0, err
		}
	}
	if d.skipTag(tagCellTimestamp) {
		b, err := d.take(8, "timestamp")
		if err != nil {
			return c, 0, err
		}
		c.Version, c.HasVersion = int64(binary.LittleEndian.Uint64(b)), true
		crc = crcBytes(crc, b)
	}
	if c.Op != ots.OpPut {
		crc = crcByte(crc, byte(c.Op))
	}
	return c, crc, d.checksum(tagCellChecksum, "cell checksum", crc)
}

func (d *decoder) op() (ots.CellOp, error) {
	b, err := d.take(1, "operation")
	if err != nil {
		return 0, err
	}
	switch op := ots.CellOp(b[0]); op {
	case ots.OpDeleteAllVersion, ots.OpDeleteOneVersion, ots.OpIncrement:
		return op, nil
	}
	return 0, d.broken("unknown operation %d", b[0])
}

func (d *decoder) checksum(tag byte, what string, want byte) error {
	if err := d.wantTag(tag, what); err != nil {
		return err
	}
	b, err := d.take(1, what)
	if err == nil && b[0] != want {
		d.part = partCell
		err = d.broken("wrong %s", what)
	}
	return err
}

// name reads a cell's name and begins the cell's checksum with it.
func (d *decoder) name() ([]byte, byte, error) {
	if err := d.wantTag(tagCellName, "a cell name"); err != nil {
		return nil, 0, err
	}
	b, err := d.takeSized("cell name")
	if err != nil {
		return nil, 0, err
	}
	if !utf8.Valid(b) {
		return nil, 0, d.broken("cell name that is not UTF-8")
	}
	return b, crcBytes(0, b), nil
}

// value reads a cell's value after its tag and continues the cell's checksum.
func (d *decoder) value(name string, crc byte) (row.Value, bool, byte, error) {
	b, err := d.takeSized("cell value")
	if err != nil {
		return row.Value{}, false, 0, err
	}
	v, auto, err := d.variant(b, name)
	return v, auto, crcBytes(crc, b), err
}

// variant decodes type and payload, which must fill b. auto reports the auto-increment
// placeholder, which has no value. column is for messages.
func (d *decoder) variant(b []byte, column string) (v row.Value, auto bool, err error) {
	if len(b) == 0 {
		return v, false, d.broken("value without a type")
	}
	payload := b[1:]
	switch b[0] {
	case typeInteger:
		v, err = row.PayloadValue(row.TypeInteger, payload)
	case typeDouble:
		v, err = row.PayloadValue(row.TypeDouble, payload)
	case typeBoolean:
		v, err = row.PayloadValue(row.TypeBoolean, payload)
	case typeString, typeBinary:
		if len(payload) < 4 || uint64(binary.LittleEndian.Uint32(payload)) != uint64(len(payload)-4) {
			return v, false, d.broken("value whose two lengths differ")
		}
		if b[0] == typeBinary {
			return row.Binary(payload[4:]), false, nil
		}
		if !utf8.Valid(payload[4:]) {
			return v, false, invalid("Value of column %s must be UTF8 encoding.", column)
		}
		return row.StringBytes(payload[4:]), false, nil
	case typeMin, typeMax, typeAutoIncrement:
		if len(payload) != 0 {
			return v, false, d.broken("value of %d bytes for type %d, which has none", len(payload), b[0])
		}
		switch b[0] {
		case typeMin:
			return row.Min(), false, nil
		case typeMax:
			return row.Max(), false, nil
		}
		return v, true, nil
	default:
		return v, false, d.broken("unknown value type %d", b[0])
	}
	if err != nil {
		return v, false, d.broken("value of %d bytes for type %d", len(payload), b[0])
	}
	return v, false, nil
}

func (d *decoder) extension() (*Extension, error) {
	b, err := d.take(4+extensionSize, "extension")
	if err != nil {
		return nil, err
	}
	info := b[4:]
	if binary.LittleEndian.Uint32(b) != extensionSize || info[0] != tagSeqInfo ||
		binary.LittleEndian.Uint32(info[1:]) != seqInfoSize ||
		info[5] != tagSeqEpoch || info[10] != tagSeqTimestamp || info[19] != tagSeqRowIndex {
		return nil, d.broken("malformed extension")
	}
	return &Extension{
		Epoch:     int32(binary.LittleEndian.Uint32(info[6:])),
		Timestamp: int64(binary.LittleEndian.Uint64(info[11:])),
		RowIndex:  int32(binary.LittleEndian.Uint32(info[20:])),
	}, nil
}
