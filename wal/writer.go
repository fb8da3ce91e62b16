package wal

// Appending to the next group, and writing groups. sync.go decides which caller writes which.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// maxGroup bounds what waits in memory: MakeRoom writes when it is reached. There is one buffer
// more than there are groups in flight, and while they are compressed one more for each of these.
const maxGroup = 4 << 20

// LSN counts the records appended to one Writer, from 1 on.
type LSN uint64

// Writer appends to a log. Its methods are safe for concurrent use.
type Writer struct {
	opts                Options
	durable             atomic.Uint64 // LSN
	number              atomic.Uint64 // of the current segment
	linked              atomic.Uint64 // of the newest segment whose file has its name
	onDisk              atomic.Uint64 // of the newest segment that is on the disk, with all before it
	bytes, saved        atomic.Uint64 // see Stats
	groupCount, records atomic.Uint64 // see Stats
	syncs               latency.Histogram

	// due is set while NeedsNext is true.
	due atomic.Bool
	// ready is the last of flying, if it was left to HandOver and no caller has begun to write
	// it. The caller that takes it writes it.
	ready atomic.Pointer[group]

	mu sync.Mutex
	// changed is broadcast when a group, preparing or opening ends, and when err or full is set.
	changed sync.Cond
	err     error // matches ErrFailed; sticky
	// full is why a group could not be written for want of space. The group stays in flight, the
	// next caller that waits for it tries again, and nothing is appended until then.
	full   error
	closed bool
	ended  End // set by a Close in good order
	// flying are the groups being written without mu, in the order of their records. While there
	// are any, no other caller may write, except one more synced group beside another, or replace
	// cur.
	flying    []*group
	preparing bool // PrepareNext is at work
	opening   bool // see apart
	making    *making
	// inviting is true while a leader lets other callers join its group.
	inviting bool
	waiting  atomic.Int64 // calls of Sync and MakeRoom under way

	cur       segment
	buf       []byte            // frames of the next group; aligned; ends at cur.head
	bundle    bundle            // at the end of buf
	gathered  chan struct{}     // closed when that group is done; nil without a waiter
	candidate chan struct{}     // closed when its waiter may lead that group; nil without one
	idle      [][]byte          // buffers to be used again
	groups    []*group          // structs to be used again
	last      LSN               // of the last record in buf
	written   LSN               // handed to the operating system
	positions map[uint32]uint64 // last of each stream

	next      *segmentFile // for the next segment; nil if not opened yet
	device    device
	slow      slowDevice
	sealed    []sealedSegment // ascending
	mayLazy   bool            // see lazy
	unsynced  int             // of sealed
	eager     uint64          // the segments below are not lazy
	released  uint64          // the segments below are not needed by the owner
	keep      uint64          // see Keep
	keepBytes int64           // see Keep
	round     int             // segments between two calls of Rotate, see room
	roundFrom uint64          // the segment that the last Rotate returned
	ending    uint64          // the segment that Rotate ends, which takes no more records
	spares    []string        // file names
	lastSpare atomic.Uint64   // number
}

// segment is the current one.
type segment struct {
	segmentFile
	number  uint64
	seed    uint64
	head    seal  // where the next frame will be
	durable int64 // synced up to here
	// compress says that groups are compressed where that saves blocks.
	compress bool
}

// NewWriter starts a new segment behind what Recover found with the same
// options. When it returns, all records that Recover delivered are durable.
func NewWriter(opts Options, from RecoverResult) (*Writer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if from.positions == nil {
		return nil, errors.New("wal: NewWriter needs the result of Recover")
	}
	w := &Writer{opts: opts, positions: maps.Clone(from.positions), released: max(from.minSegment, 1), keep: cmp.Or(opts.Keep, math.MaxUint64), roundFrom: from.NextSegment}
	w.device.elapsed, w.slow.try = opts.Elapsed, tryBytes
	w.changed.L = &w.mu
	if err := vfs.MakeDir(opts.FS, filepath.Dir(opts.Dir), opts.Dir); err != nil {
		return nil, err
	}
	if err := errors.Join(w.adoptSpares(), w.adoptSegments(from)); err != nil {
		return nil, err
	}
	w.buf = w.newBuffer(minBuffer)
	if err := w.continueFrom(from); err != nil {
		_ = w.cur.close() // the first error tells more
		w.freeBuffers()
		return nil, err
	}
	return w, nil
}

