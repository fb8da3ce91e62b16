package commit

// A log that belongs to another program: writes are proposed to it, and enter the memtables when
// its owner says that they are committed.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/manifest"
)

// markBytes is how many bytes of payload lie between two marks at most.
const markBytes = 64 << 10

// external is the place of a pipeline in an external log. Memtables remember the mark at which the
// log was when they got their first write, as they remember a segment of an own log.
type external struct {
	propose Propose
	applied atomic.Uint64 // index of the last entry that readers see

	// The rest is guarded by Pipeline.order.
	at      manifest.LogPoint // behind the last entry
	bytes   int64             // of the payloads of all entries since the store was opened
	bounded int64             // bytes when boundExternal was called last
	marks   []mark            // oldest first, at least one
	first   uint64            // number of the first mark, at least 1
}

// mark is a place in an external log.
type mark struct {
	manifest.LogPoint
	bytes int64 // as external.bytes was
}

// Propose hands a batch, in pieces, to the owner of an external log, and returns when the owner has
// applied it to this store. The batch counts only while the fence of the log is the one given.
type Propose func(ctx context.Context, fence uint64, batch [][]byte) error

// Follow begins to take entries of an external log behind a point. propose is how writes get into
// the log. REQUIRES: Recovered was called; Start is not.
func (p *Pipeline) Follow(from manifest.LogPoint, propose Propose) {
	p.external = &external{propose: propose, at: from, marks: []mark{{LogPoint: from}}, first: 1}
	p.external.applied.Store(from.Index)
	p.nextSeq, p.lastMicros = from.Seq+1, from.Micros
}

// propose proposes a write. The other replicas get what was worked out here. The latches of the
// rows keep out writers that would work with what the entry is about to change.
func (p *Pipeline) propose(ctx context.Context, w *Write) error {
	p.order.Lock()
	err := p.Writable()
	if err == nil {
		_, err = w.place(p.nextSeq)
	}
	w.micros = max(w.micros, p.lastMicros)
	fence := p.external.at.Fence
	p.order.Unlock()
	if err != nil {
		return err
	}
	w.batch.SetTime(w.micros)
	if err := p.external.propose(ctx, fence, w.batch.Pieces()); err != nil {
		return err
	}
	w.commit = Commit{pipeline: p} // applied and visible
	return nil
}

// At is the place behind the last entry that was applied.
func (p *Pipeline) At() manifest.LogPoint {
	p.order.Lock()
	defer p.order.Unlock()
	return p.external.at
}

// AppliedIndex is the index of the last entry that readers see.
func (p *Pipeline) AppliedIndex() uint64 { return p.external.applied.Load() }

// Enter applies the mutations of an entry whose payload has so many bytes; the log is then at a
// point. An error is that of pressure.Gate.Reserve or of Writable, and nothing was applied.
// REQUIRES: one call of Enter, Begin or End runs at a time.
func (p *Pipeline) Enter(ctx context.Context, to manifest.LogPoint, bytes int64, all []recovery.Insertion) error {
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
	w.reserve(x.present())
	p.nextSeq, p.lastMicros = to.Seq+1, to.Micros
	x.at, x.bytes = to, x.bytes+bytes
	if x.bytes-x.bounded >= markBytes {
		x.mark()
		p.boundExternal()
	}
	t := p.queue.push(0, to.Seq)
	p.order.Unlock()
	spare, waiting := w.apply()
	p.gate.Applied(size, spare, waiting)
	p.queue.applied(t, p.publishable)
	x.applied.Store(to.Index)
	return nil
}

// Begin gives a command its sequence number and time, those of a point, before it is carried out. A
// repeated call changes nothing.
func (p *Pipeline) Begin(to manifest.LogPoint) {
	p.order.Lock()
	defer p.order.Unlock()
	p.nextSeq, p.lastMicros = to.Seq+1, to.Micros
	p.queue.applied(p.queue.push(0, to.Seq), p.publishable)
}

// End notes that the log is at a point: a command was carried out.
func (p *Pipeline) End(to manifest.LogPoint) {
	p.order.Lock()
	defer p.order.Unlock()
	p.external.at = to
	p.external.applied.Store(to.Index)
}

// Millis is the time of an external log, in milliseconds: no entry that was applied has a later
// one.
func (p *Pipeline) Millis() int64 {
	p.order.Lock()
	defer p.order.Unlock()
	return p.lastMicros / 1000
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
