package sstable

import (
	"bytes"

	"github.com/flagstone-db/flagstone/row"
)

// Verify reads the file once more from front to back, past the cache, and checks all that
// can be checked: every checksum, the structure of every block, the order of rows and
// cells, that index and filter lead to every row, and that the properties are true. A file
// that passes holds what the writer was given. Verify calls check, if not nil, with every
// reference to a value file. An error of check ends the walk and is returned. Other errors are
// those of Open and ErrCorrupt.
func (r *Reader) Verify(check func(row.Reference) error) error {
	v := verifier{r: &Reader{fileBytes: fileBytes{file: r.file, name: r.name, align: r.align}}, props: emptyProperties(), check: check}
	if err := v.r.readTail(r.footer.fileSize, false); err != nil {
		return err
	}
	if v.r.footer != r.footer {
		return r.corrupt(r.footer.fileSize-footerSize, "footer is not the one that was opened")
	}
	v.it.Init(v.r, IterOptions{NoCacheFill: true})
	defer v.it.Close()
	for g := range v.r.index.groups {
		for i := v.r.index.firstBlock(g); i < v.r.index.firstBlock(g+1); i++ {
			if err := v.block(g, i); err != nil {
				return err
			}
		}
	}
	if v.props.Rows > 0 {
		v.props.LargestKey = v.key
	}
	if bad := v.r.props.compare(&v.props); bad != "" {
		return r.corrupt(r.footer.dataLength+r.footer.filterLength+r.footer.indexLength, bad)
	}
	return nil
}

// verifier is what a walk of Verify has found so far.
type verifier struct {
	r     *Reader
	it    Iterator
	props Properties // counted, to compare with those of the file
	key   []byte     // of the newest row
	last  row.Cell   // of the newest cell, its column copied
	has   bool       // last is of the newest row

	separator []byte // scratch

	away  uint64                    // bytes in value files that the block refers to
	check func(row.Reference) error // see Verify
}

func (v *verifier) block(g, i int) error {
	it, x := &v.it, &v.r.index
	if !it.load(g, i) {
		return it.err
	}
	b := it.blocks.block
	v.props.DataBlocks++
	v.props.RawBytes += uint64(b.rawSize())
	v.away = 0
	for n := 1; n < b.columns; n++ {
		if bytes.Compare(b.name(n-1), b.name(n)) >= 0 {
			return it.blocks.refuse("column names out of order")
		}
	}
	for n := range b.rows {
		it.setRow(g, n)
		it.openRow()
		if bad := v.row(g, n); bad != "" {
			return it.blocks.refuse(bad)
		}
		if err := v.cells(i); err != nil {
			return err
		}
	}
	if x.awayEnd.length(x.data, i) != v.away {
		return it.blocks.refuse("index does not say how many bytes in value files the block refers to")
	}
	return nil
}

// row checks the key of row n of a block, on which the iterator stands.
func (v *verifier) row(g, n int) (bad string) {
	key, separator := v.it.key, v.r.index.appendSeparator(v.separator[:0], g)
	v.separator = separator
	switch {
	case v.it.blocks.block.continued && bytes.Equal(key, v.key):
		return ""
	case v.it.blocks.block.continued:
		return "fragment of another row"
	case v.props.Rows > 0 && bytes.Compare(v.key, key) >= 0:
		return "row keys out of order"
	case n == 0 && (bytes.Compare(separator, key) > 0 || bytes.Compare(separator, v.key) <= 0):
		return "index separator is not between the rows"
	case len(key) == 0 || !v.r.MayContain(Hash(key)):
		return "row is empty or not in the filter"
	}
	if v.props.Rows == 0 {
		v.props.SmallestKey = bytes.Clone(key)
	}
	v.props.Rows++
	v.props.KeyBytes += uint64(len(key))
	v.key, v.has = append(v.key[:0], key...), false
	return ""
}

// cells checks the cells of the iterator's row that lie in block i.
func (v *verifier) cells(i int) error {
	it, x := &v.it, &v.r.index
	if !it.openValues() {
		return it.err
	}
	first := it.low - it.flagged()
	for at := first; at < it.high; at++ {
		it.setCell(at)
		c := &it.cell
		switch {
		case v.has && row.CompareCells(&v.last, c) >= 0:
			return it.blocks.refuse("cells out of order")
		case c.Seq > row.MaxSequence || c.Kind == row.KindDeleteRow && c.Version != row.MaxVersion:
			return it.blocks.refuse("sequence number too large, or delete-row with a version")
		}
		if at == first && it.blocks.block.continued {
			tie := c.Version == v.last.Version && bytes.Equal(c.Column, v.last.Column)
			if !bytes.Equal(x.column(i), c.Column) || int64(x.version.at(x.data, i)) != c.Version ||
				(x.tie.at(x.data, i) != 0) != tie {
				return it.blocks.refuse("index does not say where the fragment begins")
			}
		}
		if bad := v.props.addCell(c); bad != "" {
			return it.blocks.refuse(bad)
		}
		if c.Separate {
			ref, _ := row.ParseReference(c.Value) // addCell found it well-formed
			v.away += uint64(ref.Stored)
			if v.check != nil {
				if err := v.check(ref); err != nil {
					return err
				}
			}
		}
		column := append(v.last.Column[:0], c.Column...)
		v.last, v.has = *c, true
		v.last.Column, v.last.Value = column, nil
	}
	return nil
}
