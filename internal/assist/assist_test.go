package assist_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/assist/assisttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work counts how often it was done, and can be held up.
type work struct {
	assist.Task
	times atomic.Int32
	begun chan struct{} // if not nil, Do closes it when it begins,
	hold  chan struct{} // and then waits for this
}

func (w *work) Do() {
	if w.begun != nil {
		close(w.begun)
		<-w.hold
	}
	w.times.Add(1)
}

func held() *work { return &work{begun: make(chan struct{}), hold: make(chan struct{})} }

func helpers(t *testing.T, limit int) (*assist.Helpers, *assist.Stream) {
	h := assist.New(limit)
	t.Cleanup(h.Close)
	s := new(assist.Stream)
	s.Use(h)
	return h, s
}

// collect ends an offer and does the work if no helper did.
func collect(s *assist.Stream, w *work) {
	if !s.Collect(&w.Task) {
		w.Do()
	}
}

func TestAHelperDoesWhatIsOffered(t *testing.T) {
	_, s := helpers(t, 1)
	w := held()
	if !s.Offer(&w.Task, w) {
		t.Fatal("refused")
	}
	<-w.begun
	if !w.Underway() {
		t.Error("not under way")
	}
	go close(w.hold)
	if !s.Collect(&w.Task) || w.times.Load() != 1 || w.Underway() {
		t.Error("the helper's work was not waited for")
	}
	if s.Collect(&w.Task) {
		t.Error("collected twice")
	}
}

func TestWhatNoHelperBeganIsItsOwners(t *testing.T) {
	_, s := helpers(t, 1)
	busy, other := held(), new(work)
	s.Offer(&busy.Task, busy)
	<-busy.begun
	s.Offer(&other.Task, other) // the only helper is at work
	if s.Collect(&other.Task) || other.times.Load() != 0 {
		t.Error("somebody did it")
	}
	// It may be offered again, and is then in the queue twice.
	s.Offer(&other.Task, other)
	close(busy.hold)
	for other.times.Load() == 0 {
		runtime.Gosched()
	}
	if !s.Collect(&other.Task) || other.times.Load() != 1 {
		t.Error("not done once")
	}
	collect(s, busy)
}

func TestNoMoreHelpersThanTheLimit(t *testing.T) {
	_, s := helpers(t, 2)
	all := []*work{held(), held(), held()}
	for _, w := range all {
		s.Offer(&w.Task, w)
	}
	<-all[0].begun
	<-all[1].begun
	if s.Collect(&all[2].Task) {
		t.Error("a third helper")
	}
	for _, w := range all[:2] {
		close(w.hold)
		if !s.Collect(&w.Task) {
			t.Error("not helped")
		}
	}
}

func TestCloseWaitsForWorkUnderwayAndLeavesTheRest(t *testing.T) {
	h, s := helpers(t, 1)
	first, second := held(), new(work)
	s.Offer(&first.Task, first)
	<-first.begun
	s.Offer(&second.Task, second)
	closed := make(chan struct{})
	go func() {
		h.Close()
		if first.times.Load() != 1 {
			t.Error("closed before the work ended")
		}
		close(closed)
	}()
	for !h.Closed() {
		runtime.Gosched()
	}
	third := new(work)
	if s.Offer(&third.Task, third) {
		t.Error("an offer after Close")
	}
	close(first.hold)
	<-closed
	if s.Collect(&second.Task) || !s.Collect(&first.Task) || second.times.Load()+third.times.Load() != 0 {
		t.Error("work was begun after Close")
	}
	h.Close()
}

func TestNobodyIsOfferedAnything(t *testing.T) {
	var s assist.Stream
	w := new(work)
	if s.Willing() || s.Offer(&w.Task, w) || s.Collect(&w.Task) {
		t.Error("an offer to nobody")
	}
	s.Use(nil)
	(*assist.Helpers)(nil).Close()
	if s.Offer(&w.Task, w) {
		t.Error("an offer to nil")
	}
	h := assist.New(0)
	defer h.Close()
	if s.Use(h); s.Willing() || s.Offer(&w.Task, w) {
		t.Error("an offer where there is no other processor")
	}
}

