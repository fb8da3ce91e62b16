// Package seams names what a store takes from the machine and from its builder, so that tests can
// replace it: files, time, background work, memory, and shapes that no user chooses.
//
// It is the type of flagstone.Options.Seams, and closed to programs that embed the engine.
package seams

import (
	"crypto/rand"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Seams are the doors to the machine: nil fields stand for the real ones.
type Seams struct {
	FS       vfs.FS
	Clock    clock.Clock
	Executor executor.Executor
	// Memory is where memtables, blocks and buffers lie, if Options.Shared is nil. Close
	// closes it.
	Memory *offheap.Pool
	// Helpers load blocks ahead for scans. With an Executor there are none unless set here: they
	// would make a history depend on timing.
	Helpers *assist.Helpers
	// Random makes random bytes: the identities of files, and the seeds of memtables, which
	// clients must not guess. No two calls may return the same, not even in different stores.
	// Block sizes can differ by a byte with the identity: checksums depend on it, and references
	// to values contain checksums.
	Random func() [16]byte
	// ValueThreshold is the length from which values go to value files; 0 stands
	// for the default, a negative number for none.
	ValueThreshold int
	// Levels replaces the default shape of the trees where its fields are set.
	Levels compaction.Config
	// Balance replaces when partitions are split and merged where its fields are set.
	Balance balance.Settings
}

// SetDefaults sets files, clock and random bytes to the real ones where they are nil.
func (s *Seams) SetDefaults() {
	if s.FS == nil {
		s.FS = vfs.OS()
	}
	if s.Clock == nil {
		s.Clock = clock.System()
	}
	if s.Random == nil {
		s.Random = func() (id [16]byte) {
			rand.Read(id[:])
			return id
		}
	}
}
