package wal

// From one segment to the next.
//
// That takes four syncs and a rename, milliseconds, and who appends does not wait
// for them: he opens the next file, makes its header in memory, and frames what
// follows for the new segment at once. The rest is the turn: what the last group of
// the old segment has to do once it is written. That group is on its way like any
// other, and whoever comes first writes it; no other group begins before it is done.
// Until then the new segment is not part of the log: NewestOnDisk, Segments and
// Release know the old one as the last, as recovery would.

import (
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// turn ends a segment and begins the next.
type turn struct {
	old     vfs.File
	end     int64 // where the trailer goes
	trailer []byte
	ended   SegmentInfo // the old segment

	spare  *spareFile // becomes the next
	header []byte
	number uint64
	name   string   // path
	next   vfs.File // nil until it is a segment
}

// rotate lets the next segment follow what was appended so far, and leaves the turn
// to others if there are any. The file comes first: if there is no space for it,
// nothing has happened, and the writer goes on when there is. Callers hold mu and
// have seen that nothing is on its way; it may be released meanwhile.
func (w *Writer) rotate() error {
	spare, err := w.openSpare()
	if err != nil {
		return err
	}
	g := w.detach(true)
	sealed := w.cur.head
	g.sync = w.cur.durable != sealed.offset
	g.turn = &turn{old: w.cur.file, end: sealed.offset, ended: w.info(), spare: spare}
	w.cur.durable = sealed.offset // it is when the trailer is written
	w.putTrailer()
	w.pad()
	g.turn.trailer, w.buf = w.buf, w.takeBuffer()
	g.turn.header = w.begin(spare, w.cur.number, sealed)
	g.turn.number, g.turn.name = w.cur.number, filepath.Join(w.opts.Dir, segmentName(w.cur.number))
	w.cur.file = nil // until the turn is done
	w.flying = append(w.flying, g)
	w.ready.Store(g)
	switch {
	case w.opts.Gathered != nil:
		w.opts.Gathered()
	case !w.opts.Sync: // there is nobody else
		w.carry()
	}
	return w.err
}

// transfer is the only place that writes what an Append left to others. Nobody
// holds mu; the group is the caller's until it has landed.
func (w *Writer) transfer(g *group) {
	g.op, g.err = g.transfer()
	t := g.turn
	if t == nil {
		return
	}
	if g.err != nil {
		t.old.Close() // the writer fails: nothing is lost by a second error
		t.spare.file.Close()
		return
	}
	if g.op, g.err = t.endOld(); g.err != nil {
		t.spare.file.Close() // likewise
		return
	}
	if g.op, g.err = t.spare.writeHeader(t.header); g.err != nil {
		g.name = t.spare.name
		t.spare.file.Close() // likewise
		return
	}
	t.next, g.op, g.name, g.err = w.become(t.spare, t.number, t.name)
}

// endOld writes and syncs the trailer of the old segment, all before which is
// durable, and closes it.
func (t *turn) endOld() (op string, err error) {
	if err := writeAll(t.old, t.trailer, t.end); err != nil {
		t.old.Close() // likewise
		return "write", err
	}
	if err := t.old.SyncData(); err != nil {
		t.old.Close() // likewise
		return "sync", err
	}
	return "close", t.old.Close()
}

// turned notes that the next segment is one. Callers hold mu.
func (w *Writer) turned(t *turn) {
	w.sealed = append(w.sealed, t.ended)
	w.cur.file, w.cur.name = t.next, t.name
	w.onDisk.Store(t.number)
	w.stats.Rotations++
	w.stats.Bytes += uint64(len(t.trailer))
	w.stats.Writes++
	w.stats.Syncs++
}

// turning returns the turn under way, nil if there is none. Callers hold mu.
func (w *Writer) turning() *turn {
	if len(w.flying) == 0 {
		return nil
	}
	return w.flying[0].turn
}
