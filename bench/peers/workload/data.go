package workload

// This file makes keys and values. Every value says whose it is (row, column)
// and of which generation, and the rest of it follows from that, so a reader can
// check any value without knowing what was written last.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Shape of a usual row.
const (
	columnCount = 10
	valueSize   = 100
	// baseVersion is the time, in milliseconds, at which the stores' clocks
	// stand. A fixed one, so that every run writes the same bytes.
	baseVersion int64 = 1_700_000_000_000
)

// mix is a bijection that spreads numbers over 64 bits (the finaliser of
// splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// unmix undoes mix.
func unmix(x uint64) uint64 {
	x = (x ^ x>>31 ^ x>>62) * 0x319642B2D24D8EC3
	x = (x ^ x>>27 ^ x>>54) * 0x96DE1B173F119089
	return x ^ x>>30 ^ x>>60
}

// random is a small generator (splitmix64): the state is a number that a value
// can be made of.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	return mix(uint64(*r))
}

// below returns a number in [0, n), n far below 2^32, without division.
func (r *random) below(n int) int {
	return int(r.next() >> 32 * uint64(n) >> 32)
}

// order says in which order numbers become keys: 0 up, or spread.
type order bool

const (
	ascending order = false
	spread    order = true
)

const hexDigits = "0123456789abcdef"

// appendKey makes the key of number i: 16 bytes, hexadecimal.
func appendKey(dst []byte, i uint64, o order) []byte {
	if o == spread {
		i = mix(i + 1)
	}
	var key [16]byte
	for p := range key {
		key[p] = hexDigits[i>>60]
		i <<= 4
	}
	return append(dst, key[:]...)
}

// number is the inverse of appendKey.
func number(key []byte, o order) (uint64, error) {
	i, err := strconv.ParseUint(string(key), 16, 64)
	if err != nil || len(key) != 16 {
		return 0, fmt.Errorf("workload: %q is no key of this workload", key)
	}
	if o == spread {
		i = unmix(i) - 1
	}
	return i, nil
}

// fill makes the value of (row, column) in a generation: its first 16 bytes
// name row, column and generation, and the rest follows from them.
func (v Values) fill(value []byte, row uint64, column int, generation uint32) {
	tag := mix(row<<20 ^ uint64(column))
	binary.LittleEndian.PutUint64(value, tag)
	r := random(tag ^ uint64(generation))
	head := r.next()
	binary.LittleEndian.PutUint64(value[8:], head&^0xFFFFFFFF|uint64(generation))
	if v == Text {
		fillText(value[16:], &r)
		return
	}
	half := len(value) / 2
	at := 16
	for ; at+8 <= half; at += 8 {
		binary.LittleEndian.PutUint64(value[at:], r.next())
	}
	clear(value[at:])
}

// checkValue says whether value is one of (row, column), of any generation.
// buf is memory to compare with.
func (v Values) checkValue(value, buf []byte, row uint64, column int) error {
	if len(value) < 16 || len(value) > len(buf) {
		return fmt.Errorf("workload: row %d column %d: %d bytes", row, column, len(value))
	}
	want := buf[:len(value)]
	v.fill(want, row, column, generationOf(value))
	if !bytes.Equal(value, want) {
		return fmt.Errorf("workload: row %d column %d: wrong value %x...", row, column, value[:16])
	}
	return nil
}

// generationOf returns the generation that a value names.
func generationOf(value []byte) uint32 { return binary.LittleEndian.Uint32(value[8:]) }

// maker makes rows in memory of its own, which the next row of the same maker
// reuses.
type maker struct {
	columns [][]byte
	size    int
	order   order
	kind    Values
	key     []byte
	values  []byte
	cells   []rowstore.Cell
}

func newMaker(columns [][]byte, size int, o order, kind Values) *maker {
	return &maker{
		columns: columns, size: size, order: o, kind: kind,
		key: make([]byte, 0, 16), values: make([]byte, len(columns)*size),
		cells: make([]rowstore.Cell, len(columns)),
	}
}

// keyOf returns the key of row i, valid until the next call.
func (m *maker) keyOf(i uint64) []byte {
	m.key = appendKey(m.key[:0], i, m.order)
	return m.key
}

// all returns all cells of row i.
func (m *maker) all(i uint64, version int64, generation uint32) []rowstore.Cell {
	for c := range m.columns {
		m.cell(c, i, version, generation)
	}
	return m.cells
}

// one returns the cell of column c alone.
func (m *maker) one(c int, i uint64, version int64, generation uint32) []rowstore.Cell {
	m.cell(c, i, version, generation)
	return m.cells[c : c+1]
}

func (m *maker) cell(c int, i uint64, version int64, generation uint32) {
	value := m.values[c*m.size : (c+1)*m.size]
	m.kind.fill(value, i, c, generation)
	m.cells[c] = rowstore.Cell{Column: m.columns[c], Version: version, Value: value}
}

// columnNames returns n names of equal length, ascending.
func columnNames(n int) [][]byte {
	names := make([][]byte, n)
	for i := range names {
		names[i] = columnName(nil, i)
	}
	return names
}

// columnName appends the name of column i.
func columnName(dst []byte, i int) []byte { return fmt.Appendf(dst, "column%07d", i) }

// plainColumns is the one column of the key-value shape.
func plainColumns() [][]byte { return [][]byte{[]byte(rowstore.PlainColumn)} }
