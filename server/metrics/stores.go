package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	flagstone "github.com/flagstone-db/flagstone"
)

// figure is one figure of a T, a store or a table.
type figure[T any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*T) float64
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

var storeFigures = []figure[flagstone.Metrics]{
	{"flagstone_store_visible_sequence", "Sequence number of the newest write that readers see.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.VisibleSequence) }},
	{"flagstone_store_memtable_bytes", "Memory of memtables, those being flushed included.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.MemoryBytes) }},
	{"flagstone_store_memtable_budget_bytes", "Bound of the memory of memtables.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.MemoryBudget) }},
	{"flagstone_store_log_segments", "Segments of the log that are still needed.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.LogSegment - m.OldestSegment + 1) }},
	{"flagstone_store_log_waiting_seconds", "How long writes or syncs of the log have been in progress without one returning.", gauge,
		func(m *flagstone.Metrics) float64 { return m.LogWaiting.Seconds() }},
	{"flagstone_store_kept_log_bytes", "Segments of the log that are kept until 'backup log' has put them, and files of such that are used again.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.KeptLogBytes) }},
	{"flagstone_store_kept_log_limit_bytes", "Bound of the segments of the log that are kept; 0 if it is not kept.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.KeptLogLimit) }},
	{"flagstone_store_log_shipped_timestamp_seconds", "Time up to which 'backup log' has put all writes that were not lost; 0 if it has not since the start.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.LogShippedMicros) / 1e6 }},
	{"flagstone_store_kept_log_lost_bytes_total", "Segments of a kept log that were given up beyond its limit before 'backup log' had put them.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.KeptLogLostBytes) }},
	{"flagstone_store_open_snapshots", "Snapshots that are open.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.OpenSnapshots) }},
	{"flagstone_store_cache_bytes", "Memory of cached blocks and rows.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.CacheBytes) }},
	{"flagstone_store_cache_hits_total", "Blocks that were found in the cache.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.CacheHits) }},
	{"flagstone_store_cache_misses_total", "Blocks that were read from a file.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.CacheMisses) }},
	{"flagstone_store_row_cache_hits_total", "Gets that found their row in the row cache.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.RowHits) }},
	{"flagstone_store_off_heap_bytes", "Memory off the Go heap, mostly cached blocks.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.OffHeapBytes) }},
	{"flagstone_store_index_bytes", "Memory of indexes and filters of table files.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.IndexBytes) }},
	{"flagstone_store_open_files", "Descriptors of table files.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.OpenFiles) }},
	{"flagstone_store_mapped_files", "Table files that are mapped.", gauge,
		func(m *flagstone.Metrics) float64 { return float64(m.MappedFiles) }},
	{"flagstone_store_poisoned", "1 if the store takes no more writes until it is opened again.", gauge,
		func(m *flagstone.Metrics) float64 {
			if m.Poisoned {
				return 1
			}
			return 0
		}},
	{"flagstone_store_log_bytes_total", "Bytes written to the log, after compression.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.LogBytes) }},
	{"flagstone_store_log_saved_bytes_total", "Bytes of the log that compression took off.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.LogSaved) }},
	{"flagstone_store_log_records_total", "Records written to the log, one for each batch of writes.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.LogRecords) }},
	{"flagstone_store_log_groups_total", "Groups of records that were written to the log together.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.LogGroups) }},
	{"flagstone_store_flushed_bytes_total", "Bytes of table files made of memtables.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.FlushedBytes) }},
	{"flagstone_store_compaction_read_bytes_total", "Bytes of table files that compactions merged.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.CompactedIn) }},
	{"flagstone_store_compaction_written_bytes_total", "Bytes of table files that compactions wrote.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.CompactedOut) }},
	{"flagstone_store_moved_bytes_total", "Bytes of table files moved to a deeper level unchanged.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.MovedBytes) }},
	{"flagstone_store_expired_bytes_total", "Bytes of table files dropped unread because all in them had expired.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.DroppedBytes) }},
	{"flagstone_store_loaded_bytes_total", "Bytes of table files written by bulk loads.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.LoadedBytes) }},
	{"flagstone_store_stalled_seconds_total", "Time for which writers were held back, all writers together.", counter,
		func(m *flagstone.Metrics) float64 { return m.Stalled.Seconds() }},
	{"flagstone_store_pressure_ratio", "Back-pressure on writers, from 0 (none) to 1 (they wait).", gauge,
		func(m *flagstone.Metrics) float64 { return m.Pressure }},
	{"flagstone_store_partition_splits_total", "Partitions that were split.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.Splits) }},
	{"flagstone_store_partition_merges_total", "Partitions that were merged.", counter,
		func(m *flagstone.Metrics) float64 { return float64(m.Merges) }},
	{"flagstone_store_partition_longest_pause_seconds", "Longest time in which a split or merge of partitions held writes back, since the start.", gauge,
		func(m *flagstone.Metrics) float64 { return m.LongestPause.Seconds() }},
}

var tableFigures = []figure[flagstone.TableMetrics]{
	{"flagstone_table_partitions", "Partitions of a table.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.Partitions) }},
	{"flagstone_table_rows", "Rows in all table files; a row in two files counts twice.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.Rows) }},
	{"flagstone_table_cells", "Cells in all table files, counted the same way.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.Cells) }},
	{"flagstone_table_value_file_bytes", "Bytes of files of large values.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.ValueBytes) }},
	{"flagstone_table_value_file_garbage_bytes", "Bytes of large values to which nothing refers any more.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.ValueGarbage) }},
	{"flagstone_table_compaction_debt_bytes", "About how many bytes compactions have to merge.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.Debt) }},
	{"flagstone_table_reclaimable_bytes", "About how many bytes compactions would free.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.Reclaimable) }},
	{"flagstone_table_load_units", "Capacity units per second of a table, an average in which an operation counts half after 20 seconds.", gauge,
		func(m *flagstone.TableMetrics) float64 { return m.Units }},
	{"flagstone_table_busiest_partition_load_units", "The same of the busiest partition of the table.", gauge,
		func(m *flagstone.TableMetrics) float64 { return m.BusiestUnits }},
	{"flagstone_table_passed_rows", "Rows per second that scans of a table pass since they were deleted or have expired: the same average.", gauge,
		func(m *flagstone.TableMetrics) float64 { return m.PassedRate }},
	{"flagstone_table_large_keys", "Partition keys that are too large for a partition, and cannot be split.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.LargeKeys) }},
	{"flagstone_table_moving_loads", "Busy partitions that no split helps, since their load moves to other keys, or their table has been split as often as it may be.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.MovingLoads) }},
	{"flagstone_table_busy_keys", "Partition keys that are too busy for a partition, and cannot be split.", gauge,
		func(m *flagstone.TableMetrics) float64 { return float64(m.BusyKeys) }},
}

// stores collects the figures of all stores.
type stores struct {
	Config
	ofStore, ofTable    []*prometheus.Desc // as storeFigures and tableFigures
	bytes, files, units *prometheus.Desc
	took, synced        *prometheus.Desc
	running, waiting    *prometheus.Desc
}

func newStores(c Config) *stores {
	s := &stores{Config: c}
	for _, f := range storeFigures {
		s.ofStore = append(s.ofStore, prometheus.NewDesc(f.name, f.help, []string{"store"}, nil))
	}
	table := []string{"instance_name", "table"}
	for _, f := range tableFigures {
		s.ofTable = append(s.ofTable, prometheus.NewDesc(f.name, f.help, table, nil))
	}
	s.bytes = prometheus.NewDesc("flagstone_table_file_bytes", "Bytes of table files, by level.", append(table, "level"), nil)
	s.files = prometheus.NewDesc("flagstone_table_files", "Table files, by level.", append(table, "level"), nil)
	s.took = prometheus.NewDesc("flagstone_table_sampled_operation_duration_seconds",
		"Time that operations of the engine took. One in 64 is timed and counted.", append(table, "operation"), nil)
	s.synced = prometheus.NewDesc("flagstone_store_log_sync_duration_seconds", "Time that syncs of the log took.", []string{"store"}, nil)
	s.running = prometheus.NewDesc("flagstone_store_jobs_running", "Background jobs that run.", []string{"store", "class"}, nil)
	s.waiting = prometheus.NewDesc("flagstone_store_jobs_waiting", "Background jobs that wait for a worker.", []string{"store", "class"}, nil)
	s.units = prometheus.NewDesc("flagstone_capacity_units_total",
		"Capacity units that requests used, within what is reserved or above it.", append(table, "side", "kind"), nil)
	return s
}

// Describe implements prometheus.Collector.
func (s *stores) Describe(to chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(s.ofStore, s.ofTable, []*prometheus.Desc{s.bytes, s.files, s.units, s.took, s.synced, s.running, s.waiting}) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *stores) Collect(to chan<- prometheus.Metric) {
	for kind, m := range s.Stores() {
		for i, f := range storeFigures {
			to <- prometheus.MustNewConstMetric(s.ofStore[i], f.kind, f.value(&m), string(kind))
		}
		to <- prometheus.MustNewConstHistogram(s.synced, m.LogSyncs.Timed(), m.LogSyncs.Total().Seconds(), operationBuckets(m.LogSyncs), string(kind))
		for class, jobs := range m.Jobs {
			to <- prometheus.MustNewConstMetric(s.running, gauge, float64(jobs.Running), string(kind), class)
			to <- prometheus.MustNewConstMetric(s.waiting, gauge, float64(jobs.Waiting), string(kind), class)
		}
		for i := range min(len(m.Tables), MostTables) {
			s.collectTable(to, &m.Tables[i])
		}
	}
}

func (s *stores) collectTable(to chan<- prometheus.Metric, m *flagstone.TableMetrics) {
	instance, table, ok := strings.Cut(m.Name, "/")
	if !ok {
		return // of no instance, such as the tunnels of a store: several stores have one of the same name
	}
	for i, f := range tableFigures {
		to <- prometheus.MustNewConstMetric(s.ofTable[i], f.kind, f.value(m), instance, table)
	}
	for level := range m.Files {
		if m.Files[level] > 0 {
			name := strconv.Itoa(level)
			to <- prometheus.MustNewConstMetric(s.bytes, gauge, float64(m.Bytes[level]), instance, table, name)
			to <- prometheus.MustNewConstMetric(s.files, gauge, float64(m.Files[level]), instance, table, name)
		}
	}
	for operation, took := range map[string]flagstone.Latency{"get": m.Gets, "scan": m.Scans, "update": m.Updates, "commit": m.Commits} {
		if took.Timed() > 0 {
			to <- prometheus.MustNewConstHistogram(s.took, took.Timed(), took.Total().Seconds(), operationBuckets(took), instance, table, operation)
		}
	}
	used, err := s.Throughput(instance, table)
	if err != nil {
		return // a stream, or a table that was deleted meanwhile
	}
	for _, u := range []struct {
		side, kind string
		units      int64
	}{
		{"read", "reserved", used.ReservedRead}, {"read", "additional", used.AdditionalRead},
		{"write", "reserved", used.ReservedWrite}, {"write", "additional", used.AdditionalWrite},
	} {
		to <- prometheus.MustNewConstMetric(s.units, counter, float64(u.units), instance, table, u.side, u.kind)
	}
}

// The ends of the buckets of operations, powers of 4 from a microsecond to four seconds, in nanoseconds.
const shortest, longest = 1 << 10, 1 << 32

// operationBuckets are the counts up to each end, by its seconds.
func operationBuckets(l flagstone.Latency) map[float64]uint64 {
	ends := make(map[float64]uint64)
	total, next := uint64(0), time.Duration(shortest)
	for end, n := range l.Buckets() {
		if total += n; end == next && end <= longest {
			ends[end.Seconds()], next = total, 4*end
		}
	}
	return ends
}
