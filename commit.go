package flagstone

// The commit pipeline. A batch passes through these stages:
//
//	latch    the rows' latches are taken; a read-modify-write reads
//	admit    there is room for the batch in the memory budget
//	order    under one mutex: sequence numbers, the log's buffer, a place in
//	         each memtable; batches leave this stage in sequence order. A batch
//	         with a table that was altered since it was worked out goes back
//	apply    the mutations enter the memtables, concurrently and invisible
//	unlatch
//	sync     the log is made durable up to the batch (group commit)
//	publish  the store's visible sequence number moves past the batch, in
//	         sequence order; from here on readers see it
//	return
//
// With SyncAlways a batch is visible only when it is durable, so no reader sees what a crash
// could take back. A read-modify-write may read what is applied but not yet durable: its own
// record comes later in the same log, so if it survives, what it read survives. Only a refusal,
// an answer that writes nothing, could leak such a state; so it waits until that state is
// durable.
//
// Applying a batch decides nothing: versions and trims are in its bytes. A batch that the log
// refused never enters a memtable.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// stream is the log stream of a store's own records.
const stream = 0

// pipeline is the state of the commit pipeline.
type pipeline struct {
	// order guards the stage of that name.
	order   sync.Mutex
	nextSeq uint64 // under order
	// lastMicros, under order, is at least the time of every commit: times do not fall from one
	// sequence number to the next.
	lastMicros int64
	lastLSN    wal.LSN // under order: of the last record appended
	bounded    uint64  // under order: the log's segment when boundLog was called last
	// large, under order, is a large write that goes before all others; nil if there is none.
	large *largeWrite

	queue commit.Queue

	// failed is the first error of the log or the manifest; nothing is
	// acknowledged after it.
	failed atomic.Pointer[error]
}

// largeBytes is the size from which a record may find no room in the log while smaller writes go
// on: it needs most of a segment, or of the log's buffer.
const largeBytes = 1 << 20

// largeWrite is a large write for which the log had no room.
type largeWrite struct {
	write *write
	done  chan struct{} // closed when the write has its place or was given up
}

// Commit is a write on its way to durability.
type Commit struct {
	store *Store
	// lsn and seq are the last log record and the last sequence number of the
	// write, or, if it writes nothing, of what it depends on.
	lsn wal.LSN
	seq uint64
	// refusal is what Wait returns once lsn is durable and seq is visible.
	refusal error
}

// write is a batch on its way through the pipeline, and the memory for the next
// one.
type write struct {
	changes   []*RowChange // for Store.write, which turns them into mutations
	mutations []mutation
	batch     row.Batch
	micros    int64  // the time of the commit
	commit    Commit // of the write, once it is ordered or refused
}

// mutation is the change of one row in a write.
type mutation struct {
	change *row.Change
	size   int64 // upper bound, in memtable bytes
	// place finds the tree of the change. If it is nil, the change is only in the log, for what
	// is derived from the mutation before it.
	place place
	// derived follows from the mutation; nil if nothing does.
	derived derived

	tree        *partition.Tree
	slot        partition.Slot
	derivedSlot partition.Slot
	// shard and seq belong to the mutation that derived follows from: this one, or the one before
	// it if place is nil.
	shard, seq uint64
}

// place finds the tree of a change while its write is ordered. An error refuses the
// write.
type place interface {
	tree() (*partition.Tree, error)
}

// derived is a change that follows from a mutation, in another tree. It has the
// sequence number of the mutation and becomes visible with it. It is not in the log:
// recovery derives it again.
type derived interface {
	tree() *partition.Tree
	size() int64 // upper bound, in memtable bytes
	// change returns what is applied, once the mutation has its sequence number and its
	// time, in microseconds. shard is the tree of the mutation.
	change(shard, seq uint64, micros int64) *row.Change
}

// add adds a change to a write.
func (w *write) add(c *RowChange) { w.changes = append(w.changes, c) }

// reset empties the write, so that its memory holds nothing alive.
func (w *write) reset() {
	clear(w.changes)
	clear(w.mutations)
	w.changes, w.mutations = w.changes[:0], w.mutations[:0]
	w.batch.Reset()
	w.commit = Commit{}
}

// take returns a copy of the commit, so that the write's memory can serve the next one.
func (w *write) take() *Commit { c := w.commit; return &c }

// commit orders and applies mutations. Several mutations of one row are applied one after the
// other. The time of the commit is micros, in microseconds, or later. REQUIRES: no other writer
// can change the rows.
func (s *Store) commit(ctx context.Context, w *write, micros int64) error {
	var size int64
	for i := range w.mutations {
		m := &w.mutations[i]
		if err := w.batch.Add(m.change); err != nil {
			return fmt.Errorf("%w: a change of table %d: %w", ErrInvalid, m.change.Table, err)
		}
		size += m.size
		if m.derived != nil {
			size += m.derived.size()
		}
	}
	w.micros = micros
	switch err := s.gate.Reserve(ctx, size); {
	case errors.Is(err, executor.ErrIdle):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return err
	}
	t, err := s.enqueue(w)
	if errors.Is(err, wal.ErrRoom) {
		t, err = s.enqueueWithRoom(ctx, w)
	}
	if err != nil {
		s.gate.Free(size, 0)
		return err
	}
	first := w.commit.seq - uint64(len(w.mutations)) + 1
	var spare, waiting int64
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.tree != nil {
			unused, rotated := m.slot.Apply(first+uint64(i), m.change)
			spare += unused
			waiting += rotated
		}
		if m.derived != nil {
			unused, rotated := m.derivedSlot.Apply(first+uint64(i), m.derived.change(m.shard, m.seq, w.micros))
			spare += unused
			waiting += rotated
		}
	}
	s.gate.Applied(size, spare, waiting)
	s.applied(t)
	return nil
}

