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
	"time"

	"golang.org/x/net/netutil"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/console"
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

// observer counts requests, logs slow ones, feeds the console, and serves the metrics. A nil listener serves none.
type observer struct {
	feed     *console.Feed
	metrics  *metrics.Metrics
	slow     time.Duration
	logger   *slog.Logger
	listener net.Listener
	http     http.Server
	served   chan error
}

// listen makes an observer, which listens for scrapes if it is to. They are answered from start on.
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
	return o, nil
}

// maxScrapes bounds the connections of the metrics.
const maxScrapes = 16

// start begins to answer scrapes about a home.
func (o *observer) start(home *instances.Home, profiles bool) {
	if o.listener == nil {
		return
	}
	o.metrics = metrics.New(metrics.Config{
		Stores: home.Metrics, Throughput: home.Throughput, Version: version(), Logger: o.logger,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, home) })
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	o.http = http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.logger.Handler(), slog.LevelDebug),
	}
	o.logger.Info("metrics", "url", "http://"+o.listener.Addr().String()+"/metrics")
	go func() { o.served <- o.http.Serve(o.listener) }()
}

// ready says whether every store takes writes.
func ready(w http.ResponseWriter, home *instances.Home) {
	if err := home.Poisoned(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// close stops answering scrapes; running ones have until ctx is done.
func (o *observer) close(ctx context.Context) error {
	switch {
	case o.listener == nil:
		return nil
	case o.metrics == nil: // not started
		return o.listener.Close()
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
				"code", r.Code, "took", r.Took, "received", r.Received, "sent", r.Sent)
			o.feed.Slow(console.Request{
				ID: r.ID, Operation: r.Operation, Instance: r.Instance, Table: r.Table, Code: r.Code,
				Took: r.Took.Seconds(), Received: r.Received, Sent: r.Sent,
			})
		}
	}
}
