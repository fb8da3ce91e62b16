package wal

// Segments that the owner does not need any more, and keeps for their reader: another process, which copies them.

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// oldestKept returns the number of the first segment that is neither dead nor lost for its reader: from there on no
// segment is missing.
func (w *Writer) oldestKept(found listing) uint64 {
	oldest := w.released
	for oldest > w.keep && slices.Contains(found.segments, oldest-1) {
		oldest--
	}
	return oldest
}

// adoptSegments takes over the segments of an earlier writer, those that are kept included. The dead ones have gone.
func (w *Writer) adoptSegments(from RecoverResult) error {
	found, err := list(w.opts.FS, w.opts.Dir)
	if err != nil {
		return err
	}
	for _, n := range found.segments {
		info, err := w.opts.FS.Stat(w.path(segmentName(n)))
		if err != nil {
			return err
		}
		if n < from.NextSegment {
			w.sealed = append(w.sealed, sealedSegment{number: n, size: info.Size})
		}
	}
	return nil
}

// Kept reports whether segments are kept for a reader.
func (w *Writer) Kept() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keeps()
}

// keeps is Kept for callers that hold mu.
func (w *Writer) keeps() bool { return w.keep != math.MaxUint64 }

// Keep makes Release spare the segments from a number on, and gives up those below it that are released; 0 keeps none.
// Their files become spares while all spares and closed segments take at most limit bytes together, and as many as the
// reader's rounds need.
func (w *Writer) Keep(from uint64, limit int64) error {
	w.mu.Lock()
	if !w.keeps() {
		w.round, w.roundFrom = 0, w.cur.number
	}
	w.keep, w.keepBytes = cmp.Or(from, uint64(math.MaxUint64)), limit
	released := w.released
	w.mu.Unlock()
	err := w.Release(released)
	w.mu.Lock()
	surplus := max(len(w.spares)-w.room(), 0)
	remove := slices.Clone(w.spares[:surplus])
	w.spares = slices.Delete(w.spares, 0, surplus)
	w.mu.Unlock()
	for _, name := range remove {
		err = errors.Join(err, w.opts.FS.Remove(w.path(name)))
	}
	return err
}

// room returns how many files may be spare. A reader gives up many segments at once, those of one of its rounds, and does
// so again: without their files the next ones would have to be filled with zeros. Callers hold mu.
func (w *Writer) room() int {
	left := w.keepBytes - w.closedFrom(0)
	return max(maxSpares, min(maxSpares+w.round, int(left/w.opts.SegmentSize)))
}

// SpareBytes returns what the spares take, but for those that a log which is not kept has, too.
func (w *Writer) SpareBytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(max(0, len(w.spares)-maxSpares)) * w.opts.SegmentSize
}

// ClosedBytes returns what the closed segments from a number on take.
func (w *Writer) ClosedBytes(from uint64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closedFrom(from)
}

// closedFrom is ClosedBytes for callers that hold mu.
func (w *Writer) closedFrom(from uint64) (bytes int64) {
	for _, s := range w.sealed {
		if s.number >= from {
			bytes += s.size
		}
	}
	return bytes
}

// Oldest returns the number of the first segment that is still there.
func (w *Writer) Oldest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sealed) > 0 {
		return w.sealed[0].number
	}
	return w.cur.number
}

// Within returns the first segment from which on the segments that were closed take at most limit bytes together.
func (w *Writer) Within(limit int64) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range slices.Backward(w.sealed) {
		if limit -= s.size; limit < 0 {
			return s.number + 1
		}
	}
	return 0
}

// Rotate ends the current segment, unless it is empty, and returns the number of the current one once that is on the
// disk: all that was appended before lies in segments below it, and is durable. An error that does not match ErrFailed
// or ErrClosed means that there was no space.
func (w *Writer) Rotate() (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.cur.number
	if w.cur.head.Records > 0 {
		next++
		w.ending = w.cur.number
	}
	for w.cur.number < next || w.onDisk.Load() < next {
		err := w.usable()
		switch {
		case err != nil:
		case len(w.flying) > 0 || w.opening:
			err = w.awaitFlight()
		case w.cur.number >= next: // it may not be on the disk
			_, err = w.see(w.launch(true), false)
		case w.next == nil:
			err = w.openNext()
		default:
			w.rotate()
		}
		if err != nil {
			w.ending = 0
			return 0, err
		}
	}
	// A reader begins a round. What large rounds needed goes by halves, since two readers may take turns.
	w.round = max(int(next)-int(w.roundFrom), w.round/2)
	w.roundFrom = max(w.roundFrom, next)
	return next, nil
}

// Read calls fn for each record of the closed segment n, which has a successor, and compares the segment with what the
// header of that one says of it. Another process may write the log meanwhile. Errors match ErrCorrupt or
// fs.ErrNotExist, also if the segment is given up while it is read, or are those of fn or the file system.
func Read(opts Options, n uint64, fn func(Record) error) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	err = readClosed(&opts, n, fn)
	if errors.Is(err, ErrCorrupt) {
		// A file loses its name before it is written again, and segment n loses it before its successor does.
		if _, gone := opts.FS.Stat(filepath.Join(opts.Dir, segmentName(n))); errors.Is(gone, fs.ErrNotExist) {
			return gone
		}
	}
	return err
}

// readClosed is Read, but says of a segment that is given up meanwhile that it is corrupt.
func readClosed(opts *Options, n uint64, fn func(Record) error) error {
	// A synced log is not in the page cache, and its writer must not find it there when it uses the file again.
	r, err := openSegmentFor(opts, n, vfs.OpenOptions{Sparing: true})
	if err != nil {
		return err
	}
	defer r.file.Close()
	next, err := openSegmentFor(opts, n+1, vfs.OpenOptions{Sparing: true})
	if err != nil {
		return err
	}
	defer next.file.Close()
	res := RecoverResult{positions: map[uint32]uint64{}}
	return res.scanSegment(r, next, End{}, fn)
}
