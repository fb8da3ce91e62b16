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

// Snapshot is one moment of a store: a sequence number, a clock reading, and
// the options that the tables had. What is read through it never changes while
// it is open, and it keeps alive what it can see, so close it.
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
	// The sequence number is read under the lock that policy takes: a merge
	// that misses this snapshot in its list read the list before, so all it
	// merges was visible before, and lies at or below seq.
	sn := &Snapshot{
		store: s, seq: s.pipeline.queue.Visible(),
		millis: s.clock.NowMillis(), state: s.state(),
	}
	s.snapshots.open[sn] = struct{}{}
	return sn, nil
}

// Close lets go of what the snapshot keeps alive. It may be called twice.
func (sn *Snapshot) Close() {
	if sn.closed.Swap(true) {
		return
	}
	sn.store.snapshots.Lock()
	defer sn.store.snapshots.Unlock()
	delete(sn.store.snapshots.open, sn)
}

// usable returns nil or the reason why a store cannot read at the snapshot,
// which may be nil.
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

// advanceExpiry raises the table's expiry watermark to the present cutoff of the
// purge clock, before a merge begins to drop by it: whoever opens a view from
// then on, whatever becomes of the clock and of the table's options meanwhile,
// sees nothing that the merge takes for expired. oldest is the smallest version
// that the merge will meet. No options change meanwhile: what a longer Time To Live
// has brought back must not go by a shorter one that was read before.
func (s *Store) advanceExpiry(table uint64, oldest int64) error {
	s.merges.RLock()
	defer s.merges.RUnlock()
	meta := s.state().Table(table)
	if meta == nil {
		return nil
	}
	cutoff := mvcc.CutoffAt(s.purge.look().Millis, meta.Options.TTLSeconds)
	if cutoff <= meta.Watermark || oldest/1000 >= cutoff {
		return nil
	}
	// Should the wall clock be set back, what is stamped then must not be expired.
	s.issued.raise(cutoff * 1000)
	var e manifest.Edit
	e.SetWatermark(table, cutoff)
	_, err := s.commitEdit(&e)
	return err
}

// policy says what a merge of the table may drop at this moment: what the open
// snapshots and the newest view do not show, expired below the watermark.
//
// Cells expire for readers by the wall clock, and are dropped by the purge
// clock, which the wall clock may be ahead of.
func (s *Store) policy(table uint64) mvcc.Policy {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	state := s.state()
	meta := state.Table(table)
	if meta == nil { // being dropped: the merge's edit will be refused
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

// mostVersions is the largest number of versions that a view of the table shows:
// the present one or that of an open snapshot.
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

// tombstoneHorizon is a sequence number up to which every put of the table has
// a version that is expired at the cutoff: a write made at w has only versions
// below w plus the Max Version Offset, the largest that the table ever had.
func tombstoneHorizon(state *manifest.State, meta *manifest.Table, cutoff int64) uint64 {
	const maxSeconds = math.MaxInt64 / 1000
	if cutoff <= 0 || cutoff > maxSeconds || meta.LargestOffset > cutoff {
		return 0
	}
	return state.SeqAtOrBefore((cutoff - meta.LargestOffset) * 1000)
}
