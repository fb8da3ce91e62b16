package tunnel

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// This file plays a random game with tunnels: workers read, die and come late, while shards split and
// merge and the server restarts.

// worker is a client as the SDK's: it reads its channels, reports, and obeys.
type worker struct {
	id    string
	holds map[string]*holding
	old   map[string]*holding // channels that it had before they were opened again; some requests are late
}

func newWorker(id string) *worker { return &worker{id, map[string]*holding{}, map[string]*holding{}} }

type holding struct {
	report   Report
	token    Token
	sequence int64
	read     bool
}

// TestNothingIsLostWhateverHappens lets random workers consume a tunnel while shards split and
// merge, answers are lost, workers die and the server restarts. Each number of each channel is
// delivered, in order, and none after a checkpoint behind it.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	for range 150 {
		seed := rand.Uint64()
		g := &game{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), w: newWorld(3, 2), delivered: map[string]uint64{}, noted: map[string]uint64{}}
		g.play()
	}
}

type game struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	w         *world
	tunnel    *Tunnel
	workers   []*worker
	dead      []*worker         // whose late requests still come
	late      *worker           // acts while another reads
	delivered map[string]uint64 // by channel: the record that came last
	noted     map[string]uint64 // checkpoints
}

func (g *game) play() {
	g.tunnel = g.w.open(g.t, BaseAndStream)
	nextShard := uint64(3)
	for step := range 4000 {
		if len(g.workers) == 0 || len(g.workers) < 4 && g.rng.IntN(100) == 0 {
			if id, err := g.tunnel.Connect(context.Background(), 5); err == nil {
				g.workers = append(g.workers, newWorker(id))
			}
		}
		i := g.rng.IntN(len(g.workers))
		switch n := g.rng.IntN(1000); {
		case n < 5 && step < 3000:
			g.dead = append(g.dead, g.workers[i]) // to the others it is dead, but its requests come late
			g.workers = slices.Delete(g.workers, i, i+1)
		case n < 20 && len(g.dead) > 0:
			w := g.dead[g.rng.IntN(len(g.dead))]
			if g.rng.IntN(4) == 0 {
				g.beat(w)
			} else if g.rng.IntN(3) == 0 {
				g.late = w
			} else {
				g.step(w)
			}
		case n < 8 && step < 3000:
			g.tunnel = g.w.open(g.t, BaseAndStream)
		case n < 32 && len(g.w.shards) < 12:
			nextShard = g.split(nextShard)
		case n < 60:
			g.w.now += int64(g.rng.IntN(1500))
		case n < 300:
			g.heartbeat(i)
		default:
			g.step(g.workers[i])
		}
	}
	for !g.finished() { // all in turn
		g.w.now += 100
		if g.w.now > 4_000_000 {
			g.t.Fatalf("seed %d: never ends: %v", g.seed, g.delivered)
		}
		if len(g.workers) == 0 {
			g.workers = append(g.workers, newWorker(connect(g.t, g.tunnel, 5)))
		}
		for i := len(g.workers) - 1; i >= 0; i-- {
			w := g.workers[i]
			for range 30 {
				g.step(w)
			}
			g.heartbeat(i)
		}
	}
}

// split ends one or two shards that nothing follows yet.
func (g *game) split(next uint64) uint64 {
	var open []uint64
	for _, s := range g.w.shards {
		if g.w.ends[s.ID] == 0 {
			open = append(open, s.ID)
		}
	}
	parents := []uint64{open[g.rng.IntN(len(open))]}
	children := 2
	if other := open[g.rng.IntN(len(open))]; other != parents[0] {
		parents, children = append(parents, other), 1
	}
	for _, p := range parents {
		g.w.ends[p] = uint64(50 + g.rng.IntN(10))
	}
	for range children {
		g.w.shards = append(g.w.shards, Shard{next, parents})
		next++
	}
	return next
}

// finished reports whether all that there is was delivered.
func (g *game) finished() bool {
	for _, s := range g.w.shards {
		last := g.w.ends[s.ID]
		if g.delivered[StreamID(s.ID)] < max(last, 50) {
			return false
		}
	}
	return true
}

