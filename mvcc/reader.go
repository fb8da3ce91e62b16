package mvcc

// RowReader: what one view shows of one row. It streams: however large the row is, it
// keeps one column name and a few numbers, and seeks over what is not asked for.

import (
	"bytes"
	"math"

	"github.com/flagstone-db/flagstone/row"
)

// Selection is what a reader wants of a row; the zero Selection is all that the view
// shows. The limits of the view apply first. Cells are left out in this order: expired
// versions, all but the newest View.MaxVersions, those outside the time range, and all
// but the newest MaxVersions.
type Selection struct {
	// Columns are the wanted column names in ascending order; empty wants all.
	Columns [][]byte
	// Start and End bound the column names: Start <= name < End. Empty is unbounded.
	Start, End []byte
	// MaxVersions is how many versions of a column are wanted; 0 wants all.
	MaxVersions int
	// MinVersion and MaxVersionExcl bound versions in milliseconds:
	// MinVersion <= version < MaxVersionExcl. MaxVersionExcl 0 is unbounded.
	MinVersion, MaxVersionExcl int64
	// NoCells asks only whether the row exists.
	NoCells bool
	// MaxBytes, if above 0, lets Collect stop in a row whose cells take more, by row.Cell.Memory.
	MaxBytes int64
	// MaxExamined, if above 0, lets the reader stop once it has looked at more cells: see Cut.
	MaxExamined int
}

// All reports whether the selection wants all that the view shows.
func (s *Selection) All() bool {
	return !s.NoCells && s.MaxVersions|int(s.MinVersion|s.MaxVersionExcl)|len(s.Columns)|len(s.Start)|len(s.End) == 0
}

// nearSteps is how many cells a reader walks before it seeks. The wanted cell is
// mostly the next one; otherwise any number of versions may come before it. A seek
// costs about as much as three steps.
const nearSteps = 1

// RowReader reads rows at one view. Use:
//
//	var reader mvcc.RowReader
//	reader.Reset(it, view, selection)
//	for ok := it.SeekRow(start); ok; ok = it.NextRow() {
//		reader.StartRow()
//		if !reader.Exists() { continue }
//		for reader.NextCell() { use(reader.Cell()) }
//		if err := reader.Error(); err != nil { return err }
//	}
//
// A false result may mean an error: check Error. A RowReader allocates nothing once
// its column buffer has grown.
type RowReader struct {
	// Limit is the key below which rows are read ahead together; nil: none. Set it after Reset.
	Limit []byte

	all   row.Cursor // the source
	whole WholeRows  // the same, nil if it does not hand over whole rows
	cells row.Cursor // what is walked: all, or the newer layer while layers are read
	sel   Selection
	judge judge

	wantVersions int   // of the selection, per column
	minVersion   int64 // no version below it is wanted: expired or out of range
	maxVersion   int64 // no version above it is wanted

	loaded   bool // row-level cells of this row are read
	at       bool // cells stands on a cell that is not done
	returned bool // ... but NextCell has returned it
	inColumn bool
	given    int     // how many cells of the column were returned
	name     []byte  // the column's name and a zero byte: the smallest name after it
	first    [1]byte // the smallest column name
	wanted   int     // index of the first of sel.Columns that is not passed
	examined int
	together bool // see PutTogether
	cut      bool // see Cut

	asked      bool    // judged and extent are what the source said of this row
	many       int     // rows that are judged together and can be collected: this one and those after it; 0: none
	judged     verdict // of this row, and of those
	extent     row.Extent
	newer      row.Cursor     // what the extent leaves out of the row, if it describes a layer
	projection row.Projection // of sel, for Collect
	layers     layers
}

// Reset makes the reader read another source, at another view.
func (r *RowReader) Reset(it row.Cursor, view View, sel Selection) {
	// Field by field, because the working memory need not be cleared.
	r.all, r.sel, r.judge = it, sel, newJudge(view)
	r.whole, _ = it.(WholeRows)
	r.wantVersions, r.maxVersion, r.examined = sel.MaxVersions, math.MaxInt64, 0
	p := &r.projection
	p.Columns, p.Start, p.End = sel.Columns, sel.Start, sel.End
	p.Change++
	if sel.MaxVersions <= 0 {
		r.wantVersions = math.MaxInt
	}
	r.projection.Versions = min(r.wantVersions, r.judge.max)
	if sel.MaxVersionExcl > 0 {
		r.maxVersion = sel.MaxVersionExcl - 1
	}
	r.minVersion = max(r.judge.oldest, sel.MinVersion)
	r.given, r.Limit = 0, nil
	r.StartRow()
}

// NextRow begins the row after the one that the reader began last. It keeps the
// verdict of rows that were judged together. REQUIRES: the source moved there by
// NextRow.
func (r *RowReader) NextRow() {
	if r.many <= 1 {
		r.StartRow()
		return
	}
	r.many--
	r.startRow()
}

// StartRow begins the row that the source is positioned on.
func (r *RowReader) StartRow() {
	r.asked, r.judged, r.many, r.newer = false, unclear, 0, nil
	r.startRow()
}

