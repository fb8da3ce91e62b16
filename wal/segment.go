package wal

// The life of a segment: a spare file gets a header and a name, takes groups,
// ends in a trailer, is sealed by its successor's header, and is released to
// become a spare again.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// sealedSegment is a segment that has a successor and was not released.
type sealedSegment struct {
	number uint64
	raw    bool // most of the file was never written: not worth keeping as a spare
	size   int64
	// unsynced is the file, open, until the segment is durable or released; then nil.
	unsynced vfs.File
}

// continueFrom makes the first segment of this writer current: header -> sync -> records carried
// over, if any -> sync -> rename -> sync of the directory. From the rename on the file counts as
// part of the log, and only after the last step may it take new records.
//
// The header is synced by itself before any frame follows, so that a file with frames under some
// seed always shows that seed: adoptSpares relies on it. The file of a lazy segment may not show it.
// It has its name before it has frames, and becomes a spare once the owner has recorded a later
// minSegment; a recovery that does not find the header deletes it (settle). So its number, and its
// seed, do not come back while the file exists.
func (w *Writer) continueFrom(from RecoverResult) error {
	if err := w.settle(from); err != nil {
		return err
	}
	first, err := w.openSpare(w.takeSpare())
	if err != nil {
		return err
	}
	if err := w.run(first.headerSteps(w.begin(first, from.NextSegment, from.sealed, false), false)); err != nil {
		return err
	}
	if !from.Durable() {
		if err := w.carryOver(from); err != nil {
			return err
		}
		if err := w.writeOut(true); err != nil {
			return err
		}
	}
	w.cur.file = nil
	w.cur.name = w.path(segmentName(w.cur.number))
	if err := w.run(w.joinSteps(first, &w.cur.file, false)); err != nil {
		return err
	}
	w.linked.Store(w.cur.number)
	w.onDisk.Store(w.cur.number)
	if err := w.setLazy(); err != nil {
		return err
	}
	if len(from.segments) > 0 && (from.Torn != "" || from.sealed.Records == 0) {
		w.cutOff(from.NextSegment-1, from.sealed.Offset)
	}
	return nil
}

// begin makes a spare the current segment, in memory only, and returns its header. sealed is the
// end of the segment before, zero if there is none; with lazy, that one may not be durable.
// Callers hold mu.
func (w *Writer) begin(from *segmentFile, number uint64, sealed seal, lazy bool) []byte {
	w.cur = segment{segmentFile: *from, number: number, head: seal{Offset: blockSize}, durable: blockSize}
	w.number.Store(number)
	w.setDue()
	h := header{Version: bundleVersion, Store: w.opts.StoreID, Number: number, Sealed: sealed, Size: from.size}
	if sealed.Offset != 0 {
		h.Previous = number - 1
	}
	if w.cur.compress = w.compressNext(sealed.Offset); w.cur.compress {
		h.Version = compressedVersion
	}
	if lazy {
		h.Version = lazyVersion
	}
	block := vfs.AlignedBuffer(blockSize)
	w.cur.seed = h.encode(block)
	return block
}

// step is one call to the disk on the way from a spare to a segment.
type step struct {
	op, file string // for errors
	final    bool   // a failed call leaves an unknown state, whatever the error
	do       func() error
}

// run carries out the steps that make the first segment.
func (w *Writer) run(steps []step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return w.fail(s.op, s.file, err)
		}
	}
	return nil
}

// headerSteps write the header of the segment that a spare becomes, and sync it unless lazy is set.
func (s *segmentFile) headerSteps(header []byte, lazy bool) []step {
	steps := []step{{"write the header of", s.name, false, func() error { return writeAll(s.file, header, 0) }}}
	if !lazy {
		steps = append(steps, step{"sync the header of", s.name, true, s.file.Sync})
	}
	return steps
}

// joinSteps make a spare with a header the current segment of the log, and open it as f. Unless
// lazy is set, the owner notes it.
func (w *Writer) joinSteps(from *segmentFile, f *vfs.File, lazy bool) []step {
	name, access := w.cur.name, w.access()
	access.WriteBehind = !access.Direct && !lazy
	steps := []step{
		// Not every system can rename an open file.
		{"close", from.name, true, from.file.Close},
		{"rename", from.name, false, func() error { return w.opts.FS.Rename(from.name, name) }},
		{"sync the directory of", name, true, func() error { return w.opts.FS.SyncDir(w.opts.Dir) }},
		{"open", name, false, func() (err error) {
			*f, err = w.opts.FS.OpenReadWrite(name, access)
			return err
		}},
	}
	if !lazy {
		steps = append(steps, w.noteStep())
	}
	return steps
}

