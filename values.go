package flagstone

import (
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/valuefetch"
)

// packFrom is the length from which values put into a table are packed: those that will go to
// value files. They have the packed form from the log on, so log, memtable and flush write and
// hold less.
func (o Options) packFrom() int {
	threshold := o.valueThreshold()
	if threshold == 0 || o.Compression == CompressionNone {
		return math.MaxInt
	}
	// Packing a shorter value costs more than it saves.
	return max(threshold, shortestPacked)
}

const shortestPacked = 64

// fetch makes the values of the row's cells plain; see valuefetch.Values.Fetch. If the cells take
// more than most bytes (0: no limit), the error is ErrRowTooLarge.
func (r *Row) fetch(files *tablefiles.Registry, most int64) error {
	err := r.fetched.Fetch(r.cells, files, most)
	if err == valuefetch.ErrTooLarge {
		return r.tooLarge(most)
	}
	return err
}

func (r *Row) tooLarge(most int64) error {
	r.fetched.Release() // other rows must not keep this memory
	return fmt.Errorf("%w: more than %d bytes in row %x", ErrRowTooLarge, most, r.rowKey)
}

// detach is Clone for a row that is not used any more: the copy takes over the fetched values.
func (r *Row) detach() *Row {
	values := r.fetched.TakeOut(r.cells)
	c := r.Clone()
	r.fetched.PutInto(c.cells, values)
	return c
}
