package mvcc

// The visibility rules (see the package comment) as code. A judge decides for one
// view, and is shown the cells of one row in cell order.
//
// Cell order keeps the judge small. Trims sort by their threshold, so when the judge
// gets to a version it has seen every trim that could hide it, and each of those has
// a threshold at or above the version. One comparison then tells whether a cell is
// hidden: with the floor, the largest sequence number of the delete-row and the trims
// seen so far. The judge needs no look-ahead and no list of trims.

import (
	"cmp"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// NoExpiry is the cutoff of a table whose data never expires.
const NoExpiry int64 = math.MinInt64

// View is a moment of a table, as readers see it.
type View struct {
	// Seq is the largest sequence number that is seen; row.MaxSequence means all.
	Seq uint64
	// MaxVersions is how many versions of a column are shown; 0 shows all.
	MaxVersions int
	// Cutoff is in seconds: a version is expired when version/1000 < Cutoff, and
	// NoExpiry means that nothing expires. Readers use the larger of CutoffAt and the
	// table's expiry watermark.
	Cutoff int64
}

// Oldest is the smallest version, in milliseconds, that is not expired.
func (v View) Oldest() int64 { return oldestVersion(v.Cutoff) }

// CutoffAt returns the cutoff in seconds, from a clock reading in milliseconds and a
// time to live in seconds. A negative time to live returns NoExpiry. The arithmetic
// saturates.
func CutoffAt(nowMillis, ttlSeconds int64) int64 {
	if ttlSeconds < 0 {
		return NoExpiry
	}
	now := nowMillis / 1000
	if nowMillis < 0 && nowMillis%1000 != 0 {
		now-- // floor, not truncation
	}
	if now < math.MinInt64+ttlSeconds {
		return NoExpiry
	}
	return now - ttlSeconds
}

// oldestVersion returns the smallest version, in milliseconds, that a cutoff in
// seconds does not expire. Versions are never negative, so version/1000 < cutoff is
// the same as version < oldestVersion(cutoff). A permanent marker (row.MaxVersion)
// is never below it.
func oldestVersion(cutoff int64) int64 {
	switch {
	case cutoff <= 0:
		return 0
	case cutoff > math.MaxInt64/1000:
		return math.MaxInt64
	}
	return cutoff * 1000
}

// TrimForDelete says which trim must accompany a delete of single versions of one
// column (rule 6). A full column may still have surplus versions on disk, unless they
// were pruned. If a visible version is deleted without a trim, a surplus one may move
// up, depending on what was pruned; the trim hides all of them. A delete of a surplus
// version carries the trim too, in case the limit is raised later.
//
// visible lists the versions that the column shows in the newest view, newest first.
// deleted is the version to delete, and maxVersions is the table's limit. If ok, the
// mutation must carry, besides its delete, a row.KindTrim cell whose version is
// threshold. If one mutation deletes several versions of a column, pass the same
// visible for each: the answers agree.
//
// Take visible from a view whose cutoff is the table's expiry watermark. A cutoff
// from the clock would make the decision depend on clock steps.
func TrimForDelete(visible []int64, deleted int64, maxVersions int) (threshold int64, ok bool) {
	if maxVersions <= 0 || len(visible) < maxVersions {
		return 0, false // nothing is surplus
	}
	oldest := visible[len(visible)-1]
	if deleted > oldest {
		if _, found := slices.BinarySearchFunc(visible, deleted, newestFirst); !found {
			return 0, false // there is no such version
		}
	}
	return oldest - 1, oldest > 0
}

func newestFirst(a, b int64) int { return cmp.Compare(b, a) }

// verdict is what a judge decides about one cell.
type verdict uint8

const (
	// dead: the view does not see the cell, or the cell changes nothing for it.
	dead verdict = iota
	// visible: the view shows this put, or this marker makes the row exist.
	visible
	// surplus: a put that nothing hides, but that is not among the M largest versions.
	surplus
	// hides: a tombstone that hides something that no earlier cell hides from this view.
	hides
	// unclear: what is known of a row is not enough to decide.
	unclear
)

// judge applies the rules at one view. It does not check the expiry of attribute
// cells: the caller must not pass expired ones. Where one cell of a column is expired
// the rest of the column is too, so callers stop or skip there.
type judge struct {
	seq    uint64
	max    int   // versions shown per column
	oldest int64 // smallest version not expired

	// State of the current row.
	deleted   bool
	deleteRow uint64 // the newest visible delete-row, if deleted
	exists    bool
	marker    uint64 // the sequence number of the marker by which the row exists

	// State of the current column.
	floor   uint64 // cells below this sequence number are hidden, by the delete-row or a trim
	shown   int
	decided bool  // version has its winner
	version int64 // of the last put or delete-version judged
}

func newJudge(v View) judge {
	j := judge{seq: v.Seq, max: v.MaxVersions, oldest: oldestVersion(v.Cutoff)}
	if j.max <= 0 {
		j.max = math.MaxInt
	}
	return j
}

func (j *judge) startRow() {
	j.deleted, j.deleteRow, j.exists = false, 0, false
	j.startColumn()
}

// startColumn begins a column. REQUIRES: all row-level cells were judged.
func (j *judge) startColumn() {
	j.floor, j.shown, j.decided = j.deleteRow, 0, false
}

// full reports whether the column shows as many versions as it may.
func (j *judge) full() bool { return j.shown >= j.max }

// rowLevel judges a delete-row or a marker.
//
// Delete-rows come newest first, so only the first one that is seen counts. Permanent
// markers sort among them by sequence number: every delete-row that could hide a
// marker is judged before it. Finite markers follow all delete-rows, largest version
// first, so the first live one lasts longest.
func (j *judge) rowLevel(c *row.Cell) verdict {
	switch {
	case c.Seq > j.seq:
		return dead
	case c.Kind == row.KindDeleteRow:
		if j.deleted {
			return dead
		}
		j.deleted, j.deleteRow = true, c.Seq
		return hides
	case j.exists || c.Seq < j.deleteRow || c.Version < j.oldest:
		return dead
	}
	j.exists, j.marker = true, c.Seq
	return visible
}

// attribute judges a cell of the current column. REQUIRES: the cell is not expired.
func (j *judge) attribute(c *row.Cell) verdict {
	if c.Seq > j.seq {
		return dead
	}
	if c.Kind == row.KindTrim {
		if c.Seq <= j.floor {
			return dead // an earlier tombstone hides as much
		}
		j.floor = c.Seq
		return hides
	}
	if j.decided && c.Version == j.version {
		return dead // overwritten or deleted at this version
	}
	j.decided, j.version = true, c.Version
	if c.Kind == row.KindDeleteVersion {
		if c.Seq <= j.floor {
			return dead
		}
		return hides
	}
	switch {
	case c.Seq < j.floor:
		return dead
	case j.full():
		return surplus
	}
	j.shown++
	return visible
}

// whole judges a row of which only an extent is known. The verdict is dead if the row
// does not exist, visible if it exists and each column shows its newest cells, up to
// the limit, or unclear.
//
// The verdict is the same as cell by cell. The row has at most one delete-row and one
// marker. It has no trim, so the floor of every column is the delete-row. It has no
// delete-version and no second cell of a version, so no put hides another. What
// remains is to compare each put's sequence number with the view and the floor, and
// its version with the expiry; comparing the outermost values does it for all puts.
//
// Of several rows, the verdict is dead if none of them exists, since no marker is seen or
// alive, and visible if all bounds allow it for each.
func (j *judge) whole(e *row.Extent) verdict {
	floor := uint64(0)
	if e.Deleted && e.DeleteSeq <= j.seq {
		floor = e.DeleteSeq
	}
	switch {
	case !e.Marked || e.MarkerSeq > j.seq || e.MarkerSeq < floor || e.MarkerVersion < j.oldest:
		return dead
	case e.Cells == 0 && e.Rows == 0:
		return visible
	case e.MaxSeq <= j.seq && e.MinSeq >= floor && e.MinVersion >= j.oldest:
		return visible
	}
	return unclear
}