// noteStep has the owner remember the current segment, once that is on the disk with all before it.
func (w *Writer) noteStep() step {
	number := w.cur.number
	return step{"have noted the beginning of", w.cur.name, false, func() error { return w.opts.Begun(number) }}
}

// access says how segments are written. Measured on ext4 over NVMe, p50 of a
// write of 4 KiB and fdatasync, and the time for 64 MiB in writes of 128 KiB
// without a sync:
//
//	                        through the page cache   direct
//	file that grows         187-197 us               -
//	preallocated            146-179 us   8-9 ms      139-158 us   54-72 ms
//	and written before       95-118 us   4-5 ms       91-93 us    40-46 ms
//
// So I/O is direct if there is a sync for each group, and buffered if not. Segments are files
// that were written before whenever possible: recycled ones, and those that PrepareNext filled.
//
// Buffered data of a segment that is not lazy is written back in the meantime (joinSteps). Otherwise the sync at
// the end of a segment, which must finish before the next segment is written, would have to write
// all of it.
func (w *Writer) access() vfs.OpenOptions {
	return vfs.OpenOptions{Direct: w.opts.Sync}
}

// end syncs the last segment, writes and syncs its trailer, and closes the file. The trailer says
// of the segment what the header of a successor would say. Callers hold mu and have seen that no
// group is in flight.
func (w *Writer) end() error {
	if w.cur.durable != w.cur.head.Offset {
		if err := w.writeOut(true); err != nil {
			return err
		}
	}
	at := w.cur.head
	w.putTrailer()
	if err := w.writeOut(true); err != nil {
		return err
	}
	w.cur.head = at
	if err := w.cur.close(); err != nil {
		return w.fail("close", w.cur.name, err)
	}
	w.ended = End{w.cur.number, at.Offset, at.Records, at.Chain}
	return nil
}

// carryOver copies the records that the old last segment holds beyond its last stated durable
// offset. It must read exactly what Recover delivered.
func (w *Writer) carryOver(from RecoverResult) error {
	r, err := openSegment(&w.opts, from.NextSegment-1, true)
	if err != nil {
		return err
	}
	s := newScanner(r, from.sealed, map[uint32]uint64{}, func(rec Record) error {
		w.encode(rec.Stream, rec.Position, pieces{list: [][]byte{rec.Payload}}, len(rec.Payload))
		if len(w.buf) < maxGroup {
			return nil
		}
		return w.writeOut(false)
	})
	return cmp.Or(s.scanSealed(from.end), r.file.Close())
}

// cutOff frees the space of a torn or empty segment behind its end. Otherwise many crashes, or
// many starts that fail later, would each keep a whole segment. A failure is only logged.
func (w *Writer) cutOff(number uint64, end int64) {
	name := w.path(segmentName(number))
	f, err := w.opts.FS.OpenReadWrite(name, vfs.OpenOptions{})
	if err == nil {
		err = f.Truncate(end)
		if err == nil {
			err = f.Sync() // otherwise a crash could give the space back to the file
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		w.opts.Logger.Warn("could not cut a segment", "file", name, "error", err)
	}
}

// Release gives up the segments below minSegment, which the caller has recorded durably as the
// minSegment of its next Recover. Their files become spares or are deleted, but for those that are kept. An error
// leaves files behind that the next NewWriter finds; the log itself is not affected.
func (w *Writer) Release(minSegment uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if newest := w.linked.Load(); minSegment > newest {
		return fmt.Errorf("wal: release up to segment %d, the newest one is %d", minSegment, newest)
	}
	w.released = max(w.released, minSegment)
	n := 0
	for n < len(w.sealed) && w.sealed[n].number < min(w.released, w.keep) {
		n++
	}
	if n == 0 {
		return nil
	}
	dead := slices.Clone(w.sealed[:n])
	w.sealed = slices.Delete(w.sealed, 0, n)
	w.closeUnsynced(dead)
	room := w.room() - len(w.spares)
	w.mu.Unlock()
	spares, err := w.recycleAll(dead, room)
	w.mu.Lock()
	// A spare is not used before its new name is durable: after a crash the file could have its
	// old name again, with new content.
	if err == nil {
		w.spares = append(w.spares, spares...)
	}
	w.setDue()
	return err
}
