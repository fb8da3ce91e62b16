package wal

// Spare files. A spare is preallocated. Once it has carried a segment, or PrepareNext has filled
// it with zeros, a sync in it commits no metadata. Spares are not named like segments, so their
// content is not part of the log.

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// maxSpares is how many files are kept: one for the next segment, and one more for when two
// segments are released at once. See Writer.room for a log that is kept.
const maxSpares = 2

// prepareChunk is the piece in which PrepareNext writes zeros.
const prepareChunk = 1 << 20

func (w *Writer) path(name string) string { return filepath.Join(w.opts.Dir, name) }

// newSpareName returns a name that this writer has not used before.
func (w *Writer) newSpareName() string { return spareName(w.lastSpare.Add(1)) }

// adoptSpares takes over the files that an earlier writer left: its spares, and segments below
// minSegment that are not kept. It removes a file instead if there are maxSpares already, or if the file
//
//   - shows the header of a segment that is not dead. Its content is the unfinished attempt
//     to start that segment: frames in it would look valid if the same number were tried in it
//     again. Or the file has two names, one of which is the segment, since renaming is not
//     atomic everywhere;
//   - shows the same header as another file, for the latter reason;
//   - does not have the size of a segment, or has a header of a newer format.
func (w *Writer) adoptSpares() error {
	found, err := list(w.opts.FS, w.opts.Dir)
	if err != nil {
		return err
	}
	if n := len(found.spares); n > 0 {
		w.lastSpare.Store(found.spares[n-1])
	}
	live := w.oldestKept(found)
	names := found.dead(live)
	seen := map[uint64]bool{}
	for _, name := range names {
		number, fit, err := inspect(&w.opts, name)
		if err == nil {
			fit = fit && number < live && !seen[number] && len(w.spares) < maxSpares
			seen[number] = number > 0
			err = w.recycle(name, fit, &w.spares)
		}
		if err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return nil
	}
	return w.opts.FS.SyncDir(w.opts.Dir)
}

