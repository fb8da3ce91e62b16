package balance

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/internal/load"
)

// Interval is how often a Balancer is to be shown the partitions.
const Interval = 10 * time.Second

const (
	// busyTimes: a busy partition has more than this times the mean load of its table.
	busyTimes = 4
	// spread is the number of partitions that a table counts as having at least, for its mean.
	spread = 20
	// quietShare: a quiet partition has less than Settings.SplitUnits divided by this, so two of
	// them have a quarter.
	quietShare = 8
	// smallShare: two partitions are small if they have less than Settings.SplitBytes divided by
	// this.
	smallShare = 4

	// minLoadSide is the least part of the load on each side of a split by load, and minBytesSide
	// the least part of the bytes of a split by size. A more uneven split does not help.
	minLoadSide  = 0.25
	minBytesSide = 0.1
	// minNewSide is the least part of the newest operations on each side of a split by load. They are
	// fewer, so the part is less certain; of a load that moves, nearly all are on one side.
	minNewSide = minLoadSide / 2
	// movingFor: a load that no bound divided for Settings.Sustained moves if the partition was busy
	// for this times as long.
	movingFor = 3
	// leastPassed is how many rows that do not exist scans pass per second before it is reported, and passedTimes how many
	// times the rows that are read that is.
	leastPassed, passedTimes = 1000, 10
	// minSample is how many operations a sample must have to be believed.
	minSample = 32

	// A table is split for its load splitsAtOnce times, and then once per splitEvery. This bounds
	// the work for a load that stays somewhere just long enough.
	splitsAtOnce = 32
	splitEvery   = 3 * time.Minute

	// anchorsWanted is how many anchors of a partition are asked for.
	anchorsWanted = 128
	// inspectAgain is how long what was found in a partition's anchors is believed.
	inspectAgain = 10 * time.Minute

	// reportAgain is how long a report is not new again, and maxReports how many reports of a table
	// are new in that time.
	reportAgain = time.Hour
	maxReports  = 64
)

// Settings are what a store may choose. A field that is zero means the default.
type Settings struct {
	SplitBytes    int64         // a larger partition is split; default 10 GiB
	SplitUnits    float64       // capacity units per second; below it no partition is split for its load; default 10,000
	Sustained     time.Duration // how long a partition is busy before it is split; default 1 minute
	Quiet         time.Duration // how long partitions are quiet before they are merged; default 10 minutes
	MaxPartitions int           // a table with so many is not split further; default 1,000
	MaxActions    int           // splits and merges of one plan, of all tables; default 4
}

// Table is a table with its partitions in ascending order.
type Table struct {
	ID         uint64
	Columns    int // of its key
	Partitions []Partition
}

// Partition is what is known of a partition.
type Partition struct {
	ID         uint64
	Epoch      uint64 // another one, or another id, after each split or merge
	Start, End []byte // nil is unbounded
	Bytes      int64  // in memory and on disk
	Load       *load.Meter
	// Cut says that a user has cut the table at Start: the partition is not merged with the one below.
	Cut bool
	// NoSplit and NoMerge keep the partition from being split, and from being merged with a
	// neighbour, because it cannot be now.
	NoSplit, NoMerge bool
	// Anchors are keys or beginnings of keys in ascending order, each with the bytes between the
	// anchor before and it, of which there are about apart or more. It is called for partitions
	// that are too large, and of those above 1 GiB now and then.
	Anchors func(apart int64) iter.Seq2[[]byte, int64]
}

// Plan is what to do, the most urgent first, and what was found. No partition is in two actions.
// What is not done is planned again the next time.
type Plan struct {
	Splits  []Split
	Merges  []Merge
	Reports []Report
}

// Split says to split a partition at an encoded partition key, which becomes the start of the right
// part. Why is for people.
type Split struct {
	Table, Partition uint64
	Key              []byte
	Why              string
}

// Merge says to merge two neighbours.
type Merge struct {
	Table, Left, Right uint64
	Why                string
}

// Kind is what a report says.
type Kind int

