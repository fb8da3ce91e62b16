package flagstone

// The commit pipeline. A batch passes through these stages:
//
//	latch    the rows' latches are taken; a read-modify-write reads
//	admit    there is room for the batch in the memory budget
//	order    under one mutex: sequence numbers, the log's buffer, a place in
//	         each memtable; batches leave this stage in sequence order
//	apply    the mutations enter the memtables, concurrently and invisible
//	unlatch
//	sync     the log is made durable up to the batch (group commit)
//	publish  the store's visible sequence number moves past the batch, in
//	         sequence order; from here on readers see it
//	return
//
// A batch is visible only when it is durable (with SyncAlways), so no reader
// sees what a crash could take back. A read-modify-write reads what is applied
// but perhaps not durable: its own record comes later in the same log, so if
// it survives, what it read survives. Only an answer that writes nothing, a
// refusal, could leak such a state; it waits until that is durable.
//
// A batch decides nothing when it is applied: versions and trims are in its
// bytes. Nothing enters a memtable whose place in the log was refused.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/memtable"
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
	nextSeq uint64  // under order
	lastLSN wal.LSN // under order: of the last record appended

	// visible is the largest sequence number that readers see.
	visible atomic.Uint64

	// queue holds the commits that are ordered and not yet published, in
	// sequence order.
	queue struct {
		sync.Mutex
		commits []*Commit
	}

	// failed is the first error of the log or the manifest; nothing is
	// acknowledged after it.
	failed atomic.Pointer[error]
}

// Commit is a write on its way to durability.
type Commit struct {
	store *Store
	lsn   wal.LSN
	// lastSeq is the batch's last sequence number; 0 for a commit that writes
	// nothing and only waits for what it depends on.
	lastSeq uint64
	// refusal is what to return once the state that caused it is durable and
	// visible, that is, once the commit after is. after may be nil.
	refusal error
	after   *Commit

	applied   atomic.Bool
	published chan struct{}
}

// place is where a mutation goes.
type place struct {
	tree *partition.Tree
	size int64 // upper bound, in memtable bytes
	slot partition.Slot
}

// write orders and applies a batch whose rows' latches the caller holds. The
// mutations are those of the batch, in order.
func (s *Store) write(ctx context.Context, b *row.Batch, mutations []row.Mutation) (*Commit, error) {
	places := make([]place, len(mutations))
	var size int64
	for i := range mutations {
		places[i].size = memtable.EstimateSize(&mutations[i])
		size += places[i].size
	}
	if err := s.admit(ctx, size); err != nil {
		return nil, err
	}
	b.SetTime(s.issued.now())
	c := &Commit{store: s, published: make(chan struct{})}
	first, err := s.enqueue(c, b, mutations, places)
	if err != nil {
		s.memory.free(size, 0)
		return nil, err
	}
	for i := range places {
		places[i].slot.Apply(first+uint64(i), &mutations[i])
	}
	c.applied.Store(true)
	// A later commit may have made this one durable already, and then waits
	// for it to be applied.
	if s.opts.Sync == SyncNone || c.lsn <= s.log.DurableLSN() {
		s.publish()
	}
	return c, nil
}

// enqueue is the stage "order": it gives out sequence numbers, appends to the
// log's buffer, and reserves places in the memtables.
func (s *Store) enqueue(c *Commit, b *row.Batch, mutations []row.Mutation, places []place) (first uint64, err error) {
	p := &s.pipeline
	p.order.Lock()
	defer p.order.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	for i := range mutations {
		m := &mutations[i]
		table := s.catalog().byID[m.Table]
		if table == nil || table.dropped.Load() {
			return 0, fmt.Errorf("%w: it was dropped", ErrTableNotFound)
		}
		places[i].tree = table.partitions().Find(m.Key)
	}
	first = p.nextSeq
	s.makeRoom(places, first)
	// Read before the append: the log may begin a new segment at any time,
	// and no place may claim a later segment than the one its record is in.
	segment := s.log.Segment()
	lsn, err := s.log.Append(stream, first, b.Bytes())
	switch {
	case errors.Is(err, wal.ErrTooLarge):
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return 0, s.poison(err)
	}
	if s.log.NeedsNext() {
		s.schedulePreparation()
	}
	p.nextSeq += uint64(len(mutations))
	p.lastLSN = lsn
	c.lsn, c.lastSeq = lsn, p.nextSeq-1
	for i := range places {
		places[i].slot = places[i].tree.Reserve(places[i].size, segment)
	}
	if s.log.Segment() != segment {
		s.boundLog()
	}
	p.queue.Lock()
	p.queue.commits = append(p.queue.commits, c)
	p.queue.Unlock()
	return first, nil
}

