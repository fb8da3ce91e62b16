package flagstone

import "github.com/flagstone-db/flagstone/partition"

// fetched are the values of a row that came from value files, each in memory of
// its own: a value of a megabyte is not to be copied when the row's other memory
// grows. A row that is used again, in a scan for one, uses the memory again.
type fetched struct {
	buffers [][]byte
	cells   []int // whose values are in the buffers
}

// fetch replaces the references among the row's cells by the values that they
// refer to. Only what the caller gets is read, so a projection that leaves large
// values out never touches value files. REQUIRES: what the cells were read from
// is pinned.
func (r *Row) fetch(files *partition.Files) error {
	f := &r.fetched
	f.cells = f.cells[:0]
	for i := range r.Cells {
		c := &r.Cells[i]
		if !c.Separate {
			continue
		}
		n := len(f.cells)
		if n == len(f.buffers) {
			f.buffers = append(f.buffers, nil)
		}
		value, err := files.Value(&f.buffers[n], c.Value)
		if err != nil {
			return err
		}
		c.Value, c.Separate = value, false
		f.cells = append(f.cells, i)
	}
	return nil
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