const (
	// LargeKey: a partition key has more bytes than Report.Limit.
	LargeKey Kind = iota + 1
	// BusyKey: a partition key has more capacity units per second than Report.Limit, or most of
	// those of a partition that is busy and cannot be split because of it. The limit is 0 then.
	BusyKey
	// MovingLoad: a busy partition is not split, because its load moves: the newest operations are
	// not where those before were. Keys that rise with time are the usual cause. It is also reported
	// when the table was split so often that the next split has to wait.
	MovingLoad
	// PassedRows: scans pass far more rows that were deleted or have expired than reads return. A compaction drops them.
	PassedRows
)

func (k Kind) String() string {
	return [...]string{"", "large partition key", "busy partition key", "moving load", "reads pass over deleted rows"}[k]
}

// Report is something that splits cannot mend. It is in every plan while it lasts.
type Report struct {
	Table, Partition uint64
	Kind             Kind
	Key              []byte  // the encoded partition key; nil with MovingLoad and PassedRows
	Bytes            int64   // of the key; about, with LargeKey
	Units            float64 // of the key, or of the partition with MovingLoad; per second
	Passed           float64 // rows that scans pass per second, with PassedRows
	Limit            int64   // bytes or units
	// New is whether the report is to be logged: it was not in the last hour.
	New bool
}

// Balancer decides. It remembers since when partitions are busy or quiet. It must not be used
// concurrently.
type Balancer struct {
	settings Settings
	notes    map[place]*note
	paces    map[uint64]*pace          // of the tables that are split for their load
	reported map[finding]time.Duration // when
	counted  map[uint64]int            // in reported, by table
}

// place is a partition as long as its bounds stay as they are.
type place struct{ table, partition, epoch uint64 }

// note is what the balancer remembers of a partition.
type note struct {
	busy, quiet since
	bound       []byte // divides the load since boundFrom; nil if the partition is not busy
	boundFrom   time.Duration
	counted     bool // by the table's pace
	inspection  inspection
}

// pace counts the splits of a table for its load.
type pace struct {
	split float64 // less one per splitEvery
	at    time.Duration
}

// slower lets time pass. It returns false when nothing is left to count.
func (c *pace) slower(now time.Duration) bool {
	c.split -= float64(now-c.at) / float64(splitEvery)
	c.at = now
	return c.split > 0
}

// since is since when something is so.
type since struct {
	now  bool
	from time.Duration
}

// lasts notes whether it is so now, and reports whether it has been for a time.
func (s *since) lasts(is bool, now, atLeast time.Duration) bool {
	if !s.now {
		s.from = now
	}
	s.now = is
	return is && now-s.from >= atLeast
}

// finding is what is not reported twice in an hour.
type finding struct {
	table uint64
	kind  Kind
	limit int64
	key   string
}

// New returns a balancer.
func New(s Settings) *Balancer {
	s.SplitBytes = cmp.Or(s.SplitBytes, maxPartitionBytes)
	s.SplitUnits = cmp.Or(s.SplitUnits, maxKeyUnits)
	s.Sustained = cmp.Or(s.Sustained, time.Minute)
	s.Quiet = cmp.Or(s.Quiet, 10*time.Minute)
	s.MaxPartitions = cmp.Or(s.MaxPartitions, 1000)
	s.MaxActions = cmp.Or(s.MaxActions, 4)
	return &Balancer{settings: s, paces: map[uint64]*pace{}, reported: map[finding]time.Duration{}, counted: map[uint64]int{}}
}

// round is one call of Plan.
type round struct {
	*Balancer
	now     time.Duration
	notes   map[place]*note // of partitions that still exist
	wanted  []wanted
	reports []Report
}

// wanted is a split or a merge that may go into the plan.
type wanted struct {
	urgency float64 // above 1 for splits, 0 for merges
	split   *Split
	merge   *Merge
}

// Plan decides what to do. tables are all tables of the store. now is a reading of the same clock as
// the meters'.
func (b *Balancer) Plan(now time.Duration, tables []Table) Plan {
	r := round{Balancer: b, now: now, notes: map[place]*note{}}
	for f, at := range b.reported {
		if now-at >= reportAgain {
			delete(b.reported, f)
			if b.counted[f.table]--; b.counted[f.table] == 0 {
				delete(b.counted, f.table)
			}
		}
	}
	for i := range tables {
		r.table(&tables[i])
	}
	b.notes = r.notes
	maps.DeleteFunc(b.paces, func(_ uint64, c *pace) bool { return !c.slower(now) })
	slices.SortStableFunc(r.wanted, func(x, y wanted) int { return cmp.Compare(y.urgency, x.urgency) })
	plan := Plan{Reports: r.reports}
	for _, w := range r.wanted[:min(len(r.wanted), b.settings.MaxActions)] {
		if w.split != nil {
			plan.Splits = append(plan.Splits, *w.split)
		} else {
			plan.Merges = append(plan.Merges, *w.merge)
		}
	}
	return plan
}

