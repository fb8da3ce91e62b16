package spread

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

var (
	errHeld   = errors.New("held")
	errNever  = errors.New("never")
	errBroken = errors.New("broken")
	errClosed = errors.New("closed")
)

// store takes changes of rows: numbers, which are written in the order in which they came.
type store struct {
	mu      sync.Mutex
	rng     *rand.Rand
	rows    map[int][]int
	largest int
	write   func(changes []change) error // says what happens to a write
	wait    func() error
	synced  atomic.Int32
}

// change is the n-th of a row.
type change struct{ row, n int }

// batch implements Batch.
type batch struct {
	store   *store
	changes []change
}

func (b *batch) Len() int        { return len(b.changes) }
func (b *batch) Reset()          { b.changes = b.changes[:0] }
func (b *batch) Bytes(int) int64 { return 1000 }
func (b *batch) add(c change) bool {
	if slices.ContainsFunc(b.changes, func(o change) bool { return o.row == c.row }) {
		return false
	}
	b.changes = append(b.changes, c)
	return true
}

func (b *batch) Write(ctx context.Context, from, to int) (Commit, error) {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := b.changes[from:to]
	if err := s.write(changes); err != nil {
		return nil, err
	}
	s.largest = max(s.largest, len(changes))
	for _, c := range changes {
		s.rows[c.row] = append(s.rows[c.row], c.n)
	}
	return commit(s.wait), ctx.Err()
}

type commit func() error

func (c commit) Wait(context.Context) error { return c() }

func newStore() *store {
	return &store{
		rows:  map[int][]int{},
		write: func([]change) error { return nil },
		wait:  func() error { return nil },
	}
}

// options are those of a writer into the store.
func (s *store) options(workers int) Options[*batch] {
	return Options[*batch]{
		Workers: workers, Bytes: 1 << 20, Clock: clock.System(),
		New:  func() *batch { return &batch{store: s} },
		Held: errHeld, Never: []error{errNever}, Closed: errClosed,
		Refused: func(_ *batch, _ int, err error) error { return err },
		Sync:    func() error { s.synced.Add(1); return nil },
	}
}

func add(w *Writer[*batch], row, n int) error {
	return w.Add(uint32(row), func(b *batch) bool { return b.add(change{row, n}) })
}

// hasty is a clock for which no time passes until a timer fires.
type hasty struct{ clock.Clock }

func (hasty) AfterFunc(_ time.Duration, f func()) (stop func() bool) {
	go f()
	return func() bool { return false }
}

