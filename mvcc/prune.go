package mvcc

// Pruner: which cells of a row flush and compaction may leave out.
//
// Pruner is shown the cells of one merged row in cell order, and decides on each at
// once, so it streams as readers do. It keeps one judge per view. The stripe of a cell
// is the oldest view that sees it: all cells of a stripe are seen by the same views.
//
// # Puts
//
// A put is kept if and only if some view shows it. A later reader is one of the views,
// or opens at the newest one. Whatever the reason for which a put is dropped, that
// reader does not miss it:
//
//   - Hidden by a tombstone: see below.
//   - Overwritten by a put or delete of the same version that the same views see.
//     That cell is kept and goes on hiding what is older, or it is dropped for a
//     reason that holds for all older cells of its version too.
//   - Surplus: L larger versions are unhidden in every view that sees the put. Only
//     mutations newer than the input can hide them. A delete of the row or column,
//     or a trim, that hides the smallest of them hides the put as well. A delete of
//     one of them does so by its trim (TrimForDelete): the column was full then,
//     because the limit in force was at most L, and what it showed lies above the
//     put. So L is not just the limit of today: see Policy.MaxVersions. Raising
//     the limit above L may show less than without pruning; rule 7 allows it.
//   - Expired below the drop cutoff. No reader's cutoff is ever below that:
//     see Policy.ExpiryCutoff.
//
// # The trim of a surplus put
//
// A dropped surplus put may have overwritten an older put of its version, which is
// in a lower run or is kept for a snapshot. That one would show if M were raised. So
// the first surplus put that is dropped from the newest view leaves a trim at its own
// version: this is the tightest threshold that covers the put and all after it, and
// the only place where a trim is sure to be in order. The trim's sequence number Q is
// the largest one among the cells of the column that the newest view shows, or the
// put's own if that is larger.
//
//   - It harms no view: a view at or above Q sees the L cells that the newest view
//     shows, unhidden, so it shows nothing below them. For this, all views count
//     with one L.
//   - It covers all stale puts: lower runs have only sequences below those of this
//     input. A put kept for a snapshot is shown by a view below Q (those above show
//     nothing here), so its sequence is below Q.
//   - One trim per column is enough. It hides what comes later, or the older cells
//     of that, by the same argument.
//   - No trim is needed if a tombstone at or above Q already hides this version.
//
// # Tombstones
//
// A tombstone is kept, except
//
//   - if a stronger one of the same stripe was judged before: every view that sees
//     the weaker sees the stronger, which hides as much. The stronger is kept, or
//     dropped for a reason that holds for the weaker too;
//   - if all views see it and no older run can hold the row: what it hides in the
//     input is dropped with it, and nothing else is left to hide;
//   - if its version is expired below the drop cutoff: so is all it hides;
//   - if it is at or below Policy.TombstoneHorizon: so is all it hides. Permanent
//     markers never expire, so for a delete-row this rule holds only if older runs
//     are known to hold none, and no snapshot keeps one here.
//
// # Markers
//
// For each view the live marker that lasts longest is kept. Markers that are live in
// a view stay live together, until a newer delete-row hides all of them.

import (
	"bytes"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/row"
)

// Below says what runs older than the input of a compaction may hold of one row.
type Below uint8

const (
	// BelowAnything: any cells. Always safe to say.
	BelowAnything Below = iota
	// BelowExpiring: cells, but no permanent row marker.
	BelowExpiring
	// BelowNothing: no cell. The output is the bottom of the row.
	BelowNothing
)

