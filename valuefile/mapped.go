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
	// coldStreak is how many reads go by calls after one that found its pages not
	// in memory: through a mapping, each costs a fault and a device access, which
	// hold up one of the Go scheduler's few processors.
	coldStreak = 8
	// slowAccess is far above what a value takes from the page cache, and below
	// what any device takes; a nanosecond is added for each so many bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
)

// mapped is a value file as memory. Values are read through it while a verification
// of them is believed: what changed in memory since is not noticed. All other reads
// are calls, and what these copied is verified.
type mapped struct {
	mapping  *vfs.Mapping // nil: not mapped
	elapsed  func() time.Duration
	interval time.Duration // that a verification is believed
	cold     atomic.Int32  // reads to be done by calls

	mu       sync.Mutex
	verified map[uint64]time.Duration // when, by offset of the record
}

// now is the time on the clock, for the calls below.
func (m *mapped) now() time.Duration {
	if m.mapping == nil {
		return 0
	}
	return m.elapsed()
}

// believes reports whether the record at offset is to be read through the mapping:
// it was verified less than the interval before now, and the last ones were in memory.
func (m *mapped) believes(offset uint64, now time.Duration) bool {
	if m.mapping == nil {
		return false
	}
	if cold := m.cold.Load(); cold > 0 {
		m.cold.CompareAndSwap(cold, cold-1)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.verified[offset]
	return ok && now-at < m.interval
}

// note keeps that a record was verified, by a read that began at now.
func (m *mapped) note(offset uint64, now time.Duration) {
	if m.mapping == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.verified == nil {
		m.verified = make(map[uint64]time.Duration)
	}
	m.verified[offset] = now
}

// believed is Value through the mapping, by a read that began at a time.
func (r *Reader) believed(buffer *[]byte, ref row.Reference, began time.Duration) (value []byte, err error) {
	if err := r.place(ref); err != nil {
		return nil, err
	}
	m := &r.mapped
	err = m.mapping.Access(int64(ref.Offset), int64(ref.Stored), func(stored []byte) error {
		h, bad := parseHead(stored)
		if bad == "" {
			bad = h.matches(ref)
		}
		if bad == "" {
			record := Record{content: stored[headSize:], raw: h.raw, kind: h.kind}
			value, bad, err = record.unpack(&unpacking{
				buffer: buffer, known: true, helpers: r.helpers,
				mapping: m.mapping, offset: int64(ref.Offset) + headSize, size: int64(h.stored),
			})
		}
		if bad != "" {
			return r.corrupt(int64(ref.Offset), bad)
		}
		return err
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
