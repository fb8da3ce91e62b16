package flagstone

import (
	"fmt"
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
		store: s, seq: s.pipeline.Visible(),
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
