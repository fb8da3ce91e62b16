package wal

// Rotation: from one segment to the next.
//
// A rotation takes four syncs and a rename, which is milliseconds, and an appender does not wait
// for them. It opens the next file, makes the header in memory, and frames later records for the
// new segment at once. The rest is the rotation: what the last group of the old segment has to do
// once it is written. That group is in flight like any other, and the first caller to reach it
// writes it; no other group begins before it is done. Until then the new segment is not part of
// the log: for NewestOnDisk, Segments and Release the old one is the last, as for recovery.

import (
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// rotation ends a segment and begins the next.
type rotation struct {
	old     vfs.File
	end     int64 // where the trailer goes
	trailer []byte
	ended   SegmentInfo // the old segment

	spare  *spareFile // becomes the next segment
	header []byte
	number uint64
	name   string   // path
	next   vfs.File // nil until the segment is opened
	left   []step   // steps not done yet; nil before the rotation begins
}

// rotate begins the next segment in memory, and leaves the rotation to other callers if there are
// any. The next file is already open, so a lack of space for it has shown before anything
// changed. Callers hold mu and have seen that no group is in flight; mu may be released
// meanwhile.
func (w *Writer) rotate() error {
	spare := w.next
	w.next = nil
	g := w.detach(true)
	sealed := w.cur.head
	g.sync = w.cur.durable != sealed.offset
	g.rotation = &rotation{old: w.cur.file, end: sealed.offset, ended: w.info(), spare: spare}
	w.cur.durable = sealed.offset // true by the time the trailer is written
	w.putTrailer()
	w.pad()
	g.rotation.trailer, w.buf = w.buf, w.takeBuffer()
	g.rotation.header = w.begin(spare, w.cur.number, sealed)
	g.rotation.number, g.rotation.name = w.cur.number, filepath.Join(w.opts.Dir, segmentName(w.cur.number))
	w.cur.file = nil // until the rotation is done
	w.flying = append(w.flying, g)
	w.ready.Store(g)
	switch {
	case w.opts.Gathered != nil:
		w.opts.Gathered()
	case !w.opts.Sync: // no other caller will write the group
		w.carry()
	}
	return w.err
}

// transfer writes a group, or resumes one that found no space, with its rotation. The caller does not
// hold mu; the group belongs to it until land.
func (w *Writer) transfer(g *group) {
	w.device.begin(w.opts.Elapsed)
	defer w.device.end(w.opts.Elapsed)
	g.err = nil
	if !g.written {
		if g.op, g.final, g.err = g.transfer(); g.err != nil {
			return
		}
		g.written = true
	}
	t := g.rotation
	if t == nil {
		return
	}
	if t.left == nil {
		t.left = w.rotationSteps(t, g.name)
	}
	for len(t.left) > 0 {
		s := t.left[0]
		if err := s.do(); err != nil {
			g.op, g.name, g.final, g.err = s.op, s.file, s.final, err
			return
		}
		t.left = t.left[1:]
	}
}

// rotationSteps end the old segment, whose groups are durable, and turn the spare into the next.
func (w *Writer) rotationSteps(t *rotation, old string) []step {
	return slices.Concat([]step{
		{"write", old, false, func() error { return writeAll(t.old, t.trailer, t.end) }},
		{"sync", old, true, t.old.SyncData},
		{"close", old, true, t.old.Close},
	}, t.spare.headerSteps(t.header), w.joinSteps(t.spare, t.number, t.name, &t.next))
}

// abandon closes the files of a rotation that will not end. The writer has failed: a second error
// adds nothing.
func (t *rotation) abandon() {
	_, _ = t.old.Close(), t.spare.file.Close()
	if t.next != nil {
		_ = t.next.Close()
	}
}

// rotated makes the next segment part of the log. Callers hold mu.
func (w *Writer) rotated(t *rotation) {
	w.sealed = append(w.sealed, t.ended)
	w.cur.file, w.cur.name = t.next, t.name
	w.onDisk.Store(t.number)
	w.stats.Rotations++
	w.stats.Bytes += uint64(len(t.trailer))
	w.stats.Writes++
	w.stats.Syncs++
}

// rotating returns the rotation under way, nil if there is none. Callers hold mu.
func (w *Writer) rotating() *rotation {
	if len(w.flying) == 0 {
		return nil
	}
	return w.flying[0].rotation
}
