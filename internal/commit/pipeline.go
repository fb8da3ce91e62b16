package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// Pipeline is the way of all writes of a store. Its methods are safe for concurrent use.
type Pipeline struct {
	env  Env
	gate *pressure.Gate
	jobs *jobs.Jobs
	opts Options
	log  *wal.Writer // nil before Start, and if the log is external
	// external is nil if the store has its own log.
	external *external

	// preparing is set from the request for the next log segment until its preparation begins.
	preparing atomic.Bool
	// watching is set while a check of the device is due; hangs is the result of the last check.
	watching, hangs atomic.Bool

	// order guards the stage of that name.
	order   spinLock
	nextSeq uint64 // under order
	// lastMicros, under order, is at least the time of every commit: times do not fall from one
	// sequence number to the next.
	lastMicros int64
	lastLSN    wal.LSN // under order: of the last record appended
	bounded    uint64  // under order: the log's segment when boundLog was called last
	// room holds an element while a write makes room in the log; others wait to send one, in their
	// order. If that write is a large one, it is large, under order, and goes before all others.
	room   chan struct{}
	large  *Write
	noRoom atomic.Pointer[noRoom] // the last write that found no space to make room

	queue queue

	failed atomic.Pointer[error] // of Fail
}

// Env is what the pipeline needs of its store.
type Env interface {
	// Refuses returns why the store takes no writes; nil if it takes them.
	Refuses() error
	// Trees returns the trees of all tables.
	Trees() []*partition.Tree
	// FlushDue tells the store that a memtable of the tree waits to be flushed. It must not block.
	FlushDue(t *partition.Tree)
}

// Options are the settings of a pipeline.
type Options struct {
	// Sync makes a commit visible only once it is durable. Without it, a commit is visible once
	// it is applied, and a crash keeps a prefix of the commits.
	Sync bool
	// SegmentSize is the size of the log's segments, in bytes.
	SegmentSize int64
	// LogBound bounds the log, in bytes, and with it the time of a recovery: a memtable of any
	// size is flushed before the log behind it exceeds this.
	LogBound int64
	Logger   *slog.Logger
	// Events gets the failure after which no write is accepted; it may be nil.
	Events *event.Source
}

// New returns a pipeline that takes no writes before Start. Background work of the log is done by
// jobs.
func New(env Env, gate *pressure.Gate, jobs *jobs.Jobs, opts Options) *Pipeline {
	return &Pipeline{env: env, gate: gate, jobs: jobs, opts: opts, room: make(chan struct{}, 1)}
}

// Recovered tells the pipeline what was recovered: everything up to the sequence number lastSeq is
// durable and visible, and was committed at lastMicros, in microseconds, or before.
func (p *Pipeline) Recovered(lastSeq uint64, lastMicros int64) {
	p.nextSeq, p.lastMicros = lastSeq+1, lastMicros
	p.queue.visible.Store(lastSeq)
}

// Start begins to take writes. REQUIRES: Recovered was called.
func (p *Pipeline) Start(log *wal.Writer) {
	p.log = log
	if !p.opts.Sync {
		p.jobs.After(handOverPeriod, p.handOver)
	}
}

// Visible is the largest sequence number that readers see.
func (p *Pipeline) Visible() uint64 { return p.queue.visible.Load() }

// LastSeq is the last sequence number that was given to a mutation.
func (p *Pipeline) LastSeq() uint64 {
	p.order.Lock()
	defer p.order.Unlock()
	return p.nextSeq - 1
}

// Between calls f while no write takes a place in the log: every write is ordered either before f
// or after it. f must not block.
func (p *Pipeline) Between(f func()) {
	p.order.Lock()
	defer p.order.Unlock()
	f()
}

// NewestSegment returns the log's newest segment that has a file, as of a moment between two writes:
// earlier ones have their places in memtables, and later ones lie in that segment or behind it.
func (p *Pipeline) NewestSegment() (segment uint64) {
	p.Between(func() { segment = p.log.Newest() })
	return segment
}

// Cut divides the writes of the store at a sequence number above least. It calls commit, which makes
// durable what is to hold behind that number, while writes go on below it. Then it calls begin between two
// writes: those before it have sequence numbers below after, the others larger ones, and so it would
// be after a crash. No write gets the number itself. Numbers in between are skipped. begin must not
// block. If Cut fails, begin is not called.
func (p *Pipeline) Cut(least uint64, commit func(after uint64) error, begin func()) error {
	// While the manifest is being written nothing is flushed, so that the memory budget bounds the
	// writes that go on. The smallest takes more than these bytes.
	const smallest, largestBatch = 16, 1 << 24
	after := p.LastSeq() // with an external log that of the command: nothing else is applied meanwhile
	if p.external == nil {
		after = max(after+uint64(p.gate.Budget()/smallest)+largestBatch, least) + 1
	}
	if err := commit(after); err != nil {
		return err
	}
	p.order.Lock()
	defer p.order.Unlock()
	if p.external == nil && p.nextSeq > after {
		return p.Fail(fmt.Errorf("commit: the writes beside an edit of the manifest used all sequence numbers below %d", after+1))
	}
	p.nextSeq = after + 1
	// Readers of this number find what begin has made.
	begin()
	p.queue.applied(p.queue.push(p.lastLSN, after), p.publishable) // a commit of nothing
	return nil
}

