package flagstone

import (
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/manifest"
)

// Metrics is a picture of a store at one moment. Sizes are bytes.
type Metrics struct {
	VisibleSequence uint64 // the newest write that readers see
	MemoryBytes     int64  // memtables, those being flushed included
	MemoryBudget    int64
	LogSegment      uint64 // number of the segment being written
	OldestSegment   uint64 // number of the oldest segment still needed
	// LogWaiting is how long writes or syncs of the log have been in progress without one of them
	// returning. A large value means a device that hangs.
	LogWaiting time.Duration
	// KeptLogBytes is what the closed segments take that are kept for LogShipped, and the files of such that are used again
	// instead of new ones, of KeptLogLimit at most; both are 0 if the log is not kept. Every commit up to LogShippedMicros,
	// since the epoch, was given to LogShipped or lost; it is 0 if there was no call since the store was opened.
	// KeptLogLostBytes is what was given up since then beyond the limit, before it was given to LogShipped: moments behind
	// it need another backup.
	KeptLogBytes, KeptLogLimit, LogShippedMicros, KeptLogLostBytes int64

	OpenSnapshots int
	CacheHits     uint64
	CacheMisses   uint64
	CacheBytes    int64   // of blocks and rows
	RowHits       uint64  // gets that found their row in the row cache; includes stores that share the cache
	OffHeapBytes  int64   // memory off the Go heap, mostly cached blocks; includes stores that share it
	OpenFiles     int     // descriptors of table files
	MappedFiles   int     // table files that are mapped
	IndexBytes    int64   // indexes and filters of table files, which are not part of the cache
	Batches       Latency // of Apply and ApplyAsync
	Poisoned      bool
	// Refusal is why all writes are refused for now: mostly that the disk is full. It is "" if they are not, and also
	// while only single writes found no space and no background job has failed.
	Refusal string

	// What background work has done since the store was opened.
	LogBytes     int64         // written to the log, framing included, compressed
	LogSaved     int64         // bytes of the log that compression took off
	LogRecords   uint64        // written to the log, one for each batch
	LogGroups    uint64        // of these records, written together: LogRecords over LogGroups is the mean size
	LogSyncs     Latency       // of the device, for a group; each is timed
	FlushedBytes int64         // of table files made of memtables
	CompactedIn  int64         // of table files merged
	CompactedOut int64         // of table files that they were merged into
	MovedBytes   int64         // of table files moved to a deeper level unchanged
	DroppedBytes int64         // of table files dropped unread because all was expired
	LoadedBytes  int64         // of table files written by bulk loads
	Stalled      time.Duration // total time that writers were held back
	Splits       int64         // of partitions
	Merges       int64         // of partitions
	LongestPause time.Duration // in which no write was ordered, because a partition was split or merged
	// Pressure is the back-pressure on writers, from 0 (none) to 1 (they wait).
	Pressure float64
	// Jobs are the background jobs by what they are: "flush", "compaction", "log", "cleanup".
	Jobs map[string]JobMetrics

	Tables []TableMetrics
}

// JobMetrics counts background jobs of one class.
type JobMetrics struct {
	Running int
	Waiting int // for a worker
}

// TableMetrics are the figures of one table.
type TableMetrics struct {
	Name       string
	Partitions int
	Files      []int   // by level; a file that partitions share after a split counts in each
	Bytes      []int64 // by level
	Size       int64   // about what the table takes, in memory and on disk: Table.ApproximateSize
	Rows       uint64  // of all files; a row in two files counts twice
	Cells      uint64  // the same
	// ValueFiles hold large values, ValueBytes in total; no table file refers to ValueGarbage of
	// these bytes.
	ValueFiles   int
	ValueBytes   int64
	ValueGarbage int64
	// Debt is about how many bytes compactions have to merge until every level is within its
	// target. Writers are slowed in proportion to it.
	Debt int64
	// Reclaimable is about how many bytes compactions would free: expired data, tombstones, and
	// garbage in value files.
	Reclaimable int64
	// Units is the load of all partitions in capacity units per second, and BusiestUnits that of the busiest: see
	// Partition.Units. Table.Partitions and Table.LoadedKeys have that of each, and of keys.
	Units, BusiestUnits float64
	// RowRate is how many rows are read and written per second, and ByteRate their bytes: averages as Units.
	RowRate, ByteRate float64
	// PassedRate is how many rows per second scans pass because they were deleted or have expired: the same average. They
	// are in no other rate. Scans at a snapshot and parallel ones do not count, since they pass newer rows, too.
	PassedRate float64
	// Refused is how many requests a server around the store refused since its start because they had no capacity
	// units left; the store itself leaves it 0.
	Refused int64
	// LargeKeys, BusyKeys and MovingLoads count what splits cannot mend: see Finding.
	LargeKeys, BusyKeys, MovingLoads int
	// Gets are those of Get and GetInto, Updates also those of several rows, Commits those of transactions. Scans are
	// from Scan to Close, with what the caller does between.
	Gets, Scans, Updates, Commits Latency
}

