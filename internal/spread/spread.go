// Package spread writes changes that come in any order: it divides them among workers, each of which gathers its
// changes in batches and writes these one after the other. All changes of a row go to one worker, so they
// are written in the order in which they came.
package spread

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// Batch is changes of different rows, in memory that is used again after Reset.
type Batch interface {
	Len() int
	Reset()
	// Bytes is the size of the n-th change.
	Bytes(n int) int64
	// Write orders and applies the changes from from, included, to to, excluded, as a whole. After an error
	// nothing was written.
	Write(ctx context.Context, from, to int) (Commit, error)
}

// Commit is what was written, on its way to durability.
type Commit interface {
	// Wait returns when it is visible, and durable if the store makes every write durable.
	Wait(ctx context.Context) error
}

const (
	// batchRows and batchBytes are when a batch is complete.
	batchRows, batchBytes = 200, 256 << 10
	// keptBytes is the size of a change up to which its memory serves another one.
	keptBytes = 4 << 10
)

// Workers is a good number of workers. If each waits for the disk, there are enough that many batches share a sync;
// otherwise more of them than processors only take more of the processors' caches.
func Workers(wait bool) int {
	if wait {
		return max(8, runtime.GOMAXPROCS(0))
	}
	return runtime.GOMAXPROCS(0)
}

// Options are those of a Writer.
type Options[B Batch] struct {
	Workers int
	Bytes   int64 // the most of a batch, but for its last change, if that is less than 256 KiB
	Clock   clock.Clock
	New     func() B // makes an empty batch
	Held    error    // what Write's errors match if a row is held by another writer for now
	Never   []error  // of which they match one if a change can never be written
	// Refused is told of the n-th change of a batch, which is left out. An error of it ends the writer.
	Refused func(b B, n int, err error) error
	// Progress is told how many rows and bytes were written so far; it may be nil. One call of Refused and
	// Progress runs at a time.
	Progress func(rows, bytes int64)
	Sync     func() error // makes durable what is visible
	Closed   error        // of calls after Close
}

// Writer writes changes. Its methods are safe for concurrent use.
type Writer[B Batch] struct {
	Options[B]
	ctx     context.Context // of the caller
	open    context.Context // ends with the first error
	end     context.CancelCauseFunc
	shards  []shard[B]
	workers sync.WaitGroup
	closed  atomic.Bool

	telling     sync.Mutex // held for calls of Refused and Progress; guards what follows
	rows, bytes int64
}

// shard is the changes of one worker. Its memory is three batches: one that is being gathered, one that waits, and one
// that is being written.
type shard[B Batch] struct {
	mu        sync.Mutex
	gathering B
	bytes     int64 // of gathering
	closed    bool
	complete  chan step[B]
	spare     chan B
}

// step is what a worker does next: it writes a batch, or says that it has come so far.
type step[B Batch] struct {
	batch   B
	reached *sync.WaitGroup
}

// New begins to write. The context ends all work. The caller must call Close.
func New[B Batch](ctx context.Context, opts Options[B]) *Writer[B] {
	w := &Writer[B]{Options: opts, ctx: ctx, shards: make([]shard[B], opts.Workers)}
	w.open, w.end = context.WithCancelCause(ctx)
	for i := range w.shards {
		s := &w.shards[i]
		const waiting = 1
		s.gathering, s.complete, s.spare = opts.New(), make(chan step[B], waiting), make(chan B, waiting+2)
		for range cap(s.spare) - 1 {
			s.spare <- opts.New()
		}
		w.workers.Go(func() { w.work(s) })
	}
	return w
}

