package mvcc

import (
	"bytes"

	"github.com/flagstone-db/flagstone/row"
)

// AddTrims appends to a mutation, whose cells are in order, the trims that its deletes of single
// versions need: see TrimForDelete. A column that shows its full number of versions may have
// surplus ones on disk, or they may have been pruned. A trim hides them, so that the version that
// becomes visible does not depend on that. visible returns the versions that a column shows, and
// the table's limit; its errors are returned as they are.
func AddTrims(m *row.Mutation, visible func(column []byte) (versions []int64, limit int, err error)) error {
	cells := m.Cells
	for from := 0; from < len(cells); {
		to := from + 1
		for to < len(cells) && bytes.Equal(cells[to].Column, cells[from].Column) {
			to++
		}
		if err := addTrim(m, cells[from:to], visible); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// addTrim is AddTrims for the cells of one column.
func addTrim(m *row.Mutation, cells []row.Cell, visible func([]byte) ([]int64, int, error)) error {
	var versions []int64
	limit, known := 0, false
	for i := range cells {
		if cells[i].Kind != row.KindDeleteVersion {
			continue
		}
		if !known {
			var err error
			if versions, limit, err = visible(cells[i].Column); err != nil {
				return err
			}
			known = true
		}
		if threshold, ok := TrimForDelete(versions, cells[i].Version, limit); ok {
			m.Cells = append(m.Cells, row.Cell{Column: cells[i].Column, Version: threshold, Kind: row.KindTrim})
			return nil // one per column: all deletes give the same trim
		}
	}
	return nil
}
