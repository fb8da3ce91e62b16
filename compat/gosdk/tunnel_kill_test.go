package gosdk_test

// This file consumes a table through tunnels while all goes wrong: partitions are split and merged,
// a worker dies without a word, and the server is killed.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tunnel"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const (
	tunnelKeys    = 32 // partition keys
	tunnelRows    = 32 // of each
	tunnelWriters = 4  // each has rows of its own
)

// frontDoor is the address of a server that is started again and again. While there is none,
// connections end as those of a dead server do.
type frontDoor struct {
	*httptest.Server
	to atomic.Pointer[url.URL]
}

func newFrontDoor(t *testing.T) *frontDoor {
	d := new(frontDoor)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(d.to.Load()) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler)
		},
	}
	d.Server = httptest.NewServer(proxy)
	t.Cleanup(d.Close)
	return d
}

// mortal is the network of a worker, until it dies.
type mortal struct {
	http.RoundTripper
	dead atomic.Bool
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errors.New("the worker is dead")
	}
	return m.RoundTripper.RoundTrip(r)
}

// wreck is the state of the test.
type wreck struct {
	t     *testing.T
	dir   string
	table string
	door  *frontDoor

	mu       sync.Mutex
	server   *endpoint.Server
	counters [tunnelKeys][tunnelRows]int64 // changes of each row; each has one writer
	written  atomic.Int64
	restarts atomic.Int64
}

func (w *wreck) start() {
	s, err := command.Start(w.dir, "--log-level", "error", "--memtable-size", "256KiB", "--memory-budget", "8MiB", "--partition-split-size", "1TiB")
	if err != nil {
		w.t.Error(err)
		return
	}
	to, err := url.Parse(s.URL)
	if err != nil {
		w.t.Error(err)
	}
	w.server = s
	w.door.to.Store(to)
}

// kill kills the server and starts it again.
func (w *wreck) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server.Kill()
	w.start()
	w.restarts.Add(1)
}

// write makes changes, in batches, until so many were made. A batch that failed is made again, as
// its outcome is unknown.
func (w *wreck) write(writer, changes int, seed uint64) {
	c := ots.NewClient(w.door.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret)
	rng := rand.New(rand.NewPCG(seed, uint64(writer)))
	for made := 0; made < changes; {
		batch := new(ots.BatchWriteRowRequest)
		picked := map[[2]int]bool{}
		for len(picked) < min(200, changes-made) {
			p, r := rng.IntN(tunnelKeys), rng.IntN(tunnelRows)
			if p%tunnelWriters != writer || picked[[2]int{p, r}] {
				continue
			}
			picked[[2]int{p, r}] = true
			batch.AddRowChange(put(w.table, tunnelKey(p, r), "c", w.counters[p][r]+1))
		}
		for !w.sent(c, batch) { // what was written of it is written again: a repeated record, no gap
		}
		for at := range picked {
			w.counters[at[0]][at[1]]++
		}
		made += len(picked)
		w.written.Add(int64(len(picked)))
	}
}

// sent sends a batch, and reports whether all of it was written.
func (w *wreck) sent(c *ots.TableStoreClient, batch *ots.BatchWriteRowRequest) bool {
	r, err := c.BatchWriteRow(batch)
	if err != nil {
		return false
	}
	for _, rows := range r.TableToRowsResult {
		for _, row := range rows {
			if !row.IsSucceed {
				return false
			}
		}
	}
	return true
}

func tunnelKey(p, r int) *ots.PrimaryKey { return key("s", fmt.Sprintf("p%02d", p), "i", r) }

// replace splits and merges partitions until stop.
func (w *wreck) replace(seed uint64, stop <-chan struct{}) (done int) {
	rng := rand.New(rand.NewPCG(seed, 1000))
	cuts := map[int]bool{}
	for {
		select {
		case <-stop:
			return done
		default:
		}
		at := rng.IntN(tunnelKeys)
		what := "split"
		if cuts[at] {
			what = "merge"
		}
		w.mu.Lock() // a server runs
		result, err := command.Run(nil, "partition", what, "--dir", w.dir, w.table, fmt.Sprintf("p%02d", at))
		w.mu.Unlock()
		if err != nil {
			w.t.Error(err)
			return done
		}
		if result.Status == 0 {
			cuts[at] = what == "split"
			done++
		}
	}
}