// TestChangesOfARowAreWrittenInTheirOrder adds changes from several goroutines, each of its own rows, into a store in which
// writes are refused at random.
func TestChangesOfARowAreWrittenInTheirOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const adders, rows, each = 4, 60, 5000
	s := newStore()
	s.rng = rand.New(rand.NewPCG(seed, 1))
	never := func(c change) bool { return c.n%97 == 96 }
	s.write = func(changes []change) error {
		switch {
		case s.rng.IntN(20) == 0:
			return fmt.Errorf("row: %w", errHeld)
		case slices.ContainsFunc(changes, never):
			return errNever
		}
		return nil
	}
	refused := map[int][]int{}
	opts := s.options(3)
	opts.Clock = hasty{opts.Clock}
	opts.Refused = func(b *batch, n int, err error) error {
		if c := b.changes[n]; never(c) && errors.Is(err, errNever) {
			s.mu.Lock()
			defer s.mu.Unlock()
			refused[c.row] = append(refused[c.row], c.n)
			return nil
		}
		return err
	}
	var written, bytes int64
	opts.Progress = func(r, b int64) {
		if r < written || b != 1000*r {
			t.Errorf("%d rows and %d bytes after %d rows", r, b, written)
		}
		written, bytes = r, b
	}
	w := New(t.Context(), opts)
	var all sync.WaitGroup
	for a := range adders {
		rng := rand.New(rand.NewPCG(seed, uint64(2+a)))
		next := map[int]int{}
		all.Go(func() {
			for i := range each {
				row := a + adders*rng.IntN(rows/adders)
				if err := add(w, row, next[row]); err != nil {
					t.Error(err)
					return
				}
				if next[row]++; i == each/2 {
					if err := w.Flush(); err != nil {
						t.Error(err)
					}
					s.mu.Lock()
					for row, n := range next {
						if len(s.rows[row])+len(refused[row]) != n {
							t.Errorf("after a flush row %d has %d changes and %d refused ones of %d", row, len(s.rows[row]), len(refused[row]), n)
						}
					}
					s.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	total := 0
	for row, ns := range s.rows {
		total += len(ns)
		if !slices.IsSorted(ns) || len(slices.Compact(slices.Clone(ns))) != len(ns) {
			t.Errorf("row %d has %v", row, ns)
		}
	}
	for _, ns := range refused {
		total += len(ns)
		written += int64(len(ns))
	}
	if total != adders*each || written != int64(total) || bytes == 0 || s.largest > batchRows || s.synced.Load() != adders+1 {
		t.Errorf("%d changes, %d reported, batches of %d, %d syncs", total, written, s.largest, s.synced.Load())
	}
	if err := add(w, 1, 1); err != errClosed {
		t.Errorf("after the end: %v", err)
	}
	if err := w.Flush(); err != errClosed {
		t.Errorf("a flush after the end: %v", err)
	}
}

// TestAddWaitsForWorkers lets no write come to its end: the writer takes three batches for a worker, and no more.
func TestAddWaitsForWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		goOn := make(chan struct{})
		s.wait = func() error { <-goOn; return nil }
		w := New(t.Context(), s.options(1))
		added := 0
		go func() {
			for ; added < 10*batchRows; added++ {
				if err := add(w, added, 0); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if added < 2*batchRows || added > 3*batchRows {
			t.Errorf("%d changes were taken", added)
		}
		close(goOn)
		synctest.Wait()
		if err := w.Close(); err != nil || len(s.rows) != 10*batchRows {
			t.Errorf("%d rows, %v", len(s.rows), err)
		}
	})
}

// TestTheFirstErrorEndsAWriter has writes that fail, in Write, in Wait, and by the end of the context.
func TestTheFirstErrorEndsAWriter(t *testing.T) {
	for what, end := range map[string]func(s *store, cancel func()) error{
		"a write that fails": func(s *store, _ func()) error { s.write = func([]change) error { return errBroken }; return errBroken },
		"a wait that fails":  func(s *store, _ func()) error { s.wait = func() error { return errBroken }; return errBroken },
		"a change refused":   func(s *store, _ func()) error { s.write = func([]change) error { return errNever }; return errNever },
		"a row that is held": func(s *store, cancel func()) error {
			s.write = func([]change) error { return errHeld }
			go cancel()
			return context.Canceled
		},
		"a context that ended": func(_ *store, cancel func()) error { cancel(); return context.Canceled },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := newStore()
			want := end(s, cancel)
			w := New(ctx, s.options(2))
			var err error
			for i := 0; i < 1000*batchRows && err == nil; i++ {
				err = add(w, i, 0)
			}
			if flush, last := w.Flush(), w.Close(); err != want || flush != want || last != want {
				t.Errorf("%s: %v, then %v and %v, want %v", what, err, flush, last, want)
			}
		})
	}
}

// TestCloseBesideAdd ends a writer while others add changes: each is written or refused.
func TestCloseBesideAdd(t *testing.T) {
	for range 50 {
		s := newStore()
		w := New(t.Context(), s.options(2))
		var all sync.WaitGroup
		var taken [3]int
		for a := range taken {
			all.Go(func() {
				for row := a; ; row += len(taken) {
					if err := add(w, row, 0); err != nil {
						if err != errClosed {
							t.Error(err)
						}
						return
					}
					taken[a]++
				}
			})
		}
		for s.written() < 10*batchRows {
			runtime.Gosched()
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if sum, written := taken[0]+taken[1]+taken[2], s.written(); written != sum {
			t.Fatalf("%d changes were taken, %d are written", sum, written)
		}
	}
}

func (s *store) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

func TestAFlushBesideCloseWaitsForWhatCloseWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		release := make(chan struct{})
		s.wait = func() error { <-release; return errBroken }
		w := New(context.Background(), s.options(1))
		if err := add(w, 1, 1); err != nil {
			t.Fatal(err)
		}
		closed, flushed := make(chan error, 1), make(chan error, 1)
		go func() { closed <- w.Close() }()
		synctest.Wait()
		go func() { flushed <- w.Flush() }()
		synctest.Wait()
		close(release)
		if first, second := <-closed, <-flushed; !errors.Is(first, errBroken) || !errors.Is(second, errBroken) {
			t.Errorf("Close: %v, Flush: %v", first, second)
		}
	})
}
