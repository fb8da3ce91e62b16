package views_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// store is a state of the manifest that the test changes.
type store struct {
	t     *testing.T
	state *manifest.State
}

func newStore(t *testing.T) *store { return &store{t, manifest.NewState([16]byte{1})} }

func (s *store) edit(change func(e *manifest.Edit)) {
	s.t.Helper()
	var e manifest.Edit
	change(&e)
	next, err := s.state.Apply(&e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.state = next
}

func options(versions, ttl int64) manifest.TableOptions {
	return manifest.TableOptions{MaxVersions: versions, TTLSeconds: ttl, MaxVersionOffsetSeconds: 100}
}

// create makes the table with this id, which has one partition of the same id.
func (s *store) create(id uint64, o manifest.TableOptions) {
	s.t.Helper()
	s.edit(func(e *manifest.Edit) {
		e.Created = []*manifest.Table{{
			ID: id, Name: string(rune('a' + id)), Key: []manifest.KeyColumn{{Name: "k", Type: row.TypeInteger}}, Options: o,
			LargestOffset: o.MaxVersionOffsetSeconds, Watermark: manifest.NoWatermark, Partitions: []*manifest.Partition{{ID: id}},
		}}
	})
}

// alter replaces the options of table 1.
func alter(e *manifest.Edit, o manifest.TableOptions) {
	e.Altered = []manifest.Alteration{{Table: 1, Options: o}}
}

// watermark raises the watermark of table 1.
func (s *store) watermark(cutoff int64) {
	s.edit(func(e *manifest.Edit) { e.Watermarks = []manifest.Watermark{{Table: 1, Cutoff: cutoff}} })
}

// pin adds a moment.
func (s *store) pin(set *views.Set, seq uint64, millis int64) *views.Moment {
	m := new(views.Moment)
	set.Pin(m, func() views.Moment { return views.Moment{Seq: seq, Millis: millis, State: s.state} })
	return m
}

func TestAViewIsOfItsMoment(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(3, 60))
	m := s.pin(set, 7, 100_999)
	s.create(2, options(1, 60))
	s.edit(func(e *manifest.Edit) { alter(e, options(1, 10)) })
	if v, ok := m.View(1); !ok || v != (mvcc.View{Seq: 7, MaxVersions: 3, Cutoff: 40}) {
		t.Errorf("%+v, %v", v, ok)
	}
	if _, ok := m.View(2); ok {
		t.Error("a table is seen that did not exist")
	}
	s.watermark(95)
	if v := views.Of(s.state.Table(1), 9, 100_999); v != (mvcc.View{Seq: 9, MaxVersions: 1, Cutoff: 95}) {
		t.Errorf("what was dropped is seen: %+v", v)
	}
}

func TestAPolicyKeepsWhatSnapshotsSee(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(2, manifest.NeverExpires))
	late, early := s.pin(set, 9, 0), s.pin(set, 5, 0)
	s.create(2, options(1, manifest.NeverExpires))
	s.edit(func(e *manifest.Edit) { alter(e, options(4, manifest.NeverExpires)) })
	latest := mvcc.View{Seq: views.Latest, MaxVersions: 4, Cutoff: manifest.NoWatermark}
	seen := func(seq uint64) mvcc.View {
		return mvcc.View{Seq: seq, MaxVersions: 2, Cutoff: max(mvcc.NoExpiry, manifest.NoWatermark)}
	}
	for _, c := range []struct {
		what string
		do   func()
		want []mvcc.View
	}{
		{"with two snapshots", func() {}, []mvcc.View{seen(5), seen(9), latest}},
		{"with the late one", func() { set.Unpin(early) }, []mvcc.View{seen(9), latest}},
		{"without any", func() { set.Unpin(late) }, []mvcc.View{latest}},
	} {
		c.do()
		if got := set.Policy(1); !slices.Equal(got.Views, c.want) || got.ExpiryCutoff != manifest.NoWatermark || set.Len() != len(c.want)-1 {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		if got := set.Policy(2); len(got.Views) != 1 {
			t.Errorf("%s: a table that is younger than the snapshots has %+v", c.what, got)
		}
	}
	if got := set.Policy(77); len(got.Views) != 1 || got.ExpiryCutoff != mvcc.NoExpiry {
		t.Errorf("a table that was dropped has %+v", got)
	}
}

