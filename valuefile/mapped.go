package valuefile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// coldStreak is how many reads use calls after a read whose pages were not in memory. Through
	// a mapping, each such read costs a fault and a device access, which hold up one of the Go
	// scheduler's few processors.
	coldStreak = 8
	// slowAccess is far above the time of a read from the page cache, and below that of any
	// device. The limit is higher by a nanosecond for every bytesPerNano bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
	// leastVerified is how many records a file remembers, however long ago they were verified.
	leastVerified = 256
)

// mapped is a value file in mapped memory. Values are read through the mapping only for an
// interval after their verification; such reads do not detect later changes in memory. All other
// reads are calls, and verify the copy.
type mapped struct {
	mapping  *vfs.Mapping
	elapsed  func() time.Duration
	interval time.Duration // for which a verification is trusted
	cold     atomic.Int32  // number of coming reads that use calls

	mu       sync.Mutex
	verified map[uint64]time.Duration // time of verification, by offset of the record
	most     int                      // records in verified, before those of long ago are left out
}

// believes reports whether to read the record at offset through the mapping: it was verified less
// than the interval before now, and recent reads were not slow.
func (m *mapped) believes(offset uint64, now time.Duration) bool {
	if cold := m.cold.Load(); cold > 0 {
		m.cold.CompareAndSwap(cold, cold-1)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.verified[offset]
	return ok && now-at < m.interval
}

// note records that a read that began at now verified a record.
func (m *mapped) note(offset uint64, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verified[offset] = now
	if len(m.verified) > m.most {
		recent := map[uint64]time.Duration{} // a new one, since a map keeps its memory
		for offset, at := range m.verified {
			if now-at < m.interval {
				recent[offset] = at
			}
		}
		m.verified, m.most = recent, max(2*len(recent), leastVerified)
	}
}

// believed is Value through the mapping, for a read that began at began.
func (r *Reader) believed(buffer *[]byte, ref row.Reference, began time.Duration) (value []byte, err error) {
	if err := r.place(ref); err != nil {
		return nil, err
	}
	m := r.mapped
	err = m.mapping.Access(int64(ref.Offset), int64(ref.Stored), func(stored []byte) error {
		h, bad := headFor(stored, ref)
		if bad == "" {
			record := Record{content: stored[headSize:], raw: h.raw, kind: h.kind}
			value, bad = record.unpack(buffer, true)
		}
		return r.corrupt(int64(ref.Offset), bad)
	})
	switch {
	case errors.Is(err, vfs.ErrFault):
		return nil, fmt.Errorf("valuefile: read %s at %d: %w", r.name, ref.Offset, err)
	case err != nil:
		return nil, err
	}
	if m.elapsed()-began > slowAccess+time.Duration(len(value)/bytesPerNano) {
		m.cold.Store(coldStreak)
	}
	return value, nil
}
