package partition

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/manifest"
)

// held is a mutable memtable that is never freed.
func held() []*memory {
	m := new(memory)
	m.refs.Store(1)
	return []*memory{m}
}

func TestAReplacedStateLivesUntilItsLastPin(t *testing.T) {
	tree, alone := &Tree{env: &Env{}}, held()
	first := &version{meta: &manifest.Partition{}}
	first.refs.Store(1) // a reference of the test, so that nothing is freed
	tree.setState(newState(alone, first))
	second := &version{meta: &manifest.Partition{}}
	second.refs.Store(1)
	a, b := tree.pinStripe(1), tree.pinStripe(3)
	tree.replace(func(*state) *state { return newState(alone, second) })
	if c := tree.pinStripe(1); c.version != second {
		t.Fatal("pinned a state that was replaced")
	}
	for i, stripe := range []uint32{3, 1} {
		if n := first.refs.Load(); n != 2 {
			t.Fatalf("%d pins ended, and the version has %d references, want 2", i, n)
		}
		[]*state{b, a}[i].unpin(stripe)
	}
	if n := first.refs.Load(); n != 1 {
		t.Fatalf("all pins ended, and the version has %d references, want 1", n)
	}
}

// TestAPinThatComesTooLateDoesNotCount replaces the state after a reader has loaded it and
// before the reader pins it: its files and memtables may be gone.
func TestAPinThatComesTooLateDoesNotCount(t *testing.T) {
	r := newRig(t)
	r.put(key("p", 1), "c", 1, "v")
	seen := r.tree.state.Load()
	r.flush()
	if r.tree.tryPin(seen, 0) {
		t.Fatal("the pin of a state that was released counts")
	}
	s := r.tree.pin()
	if s == seen || s.released.Load() {
		t.Error("a released state was pinned")
	}
	s.unref()
}

func TestStatesAreReleasedOnceUnderConcurrentPins(t *testing.T) {
	tree, alone := &Tree{env: &Env{}}, held()
	const states = 20_000
	versions := make([]*version, states)
	for i := range versions {
		versions[i] = &version{meta: &manifest.Partition{}}
		versions[i].refs.Store(1)
	}
	tree.setState(newState(alone, versions[0]))
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for {
				select {
				case <-done:
					return
				default:
				}
				stripe := rng.Uint32N(pinStripes)
				s := tree.pinStripe(stripe)
				if n := s.version.refs.Load(); n != 2 {
					t.Errorf("a pinned version has %d references, want 2", n)
				}
				s.unpin(stripe)
			}
		})
	}
	for _, v := range versions[1:] {
		tree.replace(func(*state) *state { return newState(alone, v) })
	}
	close(done)
	readers.Wait()
	for i, v := range versions {
		want := int64(1)
		if i == states-1 {
			want = 2 // the tree's references
		}
		if n := v.refs.Load(); n != want {
			t.Errorf("version %d has %d references, want %d", i, n, want)
		}
	}
}