// note returns what is remembered of a partition.
func (r *round) note(t *Table, p *Partition) *note {
	at := place{t.ID, p.ID, p.Epoch}
	n := r.Balancer.notes[at]
	if n == nil {
		n = new(note)
	}
	r.notes[at] = n
	return n
}

func (r *round) table(t *Table) {
	loads := make([]float64, len(t.Partitions))
	var total float64
	for i := range t.Partitions {
		found := t.Partitions[i].Load.Look(r.now)
		loads[i] = found.Units()
		total += loads[i]
		if found.Passed >= max(leastPassed, passedTimes*found.Read.Rows) {
			r.report(Report{Table: t.ID, Partition: t.Partitions[i].ID, Kind: PassedRows, Passed: found.Passed})
		}
	}
	limit := max(r.settings.SplitUnits, busyTimes*total/float64(max(len(loads), spread)))
	room := r.settings.MaxPartitions - len(t.Partitions)
	mayMerge := false // with the partition before
	for i := range t.Partitions {
		p := &t.Partitions[i]
		n := r.note(t, p)
		s, urgency := r.byLoad(t, p, n, loads[i], limit)
		if s != nil {
			s.Why = fmt.Sprintf("%.0f of the table's %.0f capacity units per second", loads[i], total)
		}
		if bySize, above := r.bySize(t, p, n); bySize != nil {
			s, urgency = bySize, above
		}
		if s != nil && room > 0 && !p.NoSplit {
			room--
			r.wanted = append(r.wanted, wanted{urgency: urgency, split: s})
		}
		// What is quiet and small is not split as well.
		quiet := n.quiet.lasts(loads[i] < r.settings.SplitUnits/quietShare, r.now, r.settings.Quiet) && !p.NoMerge
		if quiet && mayMerge && !p.Cut && p.Bytes+t.Partitions[i-1].Bytes < r.settings.SplitBytes/smallShare {
			r.wanted = append(r.wanted, wanted{merge: &Merge{t.ID, t.Partitions[i-1].ID, p.ID,
				fmt.Sprintf("%.0f and %.0f capacity units per second", loads[i-1], loads[i])}})
			quiet = false
		}
		mayMerge = quiet
	}
}

// byLoad returns the split of a partition that is busy.
func (r *round) byLoad(t *Table, p *Partition, n *note, units, limit float64) (s *Split, urgency float64) {
	busy := n.busy.lasts(units > limit, r.now, r.settings.Sustained)
	if !n.busy.now {
		n.bound = nil
	}
	if !n.busy.now && units < maxKeyUnits {
		return nil, 0
	}
	sample := p.Load.Sample()
	if sample.Len() < minSample {
		return nil, 0
	}
	key, part := sample.Heaviest()
	bound, below := sample.Half()
	even := helps(below, minLoadSide) && p.inside(bound)
	switch found := (Report{Table: t.ID, Partition: p.ID, Kind: BusyKey, Key: key, Units: part * units}); {
	case found.Units >= maxKeyUnits:
		found.Limit = maxKeyUnits
		r.report(found)
	case busy && !even:
		r.report(found)
	}
	if !n.busy.now || !even {
		return nil, 0
	}
	// The load does not move if one bound divides it for some time. The bound of the present sample
	// is near that one, and more exact.
	if n.bound == nil || !helps(sample.Newest().Below(n.bound), minNewSide) {
		n.bound, n.boundFrom = bound, r.now
	}
	holds := r.now-n.boundFrom >= r.settings.Sustained
	if busy && holds && r.inPace(t, n) {
		return &Split{Table: t.ID, Partition: p.ID, Key: bound}, units / limit
	}
	if r.now-n.busy.from >= movingFor*r.settings.Sustained {
		r.report(Report{Table: t.ID, Partition: p.ID, Kind: MovingLoad, Units: units})
	}
	return nil, 0
}

