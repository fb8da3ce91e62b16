// Package server is the HTTP endpoint for the OTS protocol, API version 2015-12-31, for data
// tunnels 2018-04-01: POST /<Operation> with a protobuf body, signed with a shared secret. It identifies the sender,
// decodes the request, calls an ots.Service, and encodes the answer. The server checks only the
// wire format; the service decides what a request means.
//
//	server.go      configuration, time-outs, start and stop
//	listener.go    the connections, and the keys they count for
//	exchange.go    one request from arrival to answer; the order of checks
//	auth.go        headers, date, signature
//	body.go        reading, limits, checksum, compression
//	room.go        the memory of bodies and answers, turns of the processors
//	respond.go     the answer and its signature, errors
//	served.go      what the server tells of each request
//	operations.go  the table of operations
//	tables.go, reads.go, writes.go, streams.go, tunnels.go, filters.go, convert.go
//	               messages to and from the service's types
//
// Every request is bounded in size, memory and time before it is trusted. No body is decoded or
// kept before its sender is known.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/faults"
)

// Config configures a Server. Instances, Credentials and Now are required.
type Config struct {
	// Instances returns the service of an instance and the canonical spelling of its name,
	// which a request may have in another case. The server calls Instances and Credentials once
	// per request; results may change between requests.
	Instances func(name string) (service ots.Service, canonical string, ok bool)
	// Credentials returns an access key by its id.
	Credentials func(accessKeyID string) (AccessKey, bool)
	// Now is the clock that dates answers and judges the age of requests.
	Now func() time.Time
	// Faults, if not nil, decides which requests fail, for tests.
	Faults *faults.Injector
	// Control, if not nil, serves the paths below control.Prefix, which are neither operations
	// nor signed.
	Control http.Handler
	// Logger gets failures and, at debug level, every request; never secrets, bodies or
	// signatures. Nil discards.
	Logger *slog.Logger
	// Served, if not nil, is told of every request once its answer is written. It is called from
	// many goroutines, and each call holds up the next request of a connection.
	Served func(*Served)
	Limits Limits
}

// AccessKey is an access key.
type AccessKey struct {
	// Secret should be random and long: an attacker with a request or its answer can test
	// secrets against the signature offline.
	Secret string
	// Instance is the instance that the key opens; empty means all.
	Instance string
}

// Limits bound the resources that clients can use. A zero field takes its default.
type Limits struct {
	BodyBytes     int64 // of a request, as sent and uncompressed; 5 MiB
	HeaderBytes   int   // of a request; 16 KiB
	Connections   int   // open at once, at most a quarter without a signed request; also requests of known keys at once; 4096
	InFlightBytes int64 // of all request bodies in progress, as far as they have arrived; 96 MiB
	AnswerBytes   int64 // of memory for answers, from before the read until the answer is written; 384 MiB

	StrangerMoment time.Duration // the least time that the server waits for a first signature before a new connection may replace a stranger; 500 ms
	// ReadHeaderTimeout is from accepting a connection, or the first byte of a later request, to the end of headers; 30 s.
	// Clients keep connections that they dialed and did not need: the Go SDK for 25 s, its IdleConnTimeout.
	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration // the same to the end of the body; 60 s
	WriteTimeout      time.Duration // from the end of headers to the end of the answer; 90 s
	StallTimeout      time.Duration // for 64 KiB of an answer; 10 s
	IdleTimeout       time.Duration // between requests of a connection; 2 min
	RequestTimeout    time.Duration // for the service; 30 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		BodyBytes:         defaultTo(l.BodyBytes, 5<<20),
		HeaderBytes:       defaultTo(l.HeaderBytes, 16<<10),
		Connections:       defaultTo(l.Connections, 4096),
		InFlightBytes:     defaultTo(l.InFlightBytes, 96<<20),
		AnswerBytes:       defaultTo(l.AnswerBytes, 384<<20),
		StrangerMoment:    defaultTo(l.StrangerMoment, 500*time.Millisecond),
		ReadHeaderTimeout: defaultTo(l.ReadHeaderTimeout, 30*time.Second),
		ReadTimeout:       defaultTo(l.ReadTimeout, time.Minute),
		WriteTimeout:      defaultTo(l.WriteTimeout, 90*time.Second),
		StallTimeout:      defaultTo(l.StallTimeout, 10*time.Second),
		IdleTimeout:       defaultTo(l.IdleTimeout, 2*time.Minute),
		RequestTimeout:    defaultTo(l.RequestTimeout, 30*time.Second),
	}
}