// enqueueWithRoom is enqueue for a write that found no room in the log. It holds no lock while it
// waits for the disk, so small writes go on.
func (s *Store) enqueueWithRoom(ctx context.Context, w *write) (commit.Ticket, error) {
	defer s.pipeline.letOthersGo(w)
	for {
		if err := s.pipeline.goFirst(ctx, w, s.opts.WALSegmentSize); err != nil {
			return 0, err
		}
		err := s.log.MakeRoom(ctx, w.batch.Pieces()...)
		switch {
		case err == nil:
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return 0, err
		default:
			return 0, s.logRefused(err)
		}
		if t, err := s.enqueue(w); !errors.Is(err, wal.ErrRoom) {
			return t, err
		}
	}
}

// goFirst waits until no other large write goes first. If w is large itself, it then goes first:
// otherwise other writes would take the room made for it, again and again.
func (p *pipeline) goFirst(ctx context.Context, w *write, segment int64) error {
	var size int64
	for _, b := range w.batch.Pieces() {
		size += int64(len(b))
	}
	for {
		p.order.Lock()
		first := p.large
		if first == nil && size > min(largeBytes, segment/4) {
			p.large = &largeWrite{w, make(chan struct{})}
		}
		p.order.Unlock()
		if first == nil || first.write == w {
			return nil
		}
		select {
		case <-first.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// letOthersGo ends what goFirst began.
func (p *pipeline) letOthersGo(w *write) {
	p.order.Lock()
	defer p.order.Unlock()
	if p.large != nil && p.large.write == w {
		close(p.large.done)
		p.large = nil
	}
}

// enqueue is the stage "order": it assigns sequence numbers, appends to the log's buffer, and
// reserves places in the memtables. The caller applies the changes and then calls applied with
// the ticket.
func (s *Store) enqueue(w *write) (commit.Ticket, error) {
	p := &s.pipeline
	p.order.Lock()
	defer p.order.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	if p.large != nil && p.large.write != w {
		return 0, wal.ErrRoom
	}
	first := p.nextSeq
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.place == nil {
			m.shard, m.seq = w.mutations[i-1].shard, w.mutations[i-1].seq
			continue
		}
		var err error
		if m.tree, err = m.place.tree(); err != nil {
			return 0, err
		}
		m.shard, m.seq = m.tree.ID(), first+uint64(i)
	}
	s.makeRoom(w.mutations, first)
	// Read before the append: the log may begin a new segment at any time, and no place may name
	// a later segment than that of its record.
	segment := s.log.Segment()
	w.micros = max(w.micros, p.lastMicros)
	w.batch.SetTime(w.micros)
	lsn, err := s.log.AppendNow(stream, first, w.batch.Pieces()...)
	if err != nil {
		return 0, s.logRefused(err)
	}
	if s.log.NeedsNext() {
		s.schedulePreparation()
	}
	p.nextSeq += uint64(len(w.mutations))
	p.lastMicros = w.micros
	p.lastLSN = lsn
	w.commit = Commit{store: s, lsn: lsn, seq: p.nextSeq - 1}
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.tree != nil {
			m.slot = m.tree.Reserve(m.size, segment)
		}
		if m.derived != nil {
			m.derivedSlot = m.derived.tree().Reserve(m.derived.size(), segment)
		}
	}
	if s.log.Segment() != p.bounded { // a segment may also begin between two appends
		s.boundLog()
	}
	return p.queue.Push(lsn, p.nextSeq-1), nil
}

// logRefused maps the error of a log that refused a commit.
func (s *Store) logRefused(err error) error {
	switch {
	case errors.Is(err, wal.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, wal.ErrFailed):
		return s.poison(err)
	case errors.Is(err, wal.ErrClosed):
		return ErrClosed
	}
	return s.describe(err) // no space: nothing happened
}

// makeRoom rotates the memtables that have no room for the mutations, and the largest memtable if
// all together come near their budget. REQUIRES: order is held.
func (s *Store) makeRoom(mutations []mutation, nextSeq uint64) {
	for i := range mutations {
		m := &mutations[i]
		if m.tree != nil && m.tree.Full(m.size) {
			s.rotate(m.tree, nextSeq)
		}
		if m.derived == nil {
			continue
		}
		if tree := m.derived.tree(); tree.Full(m.derived.size()) {
			s.rotate(tree, nextSeq)
		}
	}
	if s.gate.Crowded() {
		s.rotate(s.largestMemtable(), nextSeq)
	}
}

// rotate rotates a tree's memtable and schedules its flush. REQUIRES: order is held.
func (s *Store) rotate(t *partition.Tree, nextSeq uint64) {
	if moved := t.Rotate(nextSeq); moved > 0 {
		s.gate.Rotated(moved)
		s.scheduleFlush(t)
	}
}

// Wait returns when the write is durable (with SyncAlways) and visible to every later read, or
// when that failed. If the context ends first, the error matches ErrOutcomeUnknown: the write may
// still become durable.
func (c *Commit) Wait(ctx context.Context) error {
	if err := c.store.await(ctx, c.lsn, c.seq); err != nil {
		return err
	}
	return c.refusal
}

// refuse makes the commit of a read-modify-write that wrote nothing. Its Wait returns the refusal
// (nil for a change without effect) once everything that was applied when it read is durable and
// visible: a caller that is told that a row exists must be able to read it.
func (s *Store) refuse(refusal error) Commit {
	lsn, seq := s.pipeline.queue.Last()
	return Commit{store: s, lsn: lsn, seq: seq, refusal: refusal}
}

// await returns when everything up to seq, whose record is lsn, is durable (with SyncAlways) and
// visible.
func (s *Store) await(ctx context.Context, lsn wal.LSN, seq uint64) error {
	q := &s.pipeline.queue
	if q.Visible() >= seq {
		return nil
	}
	if s.opts.Sync == SyncAlways {
		s.watchDevice()
		if err := s.log.SyncContext(ctx, lsn); err != nil {
			return s.notSynced(ctx, err)
		}
		// One call publishes the whole group.
		if q.Visible() < seq {
			q.Publish(s.publishable())
		}
		if q.Visible() >= seq {
			return nil
		}
	}
	// An earlier commit is durable but not applied yet. Its writer will publish both, and soon:
	// applying waits for nothing.
	if err := q.Wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// notSynced is the error of a commit whose record is not durable. If it can still become durable,
// a background job finishes it.
func (s *Store) notSynced(ctx context.Context, err error) error {
	if errors.Is(err, wal.ErrFailed) || !vfs.IsNoSpace(err) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return s.poison(err)
	}
	s.finishWrites()
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, s.describe(err))
}

