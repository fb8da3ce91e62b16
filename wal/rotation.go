package wal

// Rotation: from one segment to the next.
//
// A rotation takes four syncs and a rename, which is milliseconds, and an appender does not wait
// for them. It opens the next file, makes the header in memory, and frames later records for the
// new segment at once. The rest is the rotation: what the last group of the old segment has to do
// once it is written. That group is in flight like any other, and the first caller to reach it
// writes it; no other group begins before it is done. Until then the new segment is not part of
// the log: for Newest and Release the old one is the last, as for recovery. A lazy rotation, see
// lazy.go, takes one sync, of the directory.

import (
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// rotation ends a segment and begins the next.
type rotation struct {
	old     vfs.File
	lazy    bool
	trailer []byte        // nil if lazy
	ended   sealedSegment // the old segment

	spare *segmentFile // becomes the next segment
	next  vfs.File     // nil until the segment is opened
	left  []step       // steps not done yet
}

// rotate begins the next segment in memory, and leaves the rotation to other callers. The next
// file is already open, so a lack of space for it has shown before anything changed. Callers hold
// mu and have seen that no group is in flight.
func (w *Writer) rotate() {
	lazy := w.lazy()
	g := w.launch(!lazy)
	old, sealed := w.cur, w.cur.head
	t := &rotation{old: old.file, lazy: lazy, spare: w.next}
	t.ended = sealedSegment{number: old.number, raw: old.raw && sealed.Offset < w.opts.SegmentSize/2, size: old.size}
	var end []step
	if lazy { // without a trailer, which would say that the segment is durable
		t.ended.unsynced = old.file
		if w.unsynced >= maxUnsynced {
			g.backlog = w.takeUnsynced(1)
		}
	} else {
		g.sync = old.durable != sealed.Offset
		w.cur.durable = sealed.Offset // true by the time the trailer is written
		w.putTrailer()
		w.pad()
		t.trailer, w.buf = w.buf, w.takeBuffer()
		end = []step{
			{"write", old.name, false, func() error { return writeAll(t.old, t.trailer, sealed.Offset) }},
			{"sync", old.name, true, t.old.SyncData},
			{"close", old.name, true, t.old.Close},
		}
	}
	w.next = nil
	header := w.begin(t.spare, old.number+1, sealed, lazy)
	w.cur.name = w.path(segmentName(w.cur.number))
	w.cur.file = nil // until the rotation is done
	// The old segment ends, and the spare becomes the next one.
	t.left = slices.Concat(end, t.spare.headerSteps(header, lazy), w.joinSteps(t.spare, &t.next, lazy))
	g.rotation = t
	w.leave(g)
}

// abandon closes the files of a rotation that will not end. The writer has failed: a second error
// adds nothing.
func (t *rotation) abandon() {
	_, _ = t.old.Close(), t.spare.file.Close()
	if t.next != nil {
		_ = t.next.Close()
	}
}

// drop closes the files of a rotation that ended after the writer had failed.
func (t *rotation) drop() {
	_ = t.next.Close()
	if t.lazy {
		_ = t.old.Close()
	}
}

// rotated makes the next segment part of the log. Callers hold mu.
func (w *Writer) rotated(t *rotation) {
	w.sealed = append(w.sealed, t.ended)
	if t.lazy {
		w.unsynced++
	}
	w.cur.file = t.next
	w.linked.Store(w.cur.number)
	if !t.lazy {
		w.onDisk.Store(w.cur.number)
	}
	w.bytes.Add(uint64(len(t.trailer)))
}