// makeRoom rotates the memtables that have no room for what they are to take,
// and, if all memtables together come near their budget, the largest. REQUIRES:
// order is held.
func (s *Store) makeRoom(places []place, nextSeq uint64) {
	for i := range places {
		if t := places[i].tree; t.Full(places[i].size) {
			s.rotate(t, nextSeq)
		}
	}
	if s.memory.crowded() {
		s.rotate(s.largestMemtable(), nextSeq)
	}
}

// rotate lets a tree's memtable be flushed. REQUIRES: order is held.
func (s *Store) rotate(t *partition.Tree, nextSeq uint64) {
	if moved := t.Rotate(nextSeq); moved > 0 {
		s.memory.rotated(moved)
		s.scheduleFlush(t)
	}
}

// publish moves the visible sequence number past every commit at the head of
// the queue that is applied and, unless the store does not sync, durable.
func (s *Store) publish() {
	durable := s.log.DurableLSN()
	q := &s.pipeline.queue
	q.Lock()
	defer q.Unlock()
	n := 0
	for _, c := range q.commits {
		if !c.applied.Load() || (s.opts.Sync == SyncAlways && c.lsn > durable) {
			break
		}
		s.pipeline.visible.Store(c.lastSeq)
		close(c.published)
		n++
	}
	if n > 0 {
		q.commits = append(q.commits[:0], q.commits[n:]...)
		clear(q.commits[len(q.commits):cap(q.commits)])
	}
}

// Wait returns when the write is durable (with SyncAlways) and visible to
// every later read, or when that failed. When the context ends first, the
// write's outcome is unknown: it may still become durable.
func (c *Commit) Wait(ctx context.Context) error {
	s := c.store
	if c.lastSeq == 0 {
		if c.after != nil {
			if err := c.after.Wait(ctx); err != nil {
				return err
			}
		}
		return c.refusal
	}
	if s.opts.Sync == SyncAlways && c.lsn > s.log.DurableLSN() {
		if err := s.log.Sync(c.lsn); err != nil {
			return s.poison(err)
		}
	}
	s.publish()
	select {
	case <-c.published:
		return nil
	default:
	}
	// A commit before this one is durable but not applied yet; whoever applies
	// it publishes both, soon: nothing that is applied waits for anything.
	select {
	case <-c.published:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse makes the commit of a read-modify-write that wrote nothing: Wait
// returns the refusal (nil for a change without effect) once everything that
// was applied when it read is durable, and visible: who was told that a row
// exists must then be able to read it.
func (s *Store) refuse(refusal error) *Commit {
	c := &Commit{store: s, refusal: refusal}
	q := &s.pipeline.queue
	q.Lock()
	defer q.Unlock()
	if n := len(q.commits); n > 0 {
		c.after = q.commits[n-1]
	}
	return c
}

// settle returns when every write below endSeq is durable and visible. A flush
// waits for it: a table file must not hold what the log could still lose, and
// merges rely on it that all they see is visible (see Store.Snapshot).
func (s *Store) settle(endSeq uint64) error {
	if err := s.syncLog(); err != nil {
		return err
	}
	s.publish()
	q := &s.pipeline.queue
	q.Lock()
	var last *Commit
	for _, c := range q.commits {
		if c.lastSeq < endSeq {
			last = c
		}
	}
	q.Unlock()
	if last == nil {
		return nil
	}
	return last.Wait(context.Background())
}

// syncLog makes everything durable that is in the log's buffer.
func (s *Store) syncLog() error {
	s.pipeline.order.Lock()
	lsn := s.pipeline.lastLSN
	s.pipeline.order.Unlock()
	if err := s.log.Sync(lsn); err != nil {
		return s.poison(err)
	}
	return nil
}

// poison records the first error of the log or the manifest and returns the
// error that every write gets from then on.
func (s *Store) poison(cause error) error {
	wrapped := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	if s.pipeline.failed.CompareAndSwap(nil, &wrapped) {
		s.opts.Logger.Error("store poisoned: writes fail until it is reopened", "cause", cause)
		s.wakeWriters()
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
