package flagstone

import (
	"fmt"
	"math"
	"sync"

	"github.com/flagstone-db/flagstone/partition"
)

// packFrom is the length from which values put into the table are packed: those
// that will go to value files, whose form they then have from the log on, so that
// log, memtable and flush have the less to write and to hold.
func (t *Table) packFrom() int {
	threshold := t.store.opts.valueThreshold()
	if threshold == 0 || t.store.opts.Compression == CompressionNone {
		return math.MaxInt
	}
	// Of what is short, no more is saved than the search for it costs.
	return max(threshold, shortestPacked)
}

const shortestPacked = 64

// packing is memory for the packed form of a value, until it is copied.
type packing struct{ buffer []byte }

// packings holds nothing but memory that has no content between uses.
var packings = sync.Pool{New: func() any { return new(packing) }}

func (p *packing) give() {
	if cap(p.buffer) > 4<<20 {
		p.buffer = nil // a rare larger value must not stay in memory
	}
	packings.Put(p)
}

// fetched are the values of a row that came from value files or were unpacked, each
// in memory of its own: a value of a megabyte is not to be copied when the row's
// other memory grows. A row that is used again, in a scan for one, uses the memory again.
type fetched struct {
	buffers [][]byte
	cells   []int // whose values are in the buffers
}

// complete reports whether no cell stands for a value that is elsewhere.
func (r *Row) complete() bool {
	for i := range r.Cells {
		if r.Cells[i].Separate || r.Cells[i].Packed {
			return false
		}
	}
	return true
}

// fetch replaces the references and the packed values among the row's cells by the
// values that they stand for. Only what the caller gets is read, so a projection that leaves large
// values out never touches value files. If the cells take more than most bytes (0: any number),
// the error is ErrRowTooLarge. REQUIRES: what the cells were read from is pinned.
func (r *Row) fetch(files *partition.Files, most int64) error {
	size, err := r.memory(most)
	if err != nil {
		return err
	}
	f := &r.fetched
	f.cells = f.cells[:0]
	for i := range r.Cells {
		c := &r.Cells[i]
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
		if c.Packed { // of others it is known before
			if size += int64(len(value)); most > 0 && size > most {
				return r.tooLarge(most)
			}
		}
		c.Value, c.Separate, c.Packed = value, false, false
		f.cells = append(f.cells, i)
	}
	return nil
}

// memory is what the cells take, or will when they are fetched; 0 if most, which it is
// held to, is none.
func (r *Row) memory(most int64) (size int64, err error) {
	if most == 0 {
		return 0, nil
	}
	for i := range r.Cells {
		size += r.Cells[i].Memory()
	}
	if size > most {
		return 0, r.tooLarge(most)
	}
	return size, nil
}

func (r *Row) tooLarge(most int64) error {
	r.fetched = fetched{} // not to be kept for other rows
	return fmt.Errorf("%w: more than %d bytes in row %x", ErrRowTooLarge, most, r.rowKey)
}

// detach is Clone for a row that is not used any more: the values from value
// files go over to the copy.
func (r *Row) detach() *Row {
	f := &r.fetched
	if len(f.cells) == 0 {
		return r.Clone()
	}
	values := make([][]byte, len(f.cells))
	for n, i := range f.cells {
		values[n], r.Cells[i].Value = r.Cells[i].Value, nil
	}
	c := r.Clone()
	for n, i := range f.cells {
		c.Cells[i].Value = values[n]
	}
	*f = fetched{}
	return c
}