// Add adds a change to a batch of the worker of its row. stripe is a number that follows from the row: the same
// worker gets all changes with the same one. put appends the change, or returns false if the batch has one
// of its row: then it gets another batch. Add waits while the worker has too much to do. It returns the error that has
// ended the writer, if one has.
func (w *Writer[B]) Add(stripe uint32, put func(b B) bool) error {
	s := &w.shards[stripe%uint32(len(w.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := context.Cause(w.open); err != nil || s.closed {
		return cmp.Or(err, w.Closed)
	}
	if !put(s.gathering) {
		s.submit()
		put(s.gathering)
	}
	s.bytes += s.gathering.Bytes(s.gathering.Len() - 1)
	if s.gathering.Len() >= batchRows || s.bytes >= min(w.Bytes, batchBytes) {
		s.submit()
	}
	return nil
}

// submit gives the changes that were gathered to the worker. It does not wait for long once the writer has
// ended: then the worker drops them. REQUIRES: mu is held.
func (s *shard[B]) submit() {
	s.complete <- step[B]{batch: s.gathering}
	s.gathering, s.bytes = <-s.spare, 0
}

// Flush returns when every change that was added before is written and durable, or the error that has ended the
// writer.
func (w *Writer[B]) Flush() error {
	var reached sync.WaitGroup
	for i := range w.shards {
		w.mark(&w.shards[i], &reached)
	}
	reached.Wait()
	if w.closed.Load() { // the workers may still write what Close gave them
		w.workers.Wait()
	}
	return cmp.Or(context.Cause(w.open), w.Sync())
}

// mark gives what a shard has gathered to its worker, and lets it say when that is written. It does nothing once the
// writer has ended.
func (w *Writer[B]) mark(s *shard[B], reached *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || w.open.Err() != nil {
		return
	}
	if s.gathering.Len() > 0 {
		s.submit()
	}
	reached.Add(1)
	s.complete <- step[B]{reached: reached}
}

// Close is Flush, and ends the writer. It does nothing if it was called before.
func (w *Writer[B]) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		if s.gathering.Len() > 0 {
			s.submit()
		}
		s.closed = true
		close(s.complete)
		s.mu.Unlock()
	}
	w.workers.Wait()
	err := cmp.Or(context.Cause(w.open), w.Sync())
	w.end(w.Closed)
	return err
}

// work is the goroutine of a shard.
func (w *Writer[B]) work(s *shard[B]) {
	for next := range s.complete {
		if next.reached != nil {
			next.reached.Done()
			continue
		}
		if w.open.Err() == nil {
			if err := w.write(next.batch); err != nil {
				w.end(err)
			}
		}
		s.spare <- w.emptied(next.batch)
	}
}

// emptied returns a batch to use again: another one if the memory for each of its changes could become too much.
func (w *Writer[B]) emptied(b B) B {
	for n := range b.Len() {
		if b.Bytes(n) > keptBytes {
			return w.New()
		}
	}
	b.Reset()
	return b
}

// write writes a batch as a whole or, if one of its changes is in the way, change by change.
func (w *Writer[B]) write(b B) error {
	all := make([]int, b.Len())
	for i := range all {
		all[i] = i
	}
	c, err := b.Write(w.ctx, 0, len(all))
	if errors.Is(err, w.Held) || w.never(err) {
		return w.writeEach(b, all)
	}
	if err == nil {
		err = c.Wait(w.ctx)
	}
	if err == nil {
		w.tell(b, all)
	}
	return err
}

// A change whose row is held is tried again after firstPause, and then after twice that, up to lastPause.
const firstPause, lastPause = time.Millisecond, 128 * time.Millisecond

// writeEach writes changes of a batch one by one, and again those whose rows are held.
func (w *Writer[B]) writeEach(b B, left []int) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var held, written []int
		var commits []Commit
		for _, n := range left {
			c, err := b.Write(w.ctx, n, n+1)
			switch {
			case err == nil:
				written, commits = append(written, n), append(commits, c)
			case errors.Is(err, w.Held):
				held = append(held, n)
			case w.never(err):
				if err := w.refuse(b, n, err); err != nil {
					return err
				}
			default:
				return err
			}
		}
		for _, c := range commits {
			if err := c.Wait(w.ctx); err != nil {
				return err
			}
		}
		w.tell(b, written)
		if left = held; len(left) == 0 {
			return nil
		}
		if err := w.pause(pause); err != nil {
			return err
		}
	}
}

// never reports whether a change can never be written.
func (w *Writer[B]) never(err error) bool {
	return slices.ContainsFunc(w.Never, func(never error) bool { return errors.Is(err, never) })
}

// refuse tells the caller of a change that is left out.
func (w *Writer[B]) refuse(b B, n int, err error) error {
	w.telling.Lock()
	defer w.telling.Unlock()
	return w.Refused(b, n, err)
}

// tell tells the caller of changes that were written.
func (w *Writer[B]) tell(b B, rows []int) {
	w.telling.Lock()
	defer w.telling.Unlock()
	for _, n := range rows {
		w.rows++
		w.bytes += b.Bytes(n)
	}
	if w.Progress != nil {
		w.Progress(w.rows, w.bytes)
	}
}

// pause waits for a time, or until the writer has ended.
func (w *Writer[B]) pause(d time.Duration) error {
	over := make(chan struct{})
	stop := w.Clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case <-w.open.Done():
		return context.Cause(w.open)
	}
}
