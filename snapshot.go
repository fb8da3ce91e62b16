package flagstone

import (
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
)

// Snapshot is one moment of a store: a sequence number, a clock reading, and the options that the
// tables had. Reads through it always see the same. It keeps what it sees from being dropped
// until it is closed.
type Snapshot struct {
	store  *Store
	moment views.Moment
	closed atomic.Bool
}

// Snapshot pins the present moment.
func (s *Store) Snapshot() (*Snapshot, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	sn := &Snapshot{store: s}
	s.views.Pin(&sn.moment, func() views.Moment {
		return views.Moment{Seq: s.pipeline.queue.Visible(), Millis: s.clock.NowMillis(), State: s.state()}
	})
	return sn, nil
}

// Close releases what the snapshot keeps. It may be called twice.
func (sn *Snapshot) Close() {
	if sn.closed.Swap(true) {
		return
	}
	sn.store.views.Unpin(&sn.moment)
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

// advanceExpiry raises the table's expiry watermark to the present cutoff of the trusted clock,
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