// TestTunnelsLoseNothing writes FLAGSTONE_TUNNEL_CHANGES changes while two workers consume a tunnel of
// the changes, and two others one of the base and the changes. Partitions are split and merged
// meanwhile, one worker of each tunnel dies, and the server is killed FLAGSTONE_TUNNEL_KILLS times.
func TestTunnelsLoseNothing(t *testing.T) {
	changes := int(setting(t, "FLAGSTONE_TUNNEL_CHANGES", 20_000))
	kills := int(setting(t, "FLAGSTONE_TUNNEL_KILLS", 3))
	seed := setting(t, "FLAGSTONE_SEED", rand.Uint64())
	t.Logf("FLAGSTONE_SEED=%d", seed)
	retry := tunnel.DaemonRandomRetryMs
	tunnel.DaemonRandomRetryMs = 100
	t.Cleanup(func() { tunnel.DaemonRandomRetryMs = retry })
	w := &wreck{t: t, dir: keptIfFailed(t), table: "wreck", door: newFrontDoor(t)}
	w.start()
	t.Cleanup(func() { w.server.Kill() })
	if _, err := connect(w.server).CreateTable(table{}.request(w.table, "s", "i")); err != nil {
		t.Fatal(err)
	}
	c := tunnelClient(w.door.URL, http.DefaultTransport)
	stream := newTunnel(t, c, w.table, "stream", tunnel.TunnelTypeStream, nil)
	before := changes / 10
	for writer := range tunnelWriters { // what the base has
		w.write(writer, before/tunnelWriters, seed)
	}
	both := newTunnel(t, c, w.table, "both", tunnel.TunnelTypeBaseStream, nil)

	sinks := map[string]*sink{stream: newSink(), both: newSink()}
	var doomed []*mortal
	for id, s := range sinks {
		s.about = func() string { return w.describe(c, s) }
		work(t, c, id, s.take)
		m := &mortal{RoundTripper: new(http.Transport)}
		doomed = append(doomed, m)
		work(t, tunnelClient(w.door.URL, m), id, s.take)
	}
	began := time.Now()
	var writers, breakers sync.WaitGroup
	for writer := range tunnelWriters {
		writers.Go(func() { w.write(writer, (changes-before)/tunnelWriters, seed+1) })
	}
	stop := make(chan struct{})
	replaced := 0
	breakers.Go(func() { replaced = w.replace(seed, stop) })
	breakers.Go(func() { w.breakAll(sinks[stream], doomed, kills, changes) })
	writers.Wait()
	close(stop)
	breakers.Wait()
	for id, s := range sinks {
		name := map[string]string{stream: "stream", both: "both"}[id]
		s.wait(t, name, func() bool { return w.all(s) })
		s.mu.Lock()
		t.Logf("%s: %d records, %d of them repeated", name, s.records, s.again)
		s.mu.Unlock()
	}
	took := time.Since(began)
	t.Logf("%d changes written, %d splits and merges, %d kills; all of it consumed twice after %v, %.0f changes/s",
		w.written.Load(), replaced, w.restarts.Load(), took, float64(w.written.Load())/took.Seconds())
	if replaced == 0 || int(w.restarts.Load()) != kills {
		t.Error("too little went wrong")
	}
}

// describe tells the state of the tunnels, and what a sink misses. REQUIRES: the sink is locked.
func (w *wreck) describe(c tunnel.TunnelClient, s *sink) (text string) {
	for _, name := range []string{"stream", "both"} {
		d, err := c.DescribeTunnel(&tunnel.DescribeTunnelRequest{TableName: w.table, TunnelName: name})
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintf("%s: %+v\n", name, d.Tunnel)
		for _, ch := range d.Channels {
			text += fmt.Sprintf("\t%+v\n", *ch)
		}
	}
	for p := range tunnelKeys {
		for r, n := range w.counters[p] {
			if last := s.last[fmt.Sprintf("p%02d/%d", p, r)]; last != n {
				text += fmt.Sprintf("p%02d/%d is at %d of %d\n", p, r, last, n)
			}
		}
	}
	return text + w.server.Log()
}

// breakAll kills the server, and halfway two workers, as the changes go on.
func (w *wreck) breakAll(s *sink, doomed []*mortal, kills, changes int) {
	limit := time.After(tunnelLimit * 4)
	for step := range kills {
		for s.taken() < (step+1)*changes/(kills+2) {
			select {
			case <-s.changed:
			case <-limit:
				w.t.Error("the workers take too little")
				return
			}
		}
		if step == kills/2 {
			for _, m := range doomed {
				m.dead.Store(true)
			}
		}
		w.kill()
	}
}

// taken is the number of changes that came for the first time.
func (s *sink) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records - s.again
}

// all reports whether the sink has the latest change of each row. REQUIRES: nothing writes, and the
// sink is locked.
func (w *wreck) all(s *sink) bool {
	for p := range tunnelKeys {
		for r, n := range w.counters[p] {
			if n > 0 && s.last[fmt.Sprintf("p%02d/%d", p, r)] != n {
				return false
			}
		}
	}
	return true
}
