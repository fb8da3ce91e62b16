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

// newSegment makes the next segment current: header -> sync -> records carried
// over, if any -> sync -> rename -> sync of the directory. Only then may it take
// records, and only from the rename on does the file count as part of the log.
//
// The header is synced by itself before any frame follows, so that a file with
// frames under some seed always shows that seed: adoptSpares relies on it.
func (w *Writer) newSegment(from *spareFile, previous uint64, sealed seal, carry func() error) error {
	number := previous + 1
	f, spare := from.file, from.name
	w.cur = segment{
		file: f, name: spare, number: number, raw: from.raw,
		head: seal{offset: BlockSize}, durable: BlockSize,
	}
	w.setDue()
	size, err := f.Size()
	if err != nil {
		return w.fail("get the size of", spare, err)
	}
	h := header{version: Version, store: w.opts.StoreID, number: number, previous: previous, sealed: sealed, size: size}
	block := vfs.AlignedBuffer(BlockSize)
	w.cur.seed = h.encode(block)
	if _, err := f.WriteAt(block, 0); err != nil {
		return w.fail("write the header of", spare, err)
	}
	if err := f.Sync(); err != nil {
		return w.fail("sync the header of", spare, err)
	}
	if carry != nil {
		if err := carry(); err != nil {
			return err
		}
		if err := w.writeOut(true); err != nil {
			return err
		}
	}
	name := filepath.Join(w.opts.Dir, segmentName(number))
	// Not every system can rename an open file.
	w.cur.file = nil
	if err := f.Close(); err != nil {
		return w.fail("close", spare, err)
	}
	if err := w.opts.FS.Rename(spare, name); err != nil {
		return w.fail("rename", spare, err)
	}
	if err := w.opts.FS.SyncDir(w.opts.Dir); err != nil {
		return w.fail("sync the directory of", name, err)
	}
	if w.cur.file, err = w.opts.FS.OpenReadWrite(name, w.access()); err != nil {
		return w.fail("open", name, err)
	}
	w.cur.name = name
	w.number.Store(number)
	return nil
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
// So direct if there is a sync for each group, buffered if not, and segments
// that were written before whenever possible: recycled ones, and those that
// PrepareNext made.
//
// What is buffered is written back meanwhile: the sync at the end of a segment, for
// which an Append has to wait, would else have all of it to write.
func (w *Writer) access() vfs.OpenOptions {
	return vfs.OpenOptions{Direct: w.opts.Sync, WriteBehind: !w.opts.Sync}
}

// end syncs the current segment, writes its trailer, syncs that, closes the
// file, and returns where the segment ends: before the trailer, which repeats
// for the last segment what the header of a successor says of any other.
// Callers hold mu and have seen that nothing is on its way.
func (w *Writer) end() (seal, error) {
	if w.cur.durable != w.cur.head.offset {
		if err := w.writeOut(true); err != nil {
			return seal{}, err
		}
	}
	at := w.cur.head
	w.putTrailer()
	if err := w.writeOut(true); err != nil {
		return seal{}, err
	}
	f := w.cur.file
	w.cur.file = nil
	if err := f.Close(); err != nil {
		return seal{}, w.fail("close", w.cur.name, err)
	}
	w.cur.head = at
	return at, nil
}

// rotate ends the current segment and starts the next one. The file for that
// comes first: if there is no space for it, nothing has happened, and the
// writer goes on when there is. Callers hold mu and have seen that nothing is
// on its way.
func (w *Writer) rotate() error {
	next, err := w.openSpare()
	if err != nil {
		return err
	}
	sealed, err := w.end()
	if err != nil {
		next.file.Close() // the writer has failed: nothing is lost by a second error
		return err
	}
	w.sealed = append(w.sealed, w.info())
	w.stats.Rotations++
	return w.newSegment(next, w.cur.number, sealed, nil)
}

// Rotate starts a new segment unless the current one has no records, and
// returns the number of the current one. All records appended before are then
// durable.
func (w *Writer) Rotate() (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
	for len(w.flying) > 0 {
		w.awaitFlight()
	}
	w.waiting--
	if err := w.usable(); err != nil {
		return 0, err
	}
	if w.cur.head.records == 0 {
		return w.cur.number, nil
	}
	if err := w.rotate(); err != nil {
		return 0, err
	}
	return w.cur.number, nil
}

// continueFrom starts the first segment of this writer, with the records that
// the old last segment holds beyond its last stated durable offset.
func (w *Writer) continueFrom(from RecoverResult) error {
	first, err := w.openSpare()
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
	if t.torn {
		w.cutOff(t)
	}
	return nil
}

// carryOver copies records from the old last segment. What it reads must be
// exactly what Recover delivered.
func (w *Writer) carryOver(t *tail) (err error) {
	if t.end.offset == t.sealed.offset {
		return nil
	}
	r, err := openSegment(&w.opts, t.number)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.file.Close(); err == nil {
			err = cerr
		}
	}()
	s := newScanner(r, t.sealed, map[uint32]uint64{}, func(rec Record) error {
		return w.encode(rec.Stream, rec.Position, pieces{list: [][]byte{rec.Payload}}, len(rec.Payload))
	})
	return s.scanSealed(t.end)
}

// cutOff returns the space of a torn segment behind its end, so that many
// crashes in a row do not each keep a whole segment's. It is no loss if it
// fails.
func (w *Writer) cutOff(t *tail) {
	name := filepath.Join(w.opts.Dir, segmentName(t.number))
	f, err := w.opts.FS.OpenReadWrite(name, vfs.OpenOptions{})
	if err == nil {
		if err = f.Truncate(t.sealed.offset); err == nil {
			err = f.Sync() // else the next crash gives the space back to the file
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		w.opts.Logger.Warn("could not cut a torn segment", "file", name, "error", err)
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

// Segments returns the segments that are part of the log, the current one
// last.
func (w *Writer) Segments() []SegmentInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(slices.Clone(w.sealed), w.info())
}

// Release gives up the segments below minSegment, which the caller has
// recorded durably as what it will pass to Recover. Their files become spares
// or are deleted. An error leaves files behind that the next NewWriter finds;
// the log itself is not affected.
func (w *Writer) Release(minSegment uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if minSegment > w.cur.number {
		return fmt.Errorf("wal: release up to segment %d, the current one is %d", minSegment, w.cur.number)
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
		w.cur.file.Close() // the writer has failed: nothing is lost by a second error
		w.cur.file = nil
	}
}