// Policy is what a flush or compaction must respect. It does not change while one runs.
type Policy struct {
	// Views are the open snapshots in ascending order of Seq, then the newest view,
	// with Seq row.MaxSequence. REQUIRES: the Seq of every view opened after this list
	// was made is at or above the largest sequence number of the input. So it sees the
	// whole input, and does not fall between two stripes.
	Views []View
	// MaxVersions is how many versions of a column are kept; 0 keeps all, for a limit
	// that is not known. It is at least as many as any of the views shows. REQUIRES:
	// at least the largest limit that was in force when a mutation of these rows was
	// made that is newer than the input or lies in a newer run. A delete of a version
	// that was made under a larger limit counts on more versions below it.
	MaxVersions int
	// ExpiryCutoff is in seconds, NoExpiry for none. Versions below it may be dropped.
	// REQUIRES: no reader's cutoff is below it, now or later; so the version edit that
	// installs the output raises the table's expiry watermark to it, at the latest. It
	// follows the trusted clock, not the wall clock. Cutoffs of Views can only
	// lower it.
	ExpiryCutoff int64
	// TombstoneHorizon is a sequence number. The version of every put with a smaller
	// one is expired below ExpiryCutoff. 0 if unknown.
	TombstoneHorizon uint64
}

// Pruner applies a Policy to rows, one row at a time:
//
//	p.StartRow(below)
//	for each cell of the row, in cell order {
//		trim, keep := p.Add(cell)
//		if trim != nil { write(trim) }
//		if keep { write(cell) }
//	}
//
// What the caller writes is in cell order. Add allocates nothing once the column buffer has grown.
type Pruner struct {
	judges  []judge // ascending; the last is the newest view
	oldest  int64   // smallest version that the drop cutoff does not expire
	horizon uint64
	below   Below

	column []byte
	inside bool   // column is the current column
	newest uint64 // largest sequence shown by the newest view in this column
	trim   row.Cell

	// trimmed: a trim at version trimmedAt was kept in this column. A put of the same
	// version is of the same mutation, because trims sort before puts.
	trimmed   bool
	trimmedAt int64
}

// NewPruner makes a pruner. It panics if the views are not in order or do not
// end with the newest.
func NewPruner(p Policy) *Pruner {
	if n := len(p.Views); n == 0 || p.Views[n-1].Seq != row.MaxSequence {
		panic("mvcc: the newest view is missing from the policy")
	}
	cutoff, limit := p.ExpiryCutoff, p.MaxVersions
	if limit <= 0 {
		limit = math.MaxInt
	}
	pr := &Pruner{horizon: p.TombstoneHorizon}
	for i, v := range p.Views {
		if i > 0 && v.Seq < p.Views[i-1].Seq {
			panic(fmt.Sprintf("mvcc: views out of order: %d after %d", v.Seq, p.Views[i-1].Seq))
		}
		cutoff = min(cutoff, v.Cutoff)
		j := newJudge(v)
		limit = max(limit, j.max)
		pr.judges = append(pr.judges, j)
	}
	if cutoff < p.ExpiryCutoff {
		pr.horizon = 0 // the horizon refers to ExpiryCutoff; a view still shows older versions
	}
	// All views get one cutoff: what a view hides by its own, higher cutoff may show
	// again when the clock is set back.
	pr.oldest = oldestVersion(cutoff)
	for i := range pr.judges {
		pr.judges[i].max, pr.judges[i].oldest = limit, pr.oldest
	}
	return pr
}

// StartRow begins a row.
func (p *Pruner) StartRow(below Below) {
	p.below, p.inside = below, false
	for i := range p.judges {
		p.judges[i].startRow()
	}
}

// Plain judges a row as a whole. It succeeds if every view would keep what the newest view shows
// of the row, and that is all cells but perhaps the delete-row: spent says that the delete-row has
// done its work. If ok is false, the caller must show the cells to Add one by one, after StartRow.
//
// If alone is not set, the input holds further cells of the row, all older than these.
// They are left out unseen, so Plain succeeds only if a delete-row among these cells
// hides them in every view.
//
// The verdict is the same as cell by cell: the newest view sees every cell. Of the cells of an
// extent none is hidden, if none is older than the delete-row, and none is surplus, if no column
// has more versions than are kept.
func (p *Pruner) Plain(e *row.Extent, alone bool, below Below) (spent, ok bool) {
	deleted := uint64(0)
	if e.Deleted {
		deleted = e.DeleteSeq
		stripe := p.stripe(deleted)
		alone = alone || stripe == 0
		spent = p.bottom(stripe, below) || p.expired(deleted, stripe, below)
	}
	switch {
	case !alone || e.Cells == 0 && !e.Marked && (spent || !e.Deleted): // more to judge, or nothing left
	case e.Marked && (e.MarkerSeq < deleted || e.MarkerVersion < p.oldest):
	case e.Cells > 0 && (e.MinSeq < deleted || e.MinVersion < p.oldest || e.Versions > p.judges[0].max):
	default:
		return spent, true
	}
	return false, false
}

