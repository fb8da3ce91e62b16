// Package flagstonetest gives a test of a program its own Table Store endpoint: in memory, within the process, with a clock
// that the test moves and faults that it injects, and gone when the test ends.
//
//	srv := flagstonetest.New(t)
//	client := tablestore.NewClient(srv.Endpoint, srv.Instance, srv.AccessKeyID, srv.AccessKeySecret)
//
// Servers are independent, so tests can run side by side, each with its own. docs/testing.md says more.
package flagstonetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server"
	"github.com/flagstone-db/flagstone/server/control"
	"github.com/flagstone-db/flagstone/server/faults"
)

// Options say how a server is. The zero value is a good start.
type Options struct {
	// Instances are the names of its instances; "test" if there are none.
	Instances []string
	// Limits apply to requests. The zero value stands for those of the documentation.
	Limits ots.Limits
	// Logger receives failures, and requests at level debug. Nil discards.
	Logger *slog.Logger
}

// Server is a running endpoint. Its methods are safe for concurrent use.
type Server struct {
	// Endpoint is its address, such as http://127.0.0.1:40001.
	Endpoint string
	// Instance is the first of its instances.
	Instance string
	// AccessKeyID and AccessKeySecret open all instances.
	AccessKeyID, AccessKeySecret string
	// Clock is what time it is for the data: expiry and versions follow it.
	Clock Clock
	// Faults makes requests fail.
	Faults *faults.Injector

	opts   Options
	http   http.Server
	served chan error // what Serve returned

	requests sync.RWMutex // held for reading by each request, and for writing by Reset
	present  present

	mu     sync.Mutex // of Reset and Close
	closed bool
}

// present is what Reset replaces.
type present struct {
	store   *flagstone.Store
	handler http.Handler
}

// A store of a test is small, so that a hundred of them fit into a process.
const (
	memtables = 16 << 20
	cache     = 8 << 20
)

// requestLimit is how long a client may take to send a request.
const requestLimit = 30 * time.Second

// New starts a server with one instance, which ends with the test. It fails the test if that is not possible.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a server for callers that have no testing.TB at hand, as in TestMain. The caller closes it. It fails if an
// option is invalid, or if no port of 127.0.0.1 is free.
func Start(opts Options) (*Server, error) {
	if len(opts.Instances) == 0 {
		opts.Instances = []string{"test"}
	}
	s := &Server{
		Instance: opts.Instances[0], AccessKeyID: "test-" + rand.Text(), AccessKeySecret: rand.Text(),
		Clock: Clock{clock.NewShifted(clock.System())}, Faults: new(faults.Injector), opts: opts, served: make(chan error, 1),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("flagstonetest: %w", err)
	}
	if s.present, err = s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("flagstonetest: %w", err), listener.Close())
	}
	s.Endpoint = "http://" + listener.Addr().String()
	s.http.Handler, s.http.ReadTimeout = http.HandlerFunc(s.serve), requestLimit
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// serve answers a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.RLock()
	defer s.requests.RUnlock()
	s.present.handler.ServeHTTP(w, r)
}

// open makes an empty store in memory, and what answers requests to it.
func (s *Server) open() (p present, err error) {
	opts := flagstone.Options{Sync: flagstone.SyncNone, MemoryBudget: memtables, CacheSize: cache, Logger: s.opts.Logger}
	opts.Seams.FS, opts.Seams.Clock = vfs.NewSim(vfs.SimOptions{}), s.Clock.of
	if p.store, err = flagstone.Open("/", opts); err != nil {
		return p, err
	}
	engine, err := ots.New(p.store, ots.Options{Instances: s.opts.Instances, Type: ots.HighPerformance, Limits: s.opts.Limits, Logger: s.opts.Logger})
	if err != nil {
		return p, errors.Join(err, p.store.Close())
	}
	endpoint, err := server.New(server.Config{
		Instances: func(name string) (ots.Service, string, bool) { return engine, name, engine.HasInstance(name) },
		Credentials: func(id string) (server.AccessKey, bool) {
			return server.AccessKey{Secret: s.AccessKeySecret}, id == s.AccessKeyID
		},
		Now: time.Now, Faults: s.Faults, Control: control.Handler(s.Clock.of, s.Faults, nil), Logger: s.opts.Logger,
	})
	if err != nil {
		return p, errors.Join(err, p.store.Close())
	}
	p.handler = endpoint.Handler()
	return p, nil
}

// Reset makes the server as it was when it started: without tables, on the machine's time, without faults. Endpoint,
// access key and connections stay. It waits for requests that are under way, and requests that come meanwhile wait for it.
func (s *Server) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("flagstonetest: the server is closed")
	}
	s.requests.Lock()
	defer s.requests.Unlock()
	s.Faults.Clear()
	s.Clock.Reset()
	fresh, err := s.open()
	if err != nil {
		return fmt.Errorf("flagstonetest: %w", err)
	}
	old := s.present
	s.present = fresh
	return old.store.Close()
}

// Close stops the server, cuts off requests that are under way, and forgets its data. It can be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	// Shutdown would wait five seconds for connections on which a client has sent nothing yet, as SDKs have.
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.requests.Lock() // their contexts have ended
	defer s.requests.Unlock()
	return errors.Join(err, s.present.store.Close())
}

// Clock is the time that the data of a server live by. What was written under a clock that was ahead keeps versions that
// are ahead, until Reset.
type Clock struct{ of *clock.Shifted }

// Now is what the clock shows, to the millisecond.
func (c Clock) Now() time.Time { return time.UnixMilli(c.of.NowMillis()) }

// Advance moves it, backward if d is negative. It shows times from 1970 to 2261; others are an error.
func (c Clock) Advance(d time.Duration) error {
	if err := control.AllowedTime(c.Now().Add(d)); err != nil {
		return err
	}
	c.of.Advance(d)
	return nil
}

// Set makes it show t; it goes on from there. Errors are those of Advance.
func (c Clock) Set(t time.Time) error {
	if err := control.AllowedTime(t); err != nil {
		return err
	}
	c.of.SetWall(t.UnixMilli())
	return nil
}

// Reset makes it show the machine's time.
func (c Clock) Reset() { c.of.Reset() }