// inPace reports whether the table may be split for its load again, and counts that once for each
// partition.
func (r *round) inPace(t *Table, n *note) bool {
	c := r.paces[t.ID]
	if c == nil {
		c = &pace{at: r.now}
		r.paces[t.ID] = c
	}
	if !n.counted && c.split < splitsAtOnce {
		n.counted = true
		c.split++
	}
	return n.counted
}

// helps reports whether a split with a part below it is even enough.
func helps(below, least float64) bool { return below >= least && below <= 1-least }

// inside reports whether a bound divides the partition.
func (p *Partition) inside(bound []byte) bool {
	return bytes.Compare(bound, p.Start) > 0 && (len(p.End) == 0 || bytes.Compare(bound, p.End) < 0)
}

// report adds a report, and decides whether it is new.
func (r *round) report(found Report) {
	f := finding{found.Table, found.Kind, found.Limit, string(found.Key)}
	if _, known := r.reported[f]; !known && r.counted[f.table] < maxReports {
		found.New = true
		r.reported[f] = r.now
		r.counted[f.table]++
	}
	r.reports = append(r.reports, found)
}

// The limits of one partition key are those that Table Store advises: 1 GiB, the size of a
// partition, and 10,000 capacity units per second. A store with smaller partitions has smaller
// ones.
const (
	maxKeyUnits       = 10_000
	maxPartitionBytes = 10 << 30
	keyShare          = 10
)

// keyLimits are the sizes of a partition key that are reported.
func (s *Settings) keyLimits() (large, whole int64) {
	whole = min(s.SplitBytes, maxPartitionBytes)
	return max(whole/keyShare, 1), whole
}

// bySize returns the split of a partition that is too large.
func (r *round) bySize(t *Table, p *Partition, n *note) (s *Split, urgency float64) {
	large, whole := r.settings.keyLimits()
	if p.Bytes < large {
		return nil, 0
	}
	found, tooLarge := &n.inspection, p.Bytes > r.settings.SplitBytes
	if found.of == 0 || r.now-found.at >= inspectAgain || tooLarge && found.of <= r.settings.SplitBytes {
		*found = inspect(t, p, r.now)
	}
	if found.keyBytes >= large {
		limit := large
		if found.keyBytes >= whole {
			limit = whole
		}
		r.report(Report{Table: t.ID, Partition: p.ID, Kind: LargeKey, Key: found.key, Bytes: found.keyBytes, Limit: limit})
	}
	if !tooLarge || found.half == nil {
		return nil, 0
	}
	return &Split{t.ID, p.ID, found.half, fmt.Sprintf("%d bytes", p.Bytes)}, float64(p.Bytes) / float64(r.settings.SplitBytes)
}

// inspection is what the anchors of a partition say.
type inspection struct {
	at       time.Duration
	of       int64  // the partition's bytes; 0 before the first inspection
	half     []byte // the bound that halves the bytes; nil if none does nearly
	key      []byte // the partition key with most bytes
	keyBytes int64
}

// inspect looks at the anchors of a partition. Bytes between anchors of one partition key are that
// key's. So it finds a little less than the key has, and half is about one anchor away from the
// best place.
func inspect(t *Table, p *Partition, now time.Duration) inspection {
	type edge struct {
		bound []byte
		below int64
	}
	found := inspection{at: now, of: p.Bytes}
	var edges []edge
	var total, of int64 // of the anchors, of the last partition key
	for key, size := range p.Anchors(max(p.Bytes/anchorsWanted, 1)) {
		total += size
		bound := load.Bound(key, t.Columns)
		if last := len(edges) - 1; last >= 0 && bytes.Equal(edges[last].bound, bound) {
			of += size
		} else {
			edges, of = append(edges, edge{bound, total}), 0
		}
		if of > found.keyBytes {
			found.key, found.keyBytes = bound, of
		}
	}
	nearest := math.Inf(1)
	for _, at := range edges {
		below := float64(at.below) / float64(max(total, 1))
		if uneven := math.Abs(below - 0.5); uneven < nearest && helps(below, minBytesSide) && p.inside(at.bound) {
			found.half, nearest = at.bound, uneven
		}
	}
	return found
}