// usable returns why the writer takes no records, nil if it does. Callers hold mu.
func (w *Writer) usable() error {
	if w.err == nil && w.closed {
		return ErrClosed
	}
	return w.err
}

// fail poisons the writer and returns the error that all later calls return. Callers hold mu.
func (w *Writer) fail(op, file string, err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("%w to %s %s, reopen to go on: %w", ErrFailed, op, file, err)
		w.opts.Logger.Error("log failed; it takes no more records", "error", w.err)
	}
	w.setDue()
	w.wakeGathered()
	return w.err
}

// wakeGathered wakes the callers that wait for the next group; each checks its own record.
// Callers hold mu.
func (w *Writer) wakeGathered() {
	w.changed.Broadcast()
	if w.gathered != nil {
		close(w.gathered)
		w.gathered, w.candidate = nil, nil
	}
}

// AppendNow adds a record, the concatenation of payload, to the next group, and returns its LSN;
// Sync of that LSN makes it durable. The payload is copied. The position must be above the last
// one of the stream, including positions from before Recover (else errPosition); streams are
// independent of each other.
//
// The caller may hold locks. Where AppendNow would have to call the system, or wait for a caller
// that does, it does nothing and returns ErrRoom. MakeRoom then makes the room. After an error that
// matches ErrFailed, the record may or may not be there after reopening; after other errors it will
// not be.
func (w *Writer) AppendNow(stream uint32, position uint64, payload ...[]byte) (LSN, error) {
	n := 0
	for _, p := range payload {
		if len(p) > MaxRecordSize-n {
			return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxRecordSize)
		}
		n += len(p)
	}
	w.lockSoon()
	defer w.mu.Unlock()
	if err := w.makeRoom(recordSize(n), false); err != nil {
		return 0, err
	}
	if last, ok := w.positions[stream]; ok && position <= last {
		return 0, fmt.Errorf("%w: position %d of stream %d follows %d", errPosition, position, stream, last)
	}
	w.encode(stream, position, pieces{list: payload}, n)
	w.positions[stream] = position
	w.last++
	w.setDue()
	if !w.opts.Sync {
		w.passOn(n)
	}
	return w.last, nil
}

// lockSoon takes mu. A goroutine that waits for mu loses the processor, for a hundred
// microseconds if others are busy. Most holders keep mu for less than a microsecond, so it tries
// 100 times first.
func (w *Writer) lockSoon() {
	for range 100 {
		if w.mu.TryLock() {
			return
		}
	}
	w.mu.Lock()
}

// making is a MakeRoom under way.
type making struct {
	done chan struct{}
	err  error // once done
}

// MakeRoom waits until there is room for a record, after AppendNow found none. If the segment is
// full, it opens the file of the next one. If maxGroup bytes are waiting, it waits for them to be
// written, or writes them. For a record larger than a segment it reserves the space. Errors match
// ErrFailed or ErrClosed, say that there is no space, or are the context's. Other callers may take
// the room first.
func (w *Writer) MakeRoom(ctx context.Context, payload ...[]byte) error {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	w.mu.Lock()
	if ctx.Done() == nil {
		defer w.mu.Unlock()
		return w.awaitRoom(recordSize(n))
	}
	m := w.making
	if m == nil {
		// One goroutine serves all waiting callers: the device may hang for long.
		m = &making{done: make(chan struct{})}
		w.making = m
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			m.err = w.awaitRoom(recordSize(n))
			w.making = nil
			close(m.done)
		}()
	}
	w.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitRoom is makeRoom for a caller that waits. Callers hold mu; it is released meanwhile.
