package wal

// Segments that become durable after their successors have begun.
//
// A log without Options.Sync promises no durability before a Sync. If each of its segments were durable before the
// next one begins, the device would write all of the log, and most of that for nothing: the next flush of the owner
// releases segments, and their files are written again. So a rotation syncs neither the segment that ends nor the
// header of the next one, which says so: it has lazyVersion. The system writes the files back only if they stay dirty
// for long. The next group that is synced makes all of them durable, and has the owner remember the current segment.
//
// A power cut can take any blocks of such segments and leave later ones. Recovery ends the log at the first block
// that is missing, see recover.go. It reads past the page cache, which may hold pages that a sync failed to write and
// that count as clean: where a file system cannot do that, no segment is lazy.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	// DefaultEagerSegments is enough for an owner that syncs at each flush of 64 MB.
	DefaultEagerSegments = 8
	// maxUnsynced bounds the segments that are not durable, and so their open files and what a Sync has to wait for.
	maxUnsynced = 64
)

// lazy reports whether the current segment may be durable after its successor begins. A segment that is kept may not,
// since another process reads it, nor one of which something is durable: its successor's header is to tell damage from
// what a power cut took. Callers hold mu.
func (w *Writer) lazy() bool {
	return w.mayLazy && !w.keeps() && w.cur.number >= w.eager && w.cur.durable == blockSize
}

// backlog is what a group makes durable beside its own segment: segments before that.
type backlog struct {
	files  []vfs.File // of the segments, which are closed one by one
	newest uint64     // the segment that the owner notes then; 0 if others are left
	left   []step     // steps not done yet
}

// takeUnsynced returns the oldest n segments that are not durable. Callers hold mu.
func (w *Writer) takeUnsynced(n int) *backlog {
	b := new(backlog)
	for i := 0; i < len(w.sealed) && len(b.files) < n; i++ {
		s := &w.sealed[i]
		if s.unsynced == nil {
			continue
		}
		f, name := s.unsynced, w.path(segmentName(s.number))
		b.files, s.unsynced = append(b.files, f), nil
		b.left = append(b.left, step{"sync", name, true, f.SyncData}, step{"close", name, true, func() error {
			b.files = b.files[1:]
			return f.Close()
		}})
	}
	w.unsynced -= len(b.files)
	return b
}

// takeBacklog returns what the next synced group has to make durable, nil if the current segment is on the disk already.
// Callers hold mu.
func (w *Writer) takeBacklog() *backlog {
	if w.onDisk.Load() == w.cur.number {
		return nil
	}
	b := w.takeUnsynced(w.unsynced)
	b.newest, b.left = w.cur.number, append(b.left, w.noteStep())
	return b
}

// abandon closes the files of a backlog that will not be synced. A second error adds nothing.
func (b *backlog) abandon() {
	for _, f := range b.files {
		_ = f.Close()
	}
}

// closeUnsynced closes the files of segments that are released, or whose writer has failed. What the device lacks of
// them is not needed, so errors tell nothing. Callers hold mu.
func (w *Writer) closeUnsynced(segments []sealedSegment) {
	for i := range segments {
		if s := &segments[i]; s.unsynced != nil {
			_ = s.unsynced.Close()
			s.unsynced = nil
			w.unsynced--
		}
	}
}

// setLazy notes whether segments may be lazy. The current one exists.
func (w *Writer) setLazy() error {
	if w.opts.Sync || !w.opts.remembers {
		return nil
	}
	f, err := w.opts.FS.Open(w.cur.name, vfs.OpenOptions{Direct: true})
	if err != nil {
		return err
	}
	w.mayLazy = f.Alignment() > 1
	return f.Close()
}

// settle makes durable what Recover found in segments that may not be, and removes what it did not deliver: later
// segments, the newest first, so that those that remain have no gap.
//
// Recover has read these segments past the page cache, so a sync has nothing to write that an earlier one failed to.
func (w *Writer) settle(from RecoverResult) error {
	for _, n := range from.unsynced {
		f, err := w.opts.FS.OpenReadWrite(w.path(segmentName(n)), vfs.OpenOptions{})
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return fmt.Errorf("wal: make a segment durable: %w", err)
		}
	}
	for _, n := range slices.Backward(from.lost) {
		if err := w.opts.FS.Remove(w.path(segmentName(n))); err != nil {
			return err
		}
	}
	if len(from.lost) == 0 {
		return nil
	}
	return w.opts.FS.SyncDir(w.opts.Dir)
}
