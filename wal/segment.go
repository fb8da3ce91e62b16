package wal

// The life of a segment: a spare file gets a header and a name, takes groups,
// ends in a trailer, is sealed by its successor's header, and is released to
// become a spare again.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// newSegment makes the first segment of this writer current: header -> sync -> records carried
// over, if any -> sync -> rename -> sync of the directory. From the rename on the file counts as
// part of the log, and only after the last step may it take new records.
//
// The header is synced by itself before any frame follows, so that a file with frames under some
// seed always shows that seed: adoptSpares relies on it.
func (w *Writer) newSegment(from *spareFile, previous uint64, sealed seal, carry func() error) error {
	header := w.begin(from, previous, sealed)
	if op, file, err := run(from.headerSteps(header)); err != nil {
		return w.fail(op, file, err)
	}
	if carry != nil {
		if err := carry(); err != nil {
			return err
		}
		if err := w.writeOut(true); err != nil {
			return err
		}
	}
	w.cur.file = nil
	name := filepath.Join(w.opts.Dir, segmentName(w.cur.number))
	if op, file, err := run(w.joinSteps(from, w.cur.number, name, &w.cur.file)); err != nil {
		return w.fail(op, file, err)
	}
	w.cur.name = name
	w.onDisk.Store(w.cur.number)
	return nil
}

// begin makes a spare the current segment, in memory only, and returns its header. Callers hold
// mu.
func (w *Writer) begin(from *spareFile, previous uint64, sealed seal) []byte {
	w.cur = segment{
		file: from.file, name: from.name, size: from.size, number: previous + 1, raw: from.raw,
		head: seal{offset: blockSize}, durable: blockSize,
	}
	w.number.Store(w.cur.number)
	w.setDue()
	h := header{version: formatVersion, store: w.opts.StoreID, number: w.cur.number, previous: previous, sealed: sealed, size: from.size}
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

// run carries out steps, and names the one that failed.
func run(steps []step) (op, file string, err error) {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return s.op, s.file, err
		}
	}
	return "", "", nil
}

// headerSteps write and sync the header of the segment that a spare becomes.
func (s *spareFile) headerSteps(header []byte) []step {
	return []step{
		{"write the header of", s.name, false, func() error { return writeAll(s.file, header, 0) }},
		{"sync the header of", s.name, true, s.file.Sync},
	}
}