// Add decides whether to keep the next cell of the row. If trim is not nil, the caller
// writes it first. The trim is valid until the next call.
func (p *Pruner) Add(c *row.Cell) (trim *row.Cell, keep bool) {
	if c.Version < p.oldest {
		return nil, false // expired, and so is all that it hides
	}
	stripe := p.stripe(c.Seq)
	if c.Kind.IsRowLevel() {
		return nil, p.rowLevel(c, stripe)
	}
	if !p.inside || !bytes.Equal(c.Column, p.column) {
		p.column = append(p.column[:0], c.Column...)
		p.inside, p.newest, p.trimmed = true, 0, false
		for i := range p.judges {
			p.judges[i].startColumn()
		}
	}
	if c.Kind != row.KindPut {
		needed := p.judges[stripe].attribute(c) == hides
		for i := stripe + 1; i < len(p.judges); i++ {
			p.judges[i].attribute(c)
		}
		keep = needed && !p.spent(c.Seq, stripe)
		if keep && c.Kind == row.KindTrim {
			p.trimmed, p.trimmedAt = true, c.Version
		}
		return nil, keep
	}
	var v verdict
	for i := stripe; i < len(p.judges); i++ {
		v = p.judges[i].attribute(c)
		keep = keep || v == visible
	}
	if v == visible {
		p.newest = max(p.newest, c.Seq)
	}
	if v == surplus && !keep {
		return p.trimFor(c), false
	}
	return nil, keep
}

// stripe is the index of the oldest view that sees seq.
func (p *Pruner) stripe(seq uint64) int {
	i := 0
	for p.judges[i].seq < seq {
		i++
	}
	return i
}

func (p *Pruner) rowLevel(c *row.Cell, stripe int) (keep bool) {
	if c.Kind == row.KindDeleteRow {
		needed := p.judges[stripe].rowLevel(c) == hides
		for i := stripe + 1; i < len(p.judges); i++ {
			p.judges[i].rowLevel(c)
		}
		return needed && !p.expired(c.Seq, stripe, p.below) && !p.bottom(stripe, p.below)
	}
	for i := stripe; i < len(p.judges); i++ {
		if p.judges[i].rowLevel(c) == visible {
			keep = true
		}
	}
	return keep
}

// bottom reports whether a tombstone of the stripe has done its work: every view sees
// it, and no older run holds the row.
func (p *Pruner) bottom(stripe int, below Below) bool { return stripe == 0 && below == BelowNothing }

// expired reports whether a delete-row has done its work because all that it hides is expired.
func (p *Pruner) expired(seq uint64, stripe int, below Below) bool {
	return stripe == 0 && seq <= p.horizon && below >= BelowExpiring
}

// spent reports whether every view shows the same without this tombstone of a column.
func (p *Pruner) spent(seq uint64, stripe int) bool {
	return seq <= p.horizon || p.bottom(stripe, p.below)
}

// trimFor makes the trim that replaces a dropped surplus put; nil if none is needed.
func (p *Pruner) trimFor(c *row.Cell) *row.Cell {
	if p.judges[len(p.judges)-1].floor >= p.newest {
		return nil
	}
	if p.trimmed && p.trimmedAt == c.Version {
		// The trim of the put's own mutation hides what the put overwrote. A second
		// trim would follow it out of order.
		return nil
	}
	p.trim = row.Cell{Column: p.column, Version: c.Version, Seq: max(p.newest, c.Seq), Kind: row.KindTrim}
	stripe := p.stripe(p.trim.Seq)
	for i := stripe; i < len(p.judges); i++ {
		p.judges[i].attribute(&p.trim)
	}
	if p.spent(p.trim.Seq, stripe) {
		return nil
	}
	return &p.trim
}
