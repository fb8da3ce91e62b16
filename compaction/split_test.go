package compaction_test

// The model's partition is split now and then, and goes on as one of the halves.

import (
	"bytes"
	"fmt"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// start and end bound the partition; nil is unbounded.
func (m *model) start() []byte { return m.bound(m.from) }
func (m *model) end() []byte   { return m.bound(m.to) }

func (m *model) bound(at int) []byte {
	if at == 0 || at == m.keys {
		return nil
	}
	return fmt.Appendf(nil, "k%02d", at)
}

func (m *model) contains(key []byte) bool {
	return bytes.Compare(m.start(), key) <= 0 && (m.end() == nil || bytes.Compare(key, m.end()) < 0)
}

// split goes on with one of the two partitions that a split makes. Files with keys of both are
// clipped, and said to hold any part of what they hold.
func (m *model) split() {
	if m.to-m.from < 2 {
		return
	}
	for len(m.running) > 0 {
		m.finish(0)
	}
	if at := m.from + 1 + m.rng.IntN(m.to-m.from-1); m.rng.IntN(2) == 0 {
		m.from = at
	} else {
		m.to = at
	}
	m.logf("split: %s to %s is left", m.start(), m.end())
	m.clipped = nil
	p := manifest.Partition{Start: m.start(), End: m.end()}
	for level, files := range m.levels {
		m.levels[level] = nil
		for _, f := range files {
			run := m.runs[f.Number]
			if whole := describe(f.Number, run); !p.Overlaps(whole.Smallest, whole.Largest) {
				continue
			} else if !p.Holds(whole) {
				f = whole
				if bytes.Compare(f.Smallest, p.Start) < 0 {
					f.Smallest = p.Start
				}
				if p.End != nil && bytes.Compare(f.Largest, p.End) > 0 {
					f.Largest = p.End
				}
				share := uint64(m.rng.IntN(9))
				f.Size = f.Size * int64(share) / 8
				for _, n := range []*uint64{&f.Rows, &f.Cells, &f.Puts, &f.Tombstones} {
					*n = max(*n*share/8, min(*n, 1))
				}
				m.clipped = append(m.clipped, f)
			}
			m.levels[level] = append(m.levels[level], f)
		}
	}
	for _, rows := range []map[string][]row.Cell{m.all, m.memtable} {
		for key := range rows {
			if !m.contains([]byte(key)) {
				delete(rows, key)
			}
		}
	}
	for _, s := range m.snapshots {
		m.clip(s.answers)
	}
}

// clip removes the rows that other partitions have.
func (m *model) clip(rows map[string]string) map[string]string {
	for key := range rows {
		if !m.contains([]byte(key)) {
			delete(rows, key)
		}
	}
	return rows
}
