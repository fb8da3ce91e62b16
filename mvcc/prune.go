package mvcc

// Pruner: which cells of a row flush and compaction may leave out.
//
// It is shown the cells of one row of the merged input in cell order, and
// answers for each at once, so it streams as readers do. It keeps one judge
// per view. Let the stripe of a cell be the oldest view that sees it: cells of
// one stripe are seen by exactly the same views.
//
// # Puts
//
// A put is kept iff some view shows it. Why no later reader misses a dropped
// one: readers open at the newest view or were among the views. Take a put
// that was dropped because others come before it.
//
//   - Hidden by a tombstone: see below.
//   - Overwritten, by a put or delete of the same version that the same views
//     see. That one is kept and goes on hiding what is older; or it is dropped
//     for a reason that holds for everything older of its version too.
//   - Surplus: L larger versions, unhidden in every view that sees the put.
//     They can be hidden only by mutations newer than the input. A delete of
//     the row, of the column or a trim that hides the smallest of them hides
//     the put as well. So does the delete of one of their versions, by its
//     trim (TrimForDelete): the column was full then, since the limit in force
//     was at most L, and what it showed lies above the put. So L is not the
//     limit of today alone: see Policy.MaxVersions. Raising the limit above L
//     may show less than if nothing was dropped, which rule 7 allows.
//   - Expired below the drop cutoff. No reader's cutoff is ever below that:
//     see Policy.ExpiryCutoff.
//
// # The trim of a surplus put
//
// A dropped surplus put may have overwritten an older put of its version in a
// lower run, or one that is kept for a snapshot; that one would show if M were
// raised. So the first surplus put that is dropped from the newest view leaves
// a trim in its place, at its own version (the tightest threshold that covers
// it and all after it, and the one place where a trim is sure to be in order),
// with sequence Q: the largest one among the cells that the newest view shows
// in this column, or the put's own if that is larger.
//
//   - It harms no view: a view at or above Q sees all the L cells that the
//     newest view shows, unhidden, so it shows nothing below them. For this
//     all views count with one L.
//   - It covers all that is stale: lower runs have only sequences below every
//     sequence of this input. A put kept for a snapshot is shown by a view
//     below Q (those above show nothing here), so its sequence is below Q.
//   - One is enough for a column: what comes later is hidden by it, or its
//     older cells are, by the same argument.
//   - If a tombstone at or above Q hides this version already, none is needed.
//
// # Tombstones
//
// A tombstone is kept, except
//
//   - if a stronger one of the same stripe was judged before: every view that
//     sees the weaker sees the stronger, which hides as much. The stronger is
//     kept, or dropped for a reason that holds for the weaker too;
//   - if all views see it and no older run can hold the row: what it hides in
//     the input is dropped with it, and nothing else is left to hide;
//   - if its version is expired below the drop cutoff: so is all it hides;
//   - if it is at or below Policy.TombstoneHorizon: so is all it hides. But
//     permanent markers never expire, so a delete-row goes by this rule only
//     if older runs are known to hold none, and no snapshot keeps one here.
//
// # Markers
//
// Per view the live marker that lasts longest is kept. In a view, live markers
// stay live together until a newer delete-row hides all of them.

import (
	"bytes"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/row"
)

// Below says what runs older than the input of a merge may hold of one row.
type Below uint8

const (
	// BelowAnything: any cells. Always safe to say.
	BelowAnything Below = iota
	// BelowExpiring: cells, but no permanent row marker.
	BelowExpiring
	// BelowNothing: no cell. The output is the bottom of the row.
	BelowNothing
)

// Policy is what flush and compaction must respect. It is fixed for one merge.
type Policy struct {
	// Views are the open snapshots in ascending order of Seq, then the newest
	// view with Seq row.MaxSequence. REQUIRES: every view opened after this
	// list was made sees every cell of the input (its Seq is at or above the
	// largest one there), and so does not fall between two of its stripes.
	Views []View
	// MaxVersions is how many versions of a column are kept; at least as many
	// as any of the views shows. REQUIRES: at least the largest limit of the
	// table that was in force when any mutation of these rows was made that is
	// newer than the input, or lies in a newer run. A delete of a version that
	// was made under a larger limit counts on more versions below it. 0 means
	// that this is not known, and keeps all.
	MaxVersions int
	// ExpiryCutoff is in seconds, NoExpiry for none. Versions below it
	// may be dropped. REQUIRES: no reader's cutoff is below it, now or later;
	// so the table's expiry watermark is raised to it in the manifest edit
	// that installs the output, at the latest. It follows the bounded purge
	// clock, not the wall clock. The cutoffs of Views can only lower it.
	ExpiryCutoff int64
	// TombstoneHorizon is a sequence number; every put with a smaller one has
	// a version that is expired below ExpiryCutoff. Zero if unknown.
	TombstoneHorizon uint64
}