// CheckSpares returns the errors that would keep NewWriter from taking over the dead files of a
// log: spares, and segments below minSegment. Recover does not read them. It changes nothing.
func CheckSpares(opts Options, minSegment uint64) (problems []error) {
	found, err := list(opts.FS, opts.Dir)
	if err != nil {
		return nil // Recover reports it
	}
	for _, name := range found.dead(minSegment) {
		if _, _, err := inspect(&opts, name); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// inspect returns the segment number in a file's header, or 0 if there is no valid one. ok is
// false if the size is not that of a spare, or the format is newer.
func inspect(opts *Options, name string) (number uint64, ok bool, err error) {
	r, err := openFile(opts, name, vfs.OpenOptions{})
	if err != nil {
		return 0, false, err
	}
	return r.header.Number, opts.spareSize(r.size) && !errors.Is(r.unfit, errNewerFormat), r.file.Close()
}

// spareSize reports whether a file of this size may serve as a segment. One that has grown for a
// large record may not: spares are counted, not measured.
func (o *Options) spareSize(size int64) bool {
	return size == o.SegmentSize
}

// segmentFile is a file that is a segment, or is about to become one.
type segmentFile struct {
	file vfs.File
	name string // path
	size int64  // preallocated
	raw  bool   // not written before
}

// close closes the file if it is open.
func (f *segmentFile) close() (err error) {
	if f.file != nil {
		err = f.file.Close()
		f.file = nil
	}
	return err
}

// takeSpare takes a spare file or, if there is none, the name for a new one, which is raw.
// Callers hold mu.
func (w *Writer) takeSpare() (name string, raw bool) {
	if n := len(w.spares); n > 0 {
		name, w.spares = w.spares[n-1], w.spares[:n-1]
		return name, false
	}
	return w.newSpareName(), true
}

// openSpare opens a spare. A raw one it makes first, and leaves it raw, since a caller is waiting.
// An error has changed nothing, and the writer goes on.
func (w *Writer) openSpare(base string, raw bool) (*segmentFile, error) {
	s := &segmentFile{name: w.path(base), raw: raw}
	if raw {
		if err := w.makeSpare(s.name, false); err != nil {
			return nil, err
		}
	}
	var err error
	if s.file, err = w.opts.FS.OpenReadWrite(s.name, w.access()); err == nil {
		if s.size, err = s.file.Size(); err == nil {
			return s, nil
		}
		err = errors.Join(err, s.file.Close())
	}
	if raw {
		err = errors.Join(err, w.opts.FS.Remove(s.name))
	}
	return nil, err
}

// openNext opens the file for the next segment. Callers hold mu; it is released meanwhile.
func (w *Writer) openNext() error {
	base, raw := w.takeSpare()
	var next *segmentFile
	err := w.apart(func() (err error) {
		next, err = w.openSpare(base, raw)
		return err
	})
	w.next = next
	if err != nil && !raw {
		w.spares = append(w.spares, base)
	}
	return err
}

// grow enlarges the file of the current segment, which is empty, for a record that is larger than
// a segment. Callers hold mu and have seen that no group is in flight; mu is released meanwhile.
// An error has changed nothing.
func (w *Writer) grow(size int64) error {
	f, before := w.cur.file, w.cur.size
	err := w.apart(func() error {
		err := f.Preallocate(size)
		if err != nil {
			// Some file systems keep what they allocated before they ran out.
			err = errors.Join(err, f.Truncate(before))
		}
		return err
	})
	if err == nil {
		w.cur.size = size
	}
	return err
}

// apart calls do, which makes room for the log on the disk, with mu released. Meanwhile opening
// is set: no other caller does the same or replaces the current segment. Callers hold mu.
func (w *Writer) apart(do func() error) error {
	w.opening = true
	w.mu.Unlock()
	w.device.begin()
	err := do()
	w.device.end()
	w.mu.Lock()
	w.opening = false
	w.changed.Broadcast()
	return err
}

// NeedsNext reports that PrepareNext is due: there is no file for the next segment, and the
// current segment is more than half full, or its syncs are slow because its file was not written
// before. It never blocks.
func (w *Writer) NeedsNext() bool { return w.due.Load() }

// setDue updates due. Callers hold mu.
func (w *Writer) setDue() {
	due := !w.prepared() && w.usable() == nil &&
		(w.cur.head.Offset > w.opts.SegmentSize/2 || w.cur.raw && w.opts.Sync && w.cur.head.Records > 0)
	if due != w.due.Load() {
		w.due.Store(due)
	}
}

// prepared reports whether there is a file for the next segment, or will be soon. Callers hold mu.
func (w *Writer) prepared() bool { return len(w.spares) > 0 || w.next != nil || w.preparing }

// PrepareNext makes a spare file, unless there is one. It is meant for the owner's background
// work, and blocks no other method but Close.
//
// It pays twice. Without it MakeRoom has to make the file when the segment is full, and the syncs
// of that segment cost twice as much (see access). And a full disk shows here first: an error
// leaves the writer as it was, so the owner can refuse new records early, and try again when
// there is space, before a write fails half-way.
func (w *Writer) PrepareNext() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil || w.prepared() {
		return err
	}
	name := w.newSpareName()
	w.preparing = true
	w.setDue()
	w.mu.Unlock()
	err := w.makeSpare(w.path(name), w.opts.Sync)
	w.mu.Lock()
	w.preparing = false
	w.changed.Broadcast()
	if err == nil {
		w.spares = append(w.spares, name)
	}
	w.setDue()
	return err
}

// makeSpare makes a file for a segment. With fill, which is for a log that is synced, it fills the
// file with zeros, so that no sync commits metadata. Without syncs, zeros would only double what
// the device has to write, and reserving the space is enough.
func (w *Writer) makeSpare(name string, fill bool) error {
	f, err := w.opts.FS.Create(name, w.access())
	if err != nil {
		return err
	}
	err = f.Preallocate(w.opts.SegmentSize)
	if err == nil && fill {
		err = fillWithZeros(f, w.opts.SegmentSize)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, w.opts.FS.Remove(name))
	}
	if vfs.IsNoSpace(err) {
		err = fmt.Errorf("a segment of the log needs %d bytes: %w", w.opts.SegmentSize, err)
	}
	return err
}

func fillWithZeros(f vfs.File, size int64) error {
	zeros := vfs.AlignedBuffer(int(min(prepareChunk, size)))
	for off := int64(0); off < size; off += int64(len(zeros)) {
		zeros = zeros[:min(int64(len(zeros)), size-off)]
		if _, err := f.WriteAt(zeros, off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// recycleAll turns files of dead segments into spares while there is room for one, and deletes the
// others.
func (w *Writer) recycleAll(dead []sealedSegment, room int) (spares []string, err error) {
	for _, s := range dead {
		name := segmentName(s.number)
		info, err := w.opts.FS.Stat(w.path(name))
		if err == nil {
			err = w.recycle(name, len(spares) < room && !s.raw && w.opts.spareSize(info.Size), &spares)
		}
		if err != nil {
			return nil, err
		}
	}
	return spares, w.opts.FS.SyncDir(w.opts.Dir)
}

// recycle adds a dead file to the spares, under a name of theirs, or deletes it if it is not fit.
// The caller syncs the directory.
func (w *Writer) recycle(name string, fit bool, spares *[]string) error {
	if !fit {
		return w.opts.FS.Remove(w.path(name))
	}
	spare := name
	if !strings.HasPrefix(name, sparePrefix) {
		spare = w.newSpareName()
		if err := w.opts.FS.Rename(w.path(name), w.path(spare)); err != nil {
			return err
		}
	}
	*spares = append(*spares, spare)
	return nil
}