func (r *RowReader) startRow() {
	r.cells = r.all
	r.judge.startRow()
	r.loaded, r.at, r.returned, r.inColumn, r.wanted, r.cut = false, false, false, false, 0, false
}

// Exists reports whether the row exists in the view. Check Error and Cut if it is false.
func (r *RowReader) Exists() bool {
	if !r.loaded {
		r.readRowLevel()
	}
	return r.judge.exists
}

// NextCell moves to the next visible and selected cell of the row. It returns false at
// the end of the row and on an error.
func (r *RowReader) NextCell() bool {
	// A row without a marker shows nothing (see the package comment), so the dead
	// cells of a deleted row are not walked.
	if !r.Exists() || r.sel.NoCells {
		return false
	}
	if r.returned {
		r.returned = false
		r.pass()
	}
	for c := r.candidate(); c != nil; c = r.candidate() {
		if r.judge.attribute(c) == visible && c.Version <= r.maxVersion {
			r.given++
			r.returned = true
			return true
		}
		r.pass()
	}
	if r.at {
		r.cut = true
	}
	return false
}

// candidate moves to the next cell, from the current one on, that its column and version do not
// leave out. It returns nil at the end of the row or, with at set, if the reader is exhausted.
func (r *RowReader) candidate() *row.Cell {
	for r.at && !r.exhausted() {
		c := r.cells.Cell()
		if (!r.inColumn || !bytes.Equal(c.Column, r.column())) && !r.enterColumn(c.Column) {
			continue
		}
		if c.Version >= r.minVersion {
			return c
		}
		r.leaveColumn()
	}
	return nil
}

// Collect copies the visible and selected cells of the row to dst: the same as
// NextCell and Cell show, up to the first maxColumns columns (0: all). It reports
// whether the row exists. Check Error. REQUIRES: the row is unread, and dst is empty. If dst borrows,
// the cells may lie in memory of the source, and are valid until it moves.
//
// For most rows the source knows enough to decide at once. Reading cell by cell costs
// several times as much, for a row of ten cells.
func (r *RowReader) Collect(dst *row.Collector, maxColumns int) (exists bool) {
	verdict := r.judgeWhole()
	r.together, r.cut = verdict == unclear, false
	dst.Borrow = dst.Borrow && !r.together
	switch verdict {
	case dead:
		r.loaded, r.at = true, false
		r.examined++
		return false
	case visible:
		r.loaded, r.at, r.judge.exists = true, false, true
		if !r.sel.NoCells {
			r.whole.Collect(dst, &r.projection)
		}
		r.examined += 1 + len(dst.Cells)
		if maxColumns > 0 {
			dst.Cells = FirstColumns(dst.Cells, maxColumns)
		}
		return true
	}
	if maxColumns == 0 && !r.sel.NoCells { // otherwise the layers may read too much
		if exists, ok := r.collectLayers(dst); ok {
			return exists
		}
	}
	left := r.sel.MaxBytes
	for columns := 0; r.NextCell(); {
		c := r.cells.Cell()
		if r.sel.MaxBytes > 0 && left < 0 {
			r.cut = true
			return r.Exists()
		}
		left -= c.Memory()
		if n := len(dst.Cells); n == 0 || !bytes.Equal(c.Column, dst.Cells[n-1].Column) {
			if columns++; maxColumns > 0 && columns > maxColumns {
				break
			}
		}
		dst.Add(c)
	}
	return r.Exists()
}

// FirstColumns returns the cells of the first n columns of a row.
func FirstColumns(cells []row.Cell, n int) []row.Cell {
	for i := range cells {
		if i > 0 && bytes.Equal(cells[i].Column, cells[i-1].Column) {
			continue
		}
		if n--; n < 0 {
			return cells[:i]
		}
	}
	return cells
}

// judgeWhole judges the row as a whole, together with those after it if the source knows them. It
// returns unclear if that is not possible; then the extent may still describe a layer of the row.
func (r *RowReader) judgeWhole() verdict {
	if r.asked || r.whole == nil {
		return r.judged
	}
	e := &r.extent
	ask := row.Ask{Rows: true, Limit: r.Limit, Layers: true, Seq: r.judge.seq}
	for r.asked = true; r.judged == unclear; ask.Rows = false {
		r.many = 0
		var ok bool
		if r.newer, ok = r.whole.Extent(ask, e); !ok || r.newer != nil {
			break
		}
		if r.judged = r.judge.whole(e); r.judged == visible && !r.takes(e) {
			r.judged = unclear
		}
		if r.many = e.Rows; r.many == 0 {
			break
		}
	}
	return r.judged
}

// shows reports whether the view shows all that an extent describes, and the selection takes it.
func (r *RowReader) shows(e *row.Extent) bool { return r.judge.whole(e) == visible && r.takes(e) }

