package flagstone

import "github.com/flagstone-db/flagstone/partition"

// fetch replaces the references among the row's cells by the values that they
// refer to, each in memory of its own. Only what the caller gets is read, so a
// projection that leaves large values out never touches value files. REQUIRES:
// what the cells were read from is pinned.
func (r *Row) fetch(files *partition.Files) error {
	for i := range r.Cells {
		c := &r.Cells[i]
		if !c.Separate {
			continue
		}
		value, err := files.Value(r.nextBuffer(), c.Value)
		if err != nil {
			return err
		}
		c.Value, c.Separate = value, false
	}
	return nil
}

// nextBuffer returns memory for the next large value of the row. A row that is
// used again, in a scan for one, uses its buffers again.
func (r *Row) nextBuffer() *[]byte {
	n := len(r.buffers)
	if n == cap(r.buffers) {
		r.buffers = append(r.buffers, nil)
	} else {
		r.buffers = r.buffers[:n+1]
	}
	return &r.buffers[n]
}
