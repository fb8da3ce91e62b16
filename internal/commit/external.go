package commit

// A log that belongs to another program: writes are proposed to it, and enter the memtables when its
// owner says that they are committed.
//
// A proposal may be undecided: its caller gave up, and it may still be applied. And another replica may have
// written rows that this one knows only as they were. So every batch names the last fence before it that its
// writer had applied, and is void if the log has a later one. Commands are fences, and a fence may also be an
// entry of its own. A pipeline that has doubts puts one into the log before its next write, which is then worked
// out again.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/manifest"
)

// markBytes is how many bytes of payload lie between two marks at most.
const markBytes = 64 << 10

// ErrAgain says that a write must be worked out again. Users of the store never get it.
var ErrAgain = errors.New("flagstone: the table was altered meanwhile")

// Owner is how a pipeline reaches the owner of an external log. Both functions return when the owner has applied
// the entry to this store.
type Owner struct {
	// Propose hands over a batch, in pieces, that is void unless fence is the last one before it. It is
	// ErrAgain if the batch was void.
	Propose func(ctx context.Context, fence uint64, batch [][]byte) error
	// Fence hands over a fence.
	Fence func(ctx context.Context) error
}

// external is the place of a pipeline in an external log. Memtables remember the mark at which the
// log was when they got their first write, as they remember a segment of an own log.
type external struct {
	owner   Owner
	applied atomic.Uint64 // index of the last entry that readers see
	owed    atomic.Int64  // for entries of other writers, in nanoseconds: see PauseForEntries
	fencing Latch         // held while this pipeline puts a fence into the log

	// The rest is guarded by Pipeline.order.
	at      manifest.LogPoint // behind the last entry
	bytes   int64             // of the payloads of all entries since the store was opened
	bounded int64             // bytes when boundExternal was called last
	marks   []mark            // oldest first, at least one
	first   uint64            // number of the first mark, at least 1
	// doubts counts the events after which a fence is needed, and sure is how many of them lie before the last
	// fence of this pipeline. foreign counts the entries of other writers.
	doubts, sure, foreign uint64
}

// mark is a place in an external log.
type mark struct {
	manifest.LogPoint
	bytes int64 // as external.bytes was
}

// Follow begins to take entries of an external log behind a point. REQUIRES: Recovered was called; Start is
// not.
func (p *Pipeline) Follow(from manifest.LogPoint, owner Owner) {
	p.external = &external{owner: owner, at: from, marks: []mark{{LogPoint: from}}, first: 1, doubts: 1}
	p.external.applied.Store(from.Index)
	p.nextSeq, p.lastMicros = from.Seq+1, from.Micros
}

// PauseForEntries holds the caller of Enter back for the entries of other writers. REQUIRES: no call of
// Enter waits for the caller.
func (p *Pipeline) PauseForEntries(ctx context.Context) {
	p.gate.Pause(ctx, time.Duration(p.external.owed.Swap(0)))
}

// propose proposes a write of size bytes in memtables. The other replicas get what was worked out here. The latches of the
// rows keep out writers that would work with what the entry is about to change.
func (p *Pipeline) propose(ctx context.Context, w *Write, size int64) error {
	p.order.Lock()
	err := p.Writable()
	if err == nil {
		_, err = w.place(p.nextSeq)
	}
	w.micros = max(w.micros, p.lastMicros)
	// The write was worked out behind this fence: a place refuses it after a fence that removed doubts.
	x := p.external
	fence, sure := x.at.Fence, x.sure == x.doubts
	p.order.Unlock()
	if err != nil {
		return err
	}
	if !sure {
		if _, err := p.Sure(ctx); err != nil {
			return err
		}
		return ErrAgain
	}
	w.batch.SetTime(w.micros)
	if err := x.owner.Propose(ctx, fence, w.batch.Pieces()); err != nil {
		return err
	}
	w.commit = Commit{pipeline: p, pause: p.gate.Owe(size)} // applied and visible
	return nil
}

// Doubt notes that a proposal has failed, and may be undecided.
func (p *Pipeline) Doubt() { p.Between(func() { p.external.doubts++ }) }

// Sure returns once nothing is undecided that this store has proposed, and everything is applied that others
// have written before, and how many entries others have written. With an own log that is always so.
func (p *Pipeline) Sure(ctx context.Context) (foreign uint64, err error) {
	x := p.external
	if x == nil {
		return 0, nil
	}
	if err := x.fencing.Lock(ctx); err != nil {
		return 0, err
	}
	defer x.fencing.Unlock()
	var doubts uint64
	p.Between(func() { doubts, foreign = x.doubts, x.foreign })
	if doubts == x.sure { // which changes only here
		return foreign, nil
	}
	if err := x.owner.Fence(ctx); err != nil {
		return 0, err
	}
	p.Between(func() { x.sure, foreign = doubts, x.foreign })
	return foreign, nil
}

// Foreign is how many entries of an external log others have written; 0 with an own log.
func (p *Pipeline) Foreign() (n uint64) {
	if p.external != nil {
		p.Between(func() { n = p.external.foreign })
	}
	return n
}

