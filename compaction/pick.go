package compaction

// What to compact next, in order of urgency:
//
//   1. Expired files are dropped whole, unread: that frees space at no cost.
//   2. The level furthest over its target gives a file (level 0: all files that
//      overlap) to the next level. A file that overlaps nothing there is moved, not
//      rewritten.
//   3. While writes are few, level 0 or a file of another level is compacted early if
//      reads lose enough to it: they look into every run of level 0, and into each
//      level that holds a part of their row.
//   4. A file that reaches beyond the partition, since that was split, is rewritten in
//      place without the rest.
//   5. Idle levels return space. Files with many tombstones are pushed towards what
//      these hide. Files at the bottom of their key range are rewritten in place once
//      enough of their cells are tombstones or expired.
//
// Every choice makes progress: 2, 3 and pushes lead downwards, and a file rewritten in place
// loses what it was chosen for.

import (
	"cmp"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
)

// Reason says why a candidate was chosen.
type Reason string

// The reasons.
const (
	ReasonExpired    Reason = "expired"    // everything in the files is expired
	ReasonL0         Reason = "level 0"    // too many files in level 0
	ReasonReads      Reason = "reads"      // reads look into several runs, and writes are few
	ReasonSize       Reason = "size"       // a level is over its target
	ReasonTrim       Reason = "trim"       // a file reaches beyond the partition
	ReasonTombstones Reason = "tombstones" // many tombstones above what they hide
	ReasonReclaim    Reason = "reclaim"    // space to regain at the bottom of the range
	ReasonManual     Reason = "manual"     // a caller asked for it
)

const (
	// reclaimShare is the share of a file that must be reclaimable before it is rewritten in
	// place. At a quarter, a rewrite writes three bytes for each that it frees.
	reclaimShare = 0.25
	// pushShare is the share of tombstones from which a file is pushed down before its level is
	// over target. Deletes hide more bytes than they take.
	pushShare = 0.5
	// trimShare divides TableFileSize: smaller pieces of level 0 files are not worth a file of their own.
	trimShare = 16
	// idleRatio bounds how many bytes of the base level an idle store rewrites for each byte of
	// a shallow level 0.
	idleRatio = 4
	// mergeCost is the processor time it takes to merge a byte, in nanoseconds.
	mergeCost = 5
	// readerWeight is how much more a reader's time counts than a compaction's, for which no
	// request waits. With 1, reads would never lose more than twice what they could have,
	// whatever comes, but would lose a whole compaction's time before it begins.
	readerWeight = 8
	// deepWeight is the same below level 0, where a merge rewrites some ten bytes for each that it brings, and few
	// writes beside the reads may have it done again and again. It is judged, not measured beside such writes.
	deepWeight = 3
)

// LeastLost is how much time, in nanoseconds, reads must lose at least to a file of so many bytes below level 0
// before it is compacted for them.
func LeastLost(bytes int64) int64 { return max(bytes*mergeCost/deepWeight, 1) }

// Input is what a choice depends on.
type Input struct {
	Levels *Levels
	// Clipped are those files of Levels that also have keys outside of the partition. Levels
	// describes what they have inside. Its counts are estimates, but 0 is exact.
	Clipped []*manifest.FileMeta
	Config  Config
	// Running are the candidates under way in this partition.
	Running []*Candidate
	// Policy is what a compaction that begins now could drop.
	Policy Policy
	// Lost is the time, in nanoseconds, that reads lost to level 0 since it was last compacted, and
	// LostTo what they lost to files of the levels below, by number; zero while writes are frequent.
	Lost   int64
	LostTo map[uint64]int64
	// Idle says that the partition has not been written for long.
	Idle bool
	// Trim says that files that reach beyond the partition must be rewritten however small their piece is,
	// since the partition is to be merged with a neighbour.
	Trim bool
	// Values says what the manifest knows of a live value file; it may be nil if table files refer
	// to none.
	Values func(number uint64) (usage manifest.ValueUsage, live bool)
}

// Candidate is a compaction to do: merge Upper and Lower into OutputLevel, unless Move or Drop
// says that an edit is enough.
type Candidate struct {
	Reason             Reason
	Score              float64 // urgency, comparable for equal reasons and levels
	Level, OutputLevel int
	// Upper are files of Level, or of any level above OutputLevel if a caller asked for the
	// compaction. Lower are the files of OutputLevel that overlap them.
	Upper, Lower []*manifest.FileMeta
	Inputs       Levels // both, by level
	// Move says that Upper is one file that goes to OutputLevel unchanged.
	Move bool
	// Drop says that the files of Upper go away unread. The edit must raise the table's
	// watermark to Policy.ExpiryCutoff, as for a merge.
	Drop bool
	// Smallest and Largest are the first and the last row key of the inputs.
	Smallest, Largest []byte
	// Grandparents are the files below the output level that overlap the inputs.
	Grandparents []*manifest.FileMeta
}

