package mvcctest

import (
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// NewReader makes a reader of the rows that it is positioned on.
func NewReader(it row.Cursor, view mvcc.View, sel mvcc.Selection) *mvcc.RowReader {
	r := new(mvcc.RowReader)
	r.Reset(it, view, sel)
	return r
}

// NewRowMerge merges sources that stand on the same row, newest first.
func NewRowMerge(sources []mvcc.Iterator) *mvcc.RowMerge {
	m := new(mvcc.RowMerge)
	m.Reset(sources)
	return m
}