// step lets a worker read a page, or write a checkpoint.
func (g *game) step(w *worker) {
	if names := slices.Sorted(maps.Keys(w.old)); len(names) > 0 && g.rng.IntN(10) == 0 {
		name := names[g.rng.IntN(len(names))]
		g.use(w, name, w.old[name])
		delete(w.old, name)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.holds)) {
		h := w.holds[name]
		if h.report.Status != Open || g.rng.IntN(3) == 0 {
			continue
		}
		g.use(w, name, h)
		return
	}
}

func (g *game) use(w *worker, name string, h *holding) {
	ctx := context.Background()
	var err error
	switch {
	case !h.read:
		h.token, h.sequence, err = g.tunnel.GetCheckpoint(ctx, w.id, name)
		h.read = err == nil
	case g.rng.IntN(4) == 0 && h.token.Position != nil:
		if err = g.tunnel.Checkpoint(ctx, w.id, name, h.token, h.sequence+1); err == nil {
			h.sequence++
			at, _, _ := g.tunnel.Spec.position(name, h.token.Position)
			g.noted[name] = max(g.noted[name], at.After)
		} else if errors.Is(err, ErrSequence) {
			_, h.sequence, err = g.tunnel.GetCheckpoint(ctx, w.id, name)
		}
	case h.token.Finished:
		if g.rng.IntN(2) == 0 { // the SDK may report the end without a checkpoint
			err = g.tunnel.Checkpoint(ctx, w.id, name, h.token, h.sequence+1)
		}
		h.report = Report{name, h.report.Version + 1, Terminated}
	default:
		err = g.read(w, name, h)
	}
	if err != nil { // the channel closes, and says so
		h.report = Report{name, h.report.Version + 1, Closed}
	}
}

func (g *game) read(w *worker, name string, h *holding) error {
	ctx := context.Background()
	r, err := g.tunnel.Read(ctx, w.id, name, h.token)
	if err != nil {
		return err
	}
	if g.late != nil { // something comes between
		g.step(g.late)
		g.late = nil
	}
	for _, p := range r.Channel.Parents {
		if g.delivered[StreamID(p)] < g.w.ends[p] {
			g.t.Fatalf("seed %d: shard %d is read before its parent %d", g.seed, r.Channel.Shard, p)
		}
	}
	numbers, page := g.w.read(r)
	if h.token, err = g.tunnel.FinishRead(ctx, r, page); err != nil {
		return err
	}
	for _, n := range numbers {
		// A record is delivered again only together with all that follow it.
		if n > g.delivered[name]+1 || n <= g.noted[name] {
			g.t.Fatalf("seed %d: %s delivers %d after %d, checkpoint %d", g.seed, name, n, g.delivered[name], g.noted[name])
		}
		g.delivered[name] = n
	}
	return nil
}

// heartbeat sends the i-th worker's heartbeat; its answer may be lost. A worker that is refused ends.
func (g *game) heartbeat(i int) {
	if !g.beat(g.workers[i]) {
		g.workers = slices.Delete(g.workers, i, i+1)
	}
}

// beat sends a worker's heartbeat. It reports false if the worker has to end.
func (g *game) beat(w *worker) bool {
	var reports []Report
	for _, name := range slices.Sorted(maps.Keys(w.holds)) {
		reports = append(reports, w.holds[name].report)
	}
	answer, err := g.tunnel.Heartbeat(context.Background(), w.id, reports)
	if err != nil {
		if !errors.Is(err, ErrGone) {
			g.t.Fatalf("seed %d: %v", g.seed, err)
		}
		return false
	}
	if g.rng.IntN(10) == 0 {
		return true
	}
	holds := map[string]*holding{}
	for _, r := range answer {
		h := w.holds[r.Channel]
		switch {
		case h == nil || r.Version > h.report.Version && r.Status == Open:
			if h != nil && h.read {
				w.old[r.Channel] = h
			}
			h = &holding{report: r}
		case r.Version >= h.report.Version && r.Status == Closing:
			h.report = Report{r.Channel, r.Version + 1, Closed}
		}
		holds[r.Channel] = h
	}
	w.holds = holds
	return true
}