// Files returns all inputs.
func (c *Candidate) Files() []*manifest.FileMeta { return slices.Concat(c.Upper, c.Lower) }

// Pick returns the most urgent candidate that can run beside the running ones, or nil. It is a
// pure function of its input.
func Pick(in Input) *Candidate {
	p := newPicker(in)
	if c := p.expired(); c != nil {
		return c
	}
	if c := p.overTarget(); c != nil {
		return c
	}
	if c := p.forReads(); c != nil {
		return c
	}
	if c := p.trim(); c != nil {
		return c
	}
	return p.reclaim()
}

type picker struct {
	Input
	shape  shape
	busy   map[uint64]bool // files of running candidates
	oldest uint64          // sequence number of the oldest view
	cutoff int64           // smallest version, in milliseconds, that may not be dropped as expired
	// as in Policy; 0 if a view's cutoff is below the policy's
	horizon uint64
}

func newPicker(in Input) *picker {
	in.Config = in.Config.withDefaults()
	p := &picker{Input: in, shape: newShape(in.Levels, in.Config), busy: map[uint64]bool{}, oldest: math.MaxUint64}
	for _, c := range in.Running {
		for _, f := range c.Files() {
			p.busy[f.Number] = true
		}
	}
	cutoff := in.Policy.ExpiryCutoff
	p.horizon = in.Policy.TombstoneHorizon
	for _, v := range in.Policy.Views {
		p.oldest = min(p.oldest, v.Seq)
		if v.Cutoff < cutoff {
			cutoff, p.horizon = v.Cutoff, 0
		}
	}
	if cutoff > 0 {
		p.cutoff = min(cutoff, math.MaxInt64/1000) * 1000
	}
	return p
}

// admit completes the candidate, or returns nil if it shares a file with a running one. Sharing
// no file is enough. The inputs of a compaction form one connected range, and at its output
// level they include all that overlaps the upper ones. So another compaction into that level
// either overlaps none of them, and its output neither, or takes one of them. And a newer file
// of level 0 brings all older ones that it overlaps.
func (p *picker) admit(c *Candidate) *Candidate {
	if slices.ContainsFunc(c.Files(), func(f *manifest.FileMeta) bool { return p.busy[f.Number] }) {
		return nil
	}
	c.Inputs[c.OutputLevel] = c.Lower
	c.Inputs[c.Level] = c.Upper // the same level if files are rewritten or dropped in place
	r := rangeOf(c.Files()...)
	c.Smallest, c.Largest = r.smallest, r.largest
	if !c.Drop && c.OutputLevel < lastLevel {
		c.Grandparents = overlapping(p.Levels, c.OutputLevel+1, r)
	}
	return c
}

// expired returns all files of one level in which everything is expired for every reader, now
// and later.
func (p *picker) expired() *Candidate {
	for level := lastLevel; level >= 0; level-- {
		var files []*manifest.FileMeta
		for i, f := range p.Levels[level] {
			if !p.busy[f.Number] && p.allExpired(level, i) {
				files = append(files, f)
			}
		}
		if len(files) > 0 {
			return p.admit(&Candidate{
				Reason: ReasonExpired, Score: float64(size(files)), Level: level, OutputLevel: level, Upper: files, Drop: true,
			})
		}
	}
	return nil
}

// allExpired decides on the i-th file of a level. Its puts and finite markers must be below the
// cutoff. Its tombstones hide nothing if no older file may hold its rows. Otherwise what they
// hide is below the cutoff too, with one exception: a delete-row may hide a marker in an older
// file that never expires.
func (p *picker) allExpired(level, i int) bool {
	f := p.Levels[level][i]
	if p.cutoff == 0 || f.Permanent || f.MaxVersion >= p.cutoff {
		return false
	}
	if f.Tombstones == 0 || !p.older(level, i, anyFile) {
		return true
	}
	return f.NewestTombstone <= p.horizon && !p.older(level, i, func(o *manifest.FileMeta) bool { return o.Permanent })
}

// older reports whether is holds for any file that may have older cells of rows of the i-th file
// of a level.
func (p *picker) older(level, i int, is func(*manifest.FileMeta) bool) bool {
	f := p.Levels[level][i]
	if level == 0 {
		r := rangeOf(f)
		for _, f := range p.Levels[0][:i] {
			if r.meets(f) && is(f) {
				return true
			}
		}
	}
	return p.deeper(level, f, is)
}

// deeper reports whether is holds for any file below a level that overlaps f.
func (p *picker) deeper(level int, f *manifest.FileMeta, is func(*manifest.FileMeta) bool) bool {
	for level++; level <= lastLevel; level++ {
		if slices.ContainsFunc(overlapping(p.Levels, level, rangeOf(f)), is) {
			return true
		}
	}
	return false
}