// While no helper comes, offers become rare; when one comes, they become common again.
func TestOffersInVainBecomeRare(t *testing.T) {
	come := false
	h := assisttest.NewManual(func() bool { return come })
	defer h.Close()
	var s assist.Stream
	s.Use(h)
	made := func(of int) (n int) {
		for range of {
			var w work
			if s.Offer(&w.Task, &w) {
				n++
			}
			if collect(&s, &w); w.times.Load() != 1 {
				t.Fatalf("done %d times", w.times.Load())
			}
		}
		return n
	}
	first, later := made(100), made(10_000)
	if first < 32 || first > 50 || later > 400 || later == 0 {
		t.Errorf("%d of 100 and then %d of 10,000 offers were made in vain", first, later)
	}
	come = true
	made(5_000) // the longest pause
	if n := made(1000); n != 1000 {
		t.Errorf("helpers come, but only %d of 1,000 offers are made", n)
	}
}

func TestCancelledOffersAreNotInVain(t *testing.T) {
	h := assisttest.NewManual(func() bool { return false })
	defer h.Close()
	var s assist.Stream
	s.Use(h)
	for range 1000 {
		var w work
		if !s.Offer(&w.Task, &w) {
			t.Fatal("not made")
		}
		s.Cancel(&w.Task)
	}
}

func TestOffersAllocateNothing(t *testing.T) {
	_, s := helpers(t, 1)
	var all [8]work
	each := func() {
		for i := range all {
			s.Offer(&all[i].Task, &all[i])
		}
		for i := range all {
			collect(s, &all[i])
		}
	}
	for range 1000 {
		each() // until every task was waited for, maybe
	}
	if n := testing.AllocsPerRun(1000, each); n >= 1 {
		t.Errorf("%v allocations for 8 offers", n)
	}
}

// Many owners offer, collect and cancel at random. Each piece is done once or, if it was
// cancelled, at most once and never afterwards.
func TestOwnersInAStorm(t *testing.T) {
	for _, limit := range []int{1, 3} {
		h := assist.New(limit)
		var owners sync.WaitGroup
		for seed := range uint64(6) {
			owners.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 1))
				var s assist.Stream
				s.Use(h)
				var all [10]work
				var want [10]int32
				for range 5000 {
					i := rng.IntN(len(all))
					w := &all[i]
					switch rng.IntN(5) {
					case 0:
						s.Cancel(&w.Task)
						want[i] = w.times.Load()
					case 1:
						runtime.Gosched()
					default:
						if collect(&s, w); want[i] >= 0 && w.times.Load() > want[i]+1 {
							t.Errorf("seed %d: done twice", seed)
						}
						want[i] = w.times.Load()
						s.Offer(&w.Task, w)
					}
				}
				for i := range all {
					s.Cancel(&all[i].Task)
				}
			})
		}
		owners.Wait()
		h.Close()
	}
}

// piece stands for 20 us of work.
type piece struct {
	assist.Task
	sum uint64
	_   [64]byte
}

func (p *piece) Do() {
	sum := p.sum
	for i := range uint64(20_000) {
		sum += i * sum
	}
	p.sum = sum
}

// Eight pieces at a time, alone and with helpers.
func BenchmarkOffers(b *testing.B) {
	for name, limit := range map[string]int{"alone": 0, "helped": runtime.GOMAXPROCS(0) - 1} {
		b.Run(name, func(b *testing.B) {
			h := assist.New(limit)
			defer h.Close()
			var s assist.Stream
			s.Use(h)
			var all [8]piece
			b.ReportAllocs()
			helped := 0
			for b.Loop() {
				for i := range all {
					s.Offer(&all[i].Task, &all[i])
				}
				for i := range all {
					if s.Collect(&all[i].Task) {
						helped++
					} else {
						all[i].Do()
					}
				}
			}
			b.ReportMetric(float64(helped)/float64(8*b.N), "helped/piece")
		})
	}
}

// panics is work that panics.
type panics struct{ assist.Task }

func (*panics) Do() { panic("broken") }

func TestAPanicIsTheOwners(t *testing.T) {
	h, s := helpers(t, 1)
	w := new(panics)
	for range 3 { // the helper survives
		s.Offer(&w.Task, w)
		for w.Waiting() || w.Underway() {
			runtime.Gosched()
		}
		func() {
			defer func() {
				if p, ok := recover().(*assist.Panic); !ok || p.Value != "broken" || len(p.Stack) == 0 {
					t.Errorf("recovered %v", p)
				}
			}()
			s.Collect(&w.Task)
		}()
		if s.Collect(&w.Task) {
			t.Error("collected twice")
		}
	}
	s.Offer(&w.Task, w)
	s.Cancel(&w.Task) // not needed any more
	sound := new(work)
	s.Offer(&sound.Task, sound)
	collect(s, sound)
	h.Close()
	if sound.times.Load() != 1 {
		t.Error("not done once")
	}
}