// At is the place behind the last entry that was applied.
func (p *Pipeline) At() manifest.LogPoint {
	p.order.Lock()
	defer p.order.Unlock()
	return p.external.at
}

// AppliedIndex is the index of the last entry that readers see.
func (p *Pipeline) AppliedIndex() uint64 { return p.external.applied.Load() }

// Enter applies the mutations of an entry whose payload has so many bytes; the log is then at a point.
// foreign says that another writer has written it. An error is that of pressure.Gate.Reserve or of
// Writable, and nothing was applied. REQUIRES: one call of Enter, Begin or End runs at a time.
func (p *Pipeline) Enter(ctx context.Context, to manifest.LogPoint, foreign bool, bytes int64, all []recovery.Insertion) error {
	var w Write
	var size int64
	for _, i := range all {
		w.mutations = append(w.mutations, mutation{change: i.Change, tree: i.Tree, seq: i.Seq, size: i.Size})
		size += i.Size
	}
	switch err := p.gate.Reserve(ctx, size); {
	case errors.Is(err, executor.ErrIdle):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return err
	}
	p.order.Lock()
	if err := p.Writable(); err != nil {
		p.order.Unlock()
		p.gate.Free(size, 0)
		return err
	}
	x := p.external
	p.makeRoom(w.mutations)
	w.reserve(x.present(), x.present())
	p.nextSeq, p.lastMicros = to.Seq+1, to.Micros
	p.reach(to, foreign, bytes)
	t := p.queue.push(0, to.Seq)
	p.order.Unlock()
	spare, waiting := w.apply()
	p.gate.Free(spare, waiting)
	if foreign { // else the proposer owes it
		p.external.owed.Add(int64(p.gate.Owe(size - spare)))
	}
	p.queue.applied(t, p.publishable)
	p.shown(to, foreign)
	w.done()
	return nil
}

// shown notes that readers see an entry. Only then it counts as foreign: who reads the count, and then rows, must
// not miss it.
func (p *Pipeline) shown(to manifest.LogPoint, foreign bool) {
	p.external.applied.Store(to.Index)
	if foreign {
		p.Between(func() { p.external.foreign++ })
	}
}

// Begin gives a command its sequence number and time, those of a point, before it is carried out. A
// repeated call changes nothing.
func (p *Pipeline) Begin(to manifest.LogPoint) {
	p.order.Lock()
	defer p.order.Unlock()
	p.nextSeq, p.lastMicros = to.Seq+1, to.Micros
	p.queue.applied(p.queue.push(0, to.Seq), p.publishable)
}

// End notes that the log is at a point: a command was carried out, or an entry was void. foreign and bytes are
// as for Enter.
func (p *Pipeline) End(to manifest.LogPoint, foreign bool, bytes int64) {
	p.Between(func() { p.reach(to, foreign, bytes) })
	p.shown(to, foreign)
}

// reach moves the place in the log behind an entry with so many bytes. REQUIRES: order is held.
func (p *Pipeline) reach(to manifest.LogPoint, foreign bool, bytes int64) {
	x := p.external
	x.at = to
	if foreign {
		x.doubts++
	}
	x.bytes += bytes
	if x.bytes-x.bounded >= markBytes {
		x.mark()
		p.boundExternal()
	}
}

// present is the number of the last mark.
func (x *external) present() uint64 { return x.first + uint64(len(x.marks)) - 1 }

// mark sets a mark behind the last entry, unless there is one.
func (x *external) mark() {
	if x.marks[len(x.marks)-1].Index != x.at.Index {
		x.marks = append(x.marks, mark{x.at, x.bytes})
	}
}

// Mark sets a mark behind the last entry of an external log, and returns its number.
func (p *Pipeline) Mark() uint64 {
	p.order.Lock()
	defer p.order.Unlock()
	p.external.mark()
	return p.external.present()
}

// Release forgets the marks before one, and returns the place of that one. REQUIRES: the memtables
// hold nothing of before that mark.
func (p *Pipeline) Release(oldest uint64) manifest.LogPoint {
	p.order.Lock()
	defer p.order.Unlock()
	x := p.external
	if oldest > x.first {
		x.marks = x.marks[oldest-x.first:]
		x.first = oldest
	}
	return x.marks[0].LogPoint
}

// MarkIndex is the index of the entry before a mark.
func (p *Pipeline) MarkIndex(number uint64) uint64 {
	p.order.Lock()
	defer p.order.Unlock()
	x := p.external
	return x.marks[max(number, x.first)-x.first].Index
}

// boundExternal is boundLog for an external log. REQUIRES: order is held.
func (p *Pipeline) boundExternal() {
	x := p.external
	x.bounded = x.bytes
	for _, tree := range p.env.Trees() {
		if n := tree.MutableSegment(); n != 0 && x.bytes-x.marks[n-x.first].bytes > p.opts.LogBound {
			p.rotate(tree)
		}
	}
}