// finishWrites makes what is in the log durable and visible, after its callers have given up.
func (s *Store) finishWrites() {
	s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "finish writes"}, func() {
		if err := s.syncLog(); err != nil {
			s.backgroundFailed("finishing writes", err, s.finishWrites)
			return
		}
		s.pipeline.queue.Publish(s.publishable())
	})
}

// publishable is the last log record whose commit readers may see.
func (s *Store) publishable() wal.LSN {
	if s.opts.Sync == SyncAlways {
		return s.log.DurableLSN()
	}
	return math.MaxUint64
}

// applied notes that the changes of a commit are in the memtables. A later commit may already
// have made it durable and wait for this.
func (s *Store) applied(t commit.Ticket) { s.pipeline.queue.Applied(t, s.publishable) }

// settle returns when every write below endSeq is visible; durable returns when it is durable
// too. A flush waits for both: compactions rely on seeing only visible writes (see
// Store.Snapshot), and a table file in the manifest must not hold what the log could still lose.
// With SyncNone the log is synced while the files are written.
func (s *Store) settle(endSeq uint64) (durable func() error, err error) {
	if s.opts.Sync == SyncAlways {
		if err := s.syncLog(); err != nil {
			return nil, err
		}
	}
	q := &s.pipeline.queue
	q.Publish(s.publishable())
	if err := q.Wait(context.Background(), q.LastBelow(endSeq)); err != nil {
		return nil, err
	}
	if s.opts.Sync == SyncAlways {
		return func() error { return nil }, nil
	}
	return s.executor.Beside(s.syncLog), nil
}

// syncLog makes everything in the log's buffer durable.
func (s *Store) syncLog() error {
	s.pipeline.order.Lock()
	lsn := s.pipeline.lastLSN
	s.pipeline.order.Unlock()
	return s.afterLog(s.log.Sync(lsn))
}

// afterLog maps the error of a call of the log. A call that found no space can be repeated later;
// any other error poisons the store.
func (s *Store) afterLog(err error) error {
	if err == nil || vfs.IsNoSpace(err) && !errors.Is(err, wal.ErrFailed) {
		return s.describe(err)
	}
	return s.poison(err)
}

// poison records the first error of the log or the manifest and returns the
// error that every write gets from then on.
func (s *Store) poison(cause error) error {
	wrapped := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	if s.pipeline.failed.CompareAndSwap(nil, &wrapped) {
		s.opts.Logger.Error("store poisoned: writes fail until it is reopened", "cause", cause)
		s.gate.Wake()
	}
	return *s.pipeline.failed.Load()
}

// writable returns nil or the reason why no write is accepted.
func (s *Store) writable() error {
	if err := s.pipeline.failed.Load(); err != nil {
		return *err
	}
	if s.closed.Load() {
		return ErrClosed
	}
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	return nil
}
