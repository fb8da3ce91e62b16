package flagstone

import "github.com/flagstone-db/flagstone/manifest"

// Metrics is a picture of a store at one moment. Sizes are bytes.
type Metrics struct {
	VisibleSequence uint64 // the newest write that readers see
	MemoryBytes     int64  // memtables, those being flushed included
	MemoryBudget    int64
	LogSegment      uint64 // number of the segment being written
	OldestSegment   uint64 // number of the oldest segment still needed
	OpenSnapshots   int
	CacheHits       uint64
	CacheMisses     uint64
	CacheBytes      int64
	Poisoned        bool
	Tables          []TableMetrics
}

// TableMetrics are the figures of one table.
type TableMetrics struct {
	Name       string
	Partitions int
	Files      [manifest.NumLevels]int   // by level
	Bytes      [manifest.NumLevels]int64 // by level
	Rows       uint64                    // of all files; a row in two files counts twice
	Cells      uint64                    // the same
}

// Metrics returns the present figures.
func (s *Store) Metrics() Metrics {
	stats := s.blocks.Stats()
	m := Metrics{
		VisibleSequence: s.pipeline.visible.Load(),
		MemoryBudget:    s.opts.MemoryBudget,
		CacheHits:       stats.Hits, CacheMisses: stats.Misses, CacheBytes: stats.Bytes,
		OldestSegment: s.state().MinLog,
		Poisoned:      s.pipeline.failed.Load() != nil,
	}
	s.memory.mu.Lock()
	m.MemoryBytes = s.memory.total
	s.memory.mu.Unlock()
	if s.log != nil {
		m.LogSegment = s.log.Segment()
	}
	s.snapshots.Lock()
	m.OpenSnapshots = len(s.snapshots.open)
	s.snapshots.Unlock()
	for _, t := range s.state().Tables {
		m.Tables = append(m.Tables, tableMetrics(t))
	}
	return m
}

func tableMetrics(t *manifest.Table) TableMetrics {
	m := TableMetrics{Name: t.Name, Partitions: len(t.Partitions)}
	for _, p := range t.Partitions {
		for level, files := range p.Levels {
			for _, f := range files {
				m.Files[level]++
				m.Bytes[level] += f.Size
				m.Rows += f.Rows
				m.Cells += f.Cells
			}
		}
	}
	return m
}