// TestAPolicyWaitsForAPin: a compaction that asks while the moment is being read must keep what the
// moment shows.
func TestAPolicyWaitsForAPin(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(2, manifest.NeverExpires))
	asked, policy := make(chan struct{}), make(chan mvcc.Policy, 1)
	var m views.Moment
	set.Pin(&m, func() views.Moment {
		go func() {
			close(asked)
			policy <- set.Policy(1)
		}()
		<-asked
		for range 1000 { // time to get an answer too early
			runtime.Gosched()
		}
		return views.Moment{Seq: 5, State: s.state}
	})
	if got := <-policy; len(got.Views) != 2 || got.Views[0].Seq != 5 {
		t.Errorf("%+v", got.Views)
	}
}

func TestEnoughVersionsAreKept(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(3, manifest.NeverExpires))
	lower := func(versions, before int64, lastSeq uint64) {
		s.edit(func(e *manifest.Edit) {
			alter(e, options(versions, manifest.NeverExpires))
			if before > 0 {
				limit := manifest.PastLimit{MaxVersions: before, LastSeq: lastSeq}
				e.PastLimits = []manifest.TableLimit{{Table: 1, PastLimit: limit}}
			}
		})
	}
	want := func(what string, seq uint64, want int) {
		t.Helper()
		if got := set.MaxVersions(1, seq); got != want {
			t.Errorf("%s: from %d on %d versions are kept, want %d", what, seq, got, want)
		}
	}
	want("at first", 1, 3)
	m := s.pin(set, 4, 0)
	lower(1, 3, 4)
	want("with a snapshot", 5, 3)
	set.Unpin(m)
	want("with a delete under the old limit", 4, 3)
	want("above the old limit", 5, 1)
	lower(5, 0, 0)
	want("with a larger limit", 1, 5)
	if got := set.MaxVersions(77, 0); got != 0 {
		t.Errorf("of a table that was dropped %d versions are kept", got)
	}
}

func TestTheHorizonHasOnlyExpiredPuts(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(1, 60)) // versions are at most 100 s ahead
	for i := range uint64(10) {
		s.edit(func(e *manifest.Edit) {
			e.LastSeq = 10 * (i + 1)
			e.SeqTimes = []manifest.SeqTime{{Seq: e.LastSeq, Millis: int64(i) * 1_000_000}} // all up to here was written by then
		})
	}
	for _, c := range []struct {
		watermark int64
		horizon   uint64
	}{{50, 0}, {99, 0}, {100, 10}, {1099, 10}, {1100, 20}, {5100, 60}, {1 << 40, 100}, {1 << 62, 0}} {
		s.watermark(c.watermark)
		if got := set.Policy(1).TombstoneHorizon; got != c.horizon {
			t.Errorf("with the watermark %d it is %d, want %d", c.watermark, got, c.horizon)
		}
	}
}

func TestAPinnedMomentIsInEveryLaterPolicy(t *testing.T) {
	s := newStore(t)
	set := views.NewSet(func() *manifest.State { return s.state })
	s.create(1, options(1, manifest.NeverExpires))
	var group sync.WaitGroup
	for seq := range uint64(4) {
		group.Go(func() {
			for range 1000 {
				m := s.pin(set, seq, 0)
				if got := set.Policy(1).Views; !slices.ContainsFunc(got, func(v mvcc.View) bool { return v.Seq == seq }) {
					t.Errorf("%+v misses %d", got, seq)
				}
				set.Unpin(m)
			}
		})
	}
	group.Wait()
	if set.Len() != 0 {
		t.Errorf("%d moments are left", set.Len())
	}
}
