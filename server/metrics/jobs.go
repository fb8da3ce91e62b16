package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

// jobs count what stores do in the background, as it ends. The reasons are the few of flagstone.Event.
type jobs struct {
	ended, seconds, input, written *prometheus.CounterVec
	failures                       *prometheus.CounterVec
}

// kinds are the jobs of a store that end, with their reasons; works are what failures name.
var (
	kinds = map[flagstone.EventKind][]string{
		flagstone.EventFlush: {""}, flagstone.EventStall: {"memtables", "level 0"},
		flagstone.EventCompaction: {"level 0", "size", "reads", "expired", "reclaim", "tombstones", "trim", "manual"},
		flagstone.EventSplit:      {""}, flagstone.EventMerge: {""}, flagstone.EventLoad: {""}, flagstone.EventIngest: {""}, flagstone.EventDetach: {""},
	}
	works = []string{
		"balancing partitions", "check", "compaction", "finishing writes", "flush", "flushing the log's buffer", "handing over the log",
		"preparing the next log segment", "remove obsolete file", "report of a failure", "saving the clock", "writing",
	}
)

// newJobs returns the counters. Those of bad ends are there from the start: an increase over time does not see the first
// of a counter that begins with 1.
func newJobs() *jobs {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "flagstone_store_" + name, Help: help}, append([]string{"store", "kind"}, labels...))
	}
	j := &jobs{
		ended: counter("jobs_total", "Flushes, compactions, stalls of writers, splits and merges of partitions, loads and moves that ended, by reason and by how: done, cancelled, refused or failed.",
			"reason", "end"),
		seconds: counter("job_seconds_total", "Time that they took, side by side; of a split or merge the whole job, with the flushes and compactions that a merge needs.", "reason"),
		input:   counter("job_input_bytes_total", "Bytes of the memtables or table files that flushes and compactions took.", "reason"),
		written: counter("job_written_bytes_total", "Bytes of the files that flushes and compactions wrote.", "reason"),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flagstone_store_failures_total", Help: "Failures of background work and of writing, by the work.",
		}, []string{"store", "work"}),
	}
	for _, store := range []ots.InstanceType{ots.HighPerformance, ots.Capacity} {
		for kind, reasons := range kinds {
			for _, reason := range reasons {
				for _, end := range []string{"cancelled", "refused", "failed"} {
					j.ended.WithLabelValues(string(store), string(kind), reason, end)
				}
			}
		}
		for _, work := range works {
			j.failures.WithLabelValues(string(store), work)
		}
	}
	return j
}

// Event counts what a store of a type has done. It is for instances.Options.OnEvent.
func (m *Metrics) Event(kind ots.InstanceType, e flagstone.Event) {
	j, store := m.jobs, string(kind)
	switch {
	case e.Begun || e.Kind == flagstone.EventLogSegment:
		return
	case e.Kind == flagstone.EventFailure:
		j.failures.WithLabelValues(store, e.Reason).Inc()
		return
	}
	end := "done"
	switch {
	case e.Cancelled:
		end = "cancelled"
	case e.Refused:
		end = "refused"
	case e.Err != nil:
		end = "failed"
	}
	j.ended.WithLabelValues(store, string(e.Kind), e.Reason, end).Inc()
	j.seconds.WithLabelValues(store, string(e.Kind), e.Reason).Add(e.Took.Seconds())
	if e.Kind == flagstone.EventFlush || e.Kind == flagstone.EventCompaction {
		j.input.WithLabelValues(store, string(e.Kind), e.Reason).Add(float64(e.Input))
		j.written.WithLabelValues(store, string(e.Kind), e.Reason).Add(float64(e.Written))
	}
}
