package mvcc

// The rule-book (see the package comment) as code: one judge gives one view's
// opinion of the cells of one row, which it is shown in cell order.
//
// Cell order makes a judge small. A trim sorts by its own threshold, so by the
// time a version is judged every trim that could hide it has been seen, and
// every trim seen has a threshold at or above it. "Is this cell hidden?" is
// then one comparison with the largest sequence number of the delete-row and
// the trims seen so far: the floor. No look-ahead, no list of trims.

import (
	"cmp"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// NoExpiry is the cutoff of a table whose data never expires.
const NoExpiry int64 = math.MinInt64

// View is a moment of a table as readers see it.
type View struct {
	// Seq is the largest sequence number seen; row.MaxSequence is "the newest".
	Seq uint64
	// MaxVersions is how many versions of a column are shown; 0 shows all.
	MaxVersions int
	// Cutoff is in seconds: a version is expired when version/1000 < Cutoff.
	// NoExpiry means that nothing expires. It is the larger of CutoffAt
	// and the table's expiry watermark.
	Cutoff int64
}

// Oldest is the smallest version, in milliseconds, that is not expired.
func (v View) Oldest() int64 { return oldestVersion(v.Cutoff) }

// CutoffAt returns the cutoff in seconds at a clock reading in milliseconds
// for a time to live in seconds; a negative one never expires anything
// (NoExpiry). The arithmetic saturates.
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

// oldestVersion turns a cutoff in seconds into the smallest version, in
// milliseconds, that is not expired. Versions are never negative, so
// version/1000 < cutoff is the same as version < oldestVersion(cutoff). A
// permanent marker (row.MaxVersion) is never below it.
func oldestVersion(cutoff int64) int64 {
	switch {
	case cutoff <= 0:
		return 0
	case cutoff > math.MaxInt64/1000:
		return math.MaxInt64
	}
	return cutoff * 1000
}

// TrimForDelete says which trim must accompany a delete of single versions of
// one column (rule 6). A column that shows its full number of versions may
// still have surplus ones on disk, or not, if they were pruned. Deleting a
// visible version would let a surplus one move up or not, by accident; the
// trim hides all of them. Deleting a surplus version does the same once the
// limit is raised, so it carries the trim too (which then does its work alone).
//
// visible are the versions that the column shows in the newest view, newest
// first; deleted is the version to be deleted; maxVersions is the table's
// limit. With ok, the mutation must carry a row.KindTrim cell with version
// threshold, besides its delete. When several versions of a column are deleted
// by one mutation, ask for each with the same visible: the answers agree.
//
// Take visible from a view whose cutoff is the table's expiry watermark, not
// the clock's: then the decision does not depend on a clock that steps.
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

// verdict is a judge's opinion of one cell.
type verdict uint8

const (
	// dead: the view does not see the cell, or it makes no difference to it.
	dead verdict = iota
	// visible: the view shows this put, or the row exists by this marker.
	visible
	// surplus: a put that nothing hides, beyond the largest M versions.
	surplus
	// hides: a tombstone that hides something from this view that no cell
	// judged before hides already.
	hides
	// unclear: what is known of a row does not decide it.
	unclear
)

// judge applies the rules at one view. Expiry of attribute cells is left to
// the caller, who must not show expired ones: where one expires all that
// follow in the column do, so callers stop or skip there.
type judge struct {
	seq    uint64
	max    int   // versions shown per column
	oldest int64 // smallest version not expired

	// Of the row.
	deleted   bool
	deleteRow uint64 // the newest visible delete-row, if deleted
	exists    bool
	marker    uint64 // the sequence number of the marker that says so

	// Of the column.
	floor   uint64 // hidden below this sequence number: delete-row and trims
	shown   int
	decided bool  // version has a winner
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

// startColumn begins a column; all row-level cells have been judged.
func (j *judge) startColumn() {
	j.floor, j.shown, j.decided = j.deleteRow, 0, false
}

// full reports that the column shows all the versions it can.
func (j *judge) full() bool { return j.shown >= j.max }

// rowLevel judges a delete-row or a marker.
//
// Delete-rows come newest first, so the first one seen counts. Permanent
// markers are interleaved with them by sequence number: when one is judged,
// every delete-row that could hide it has been. Finite markers come after all
// delete-rows, largest version first, so the first live one lasts longest.
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

// attribute judges a cell of the current column that is not expired.
func (j *judge) attribute(c *row.Cell) verdict {
	if c.Seq > j.seq {
		return dead
	}
	if c.Kind == row.KindTrim {
		if c.Seq <= j.floor {
			return dead // what it hides is hidden
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

// whole judges a row of which only an extent is known: dead if it does not
// exist, visible if it exists and every cell is shown, or unclear.
//
// Visible means that of every column the newest cells are shown, as many as a
// column may show.
//
// It says what judging cell by cell would: the row-level cells are a delete-row
// and a marker at most. There is no trim, so the floor of every column is the
// delete-row; no delete-version and no second cell of a version, so each put has
// its version for itself, and those of a column come newest first. What remains
// to ask of a put is its sequence number, against the view and the floor, and its
// version, against expiry; all of them are asked at once by asking the outermost.
func (j *judge) whole(e *row.Extent) verdict {
	floor := uint64(0)
	if e.Deleted && e.DeleteSeq <= j.seq {
		floor = e.DeleteSeq
	}
	switch {
	case !e.Marked || e.MarkerSeq > j.seq || e.MarkerSeq < floor || e.MarkerVersion < j.oldest:
		return dead
	case e.Cells == 0:
		return visible
	case e.MaxSeq <= j.seq && e.MinSeq >= floor && e.MinVersion >= j.oldest:
		return visible
	}
	return unclear
}

// stretch judges several rows: dead if none exists, visible if all do and of every
// column the newest cells are shown, or unclear. A delete-row hides nothing of its
// row, so it makes no difference here.
func (j *judge) stretch(s *row.Stretch) verdict {
	switch {
	case s.MinSeq > j.seq || s.MaxVersion < j.oldest && !s.Permanent:
		return dead
	case s.MaxSeq <= j.seq && s.MinVersion >= j.oldest:
		return visible
	}
	return unclear
}