func (w *Writer) awaitRoom(size int64) error {
	w.slow.wait(1, w.opts.Elapsed())
	defer func() { w.slow.wait(-1, w.opts.Elapsed()) }()
	return w.makeRoom(size, true)
}

// makeRoom makes sure that a record whose frames take size bytes may be encoded, and that the
// disk has space for it. Without wait, it returns ErrRoom instead of waiting, writing or
// rotating. Callers hold mu; it is released meanwhile.
func (w *Writer) makeRoom(size int64, wait bool) error {
	for {
		if err := w.usable(); err != nil {
			return err
		}
		full := !w.fits(size)
		large := w.endOf(size) > w.cur.size
		crowded := int64(len(w.buf))+size > maxGroup && (len(w.buf) > 0 || len(w.flying) > 0) ||
			len(w.buf) >= writeAnyway && w.ready.Load() != nil && !w.opts.Sync
		var err error
		switch {
		case !full && !large && !crowded && !w.opening && w.full == nil:
			return nil
		case !wait:
			return ErrRoom
		case len(w.flying) > 0 || w.opening:
			err = w.awaitFlight()
		case full && w.next == nil:
			err = w.openNext()
		case full:
			w.rotate()
		case large:
			err = w.grow(w.endOf(size))
		default:
			_, err = w.see(w.launch(false), false)
		}
		if err != nil {
			return err
		}
	}
}

// endOf returns where the current segment would end after size more bytes, padding and trailer
// included.
func (w *Writer) endOf(size int64) int64 {
	return nextBlock(w.cur.head.Offset+size+frameHeaderSize-1) + blockSize
}

// fits reports whether the current segment takes size more bytes. An empty segment takes
// anything. A segment whose file was not written before ends as soon as there is a file that was:
// syncs in that are twice as fast.
//
// A segment that Rotate ends takes nothing: otherwise groups in flight might follow each other for ever.
func (w *Writer) fits(size int64) bool {
	if w.ending == w.cur.number && w.cur.head.Records > 0 {
		return false
	}
	written := len(w.spares) > 0 || w.next != nil && !w.next.raw
	if w.cur.raw && w.opts.Sync && written && w.cur.head.Records > 0 {
		return false
	}
	return w.endOf(size) <= w.opts.SegmentSize || w.cur.head.Offset == blockSize
}

// DurableLSN returns the last record known to be durable. It never blocks.
func (w *Writer) DurableLSN() LSN { return LSN(w.durable.Load()) }

// Segment returns the number of the current segment. It never blocks. If the caller has just
// appended, and no other caller has since, this is the segment of its record. That segment may
// not be on the disk yet, not even as a file.
func (w *Writer) Segment() uint64 { return w.number.Load() }

// Newest returns the number of the newest segment that has a file. The death of the process does
// not take it. It never blocks.
func (w *Writer) Newest() uint64 { return w.linked.Load() }

// NewestOnDisk returns the number of the newest segment that is sure to be part of the log after
// a crash of the machine, with all of those before it. It never blocks.
func (w *Writer) NewestOnDisk() uint64 { return w.onDisk.Load() }