// Pruner applies a Policy to rows, one after the other:
//
//	p.StartRow(below)
//	for each cell of the row, in cell order {
//		trim, keep := p.Add(cell)
//		if trim != nil { write(trim) }
//		if keep { write(cell) }
//	}
//
// What is written is in cell order. Add allocates nothing once the column
// buffer has grown.
type Pruner struct {
	judges  []judge // ascending; the last is the newest view
	oldest  int64   // smallest version that is not expired below the drop cutoff
	horizon uint64
	below   Below

	column []byte
	inside bool   // column is the current column
	newest uint64 // largest sequence shown by the newest view in this column
	trim   row.Cell

	// trimmed: a trim at version trimmedAt was kept in this column. If a put has
	// the same version it is of the same mutation, for trims sort before puts.
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
		pr.horizon = 0 // it speaks of ExpiryCutoff; a view still shows older versions
	}
	// One cutoff for all views: what they do not show by their own, higher
	// ones may be shown again when the clock is put right.
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

// Plain judges all cells of a row at once, if it is a row as most are: at most
// one delete-row, then at most one marker, then one put for each of several
// columns, of which nothing is expired or hidden by another. All of those are
// kept, in every view that sees them, with the exception of a delete-row that
// has done its work: skip is 1 then, and 0 otherwise. For any other row ok is
// false, and the cells are to be shown to Add, after StartRow, one by one.
//
// Unless alone is set, the input holds further cells of the row, all of them
// older than these. They can only be left out unseen if a delete-row of these
// hides them, in every view.
func (p *Pruner) Plain(cells []row.Cell, alone bool, below Below) (skip int, ok bool) {
	i, deleted := 0, uint64(0)
	if len(cells) > 0 && cells[0].Kind == row.KindDeleteRow {
		deleted = cells[0].Seq
		stripe := p.stripe(deleted)
		alone = alone || stripe == 0
		if stripe == 0 && (below == BelowNothing || deleted <= p.horizon && below >= BelowExpiring) {
			skip = 1
		}
		i = 1
	}
	if i < len(cells) && cells[i].Kind == row.KindRowMarker {
		if cells[i].Seq < deleted || cells[i].Version < p.oldest {
			return 0, false
		}
		i++
	}
	if !alone || i == skip && i == len(cells) {
		return 0, false // there is more to see, or nothing is left
	}
	var before []byte
	for ; i < len(cells); i++ {
		c := &cells[i]
		if c.Kind != row.KindPut || c.Version < p.oldest || c.Seq < deleted || bytes.Compare(before, c.Column) >= 0 {
			return 0, false
		}
		before = c.Column
	}
	return skip, true
}

// Add judges the next cell of the row: whether to keep it, and a trim to be
// written before it, if not nil. The trim is valid until the next call.
func (p *Pruner) Add(c *row.Cell) (trim *row.Cell, keep bool) {
	if c.Version < p.oldest {
		return nil, false // whatever it is, and all that it hides
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
		expired := stripe == 0 && c.Seq <= p.horizon && p.below >= BelowExpiring
		return needed && !expired && !p.bottom(stripe)
	}
	for i := stripe; i < len(p.judges); i++ {
		if p.judges[i].rowLevel(c) == visible {
			keep = true
		}
	}
	return keep
}

// bottom says that a tombstone of the stripe has done its work: every view
// sees it, and nothing older lies below.
func (p *Pruner) bottom(stripe int) bool { return stripe == 0 && p.below == BelowNothing }

// spent says that a tombstone within a column hides nothing that anybody could
// see without it.
func (p *Pruner) spent(seq uint64, stripe int) bool {
	return seq <= p.horizon || p.bottom(stripe)
}

// trimFor makes the trim that stands in for a dropped surplus put, nil if none
// is needed.
func (p *Pruner) trimFor(c *row.Cell) *row.Cell {
	if p.judges[len(p.judges)-1].floor >= p.newest {
		return nil
	}
	if p.trimmed && p.trimmedAt == c.Version {
		// The trim of the put's own mutation hides what it overwrote, and a
		// second one would be out of order behind it.
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