// joinSteps make a spare with a header a segment of the log, and open the segment.
func (w *Writer) joinSteps(from *spareFile, number uint64, name string, f *vfs.File) []step {
	return []step{
		// Not every system can rename an open file.
		{"close", from.name, true, from.file.Close},
		{"rename", from.name, false, func() error { return w.opts.FS.Rename(from.name, name) }},
		{"sync the directory of", name, true, func() error { return w.opts.FS.SyncDir(w.opts.Dir) }},
		{"open", name, false, func() (err error) {
			*f, err = w.opts.FS.OpenReadWrite(name, w.access())
			return err
		}},
		{"have noted the beginning of", name, false, func() error {
			if w.opts.Begun == nil {
				return nil
			}
			return w.opts.Begun(number)
		}},
	}
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
// Buffered data is written back in the meantime. Otherwise the sync at the end of a segment,
// which must finish before the next segment is written, would have to write all of it.
func (w *Writer) access() vfs.OpenOptions {
	return vfs.OpenOptions{Direct: w.opts.Sync, WriteBehind: !w.opts.Sync}
}

// end syncs the last segment, writes and syncs its trailer, and closes the file. The trailer says
// of the segment what the header of a successor would say. Callers hold mu and have seen that no
// group is in flight.
func (w *Writer) end() error {
	if w.cur.durable != w.cur.head.offset {
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
	f := w.cur.file
	w.cur.file = nil
	if err := f.Close(); err != nil {
		return w.fail("close", w.cur.name, err)
	}
	w.ended = End{Segment: w.cur.number, Offset: at.offset, Records: at.records, Chain: at.chain}
	return nil
}

// Rotate starts a new segment unless the current one has no records, and returns the number of
// the current one once that is on the disk. All records appended before are then durable.
func (w *Writer) Rotate() (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.readyToRotate(); err != nil {
		return 0, err
	}
	if w.cur.head.records == 0 {
		return w.cur.number, nil
	}
	if err := w.rotate(); err != nil {
		return 0, err
	}
	number := w.cur.number
	for w.onDisk.Load() < number && w.err == nil {
		if err := w.awaitFlight(); err != nil {
			return 0, err
		}
	}
	return number, w.err
}

// readyToRotate returns when no group is in flight, and the file of the next segment is open if
// the current one has records. Callers hold mu; it is released meanwhile.
func (w *Writer) readyToRotate() (err error) {
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for err == nil {
		err = w.usable()
		switch {
		case err != nil:
		case len(w.flying) > 0 || w.opening:
			err = w.awaitFlight()
		case w.next == nil && w.cur.head.records > 0:
			err = w.openNext()
		default:
			return nil
		}
	}
	return err
}

// continueFrom starts the first segment of this writer, with the records that the old last
// segment holds beyond its last stated durable offset.
func (w *Writer) continueFrom(from RecoverResult) error {
	name, raw := w.takeSpare()
	first, err := w.openSpare(name, raw)
	if err != nil {
		return err
	}
	t := from.tail
	if t == nil {
		return w.newSegment(first, from.NextSegment-1, seal{}, nil)
	}
	err = w.newSegment(first, t.number, t.sealed, func() error { return w.carryOver(t) })
	if err != nil {
		return err
	}
	if t.torn || t.sealed.records == 0 {
		w.cutOff(t)
	}
	return nil
}

// carryOver copies records from the old last segment. It must read exactly what Recover
// delivered.
func (w *Writer) carryOver(t *tail) (err error) {
	if t.end.offset == t.sealed.offset {
		return nil
	}
	r, err := openSegment(&w.opts, t.number, true)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.file.Close(); err == nil {
			err = cerr
		}
	}()
	s := newScanner(r, t.sealed, map[uint32]uint64{}, func(rec Record) error {
		w.encode(rec.Stream, rec.Position, pieces{list: [][]byte{rec.Payload}}, len(rec.Payload))
		if len(w.buf) < maxGroup {
			return nil
		}
		return w.writeOut(false)
	})
	return s.scanSealed(t.end)
}

// cutOff frees the space of a torn or empty segment behind its end. Otherwise many crashes, or
// many starts that fail later, would each keep a whole segment. A failure is only logged.
func (w *Writer) cutOff(t *tail) {
	name := filepath.Join(w.opts.Dir, segmentName(t.number))
	f, err := w.opts.FS.OpenReadWrite(name, vfs.OpenOptions{})
	if err == nil {
		if err = f.Truncate(t.sealed.offset); err == nil {
			err = f.Sync() // otherwise a crash could give the space back to the file
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		w.opts.Logger.Warn("could not cut a segment", "file", name, "error", err)
	}
	if i := slices.IndexFunc(w.sealed, func(s SegmentInfo) bool { return s.Number == t.number }); i >= 0 {
		w.sealed[i].Bytes, w.sealed[i].Records = t.sealed.offset, t.sealed.records
	}
}

// info describes the current segment.
func (w *Writer) info() SegmentInfo {
	var last uint64
	if p := w.positions[0]; p != nil {
		last = *p
	}
	return SegmentInfo{
		Number: w.cur.number, Bytes: w.cur.head.offset, Records: w.cur.head.records, LastPosition: last,
		raw: w.cur.raw && w.cur.head.offset < w.opts.SegmentSize/2,
	}
}

// Release gives up the segments below minSegment, which the caller has recorded durably as the
// minSegment of its next Recover. Their files become spares or are deleted. An error leaves files
// behind that the next NewWriter finds; the log itself is not affected.
func (w *Writer) Release(minSegment uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if newest := w.onDisk.Load(); minSegment > newest {
		return fmt.Errorf("wal: release up to segment %d, the newest one is %d", minSegment, newest)
	}
	keep, _ := slices.BinarySearchFunc(w.sealed, minSegment, func(s SegmentInfo, n uint64) int {
		return cmp.Compare(s.Number, n)
	})
	if keep == 0 {
		return nil
	}
	dead := slices.Clone(w.sealed[:keep])
	w.sealed = slices.Delete(w.sealed, 0, keep)
	return w.retire(dead)
}

func (w *Writer) closeFile() {
	if w.cur.file != nil {
		w.cur.file.Close() // the writer has failed: a second error adds nothing
		w.cur.file = nil
	}
}
