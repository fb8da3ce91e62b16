// Package metrics offers to Prometheus what a server and its stores do.
//
//	metrics.go  requests, counted as they are served; the handler
//	jobs.go     what stores do in the background, counted as it ends
//	stores.go   figures of stores and tables, asked for at each scrape
//
// Every label has few values: an operation, a code, or a table that exists; at most MostTables
// tables have a label of their own.
package metrics

import (
	"log/slog"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server"
)

// MostTables is how many tables have figures of their own, for requests and in each store. The
// requests of the others are counted together, under OtherTables.
const MostTables = 1000

// OtherTables is the value of the label table for the tables above MostTables. No table can have
// this name.
const OtherTables = "(others)"

// Config says where the figures come from. Stores and Throughput are required.
type Config struct {
	// Stores returns the figures of the stores, by the type of their instances. The name of a
	// table is "instance/table".
	Stores func() map[ots.InstanceType]flagstone.Metrics
	// Throughput returns the capacity units that requests to a table used, and an error if there is no
	// such table.
	Throughput func(instance, table string) (ots.Throughput, error)
	// Checkpoints returns how many checkpoints are held for backups. Nil gives no figure.
	Checkpoints func() int
	// Version of the programme.
	Version string
	// Logger gets failures of scrapes. Nil discards.
	Logger *slog.Logger
}

// Metrics has the figures of a server. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	logger     *slog.Logger
	throughput func(instance, table string) (ots.Throughput, error)

	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	received *prometheus.CounterVec
	sent     *prometheus.CounterVec
	jobs     *jobs

	mu     sync.RWMutex
	tables map[tableName]bool // that have a label of their own
}

type tableName struct{ instance, table string }

// buckets of latencies, in seconds: from what a get from memory takes to the limit of a request.
var buckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
}

// New returns the metrics of a server, all zero.
func New(c Config) *Metrics {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), logger: c.Logger, throughput: c.Throughput, tables: make(map[tableName]bool), jobs: newJobs(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flagstone_requests_total",
			Help: "Requests that were answered, by operation, instance, table and code of the answer.",
		}, []string{"operation", "instance_name", "table", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "flagstone_request_duration_seconds",
			Help:    "Time from the headers of a request to the last byte of its answer.",
			Buckets: buckets,
		}, []string{"operation", "instance_name", "table"}),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flagstone_request_bytes_total",
			Help: "Bytes of the bodies of requests whose sender has access, as they were sent.",
		}, []string{"instance_name"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flagstone_answer_bytes_total",
			Help: "Bytes of the bodies of answers.",
		}, []string{"instance_name"}),
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flagstone_build_info", Help: "1, with the version of the programme.",
		ConstLabels: prometheus.Labels{"version": c.Version},
	}, func() float64 { return 1 })
	m.registry.MustRegister(m.requests, m.took, m.received, m.sent, build, newStores(c),
		m.jobs.ended, m.jobs.seconds, m.jobs.input, m.jobs.written, m.jobs.failures,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.Checkpoints != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "flagstone_checkpoints", Help: "Checkpoints that are held for backups. Files that were merged away since still take their space.",
		}, func() float64 { return float64(c.Checkpoints()) }))
	}
	return m
}

// Served counts a request. It is for server.Config.Served.
func (m *Metrics) Served(r *server.Served) {
	name, otherwise := tableName{r.Instance, r.Table}, ""
	deletes := r.Operation == "DeleteTable" // its own figures would go with the table
	if r.Table != "" && !deletes {
		otherwise = m.admit(name)
	}
	m.mu.RLock() // so that no figure of a table outlives purge
	defer m.mu.RUnlock()
	table := otherwise
	if m.tables[name] && !deletes {
		table = r.Table
	}
	m.requests.WithLabelValues(r.Operation, r.Instance, table, r.Code).Inc()
	m.took.WithLabelValues(r.Operation, r.Instance, table).Observe(r.Took.Seconds())
	m.received.WithLabelValues(r.Instance).Add(float64(r.Received))
	m.sent.WithLabelValues(r.Instance).Add(float64(r.Sent))
}

// admit gives a table a label of its own, if it exists and there are not too many: clients can name any
// number of tables that do not exist. It returns the label for requests to the table if it has none.
func (m *Metrics) admit(name tableName) (otherwise string) {
	m.mu.RLock()
	known, full := m.tables[name], len(m.tables) >= MostTables
	m.mu.RUnlock()
	switch {
	case known || !m.exists(name):
		return ""
	case full:
		return OtherTables
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tables) >= MostTables {
		return OtherTables
	}
	m.tables[name] = true
	return ""
}

func (m *Metrics) exists(name tableName) bool {
	_, err := m.throughput(name.instance, name.table)
	return err == nil
}

// purge deletes the figures of tables that have gone.
func (m *Metrics) purge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.tables {
		if !m.exists(name) {
			delete(m.tables, name)
			labels := prometheus.Labels{"instance_name": name.instance, "table": name.table}
			m.requests.DeletePartialMatch(labels)
			m.took.DeletePartialMatch(labels)
		}
	}
}

// Gatherer returns what a scrape reads.
func (m *Metrics) Gatherer() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		m.purge()
		return m.registry.Gather()
	})
}

// Handler answers scrapes, two at once. It compresses them at the fastest level: the one that promhttp would use takes a
// third of the time of a scrape (BenchmarkScrape).
func (m *Metrics) Handler() http.Handler {
	return fastest(promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 2,
		DisableCompression:  true,
	}))
}

// fastest compresses answers at the level that takes the least time, for clients that accept gzip.
var fastest = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // these options are valid
	}
	return wrap
}()