// Metrics returns the present figures.
func (s *Store) Metrics() Metrics {
	stats, rows, files := s.blocks.Stats(), s.rows.Stats(), s.files.Stats()
	m := Metrics{
		VisibleSequence: s.pipeline.Visible(),
		MemoryBudget:    s.opts.MemoryBudget,
		CacheHits:       stats.Hits, CacheMisses: stats.Misses, CacheBytes: stats.Bytes + rows.Bytes, RowHits: rows.Hits,
		OffHeapBytes: s.offheap.Stats().Mapped,
		OpenFiles:    files.Open, MappedFiles: files.Mapped, IndexBytes: files.ReaderBytes,
		OldestSegment: s.state().MinLog,
		Poisoned:      s.Poisoned() != nil,
	}
	m.MemoryBytes, _ = s.gate.Bytes()
	m.Pressure = s.gate.Pressure()
	if err := s.gate.Refusal(); err != nil {
		m.Refusal = err.Error()
	}
	if s.log != nil {
		m.LogSegment = s.log.Segment()
		m.LogWaiting = s.log.Waiting()
		written := s.log.Stats()
		m.LogBytes, m.LogSaved, m.LogRecords, m.LogGroups, m.LogSyncs.of = int64(written.Bytes), int64(written.Saved), written.Records, written.Groups, written.Syncs
	}
	if kept := s.state().Kept; s.log != nil && kept.From > 0 {
		m.KeptLogBytes, m.KeptLogLimit, m.LogShippedMicros = s.log.ClosedBytes(kept.From)+s.log.SpareBytes(), kept.Limit, s.shipped.Load()
	}
	m.KeptLogLostBytes = s.lost.Load()
	work := &s.env.Work
	m.FlushedBytes, m.CompactedIn, m.CompactedOut = work.Flushed.Load(), work.CompactedIn.Load(), work.CompactedOut.Load()
	m.MovedBytes, m.DroppedBytes, m.LoadedBytes = work.Moved.Load(), work.Dropped.Load(), work.Loaded.Load()
	m.Stalled = s.gate.Stalled()
	m.Jobs = make(map[string]JobMetrics)
	running, waiting := s.jobs.Counts()
	for class := range executor.Classes {
		m.Jobs[class.String()] = JobMetrics{running[class], waiting[class]}
	}
	replaced := s.rebalancer.Stats()
	m.Splits, m.Merges, m.LongestPause = replaced.Splits, replaced.Merges, replaced.LongestPause
	m.OpenSnapshots = s.views.Len()
	m.Batches.of = s.batches.Snapshot()
	state := s.state()
	found := map[FindingKind]map[uint64]int{LargeKey: {}, BusyKey: {}, MovingLoad: {}, PassedRows: {}}
	for _, r := range s.rebalancer.Findings() {
		found[FindingKind(r.Kind)][r.Table]++
	}
	values := make(map[uint64]valueMetrics, len(state.Tables))
	for v := range state.ValueFiles() {
		of := values[v.Table]
		values[v.Table] = valueMetrics{of.files + 1, of.bytes + v.Size, of.garbage + int64(v.Garbage())}
	}
	for _, t := range state.Tables {
		of := s.tableMetrics(state, t, values[t.ID])
		of.LargeKeys, of.BusyKeys, of.MovingLoads = found[LargeKey][t.ID], found[BusyKey][t.ID], found[MovingLoad][t.ID]
		m.Tables = append(m.Tables, of)
	}
	return m
}

// Poisoned returns why the store takes no writes until it is opened again, nil if it takes them.
func (s *Store) Poisoned() error { return s.pipeline.Failed() }

// nameIn is the name of a table; that of a change log says whose it is.
func nameIn(state *manifest.State, t *manifest.Table) string {
	if t.Log != nil {
		return state.Table(t.Log.Of).Name + " (stream)"
	}
	return t.Name
}

// valueMetrics are the figures of the value files of a table.
type valueMetrics struct {
	files          int
	bytes, garbage int64
}

func (s *Store) tableMetrics(state *manifest.State, t *manifest.Table, values valueMetrics) TableMetrics {
	m := TableMetrics{
		Name: nameIn(state, t), Partitions: len(t.Partitions),
		Files: make([]int, manifest.NumLevels), Bytes: make([]int64, manifest.NumLevels),
		ValueFiles: values.files, ValueBytes: values.bytes, ValueGarbage: values.garbage, Reclaimable: values.garbage,
	}
	table, policy := s.tables.current.Load().byID[t.ID], s.views.Policy(t.ID)
	if table != nil {
		m.Size = table.ApproximateSize()
		took := table.latencies
		m.Gets.of, m.Scans.of, m.Updates.of, m.Commits.of = took.gets.Snapshot(), took.scans.Snapshot(), took.updates.Snapshot(), took.commits.Snapshot()
	}
	now := s.clock.Elapsed()
	for _, p := range t.Partitions {
		levels := &p.Levels // of a closed tree, or one just being replaced
		if table != nil {
			if tree := table.core.Find(p.Start); tree.Meta() == p {
				levels = tree.Levels()
				if load := tree.Load(); load != nil { // a change log has none
					of := load.Look(now)
					m.Units, m.BusiestUnits = m.Units+of.Units(), max(m.BusiestUnits, of.Units())
					m.RowRate, m.ByteRate = m.RowRate+of.Read.Rows+of.Write.Rows, m.ByteRate+of.Read.Bytes+of.Write.Bytes
					m.PassedRate += of.Passed
				}
			}
		}
		m.Debt += compaction.Debt(levels, s.env.Compaction)
		m.Reclaimable += compaction.Reclaimable(levels, policy)
		for level, files := range levels {
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
