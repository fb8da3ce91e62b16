package flagstone

import (
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/views"
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
		return views.Moment{Seq: s.pipeline.Visible(), Millis: s.clock.NowMillis(), State: s.state()}
	})
	return sn, nil
}

// Close releases what the snapshot keeps. It may be called twice. Scans of the snapshot then end with
// ErrClosed, also behind their last row.
func (sn *Snapshot) Close() {
	if !sn.closed.Swap(true) {
		sn.store.views.Unpin(&sn.moment)
	}
}

// over returns ErrClosed if the snapshot was closed: what was pinned and read until then is of its moment.
func (sn *Snapshot) over() error {
	if sn != nil && sn.closed.Load() {
		return ErrClosed
	}
	return nil
}

// at is the moment of the snapshot, nil if there is no snapshot. An error says why a store cannot
// read at it.
func (sn *Snapshot) at(s *Store) (*views.Moment, error) {
	switch {
	case sn == nil:
		return nil, nil
	case sn.store != s:
		return nil, fmt.Errorf("%w: a snapshot of another store", ErrInvalid)
	case sn.closed.Load():
		return nil, ErrClosed
	}
	return &sn.moment, nil
}
