package mvcc

// Rows that one run holds as a whole, and of which newer runs hold a little: a
// row that was flushed and updated since.
//
// The newer runs are judged cell by cell, and what matters of them is kept in a
// list: puts that nothing in these runs hides, and tombstones that hide something.
// Then the older part is collected at once, and where a column has cells in the
// list, and there only, the two are judged together.
//
// The list decides as the newer runs would. What is dead in them stays dead if
// cells are added: it is above the view, or hidden by what is in the list, or its
// version has a newer cell that is. What lies in a column behind so many puts that
// it is full stays behind them, since of what the older part holds only a
// delete-row could hide these, and that is asked for (see underneath); another
// cell of their version would take their place.

import (
	"bytes"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// keptCells bounds the working memory that is kept for other rows.
const keptCells = 4096

// layers is working memory.
type layers struct {
	newer  []row.Cell // what matters of the newer layer, in cell order
	merged []row.Cell // of one column
}

// collectLayers is Collect of a row in two layers. It returns false if there are
// none, or if the older one cannot be judged at once: then nothing has happened.
func (r *RowReader) collectLayers(dst *row.Collector) (exists, ok bool) {
	older := &r.extent
	newer := r.it.Layers(r.judge.seq, older)
	if newer == nil || r.sel.MaxExamined > 0 && older.Cells > r.sel.MaxExamined {
		return false, false
	}
	r.cells = newer
	r.readRowLevel()
	shown, ok := r.underneath(older)
	var list []row.Cell
	if ok && r.judge.exists {
		list, ok = r.listNewer(dst, older, shown)
	}
	if newer.Error() != nil {
		dst.Reset()
		return false, true // r.cells, which failed, stays for Error to ask
	}
	if !ok {
		dst.Reset()
		r.StartRow()
		return false, false
	}
	r.cells, r.at = r.all, false
	if !r.judge.exists {
		return false, true
	}
	if shown {
		r.it.Collect(dst, &r.projection)
		r.examined += len(dst.Cells)
	}
	r.lay(dst, list)
	return true, true
}

// underneath judges the older layer after the row-level cells of the newer one.
// shown says that of every column of it the newest cells would be shown if there
// were no cells of that column in the newer layer; otherwise none is. It returns
// false if neither can be said.
func (r *RowReader) underneath(e *row.Extent) (shown, ok bool) {
	j := &r.judge
	if e.Deleted && e.DeleteSeq <= j.seq {
		if j.deleted && j.deleteRow < e.DeleteSeq || j.exists && j.marker < e.DeleteSeq {
			return false, false // it is not the older one
		}
		j.rowLevel(&row.Cell{Kind: row.KindDeleteRow, Seq: e.DeleteSeq})
	}
	if e.Marked {
		j.rowLevel(&row.Cell{Kind: row.KindRowMarker, Seq: e.MarkerSeq, Version: e.MarkerVersion})
	}
	switch {
	case e.Cells == 0 || e.MaxSeq < j.deleteRow || e.MinSeq > j.seq || e.MaxVersion < r.minVersion:
		return false, true
	case e.MaxSeq > j.seq || e.MinSeq < j.deleteRow || e.MinVersion < r.minVersion || e.MaxVersion > r.maxVersion:
		return false, false
	}
	return true, true
}

// listNewer lists what matters of the newer layer's wanted columns, with copies in
// dst. It returns false if that cannot be laid over the older one.
func (r *RowReader) listNewer(dst *row.Collector, older *row.Extent, shown bool) (list []row.Cell, ok bool) {
	list = r.layers.newer[:0]
	left := r.sel.MaxBytes
	// What a tombstone hides may have others behind it that Collect would leave out.
	cut := shown && r.projection.Cuts(older.Versions)
	for r.at {
		if r.exhausted() {
			return nil, false
		}
		c := r.cells.Cell()
		if !r.inColumn || !bytes.Equal(c.Column, r.column()) {
			if !r.enterColumn(c.Column) {
				continue
			}
		}
		if c.Version < r.minVersion {
			r.leaveColumn()
			continue
		}
		if v := r.judge.attribute(c); v == visible || v == hides {
			if older.Deleted && c.Seq < older.DeleteSeq || v == hides && cut {
				return nil, false
			}
			if v == visible && c.Version <= r.maxVersion {
				r.given++
			}
			if left -= c.Memory(); r.sel.MaxBytes > 0 && left < 0 {
				return nil, false // to be read cell by cell, and no further than that
			}
			n := len(list)
			list = append(list, *c)
			if n > 0 && bytes.Equal(list[n-1].Column, c.Column) {
				list[n].Column = list[n-1].Column
			} else {
				list[n].Column = dst.Copy(c.Column)
			}
			list[n].Value = dst.Copy(c.Value)
		}
		r.pass()
	}
	if cap(list) <= keptCells {
		r.layers.newer = list[:0]
	}
	return list, true
}

// lay lays the listed cells over those of dst, which are of the older layer.
func (r *RowReader) lay(dst *row.Collector, list []row.Cell) {
	cells := dst.Cells
	to, from := 0, 0 // cells before to are done, those before from are used
	for len(list) > 0 {
		column := list[0].Column
		n := 1
		for n < len(list) && bytes.Equal(list[n].Column, column) {
			n++
		}
		at := from + sort.Search(len(cells)-from, func(i int) bool { return bytes.Compare(cells[from+i].Column, column) >= 0 })
		end := at
		for end < len(cells) && bytes.Equal(cells[end].Column, column) {
			end++
		}
		if to != from {
			copy(cells[to:], cells[from:at])
		}
		to, from = to+at-from, end
		if to == at && n == 1 && end == at+1 && r.replaces(&list[0], &cells[at]) {
			cells[at] = list[0]
			to, list = end, list[1:]
			continue
		}
		merged := r.mergeColumn(list[:n], cells[at:end])
		if to+len(merged) > from { // room for all that is still to come
			old := len(cells)
			room := len(list)
			dst.Extend(room)
			cells = dst.Cells
			copy(cells[from+room:], cells[from:old])
			from += room
		}
		to += copy(cells[to:], merged)
		list = list[n:]
	}
	if to != from {
		to += copy(cells[to:], cells[from:])
		dst.Cells = cells[:to]
	}
}

// replaces reports that of two cells of a column, both of which would be shown, the
// newer alone is.
func (r *RowReader) replaces(newer, older *row.Cell) bool {
	return newer.Kind == row.KindPut && r.projection.Versions == 1 && newer.Version <= r.maxVersion &&
		row.CompareCells(newer, older) < 0
}

// mergeColumn returns the cells of a column that are shown and wanted, of two
// lists. The result is valid until the next call.
func (r *RowReader) mergeColumn(newer, older []row.Cell) []row.Cell {
	merged := r.layers.merged[:0]
	r.judge.startColumn()
	for len(newer)+len(older) > 0 && len(merged) < r.wantVersions && !r.judge.full() {
		var c *row.Cell
		if len(older) == 0 || len(newer) > 0 && row.CompareCells(&newer[0], &older[0]) < 0 {
			c, newer = &newer[0], newer[1:]
		} else {
			c, older = &older[0], older[1:]
		}
		if r.judge.attribute(c) == visible && c.Version <= r.maxVersion {
			merged = append(merged, *c)
		}
	}
	if cap(merged) <= keptCells {
		r.layers.merged = merged[:0]
	}
	return merged
}