// End returns where the log ends if it was closed in good order, else zero.
func (w *Writer) End() End {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Stats counts what a writer has written since it was made.
type Stats struct {
	Bytes   uint64            // framing and padding included, compressed
	Saved   uint64            // bytes that compression took off
	Groups  uint64            // of records that were written together, and synced together if they were synced
	Records uint64            // in the groups
	Syncs   *latency.Snapshot // of groups, how long each took
}

// Stats returns the present counts. It never blocks.
func (w *Writer) Stats() Stats {
	return Stats{w.bytes.Load(), w.saved.Load(), w.groupCount.Load(), w.records.Load(), w.syncs.Snapshot()}
}

// group is a write in flight.
type group struct {
	file       vfs.File
	name       string
	buf        []byte
	at         int64
	seed       uint64 // of the segment
	durable    int64  // what the segment's frames state, when the group is detached
	compressed []byte // for compress; nil if the group is written as it is
	wrote      int    // bytes
	last       LSN
	sync       bool
	done       chan struct{} // closed when it is finished; nil without a waiter
	backlog    *backlog      // what follows if earlier segments are not durable, else nil
	rotation   *rotation     // what follows if it is the last group of its segment, else nil

	written bool // and synced if sync is set; the rotation may not be done
	stalled bool // there was no space, and no caller is trying again yet

	call step  // the last one that was begun; its do is unset for a write or sync of the records
	err  error // of call
	over bool  // err is the outcome
}

// detach pads the gathered frames and takes them out as a group. Callers hold mu and have checked
// that the group may be written.
func (w *Writer) detach(sync bool) *group {
	w.pad()
	var g *group
	if n := len(w.groups); n > 0 {
		g, w.groups = w.groups[n-1], w.groups[:n-1]
	} else {
		g = new(group)
	}
	*g = group{
		file: w.cur.file, name: w.cur.name, buf: w.buf, done: w.gathered,
		at: w.cur.head.Offset - int64(len(w.buf)), last: w.last, sync: sync,
		seed: w.cur.seed, durable: w.cur.durable,
	}
	w.gathered, w.candidate = nil, nil
	w.buf = w.takeBuffer()
	if w.compressible(len(g.buf)) {
		g.compressed = w.takeBuffer()
	}
	return g
}

// transfer writes the records of a group, and syncs them if sync is set. It then syncs the group's backlog and
// carries out its rotation. A group that found no space goes on where it stopped. The caller need not hold
// mu: the group belongs to it until land.
func (w *Writer) transfer(g *group) {
	w.device.begin()
	defer w.device.end()
	g.err = nil
	if !g.written && len(g.buf) > 0 {
		b := w.compress(g)
		g.wrote = len(b)
		g.call, g.err = step{op: "write", file: g.name}, writeAll(g.file, b, g.at)
	}
	if !g.written && g.sync && g.err == nil {
		began := w.opts.Elapsed()
		g.call, g.err = step{op: "sync", file: g.name, final: true}, g.file.SyncData()
		w.syncs.Add(w.opts.Elapsed() - began)
	}
	g.written = g.err == nil
	if g.backlog != nil && g.written {
		g.run(&g.backlog.left)
	}
	if g.rotation != nil && g.err == nil {
		g.run(&g.rotation.left)
	}
}

// run carries out the steps that are left, as calls of the group.
func (g *group) run(left *[]step) {
	for ; len(*left) > 0; *left = (*left)[1:] {
		g.call = (*left)[0]
		if g.err = g.call.do(); g.err != nil {
			return
		}
	}
}

func writeAll(f vfs.File, b []byte, at int64) error {
	n, err := f.WriteAt(b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// finish publishes the outcome of a group. Callers hold mu.
func (w *Writer) finish(g *group) {
	switch {
	case g.err != nil:
		if g.backlog != nil {
			g.backlog.abandon()
		}
		if g.rotation != nil {
			g.rotation.abandon()
		}
		_ = w.fail(g.call.op, g.call.file, g.err) // kept in w.err
	case w.err == nil: // else records before it may be missing
		if n := g.last - w.written; n > 0 { // the last group of a segment may have no records
			w.groupCount.Add(1)
			w.records.Add(uint64(n))
		}
		w.written = g.last
		w.bytes.Add(uint64(g.wrote))
		w.saved.Add(uint64(len(g.buf) - g.wrote))
		if g.sync {
			w.durable.Store(uint64(g.last))
		}
		if g.backlog != nil && g.backlog.newest != 0 {
			w.onDisk.Store(g.backlog.newest)
		}
		if g.rotation != nil {
			w.rotated(g.rotation)
		} else if g.sync {
			w.cur.durable = g.at + int64(len(g.buf))
		}
		if w.candidate != nil && !w.inviting && w.mayLead() {
			close(w.candidate)
			w.candidate = nil
		}
	case g.rotation != nil:
		g.rotation.drop()
	}
	if g.done != nil {
		close(g.done)
	}
	w.giveBuffer(g.buf)
	if g.compressed != nil {
		w.giveBuffer(g.compressed)
	}
	if g.rotation != nil && !g.rotation.lazy {
		w.giveBuffer(g.rotation.trailer)
	}
	*g = group{}
	w.groups = append(w.groups, g)
	w.changed.Broadcast()
}

// launch makes the gathered records a group in flight, for the caller to fly. Callers hold mu and
// have checked that they may.
func (w *Writer) launch(sync bool) *group {
	g := w.detach(sync)
	if sync {
		g.backlog = w.takeBacklog()
	}
	w.flying = append(w.flying, g)
	return g
}

// land records that a group was written, and finishes it once those before it are finished. A
// group that found no space stays in flight: writing the same bytes to the same place again is
// safe, while a failed sync is final. Callers hold mu.
func (w *Writer) land(g *group) {
	switch {
	case g.err == nil:
		if !slices.ContainsFunc(w.flying, func(g *group) bool { return g.stalled }) {
			w.full = nil
		}
	case !g.call.final && w.err == nil && vfs.IsNoSpace(g.err):
		w.stall(g)
		return
	}
	w.over(g)
}

// stall keeps a group for later, and wakes all waiting callers. Callers hold mu.
func (w *Writer) stall(g *group) {
	known := w.full != nil
	w.full = fmt.Errorf("wal: no space to %s %s: %w", g.call.op, g.call.file, g.err)
	if !known { // log once, although every retry ends here
		w.opts.Logger.Warn("no space for the log; writes wait for some", "error", w.full)
	}
	g.stalled = true
	for _, g := range w.flying {
		if g.done != nil {
			close(g.done)
			g.done = nil
		}
	}
	w.wakeGathered()
}

// over finishes a group once those before it are finished. Callers hold mu.
func (w *Writer) over(g *group) {
	g.over = true
	for len(w.flying) > 0 && w.flying[0].over {
		first := w.flying[0]
		w.flying = append(w.flying[:0], w.flying[1:]...)
		w.finish(first)
	}
}

// writeOut writes the gathered records without releasing mu, for when no caller may append
// meanwhile. Callers have seen that no group is in flight.
func (w *Writer) writeOut(sync bool) error {
	g := w.detach(sync)
	w.transfer(g)
	w.finish(g)
	return w.err
}

// Close syncs what was appended, ends the log in good order and closes it. It returns the error
// that the writer failed with, if any. Later calls return nil.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true // nothing is appended while waiting
	w.setDue()
	for {
		w.dropStalled()
		var err error
		if len(w.flying) > 0 || w.preparing || w.opening {
			err = w.awaitFlight()
		} else if w.err == nil && w.onDisk.Load() < w.cur.number {
			_, err = w.see(w.launch(true), false)
		} else {
			break
		}
		if err != nil {
			_ = w.fail("write to", w.cur.name, err) // kept in w.err
		}
	}
	defer w.freeBuffers()
	defer func() { w.closeUnsynced(w.sealed) }()
	if w.next != nil {
		_ = w.next.file.Close() // it stays a spare: nothing was written to it
		w.next = nil
	}
	if w.err != nil {
		_ = w.cur.close() // a second error adds nothing
		return w.err
	}
	return w.end()
}

// dropStalled ends the stalled groups if the writer has failed: no caller will write them any
// more. Callers hold mu.
func (w *Writer) dropStalled() {
	for w.err != nil && len(w.flying) > 0 && w.flying[0].stalled {
		g := w.flying[0]
		g.stalled, g.err = false, w.err
		w.over(g)
	}
}
