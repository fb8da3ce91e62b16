package cdc

// This file stores records as rows of a change log, and reads these rows.

import (
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// HiddenPrefix begins the names of tables that callers do not see. No other table may have such a
// name.
const HiddenPrefix = "\x01"

// versionOffset is the Max Version Offset of a change log, in seconds. Nothing checks it: the
// versions are times of commits.
const versionOffset = 86400

// NewTable describes the table of a new change log, with one partition. Its records expire
// retention seconds after their commit. millis is when it is created.
func NewTable(id, partition uint64, log manifest.ChangeLog, retention, millis int64, annotations []byte) *manifest.Table {
	log.Before = slices.Clone(log.Before)
	return &manifest.Table{
		ID: id, Name: fmt.Sprintf("%schange log %d", HiddenPrefix, id),
		Key: []manifest.KeyColumn{{Name: "shard", Type: row.TypeInteger}, {Name: "sequence", Type: row.TypeInteger}},
		Options: manifest.TableOptions{
			MaxVersions: 1, TTLSeconds: retention, MaxVersionOffsetSeconds: versionOffset,
		},
		LargestOffset: versionOffset, Watermark: manifest.NoWatermark, CreatedMillis: millis,
		Annotations: slices.Clone(annotations), Log: &log,
		Partitions: []*manifest.Partition{{ID: partition, FlushedSeq: log.After}},
	}
}

// Kinds of values in the row of a record, one letter each. A value may be long, so its pieces are
// in columns r00, r01, ...
const (
	recordCells = 'r' // the record
	beforeCells = 'b' // what columns held before
)

// piece is the length of a piece. A value that fits a batch has less than 100 pieces.
const piece = 4 << 20

// perPiece is an upper bound of the memtable bytes that a piece takes besides its content.
var perPiece = func() int64 {
	c := row.Change{Key: rowKey(0, 0)}
	if err := c.Put(pieceName(recordCells, 0), row.MaxVersion-1, row.Binary(nil)); err != nil {
		panic(err) // it is a cell like any other
	}
	const lengths = 16 // a long value's length takes more than an empty one's, and sizes are rounded up
	return memtable.EstimateSize(&c) + lengths
}()

// Key returns the key of the row of a shard's record.
func Key(shard, seq uint64) []row.Value {
	return []row.Value{row.Integer(int64(shard)), row.Integer(int64(seq))}
}

func rowKey(shard, seq uint64) []byte {
	key, err := row.AppendKey(nil, 2, Key(shard, seq)...)
	if err != nil {
		panic(fmt.Sprintf("cdc: the key of a record does not encode: %v", err))
	}
	return key
}

// Entry is what a mutation adds to a change log: its record, or what columns held before it.
type Entry struct {
	kind  byte
	bytes []byte
}

// NewRecord makes the record of a change.
func NewRecord(c *row.Change) Entry { return Entry{recordCells, appendRecord(nil, c)} }

// NewBefore makes the entry of what columns held before, from the bytes of AppendBefore.
func NewBefore(before []byte) Entry { return Entry{beforeCells, before} }

// Size is an upper bound of what the entry takes in a memtable, in bytes.
func (e Entry) Size() int64 {
	pieces := int64(len(e.bytes)/piece + 1)
	return pieces*perPiece + int64(len(e.bytes))
}

// Change makes the change of the change log that adds the entry. It belongs to the mutation seq of
// a shard, which was committed at micros.
func (e Entry) Change(log, shard, seq uint64, micros int64) *row.Change {
	if e.kind == recordCells {
		setTime(e.bytes, micros)
	}
	c := &row.Change{Table: log, Key: rowKey(shard, seq)}
	if err := putPieces(c, e.kind, max(micros/1000, 0), e.bytes); err != nil {
		panic(fmt.Sprintf("cdc: a record cannot be stored: %v", err)) // it is within every limit
	}
	return c
}

// putPieces puts bytes into a change, in pieces; empty bytes are one empty piece.
func putPieces(c *row.Change, kind byte, version int64, bytes []byte) error {
	for i := 0; i == 0 || len(bytes) > 0; i++ {
		n := min(len(bytes), piece)
		if err := c.Put(pieceName(kind, i), version, row.Binary(bytes[:n])); err != nil {
			return err
		}
		bytes = bytes[n:]
	}
	return c.Normalize()
}

// pieceName is the column of a piece.
func pieceName(kind byte, i int) string {
	return string([]byte{kind, '0' + byte(i/10), '0' + byte(i%10)})
}

// Carry makes the mutation of a change log that carries the bytes of AppendBefore in a batch,
// directly behind the mutation that they belong to.
func Carry(log uint64, before []byte) (*row.Change, error) {
	c := &row.Change{Table: log, Key: rowKey(0, 0)}
	return c, putPieces(c, beforeCells, 0, before)
}

// Carried returns the bytes that a mutation of Carry carries.
func Carried(c *row.Change) (before []byte, err error) {
	var m row.Mutation
	if err := c.Mutation(&m); err != nil {
		return nil, err
	}
	for i := range m.Cells {
		before = append(before, m.Cells[i].Value...)
	}
	return before, nil
}

// Action says what a change did.
type Action int

// What a change did: it replaced the row, changed some columns, or deleted the row.
const (
	Put Action = iota + 1
	Update
	Delete
)

// Row is what a row of a change log says. It shares no memory with the row.
type Row struct {
	Sequence uint64 // of the mutation
	Micros   int64  // when it was committed, since the epoch
	Action   Action
	Key      []row.Value // of the changed row
	// Cells are the operations in cell order, without the trims that the engine added.
	Cells  []row.Cell
	Before []row.Cell // what columns held before
}

// ReadRow reads the row of a change log with a key and cells. columns is the number of key columns
// of the changed table. Any error is damage.
func ReadRow(key []row.Value, cells []row.Cell, columns int) (r Row, err error) {
	r.Sequence = uint64(key[1].Int64())
	var pieces, before []byte
	for i := range cells {
		switch cells[i].Column[0] {
		case recordCells:
			pieces = append(pieces, cells[i].Value...)
		case beforeCells:
			before = append(before, cells[i].Value...)
		}
	}
	decoded, err := decode(pieces)
	if err == nil && before != nil {
		r.Before, err = decodeBefore(before)
	}
	if err == nil {
		r.Key, err = row.DecodeKey(decoded.Key, columns)
	}
	if err != nil {
		return Row{}, err
	}
	r.Micros = decoded.Micros
	wrote := false
	for _, c := range decoded.Cells {
		if c.Kind == row.KindTrim && c.Version != row.MaxVersion {
			continue // added by the engine to hide versions beyond the table's limit
		}
		wrote = wrote || c.Kind == row.KindPut
		if c.Packed {
			var buffer []byte
			if c.Value, err = valuefile.Unpack(&buffer, c.Value); err != nil {
				return Row{}, err
			}
			c.Packed = false
		}
		r.Cells = append(r.Cells, c)
	}
	switch {
	case !decoded.DeleteRow:
		r.Action = Update
	case decoded.PutRow || wrote:
		r.Action = Put
	default:
		r.Action = Delete
	}
	return r, nil
}

// FirstSince returns the first row up to the sequence number last that was committed at micros or
// later, nil if there is none. first returns the first row with after < sequence number <= last,
// nil if there is none. FirstSince is a binary search, since times do not fall with rising sequence
// numbers.
func FirstSince(micros int64, last uint64, first func(after uint64) (*Row, error)) (*Row, error) {
	oldest, err := first(0)
	if err != nil || oldest == nil || oldest.Micros >= micros {
		return oldest, err
	}
	from, to := oldest.Sequence+1, last+1
	for from < to {
		middle := from + (to-from)/2
		r, err := first(middle - 1)
		switch {
		case err != nil:
			return nil, err
		case r != nil && r.Micros < micros:
			from = r.Sequence + 1
		default:
			to = middle
		}
	}
	return first(from - 1)
}
