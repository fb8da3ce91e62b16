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
	// verifyInterval is how long a verification of a mapped value is believed: what
	// changed in memory since is not noticed before. For a megabyte it takes as
	// long as all the rest of the read.
	verifyInterval = time.Minute
	// coldStreak is how many reads go by calls after one that found its pages not
	// in memory: through a mapping, each costs a fault and a device access, which
	// hold up one of the Go scheduler's few processors.
	coldStreak = 8
	// slowAccess is far above what a value takes from the page cache, and below
	// what any device takes; a nanosecond is added for each so many bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
)

// mapped is a value file as memory.
type mapped struct {
	mapping *vfs.Mapping // nil: not mapped
	elapsed func() time.Duration
	cold    atomic.Int32 // reads to be done by calls

	mu       sync.Mutex
	verified map[uint64]time.Duration // when, by offset of the record
}

// warm reports whether the next value is to be read through the mapping.
func (m *mapped) warm() bool {
	if m.mapping == nil {
		return false
	}
	if cold := m.cold.Load(); cold > 0 {
		m.cold.CompareAndSwap(cold, cold-1)
		return false
	}
	return true
}

// lately reports whether the record at offset was verified not long ago.
func (m *mapped) lately(offset uint64, now time.Duration) bool {
	if m.elapsed == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.verified[offset]
	return ok && now-at < verifyInterval
}

// note keeps when a record was verified.
func (m *mapped) note(offset uint64, now time.Duration) {
	if m.elapsed == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.verified == nil {
		m.verified = make(map[uint64]time.Duration)
	}
	m.verified[offset] = now
}

// mappedValue is Value through the mapping.
func (r *Reader) mappedValue(buffer *[]byte, ref row.Reference) (value []byte, err error) {
	if err := r.place(ref); err != nil {
		return nil, err
	}
	m := &r.mapped
	var began time.Duration
	if m.elapsed != nil {
		began = m.elapsed()
	}
	known := m.lately(ref.Offset, began)
	err = m.mapping.Access(int64(ref.Offset), int64(ref.Stored), func(stored []byte) error {
		bad := ""
		var err error
		value, bad, err = r.take(buffer, stored, ref, known)
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
	if !known {
		m.note(ref.Offset, began)
	}
	if m.elapsed != nil && m.elapsed()-began > slowAccess+time.Duration(len(value)/bytesPerNano) {
		m.cold.Store(coldStreak)
	}
	return value, nil
}

// take copies or decompresses the value out of a record, which is verified before
// unless that is known. It returns the value and what is wrong, or "", or the error
// of a helper.
func (r *Reader) take(buffer *[]byte, stored []byte, ref row.Reference, known bool) (value []byte, bad string, err error) {
	var h head
	if known {
		h, bad = parseHead(stored)
	} else {
		h, bad = check(stored, &r.footer.uniqueID, int64(ref.Offset))
	}
	if bad == "" {
		bad = h.matches(ref)
	}
	if bad != "" {
		return nil, bad, nil
	}
	record := Record{content: stored[headSize:], raw: h.raw, kind: h.kind}
	return record.unpack(&unpacking{
		buffer: buffer, known: known, helpers: r.helpers,
		mapping: r.mapped.mapping, offset: int64(ref.Offset) + headSize, size: int64(h.stored),
	})
}
