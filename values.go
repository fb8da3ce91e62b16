package flagstone

import (
	"fmt"
	"math"
	"sync"

	"github.com/flagstone-db/flagstone/partition"
)

// packFrom is the length from which values put into the table are packed: those that will go to
// value files. They have the packed form from the log on, so log, memtable and flush write and
// hold less.
func (t *Table) packFrom() int {
	threshold := t.store.opts.valueThreshold()
	if threshold == 0 || t.store.opts.Compression == CompressionNone {
		return math.MaxInt
	}
	// Packing a shorter value costs more than it saves.
	return max(threshold, shortestPacked)
}

const shortestPacked = 64

// packing is memory for the packed form of a value, until it is copied.
type packing struct{ buffer []byte }

// packings keeps scratch memory between uses.
var packings = sync.Pool{New: func() any { return new(packing) }}

func (p *packing) give() {
	if cap(p.buffer) > 4<<20 {
		p.buffer = nil // a rare larger value must not stay in memory
	}
	packings.Put(p)
}

// fetched are the values of a row that came from value files or were unpacked. Each has memory of
// its own, so that a value of a megabyte is not copied when the row's other memory grows. A row
// that is used again, as in a scan, uses this memory again.
type fetched struct {
	buffers [][]byte
	cells   []int // indexes of the cells whose values are in the buffers
}

// complete reports whether every cell holds its plain value.
func (r *Row) complete() bool {
	for i := range r.cells {
		if r.cells[i].Separate || r.cells[i].Packed {
			return false
		}
	}
	return true
}

// fetch replaces references and packed values among the row's cells by the plain values. It reads
// only selected cells, so a projection without large values never touches value files. If the
// cells take more than most bytes (0: no limit), the error is ErrRowTooLarge. REQUIRES: what the
// cells were read from is pinned.
func (r *Row) fetch(files *partition.Files, most int64) error {
	size, err := r.memory(most)
	if err != nil {
		return err
	}
	f := &r.fetched
	f.cells = f.cells[:0]
	for i := range r.cells {
		c := &r.cells[i]
		if !c.Separate && !c.Packed {
			continue
		}
		n := len(f.cells)
		if n == len(f.buffers) {
			f.buffers = append(f.buffers, nil)
		}
		var value []byte
		var err error
		if c.Packed {
			value, err = files.Unpack(&f.buffers[n], c.Value)
		} else {
			value, err = files.Value(&f.buffers[n], c.Value)
		}
		if err != nil {
			return err
		}
		if c.Packed { // memory has counted the others
			if size += int64(len(value)); most > 0 && size > most {
				return r.tooLarge(most)
			}
		}
		c.Value, c.Separate, c.Packed = value, false, false
		f.cells = append(f.cells, i)
	}
	return nil
}

// memory is what the cells take once they are fetched, except packed ones' unpacked values. If
// that is more than most the error is ErrRowTooLarge. If most is 0, memory is 0.
func (r *Row) memory(most int64) (size int64, err error) {
	if most == 0 {
		return 0, nil
	}
	for i := range r.cells {
		size += r.cells[i].Memory()
	}
	if size > most {
		return 0, r.tooLarge(most)
	}
	return size, nil
}

func (r *Row) tooLarge(most int64) error {
	r.fetched = fetched{} // other rows must not keep this memory
	return fmt.Errorf("%w: more than %d bytes in row %x", ErrRowTooLarge, most, r.rowKey)
}

// detach is Clone for a row that is not used any more: the copy takes over the fetched values.
func (r *Row) detach() *Row {
	f := &r.fetched
	if len(f.cells) == 0 {
		return r.Clone()
	}
	values := make([][]byte, len(f.cells))
	for n, i := range f.cells {
		values[n], r.cells[i].Value = r.cells[i].Value, nil
	}
	c := r.Clone()
	for n, i := range f.cells {
		c.cells[i].Value = values[n]
	}
	*f = fetched{}
	return c
}