// overTarget tries the levels in descending order of their scores.
func (p *picker) overTarget() *Candidate {
	var levels []int
	var scores [lastLevel]float64
	for level := range scores {
		scores[level] = p.shape.score(p.Levels, level, p.Config, p.busy)
		if scores[level] >= 1 {
			levels = append(levels, level)
		}
	}
	slices.SortStableFunc(levels, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for _, level := range levels {
		if c := p.fromLevel(level); c != nil {
			c.Score = scores[level]
			return c
		}
	}
	return nil
}

// forReads compacts a level into the next one while writes are few, if reads have lost enough to it.
// In an idle partition it also does so if level 0 is deep, or shallow and not small beside what
// would be rewritten, so that the next reader finds it done.
func (p *picker) forReads() *Candidate {
	if p.Lost <= 0 && len(p.LostTo) == 0 && !p.Idle {
		return nil
	}
	c := p.deepest(ReasonReads, func(c *Candidate, depth int) bool {
		upper, lower := size(c.Upper), size(c.Lower)
		above := func(f *manifest.FileMeta) bool { return p.deeper(0, f, anyFile) }
		pays := float64(p.Lost)*readerWeight >= float64(upper+lower)*mergeCost
		return pays && (depth > 1 || slices.ContainsFunc(c.Upper, above)) ||
			p.Idle && depth >= p.Config.IdleDepth && (depth >= p.Config.L0Trigger/2 || lower <= idleRatio*upper)
	})
	for level := 1; c == nil && level < lastLevel; level++ {
		c = p.dearest(level)
	}
	return c
}

// dearest returns the file of a level below 0 to which reads lost most for each byte that is rewritten, if that
// is enough.
func (p *picker) dearest(level int) (best *Candidate) {
	for _, f := range p.Levels[level] {
		lost := p.LostTo[f.Number]
		if lost < LeastLost(f.Size) {
			continue
		}
		c := p.push(level, f, ReasonReads)
		if c == nil {
			continue
		}
		c.Score = float64(lost) / float64(LeastLost(size(c.Upper)+size(c.Lower)))
		if c.Score >= 1 && (best == nil || c.Score > best.Score) {
			best = c
		}
	}
	return best
}

// deepest returns the deepest of the candidates of level 0 that are worth it; among equals the
// one with the oldest file. Each file belongs to one candidate.
func (p *picker) deepest(reason Reason, worth func(c *Candidate, depth int) bool) (best *Candidate) {
	seen := make(map[uint64]bool)
	for _, f := range p.Levels[0] {
		if seen[f.Number] || p.busy[f.Number] {
			continue
		}
		c := p.push(0, f, reason)
		if c == nil {
			continue
		}
		for _, u := range c.Upper {
			seen[u.Number] = true
		}
		if depth := Depth(c.Upper); worth(c, depth) && (best == nil || float64(depth) > best.Score) {
			c.Score, best = float64(depth), c
		}
	}
	return best
}

func (p *picker) fromLevel(level int) *Candidate {
	if level == 0 {
		return p.deepest(ReasonL0, func(c *Candidate, depth int) bool { return true })
	}
	// Take the file for which the next level rewrites least per byte brought. A tombstone counts
	// double, because it takes along what it hides.
	var best *Candidate
	var bestCost float64
	for _, f := range p.Levels[level] {
		c := p.push(level, f, ReasonSize)
		if c == nil {
			continue
		}
		brings := float64(f.Size) * (1 + tombstoneShare(f))
		if cost := float64(size(c.Lower)) / max(brings, 1); best == nil || cost < bestCost {
			best, bestCost = c, cost
		}
	}
	return best
}

// push takes a file to the next level, unchanged if there is nothing to merge it with. From level
// 0 the next one is the base, and all files of level 0 come that overlap the file, directly or
// through each other. The older ones must, or they would lie above newer data. The newer ones need
// not, but are compacted on the way.
func (p *picker) push(level int, f *manifest.FileMeta, reason Reason) *Candidate {
	c := &Candidate{Reason: reason, Level: level, OutputLevel: max(level+1, p.shape.base)}
	c.Upper = overlapping(p.Levels, level, rangeOf(f))
	c.Lower = overlapping(p.Levels, c.OutputLevel, rangeOf(c.Upper...))
	if c = p.admit(c); c == nil {
		return nil
	}
	c.Move = len(c.Upper) == 1 && len(c.Lower) == 0 && !p.clipped(f) &&
		size(c.Grandparents) <= maxOverlapFactor*p.Config.TableFileSize &&
		p.reclaimable(c.OutputLevel, f) < reclaimShare
	return c
}

// clipped reports whether the file reaches beyond the partition. Such a file is not moved: at its
// new level it may meet another one outside of the partition.
func (p *picker) clipped(f *manifest.FileMeta) bool { return slices.Contains(p.Clipped, f) }

// trim rewrites a file that reaches beyond the partition in place. A shared file goes when the last
// partition has rewritten its piece.
//
// Level 0 waits for its next compaction, which clips the files on the way, unless the partition is
// idle. Then its files are rewritten one at a time, the oldest first, because level 0 is ordered by
// the largest sequence number, and what is written must keep its place among the files that share a
// row with it. These are of other flushes, and of two such files the older one has, inside of the
// partition, only smaller sequence numbers than the newer one.
//   - It stays older than the newer files: its largest sequence number does not rise.
//   - It stays newer than the older files: they have nothing outside of the partition any more, so
//     their largest sequence numbers are below all of its own.
//
// A small piece stays until it is compacted with others: a flush writes the rows of many small partitions
// into one file, and a file for each of them would undo that.
func (p *picker) trim() *Candidate {
	for level := lastLevel; level > 0 || level == 0 && p.Idle; level-- {
		for _, f := range p.Levels[level] {
			if !p.clipped(f) || level == 0 && !p.Trim && f.Size < p.Config.TableFileSize/trimShare {
				continue
			}
			c := p.admit(&Candidate{
				Reason: ReasonTrim, Score: float64(f.Size), Level: level, OutputLevel: level, Upper: []*manifest.FileMeta{f},
			})
			if c != nil || level == 0 {
				return c
			}
		}
	}
	return nil
}

// reclaim regains space when no level is over its target.
func (p *picker) reclaim() *Candidate {
	var best *Candidate
	consider := func(c *Candidate, gain float64) {
		if c != nil && (best == nil || gain > best.Score) {
			c.Score = gain
			best = c
		}
	}
	for level, files := range p.Levels {
		for i, f := range files {
			gain, cost := p.garbage(f)
			if share := p.reclaimable(level, f); share >= reclaimShare || gain > 0 && gain >= reclaimShare*(cost+float64(f.Size)) {
				gain += share * float64(f.Size)
				if level == 0 {
					consider(p.push(0, f, ReasonReclaim), gain)
				} else {
					consider(p.admit(&Candidate{
						Reason: ReasonReclaim, Level: level, OutputLevel: level, Upper: []*manifest.FileMeta{f},
					}), gain)
				}
				continue
			}
			if share := tombstoneShare(f); share >= pushShare && p.older(level, i, anyFile) {
				consider(p.push(level, f, ReasonTombstones), share*float64(f.Size))
			}
		}
	}
	return best
}

func anyFile(*manifest.FileMeta) bool { return true }

// reclaimable estimates which share of a file goes away if it is rewritten at that level: what
// is expired, taking versions as evenly spread, or, if nothing lies deeper, its tombstones once
// every view sees them all. After the rewrite both are zero.
func (p *picker) reclaimable(level int, f *manifest.FileMeta) float64 {
	share := expiredShare(f, p.cutoff)
	if f.NewestTombstone <= p.oldest && tombstoneShare(f) > share && !p.deeper(level, f, anyFile) {
		share = tombstoneShare(f)
	}
	return share
}

// Reclaimable estimates how many bytes of the files compactions would free: what is expired, and
// tombstones with nothing below them.
func Reclaimable(levels *Levels, policy Policy) int64 {
	p := newPicker(Input{Levels: levels, Policy: policy})
	var total float64
	for level, files := range levels {
		for _, f := range files {
			total += p.reclaimable(level, f) * float64(f.Size)
		}
	}
	return int64(total)
}

// expiredShare is the share of a file's versions that lie below the cutoff.
func expiredShare(f *manifest.FileMeta, cutoff int64) float64 {
	switch {
	case f.MinVersion > f.MaxVersion || f.MinVersion >= cutoff:
		return 0 // no finite version, or none expired
	case f.MaxVersion < cutoff:
		return 1
	}
	return float64(cutoff-f.MinVersion) / float64(f.MaxVersion-f.MinVersion+1)
}

// tombstoneShare is the share of a file's cells that are tombstones and look as if they hid
// something. Every row that is put carries a delete-row and a marker; such a pair hides nothing.
// A cell that is neither put nor tombstone is a marker.
func tombstoneShare(f *manifest.FileMeta) float64 {
	if f.Cells == 0 || f.Puts+f.Tombstones > f.Cells {
		return 0
	}
	markers := f.Cells - f.Puts - f.Tombstones
	if f.Tombstones <= markers {
		return 0
	}
	return float64(f.Tombstones-markers) / float64(f.Cells)
}
