package wal

// Appending and syncing.
//
// Records are framed straight into a buffer of the group to come. Sync makes
// its caller wait until its record is durable: if nobody is writing, the caller
// becomes the leader, takes the buffer with all that has gathered in it, writes
// it at once and syncs; those who come meanwhile fill the other buffer and one
// of them leads next. So a group is as large as the disk is slow, and there is
// neither a goroutine nor a timer.

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	// maxGroup bounds what waits in memory: Append writes when it is reached.
	// Two such buffers exist.
	maxGroup = 4 << 20
	// writeThreshold is what gathers before Append writes by itself when
	// nobody is going to call Sync. A larger one gains nothing: 64 MiB took
	// 5-13 ms through the page cache in pieces of 128 KiB, and the loss at a
	// crash of the process stays small.
	writeThreshold = 128 << 10
	minBuffer      = 64 << 10
)

// LSN counts the records appended to one Writer, from 1 on.
type LSN uint64

// Stats counts what a writer has done.
type Stats struct {
	Records   uint64 // appended
	Bytes     uint64 // written, framing and padding included
	Writes    uint64
	Syncs     uint64 // of groups; those of new segments are not counted
	Rotations uint64
}

// Writer appends to a log. Its methods are safe for concurrent use.
type Writer struct {
	opts    Options
	durable atomic.Uint64 // LSN
	number  atomic.Uint64 // of the current segment

	mu sync.Mutex
	// changed is broadcast when busy or preparing ends, and with every change
	// of durable and err.
	changed sync.Cond
	err     error // *FailedError; sticky
	closed  bool
	// busy: a leader is writing without holding mu. Nobody else may write, or
	// replace cur, until it ends.
	busy      bool
	preparing bool // PrepareNext is at work

	cur       segment
	buf       []byte // frames of the group to come; aligned; ends at cur.head
	idle      []byte // the other buffer, nil while busy
	last      LSN    // of the last record in buf
	written   LSN    // handed to the operating system
	positions map[uint32]uint64

	sealed    []SegmentInfo // older segments that were not released, ascending
	spares    []string      // file names
	nextSpare uint64
	stats     Stats
}

// segment is the current one.
type segment struct {
	file    vfs.File
	name    string // path
	number  uint64
	seed    uint64
	head    seal  // where the next frame will be
	durable int64 // synced up to here
}

// NewWriter starts a new segment behind what Recover found with the same
// options. When it returns, all records that Recover delivered are durable.
func NewWriter(opts Options, from RecoverResult) (*Writer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if from.NextSegment == 0 {
		return nil, errors.New("wal: NewWriter needs the result of Recover")
	}
	w := &Writer{
		opts:      opts,
		idle:      vfs.AlignedBuffer(minBuffer)[:0],
		buf:       vfs.AlignedBuffer(minBuffer)[:0],
		positions: maps.Clone(from.positions),
		sealed:    append([]SegmentInfo(nil), from.Segments...),
	}
	w.changed.L = &w.mu
	if err := opts.FS.MkdirAll(opts.Dir); err != nil {
		return nil, err
	}
	if err := w.adoptSpares(from); err != nil {
		return nil, err
	}
	if err := w.continueFrom(from); err != nil {
		w.closeFile()
		return nil, err
	}
	return w, nil
}

// usable returns why no record can be taken. Callers hold mu.
func (w *Writer) usable() error {
	if w.err == nil && w.closed {
		return ErrClosed
	}
	return w.err
}

// fail poisons the writer and returns the error that all calls return from now
// on. Callers hold mu.
func (w *Writer) fail(op, file string, err error) error {
	if w.err == nil {
		w.err = &FailedError{Op: op, File: file, Err: err}
		w.opts.Logger.Error("log failed; it takes no more records", "error", w.err)
	}
	w.changed.Broadcast()
	return w.err
}

