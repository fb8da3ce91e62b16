// Package views decides what readers see of a table, now and at the moments of open snapshots, and
// so what compactions must keep.
package views

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// Latest is the sequence number at which a reader sees everything that was applied.
const Latest = row.MaxSequence

// Moment is one moment of a store.
type Moment struct {
	Seq    uint64          // what is visible
	Millis int64           // wall clock
	State  *manifest.State // options and watermarks of the tables
}

// View returns what is seen of a table at the moment; false if the table did not exist yet.
func (m *Moment) View(table uint64) (mvcc.View, bool) {
	meta := m.State.Table(table)
	if meta == nil {
		return mvcc.View{}, false
	}
	return Of(meta, m.Seq, m.Millis), true
}

// Of is what a reader at a sequence number and a clock reading sees of a table.
func Of(meta *manifest.Table, seq uint64, millis int64) mvcc.View {
	cutoff := mvcc.CutoffAt(millis, meta.Options.TTLSeconds)
	return mvcc.View{
		Seq:         seq,
		MaxVersions: int(meta.Options.MaxVersions),
		Cutoff:      max(cutoff, meta.Watermark),
	}
}

// Set is the set of the moments of a store's open snapshots. Its methods are safe for concurrent
// use.
type Set struct {
	state func() *manifest.State
	mu    sync.Mutex
	open  map[*Moment]struct{}
}

// NewSet makes the set of a store; state returns the present state of the manifest.
func NewSet(state func() *manifest.State) *Set {
	return &Set{state: state, open: make(map[*Moment]struct{})}
}

// Pin adds the present moment. now sets it under the lock that Policy takes: a compaction whose
// Policy misses this moment was given the Policy before, so all it merges was visible before, and
// lies at or below Seq.
func (s *Set) Pin(m *Moment, now func() Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*m = now()
	s.open[m] = struct{}{}
}

// Unpin removes a moment.
func (s *Set) Unpin(m *Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, m)
}

// Oldest is the least sequence number of a moment, Latest if there is none.
func (s *Set) Oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := uint64(Latest)
	for m := range s.open {
		oldest = min(oldest, m.Seq)
	}
	return oldest
}

// Len is the number of moments.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Policy says what a compaction of the table may drop now: what neither the open snapshots nor the
// newest view show, and what is expired below the watermark.
//
// Cells expire for readers by the wall clock. They are dropped by the trusted clock, which may be
// behind the wall clock.
func (s *Set) Policy(table uint64) mvcc.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state()
	meta := state.Table(table)
	if meta == nil { // dropped: the compaction's edit will be refused
		return mvcc.Policy{Views: []mvcc.View{{Seq: Latest, Cutoff: mvcc.NoExpiry}}, ExpiryCutoff: mvcc.NoExpiry}
	}
	latest := mvcc.View{Seq: Latest, MaxVersions: int(meta.Options.MaxVersions), Cutoff: meta.Watermark}
	views := make([]mvcc.View, 0, len(s.open)+1)
	for m := range s.open {
		if v, ok := m.View(table); ok {
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b mvcc.View) int { return cmp.Compare(a.Seq, b.Seq) })
	return mvcc.Policy{
		Views:            append(views, latest),
		ExpiryCutoff:     meta.Watermark,
		TombstoneHorizon: tombstoneHorizon(state, meta),
	}
}

// MaxVersions is how many versions of a column a compaction must keep if mutations from seq on may
// lie in newer runs. A delete of one version that was made under a larger limit relies on more
// versions below it than the present limit shows. It is 0 for a table that was dropped.
func (s *Set) MaxVersions(table, seq uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := s.state().Table(table)
	if meta == nil {
		return 0
	}
	keep := int(meta.Options.MaxVersions)
	for m := range s.open {
		if v, ok := m.View(table); ok {
			keep = max(keep, v.MaxVersions)
		}
	}
	for _, past := range meta.PastLimits {
		if past.LastSeq >= seq {
			keep = max(keep, int(past.MaxVersions))
		}
	}
	return keep
}

// tombstoneHorizon is a sequence number up to which every put of the table is expired at its
// watermark: a write at time w has only versions below w plus the largest Max Version Offset that
// the table ever had.
func tombstoneHorizon(state *manifest.State, meta *manifest.Table) uint64 {
	const maxSeconds = math.MaxInt64 / 1000
	cutoff := meta.Watermark
	if cutoff <= 0 || cutoff > maxSeconds || meta.LargestOffset > cutoff {
		return 0
	}
	return state.SeqAtOrBefore((cutoff - meta.LargestOffset) * 1000)
}
