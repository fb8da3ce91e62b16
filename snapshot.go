package flagstone

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
)

// Snapshot is one moment of a store: a sequence number, a clock reading, and the options that the
// tables had. Reads through it always see the same. It keeps what it sees from being dropped
// until it is closed.
type Snapshot struct {
	store  *Store
	seq    uint64
	millis int64           // wall clock
	state  *manifest.State // options and watermarks of the tables
	closed atomic.Bool
}

// snapshots is the set of open snapshots of a store.
type snapshots struct {
	sync.Mutex
	open map[*Snapshot]struct{}
}

// Snapshot pins the present moment.
func (s *Store) Snapshot() (*Snapshot, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	// The sequence number is read under the lock that policy takes: a compaction whose list
	// misses this snapshot read the list before, so all it merges was visible before, and lies at
	// or below seq.
	sn := &Snapshot{
		store: s, seq: s.pipeline.queue.Visible(),
		millis: s.clock.NowMillis(), state: s.state(),
	}
	s.snapshots.open[sn] = struct{}{}
	return sn, nil
}

// Close releases what the snapshot keeps. It may be called twice.
func (sn *Snapshot) Close() {
	if sn.closed.Swap(true) {
		return
	}
	sn.store.snapshots.Lock()
	defer sn.store.snapshots.Unlock()
	delete(sn.store.snapshots.open, sn)
}

// usable returns nil, or why a store cannot read at the snapshot, which may be nil.
func (sn *Snapshot) usable(s *Store) error {
	switch {
	case sn == nil:
		return nil
	case sn.store != s:
		return fmt.Errorf("%w: a snapshot of another store", ErrInvalid)
	case sn.closed.Load():
		return ErrClosed
	}
	return nil
}

// view returns what the snapshot sees of a table; false if the table did not
// exist yet.
func (sn *Snapshot) view(table uint64) (mvcc.View, bool) {
	meta := sn.state.Table(table)
	if meta == nil {
		return mvcc.View{}, false
	}
	return viewOf(meta, sn.seq, sn.millis), true
}

// viewOf is what a reader at a sequence number and a clock reading sees.
func viewOf(meta *manifest.Table, seq uint64, millis int64) mvcc.View {
	cutoff := mvcc.CutoffAt(millis, meta.Options.TTLSeconds)
	return mvcc.View{
		Seq:         seq,
		MaxVersions: int(meta.Options.MaxVersions),
		Cutoff:      max(cutoff, meta.Watermark),
	}
}

// advanceExpiry raises the table's expiry watermark to the present cutoff of the purge clock,
// before a compaction begins to drop by it. A view that is opened from then on shows nothing that
// the compaction takes for expired, even if the clock or the table's options change. oldest is
// the smallest version that the compaction will read. The lock keeps the options from changing:
// what a longer Time To Live brings back must not be dropped by a shorter one that was read
// before.
func (s *Store) advanceExpiry(table uint64, oldest int64) error {
	s.merges.RLock()
	defer s.merges.RUnlock()
	meta := s.state().Table(table)
	if meta == nil {
		return nil
	}
	cutoff := mvcc.CutoffAt(s.trusted.Look().Millis, meta.Options.TTLSeconds)
	if cutoff <= meta.Watermark || oldest/1000 >= cutoff {
		return nil
	}
	// If the wall clock is set back, new cells must not be stamped with an expired time.
	s.issued.Raise(cutoff * 1000)
	var e manifest.Edit
	e.SetWatermark(table, cutoff)
	_, err := s.commitEdit(&e)
	return err
}

// policy says what a compaction of the table may drop now: what neither the open snapshots nor
// the newest view show, and what is expired below the watermark.
//
// Cells expire for readers by the wall clock. They are dropped by the purge clock, which may be
// behind the wall clock.
func (s *Store) policy(table uint64) mvcc.Policy {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	state := s.state()
	meta := state.Table(table)
	if meta == nil { // dropped: the compaction's edit will be refused
		return mvcc.Policy{Views: []mvcc.View{{Seq: mvccLatest, Cutoff: mvcc.NoExpiry}}, ExpiryCutoff: mvcc.NoExpiry}
	}
	latest := mvcc.View{Seq: mvccLatest, MaxVersions: int(meta.Options.MaxVersions), Cutoff: meta.Watermark}
	views := make([]mvcc.View, 0, len(s.snapshots.open)+1)
	for sn := range s.snapshots.open {
		if v, ok := sn.view(table); ok {
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b mvcc.View) int { return cmp.Compare(a.Seq, b.Seq) })
	return mvcc.Policy{
		Views:            append(views, latest),
		ExpiryCutoff:     meta.Watermark,
		TombstoneHorizon: tombstoneHorizon(state, meta, meta.Watermark),
	}
}

// mostVersions is the largest Max Versions among the present view of the table and its open
// snapshots.
func (s *Store) mostVersions(meta *manifest.Table) int {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	most := int(meta.Options.MaxVersions)
	for sn := range s.snapshots.open {
		if v, ok := sn.view(meta.ID); ok {
			most = max(most, v.MaxVersions)
		}
	}
	return most
}

// tombstoneHorizon is a sequence number up to which every put of the table is expired at the
// cutoff: a write at time w has only versions below w plus the largest Max Version Offset that
// the table ever had.
func tombstoneHorizon(state *manifest.State, meta *manifest.Table, cutoff int64) uint64 {
	const maxSeconds = math.MaxInt64 / 1000
	if cutoff <= 0 || cutoff > maxSeconds || meta.LargestOffset > cutoff {
		return 0
	}
	return state.SeqAtOrBefore((cutoff - meta.LargestOffset) * 1000)
}