// Append adds a record, the concatenation of payload, to the group to come,
// and returns its LSN; Sync of that makes it durable. The payload is copied.
// The position must lie above the last one of the stream, be it from before
// Recover (else ErrPosition); streams are independent of each other.
//
// Append is cheap unless the segment is full (then it starts the next one),
// or maxGroup bytes are waiting (then it waits for them to be written, or
// writes them). A record larger than that is written piece by piece. If it
// returns an error that matches ErrFailed, whether the record will be there
// after reopening is unknown; after other errors it will not.
func (w *Writer) Append(stream uint32, position uint64, payload ...[]byte) (LSN, error) {
	n := 0
	for _, p := range payload {
		if len(p) > MaxRecordSize-n {
			return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxRecordSize)
		}
		n += len(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.makeRoom(recordSize(n)); err != nil {
		return 0, err
	}
	if last, ok := w.positions[stream]; ok && position <= last {
		return 0, fmt.Errorf("%w: position %d of stream %d follows %d", ErrPosition, position, stream, last)
	}
	if err := w.encode(stream, position, pieces{list: payload}, n); err != nil {
		return 0, err
	}
	w.positions[stream] = position
	w.last++
	w.stats.Records++
	if !w.opts.Sync && len(w.buf) >= writeThreshold && !w.busy {
		lsn := w.last
		if w.lead(false); w.err != nil {
			return 0, w.err
		}
		return lsn, nil
	}
	return w.last, nil
}

// makeRoom waits, writes or rotates until a record whose frames take size
// bytes may be encoded. Callers hold mu; it is released meanwhile.
func (w *Writer) makeRoom(size int64) error {
	for {
		if err := w.usable(); err != nil {
			return err
		}
		full := !w.fits(size)
		crowded := int64(len(w.buf))+size > maxGroup
		switch {
		case !full && (!crowded || len(w.buf) == 0 && !w.busy):
			return nil
		case w.busy:
			w.changed.Wait()
		case full:
			if err := w.rotate(); err != nil {
				return err
			}
		default:
			w.lead(false)
		}
	}
}

// fits reports whether the current segment takes size more bytes. An empty one
// takes anything.
func (w *Writer) fits(size int64) bool {
	end := nextBlock(w.cur.head.offset + size + frameHeaderSize - 1) // with padding
	return end+BlockSize <= w.opts.SegmentSize || w.cur.head.offset == BlockSize
}

// Sync returns when the record lsn, and so all before it, are durable, or with
// the error that prevented it. A record that was durable before the writer
// failed still is, and Sync says so.
func (w *Writer) Sync(lsn LSN) error {
	if LSN(w.durable.Load()) >= lsn {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if lsn > w.last {
		return fmt.Errorf("wal: sync of record %d, the last one is %d", lsn, w.last)
	}
	for LSN(w.durable.Load()) < lsn {
		switch {
		case w.err != nil:
			return w.err
		case w.busy:
			w.changed.Wait()
		default:
			w.lead(true)
		}
	}
	return nil
}

// Flush hands everything appended so far to the operating system: it then
// survives the death of the process, but not that of the machine.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lsn := w.last; w.written < lsn; {
		switch {
		case w.err != nil:
			return w.err
		case w.busy:
			w.changed.Wait()
		default:
			w.lead(false)
		}
	}
	return nil
}

// DurableLSN returns the last record known to be durable. It never blocks.
func (w *Writer) DurableLSN() LSN { return LSN(w.durable.Load()) }

// Segment returns the number of the current segment. It never blocks. Called
// by the one who appends, before anybody else does, it tells which segment the
// record went to.
func (w *Writer) Segment() uint64 { return w.number.Load() }

// Stats returns what the writer has done so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// group is a write on its way.
type group struct {
	file vfs.File
	name string
	buf  []byte
	at   int64
	last LSN
	sync bool
}

// detach pads the gathered frames and takes them out as a group. Callers hold
// mu and have seen busy false.
func (w *Writer) detach(sync bool) group {
	w.pad()
	g := group{
		file: w.cur.file, name: w.cur.name, buf: w.buf,
		at: w.cur.head.offset - int64(len(w.buf)), last: w.last, sync: sync,
	}
	w.buf, w.idle = w.idle[:0], nil
	return g
}

// transfer is the only place that writes records.
func (g *group) transfer() (op string, err error) {
	if len(g.buf) > 0 {
		if n, err := g.file.WriteAt(g.buf, g.at); err != nil {
			return "write", err
		} else if n < len(g.buf) {
			return "write", io.ErrShortWrite
		}
	}
	if g.sync {
		return "sync", g.file.SyncData()
	}
	return "", nil
}

// finish publishes the outcome of a group. Callers hold mu.
func (w *Writer) finish(g group, op string, err error) error {
	w.idle = g.buf[:0]
	if err != nil {
		return w.fail(op, g.name, err)
	}
	w.written = g.last
	w.stats.Bytes += uint64(len(g.buf))
	if len(g.buf) > 0 {
		w.stats.Writes++
	}
	if g.sync {
		w.stats.Syncs++
		w.cur.durable = g.at + int64(len(g.buf))
		w.durable.Store(uint64(g.last))
	}
	w.changed.Broadcast()
	return nil
}

// lead writes what has gathered, with mu released. Callers hold mu, have seen
// busy false, and look at err afterwards.
func (w *Writer) lead(sync bool) {
	g := w.detach(sync)
	w.busy = true
	w.mu.Unlock()
	op, err := g.transfer()
	w.mu.Lock()
	w.busy = false
	_ = w.finish(g, op, err) // kept in w.err
}

// writeOut is lead with mu held throughout, for when nothing may be appended
// meanwhile.
func (w *Writer) writeOut(sync bool) error {
	g := w.detach(sync)
	op, err := g.transfer()
	return w.finish(g, op, err)
}

// Close syncs what was appended, ends the log in good order and closes it. It
// returns the error that the writer failed with, if any. Later calls return
// nil.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true // nothing is appended while waiting
	for w.busy || w.preparing {
		w.changed.Wait()
	}
	if w.err != nil {
		w.closeFile()
		return w.err
	}
	_, err := w.end()
	return err
}