// Write orders and applies a write; the caller then waits for its Commit. The time of the commit
// is micros, in microseconds, or later. After an error the write has had no effect. Errors are
// those of Writable, of pressure.Gate.Reserve, of a Place, ErrInvalid, the context's, or say
// that the disk is full. REQUIRES: no other writer can change the rows.
func (p *Pipeline) Write(ctx context.Context, w *Write, micros int64) error {
	size, err := w.encode()
	if err != nil {
		return err
	}
	w.micros = micros
	switch err := p.gate.Reserve(ctx, size); {
	case errors.Is(err, executor.ErrIdle):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return err
	}
	if p.external != nil {
		p.gate.Free(size, 0) // the entry takes it again when it is applied
		return p.propose(ctx, w, size)
	}
	t, err := p.enqueue(w)
	if errors.Is(err, wal.ErrRoom) {
		t, err = p.enqueueWithRoom(ctx, w)
	}
	if err != nil {
		p.gate.Free(size, 0)
		return err
	}
	spare, waiting := w.apply()
	p.gate.Free(spare, waiting)
	w.commit.pause = p.gate.Owe(size - spare)
	// A later commit may already have made this one durable, and wait for it to be applied.
	p.queue.applied(t, p.publishable)
	w.done()
	return nil
}

// enqueue is the stage "order": it assigns sequence numbers, appends to the log's buffer, and
// reserves places in the memtables. The caller applies the mutations and then notes the ticket as
// applied.
func (p *Pipeline) enqueue(w *Write) (ticket, error) {
	p.order.Lock()
	defer p.order.Unlock()
	if err := p.Writable(); err != nil {
		return 0, err
	}
	if p.large != nil && p.large != w {
		return 0, wal.ErrRoom
	}
	next, err := w.place(p.nextSeq)
	if err != nil {
		return 0, err
	}
	p.makeRoom(w.mutations)
	// Read before the append: the log may begin a new segment at any time, and no place may name
	// a later segment than that of its record.
	oldest := p.log.Segment()
	w.micros = max(w.micros, p.lastMicros)
	w.batch.SetTime(w.micros)
	lsn, err := p.log.AppendNow(row.LogStream, p.nextSeq, w.batch.Pieces()...)
	if err != nil {
		return 0, p.refused(err)
	}
	if p.log.NeedsNext() {
		p.prepareNext()
	}
	p.nextSeq, p.lastMicros, p.lastLSN = next, w.micros, lsn
	w.commit = Commit{pipeline: p, lsn: lsn, seq: next - 1}
	newest := p.log.Segment()
	w.reserve(oldest, newest)
	if newest != p.bounded { // a segment may also begin between two appends
		p.boundLog()
	}
	return p.queue.push(lsn, next-1), nil
}

// noRoom is that a write found no space.
type noRoom struct {
	err   error
	large bool // the write is
}

// largeBytes is the size from which a record is large: it needs most of a segment, or of the
// log's buffer. It finds no room in the log while smaller writes go on, unless these wait for it.
const largeBytes = 1 << 20

// enqueueWithRoom is enqueue for a write that found no room in the log. It does not hold order while
// it waits for the disk, so small writes go on.
func (p *Pipeline) enqueueWithRoom(ctx context.Context, w *Write) (ticket, error) {
	before := p.noRoom.Load()
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.room }()
	var size int64
	for _, b := range w.batch.Pieces() {
		size += int64(len(b))
	}
	large := size > min(largeBytes, p.opts.SegmentSize/4)
	// Each of a thousand writes would ask the full disk in its turn. A small one does if a large one
	// found no space, and any takes the room that there is.
	if failed := p.noRoom.Load(); failed != before && (large || !failed.large) {
		if t, err := p.enqueue(w); !errors.Is(err, wal.ErrRoom) {
			return t, err
		}
		return 0, p.refused(failed.err)
	}
	if large {
		// Other writes would take the room made for it, again and again.
		p.Between(func() { p.large = w })
		defer p.Between(func() { p.large = nil })
	}
	for {
		if t, err := p.enqueue(w); !errors.Is(err, wal.ErrRoom) {
			return t, err
		}
		if err := p.log.MakeRoom(ctx, w.batch.Pieces()...); err != nil {
			if vfs.IsNoSpace(err) {
				p.noRoom.Store(&noRoom{err, large})
			}
			return 0, p.refused(err)
		}
	}
}
