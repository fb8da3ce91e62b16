package mvcc

// Reading a row that one run holds as a whole and newer runs hold a little of: a
// row that was flushed and updated since.
//
// The newer runs are judged cell by cell. A list keeps what matters of them: puts that
// nothing in these runs hides, and tombstones that hide something. Then the older
// part is collected at once. The two are judged together only in columns that have
// cells in the list.
//
// The list decides the same as the newer runs would. A cell that is dead in them
// stays dead when cells are added: it is above the view, or the list has what hides it
// or overwrites it. A put that is surplus stays surplus: only a delete-row of the older
// part could hide the puts before it, and underneath checks for that; a cell that
// overwrites one of them takes its place.

import (
	"bytes"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// keptCells is how many cells of working memory a reader keeps for other rows.
const keptCells = 4096

// layers is the working memory of collectLayers.
type layers struct {
	newer  []row.Cell // what matters of the newer part, in cell order
	merged []row.Cell // the cells of one column
}

// collectLayers is Collect for a row in two layers. ok is false, and dst is empty, if
// the extent describes no layer, or if the older one cannot be judged at once.
func (r *RowReader) collectLayers(dst *row.Collector) (exists, ok bool) {
	older := &r.extent
	newer := r.newer
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
		return false, true // r.cells stays on the failed cursor, for Error
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
		r.whole.Collect(dst, &r.projection)
		r.examined += len(dst.Cells)
	}
	r.lay(dst, list)
	return true, true
}

// underneath judges the older layer after the row-level cells of the newer one.
// shown means that every column of the older layer shows its newest cells, if the
// newer layer has none of that column; otherwise no cell of it is shown. ok is false
// if neither can be said.
func (r *RowReader) underneath(e *row.Extent) (shown, ok bool) {
	j := &r.judge
	if e.Deleted && e.DeleteSeq <= j.seq {
		if j.deleted && j.deleteRow < e.DeleteSeq || j.exists && j.marker < e.DeleteSeq {
			return false, false // this layer is not the older one
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

// listNewer lists what matters of the newer layer's wanted columns, and copies it to
// dst. ok is false if the list cannot be laid over the older layer.
func (r *RowReader) listNewer(dst *row.Collector, older *row.Extent, shown bool) (list []row.Cell, ok bool) {
	list = r.layers.newer[:0]
	left := r.sel.MaxBytes
	// Collect leaves out versions that would show if a tombstone hides newer ones.
	cut := shown && r.projection.Cuts(older.Versions)
	for c := r.candidate(); c != nil; c = r.candidate() {
		if v := r.judge.attribute(c); v == visible || v == hides {
			if older.Deleted && c.Seq < older.DeleteSeq || v == hides && cut {
				return nil, false
			}
			if v == visible && c.Version <= r.maxVersion {
				r.given++
			}
			if left -= c.Memory(); r.sel.MaxBytes > 0 && left < 0 {
				return nil, false // such a row is read cell by cell, up to the limit
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
	if r.at { // exhausted
		return nil, false
	}
	if cap(list) <= keptCells {
		r.layers.newer = list[:0]
	}
	return list, true
}

// lay merges the listed cells into those of dst, which are of the older layer.
func (r *RowReader) lay(dst *row.Collector, list []row.Cell) {
	cells := dst.Cells
	to, from := 0, 0 // cells before to are done, cells before from are used
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
		if to+len(merged) > from { // make room for all cells still to come
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

// replaces reports whether newer is shown in place of older. Both are cells of one
// column, and each would be shown without the other.
func (r *RowReader) replaces(newer, older *row.Cell) bool {
	return newer.Kind == row.KindPut && r.projection.Versions == 1 && newer.Version <= r.maxVersion &&
		row.CompareCells(newer, older) < 0
}

// mergeColumn returns the shown and wanted cells of one column, from two lists. The
// result is valid until the next call.
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