func (l Limits) check() error {
	for _, v := range [...]int64{l.BodyBytes, int64(l.HeaderBytes), int64(l.Connections), l.InFlightBytes, l.AnswerBytes,
		int64(l.StrangerMoment), int64(l.ReadHeaderTimeout), int64(l.ReadTimeout), int64(l.WriteTimeout), int64(l.StallTimeout), int64(l.IdleTimeout), int64(l.RequestTimeout)} {
		if v < 0 {
			return fmt.Errorf("server: a limit is negative: %d", v)
		}
	}
	return nil
}

func defaultTo[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Server is an OTS endpoint. It is safe for concurrent use.
type Server struct {
	cfg        Config
	limits     Limits
	log        *slog.Logger
	operations map[string]operation
	unoffered  map[string]bool // operations of the protocol that are refused
	dummy      string          // stands in for the secret of an unknown key
	// Shared by all requests, divided among instances, and within an instance among keys.
	connections            *connections
	requests               *share.Pool // requests at once
	bodies, answers, turns *share.Pool
	stop                   context.CancelFunc // ends the context of all requests
	buffers                sync.Pool          // of *bytes.Buffer
	http                   http.Server
}

// New returns a Server that is ready to Serve. It fails if the configuration
// lacks a required part or has a negative limit.
func New(cfg Config) (*Server, error) {
	if cfg.Instances == nil || cfg.Credentials == nil || cfg.Now == nil {
		return nil, errors.New("server: configuration lacks Instances, Credentials or Now")
	}
	if err := cfg.Limits.check(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:        cfg,
		limits:     cfg.Limits.withDefaults(),
		log:        cfg.Logger,
		operations: operations(),
		unoffered:  unofferedOperations(),
		dummy:      rand.Text(),
	}
	base, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.connections = newConnections(s.limits.Connections, s.limits.StrangerMoment)
	s.bodies, s.answers = share.NewPool(s.limits.InFlightBytes), share.NewPool(s.limits.AnswerBytes)
	s.requests = share.NewPool(int64(max(s.limits.Connections, 3)))
	s.turns = share.NewPool(int64(processorTurns * min(runtime.GOMAXPROCS(0), runtime.NumCPU())))
	s.http = http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.limits.ReadHeaderTimeout,
		ReadTimeout:       s.limits.ReadTimeout,
		WriteTimeout:      s.limits.WriteTimeout,
		IdleTimeout:       s.limits.IdleTimeout,
		MaxHeaderBytes:    s.limits.HeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       connContext,
		// The default would answer "OPTIONS *" without a signature.
		DisableGeneralOptionsHandler: true,
		Protocols:                    new(http.Protocols),
		// The messages of net/http are about broken clients.
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	// SDKs speak nothing else without TLS. A connection of HTTP/2 has a hundred streams, and each may
	// keep its answer until its client reads.
	s.http.Protocols.SetHTTP1(true)
	return s, nil
}

// Handler returns the endpoint as an http.Handler, for other servers. It enforces the limits on
// bodies and on the time of the service, but not those on connections, headers and transfers.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

// Serve answers requests on the listener's connections, HTTP/1.1, until
// Shutdown. It closes the listener and returns nil after Shutdown, else the error of accepting.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(&limitedListener{Listener: l, open: s.connections, closed: make(chan struct{})})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and lets running requests finish. When ctx is done it cuts off the
// rest and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.stop() // ends requests that wait for memory
	if err != nil {
		s.http.Close()
	}
	return err
}