// takes reports whether the selection takes the cells of an extent as the view shows them.
func (r *RowReader) takes(e *row.Extent) bool {
	return r.sel.NoCells || e.Cells == 0 && e.Rows == 0 ||
		(r.sel.MaxExamined <= 0 || e.Cells <= r.sel.MaxExamined) && e.MinVersion >= r.sel.MinVersion && e.MaxVersion <= r.maxVersion
}

// exhausted reports whether the reader looked at more cells than the selection allows.
func (r *RowReader) exhausted() bool {
	return r.sel.MaxExamined > 0 && r.examined > r.sel.MaxExamined
}

// Cut reports whether the reader stopped at one of the bounds of the selection.
func (r *RowReader) Cut() bool { return r.cut }

// PutTogether reports whether Collect did more than copy cells of a row that the
// source holds as a whole.
func (r *RowReader) PutTogether() bool { return r.together }

// Cell is the cell that NextCell moved to, valid until the next call.
func (r *RowReader) Cell() *row.Cell { return r.cells.Cell() }

// Error is the error that ended Exists or NextCell early, if any.
func (r *RowReader) Error() error { return r.cells.Error() }

// Examined is how many cells were looked at since Reset, dead ones included. It bounds
// the work of a scan.
func (r *RowReader) Examined() int { return r.examined }

func (r *RowReader) column() []byte { return r.name[:len(r.name)-1] }

// readRowLevel judges as few row-level cells as decide the row, and moves to the first
// attribute cell.
//
// A row that was put 100,000 times has as many delete-rows and markers in its memtable.
// Only the newest delete-row in the view counts, and the first marker that it does not
// hide. So the walk ends early in both kinds, and seeks on.
func (r *RowReader) readRowLevel() {
	r.loaded = true
	r.at = r.cells.FirstCell()
	r.examined++
	for r.at {
		c := r.cells.Cell()
		switch {
		case len(c.Column) != 0:
			return
		case r.exhausted() && !(r.judge.exists && r.sel.NoCells):
			r.cut = true
			return
		case c.Version < row.MaxVersion && (r.judge.exists || c.Version < r.judge.oldest):
			// The row is decided: all further markers are expired, or one that lasts
			// longer was found.
			r.advanceTo(r.first[:], row.MaxVersion)
		case c.Version == row.MaxVersion && r.judge.deleted && c.Seq < r.judge.deleteRow:
			r.advanceTo(nil, row.MaxVersion-1) // on to the finite markers: only older cells come before
		default:
			r.judge.rowLevel(c)
			r.step()
		}
	}
}

// enterColumn begins the column if it is wanted, and otherwise moves on.
func (r *RowReader) enterColumn(name []byte) bool {
	r.inColumn = false
	if len(r.sel.Columns) != 0 {
		if !r.skipWanted(name, false) {
			r.at = false
			return false
		}
		if next := r.sel.Columns[r.wanted]; !bytes.Equal(next, name) {
			r.advanceTo(next, row.MaxVersion)
			return false
		}
	}
	if len(r.sel.Start) != 0 && bytes.Compare(name, r.sel.Start) < 0 {
		r.advanceTo(r.sel.Start, row.MaxVersion)
		return false
	}
	if len(r.sel.End) != 0 && bytes.Compare(name, r.sel.End) >= 0 {
		r.at = false
		return false
	}
	r.name = append(append(r.name[:0], name...), 0)
	r.inColumn, r.given = true, 0
	r.judge.startColumn()
	return true
}

// skipWanted passes the wanted columns below name, and name itself if through. It
// returns false if none is left.
func (r *RowReader) skipWanted(name []byte, through bool) bool {
	for ; r.wanted < len(r.sel.Columns); r.wanted++ {
		c := bytes.Compare(r.sel.Columns[r.wanted], name)
		if c > 0 || c == 0 && !through {
			return true
		}
	}
	return false
}

// pass moves on from a judged cell. It does not seek within a column, because a trim
// that matters further down may stand at any version.
func (r *RowReader) pass() {
	if r.judge.full() || r.given >= r.wantVersions {
		r.leaveColumn()
		return
	}
	r.step()
}

// leaveColumn moves to the next column that may be wanted.
func (r *RowReader) leaveColumn() {
	r.inColumn = false
	if len(r.sel.Columns) == 0 {
		r.advanceTo(r.name, row.MaxVersion)
		return
	}
	if !r.skipWanted(r.column(), true) {
		r.at = false
		return
	}
	r.advanceTo(r.sel.Columns[r.wanted], row.MaxVersion)
}

// advanceTo moves from the current cell to the first one at or after (column, version),
// which lies further on. It walks nearSteps cells, then it seeks.
func (r *RowReader) advanceTo(column []byte, version int64) {
	for range nearSteps {
		if r.step(); !r.at {
			return
		}
		c := r.cells.Cell()
		if d := bytes.Compare(c.Column, column); d > 0 || d == 0 && c.Version <= version {
			return
		}
	}
	r.at = r.cells.SeekCell(column, version)
	r.examined++
}

func (r *RowReader) step() {
	r.at = r.cells.NextCell()
	r.examined++
}
