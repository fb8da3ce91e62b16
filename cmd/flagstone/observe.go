package main

// What a server shows of itself: metrics, its health, and a log of slow requests.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server"
	"github.com/flagstone-db/flagstone/server/metrics"
)

// observeFlags are the flags of serve about what it shows.
type observeFlags struct {
	MetricsAddr string        `placeholder:"ADDR" env:"FLAGSTONE_METRICS_ADDR" help:"Serve /metrics for Prometheus, /healthz and /readyz on this address, such as 127.0.0.1:9187, to everybody who can reach it; see docs/operations.md. Off if not given."`
	Pprof       bool          `help:"Serve profiles of the process there too, below /debug/pprof/."`
	SlowRequest time.Duration `default:"1s" placeholder:"DURATION" help:"Log requests that take at least so long, what the client takes included; 0 logs none. ${default} if not given."`
	LogFormat   string        `default:"text" enum:"text,json" env:"FLAGSTONE_LOG_FORMAT" help:"Format of the log: ${enum}."`
}

// check refuses flags that make no sense.
func (f *observeFlags) check() error {
	switch {
	case f.Pprof && f.MetricsAddr == "":
		return errors.New("--pprof serves profiles where the metrics are: say where with --metrics-addr")
	case f.SlowRequest < 0:
		return fmt.Errorf("--slow-request is %v; give a duration, or 0 to log none", f.SlowRequest)
	}
	return nil
}

// observer counts requests and what stores do, logs slow requests, feeds the console, and serves the metrics. A nil
// listener serves none.
type observer struct {
	feed     *console.Feed
	metrics  *metrics.Metrics // nil without a listener
	home     atomic.Pointer[instances.Home]
	slow     time.Duration
	logger   *slog.Logger
	listener net.Listener
	http     http.Server
	served   chan error
}

// maxScrapes bounds the connections of the metrics.
const maxScrapes = 16

// listen makes an observer, which begins to answer on its address if it has one. Until start is called the server is
// not ready, and has no metrics.
func (f *observeFlags) listen(logger *slog.Logger) (*observer, error) {
	o := &observer{feed: console.NewFeed(), slow: f.SlowRequest, logger: logger, served: make(chan error, 1)}
	if f.MetricsAddr == "" {
		return o, nil
	}
	listener, err := net.Listen("tcp", f.MetricsAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s; choose another with --metrics-addr: %w", f.MetricsAddr, err)
	}
	o.listener = netutil.LimitListener(listener, maxScrapes)
	o.metrics = metrics.New(metrics.Config{
		Stores:      func() map[ots.InstanceType]flagstone.Metrics { return o.home.Load().Metrics() },
		Throughput:  func(instance, table string) (ots.Throughput, error) { return o.home.Load().Throughput(instance, table) },
		Checkpoints: func() int { return o.home.Load().Checkpoints() },
		Version:     version(), Logger: logger,
	})
	o.http = http.Server{
		Handler: o.handler(f.Pprof), ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	logger.Info("metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	go func() { o.served <- o.http.Serve(o.listener) }()
	return o, nil
}

func (o *observer) handler(profiles bool) http.Handler {
	mux, scrapes := http.NewServeMux(), o.metrics.Handler()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if o.home.Load() == nil {
			http.Error(w, recovering, http.StatusServiceUnavailable)
			return
		}
		scrapes.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { o.ready(w) })
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// start says that a home is recovered.
func (o *observer) start(home *instances.Home) { o.home.Store(home) }

// recovering is why a server is not ready before start.
const recovering = "the stores are being recovered"

// ready says whether every store takes writes.
func (o *observer) ready(w http.ResponseWriter) {
	home := o.home.Load()
	if home == nil {
		http.Error(w, recovering, http.StatusServiceUnavailable)
		return
	}
	if err := home.Poisoned(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// event is told of what a store does.
func (o *observer) event(kind ots.InstanceType, e flagstone.Event) {
	o.feed.Event(kind, e)
	if o.metrics != nil {
		o.metrics.Event(kind, e)
	}
}

// close stops answering scrapes; running ones have until ctx is done.
func (o *observer) close(ctx context.Context) error {
	if o.listener == nil {
		return nil
	}
	var err error
	if late := o.http.Shutdown(ctx); late != nil {
		o.logger.Warn("scrapes or profiles were cut off", "error", late)
		err = o.http.Close()
	}
	if served := <-o.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// request is told of each request. It returns nil if nothing wants to know.
func (o *observer) request() func(*server.Served) {
	if o.metrics == nil && o.slow == 0 {
		return nil
	}
	return func(r *server.Served) {
		if o.metrics != nil {
			o.metrics.Served(r)
		}
		// A sender without access could fill the log, by sending slowly.
		if o.slow > 0 && r.Took >= o.slow && r.Instance != "" {
			o.logger.Warn("slow request", "request", r.ID, "operation", r.Operation, "instance", r.Instance, "table", r.Table,
				"code", r.Code, "took", r.Took, "received", r.Received, "sent", r.Sent, "read units", r.Read, "write units", r.Write, "rows of a batch", r.Rows)
			o.feed.Slow(console.Request{
				ID: r.ID, Operation: r.Operation, Instance: r.Instance, Table: r.Table, Code: r.Code,
				Took: r.Took.Seconds(), Received: r.Received, Sent: r.Sent, Read: r.Read, Write: r.Write, Rows: r.Rows,
			})
		}
	}
}
