package sstable

// Reading what a damaged table file still has.

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// Loss is a part of a table file that cannot be read: a block, or the values of a row in it.
type Loss struct {
	Offset int64 // of the block
	// From and To bound the keys of the rows that the part held: both included, From nil for the beginning
	// and To nil for the rest of the file. Both may be shortened keys.
	From, To []byte
	// Partial says that the part may be of a long row, of which other parts may be visited.
	Partial bool
	Err     error
}

// OpenDamaged is Open for a file of which parts may be damaged. It does without filter and properties.
// Without footer or index it looks for the blocks in the whole file, if that has format version 3: largest
// is the key of the last row. An error of stop, which is called now and then, ends that. The reader is for Salvage alone. REQUIRES: opts has the unique id.
func OpenDamaged(f vfs.File, opts ReaderOptions, largest []byte, stop func() error) (*Reader, error) {
	r, err := open(f, opts, true)
	if err == nil || !errors.Is(err, ErrCorrupt) && !vfs.IsUnreadable(err) {
		return r, err
	}
	size, unsized := f.Size()
	if unsized != nil {
		return nil, unsized
	}
	r = newReader(f, opts)
	r.footer.uniqueID = opts.UniqueID
	if found, failed := newFinder(r, stop).findBlocks(size, largest); failed != nil || !found {
		return nil, cmp.Or(failed, err)
	}
	return r, nil
}

// Salvage reads the file from front to back. It calls visit for each cell of the blocks that can be
// read, in order, and lost for what cannot. An error of visit ends it and is returned. Memory: a block.
func (r *Reader) Salvage(visit func(key []byte, c *row.Cell) error, lost func(Loss)) error {
	var it Iterator
	it.Init(r, IterOptions{NoCacheFill: true})
	defer it.Close()
	x := &r.index
	for g := range x.groups {
		for i := x.firstBlock(g); i < x.firstBlock(g+1); i++ {
			at, _ := x.blockRange(i)
			if l, gap := r.gaps[i]; gap {
				lost(l)
				continue
			}
			if !it.load(g, i) {
				l := Loss{Offset: at, From: x.appendSeparator(nil, g), Partial: r.gaps != nil || x.firstBlock(g+1)-x.firstBlock(g) > 1, Err: it.err}
				if g+1 < x.groups {
					l.To = x.appendSeparator(nil, g+1)
				}
				lost(l)
				continue
			}
			for n := range it.blocks.block.rows {
				it.setRow(g, n)
				it.openRow()
				if !it.openValues() {
					key := bytes.Clone(it.key)
					lost(Loss{Offset: at, From: key, To: key, Partial: it.long || it.blocks.block != nil && it.blocks.block.continued, Err: it.err})
					if !it.load(g, i) {
						break
					}
					continue
				}
				for c := it.low - it.flagged(); c < it.high; c++ {
					it.setCell(c)
					if err := visit(it.key, &it.cell); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}
