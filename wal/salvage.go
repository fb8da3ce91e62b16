package wal

// Reading what a damaged log still has.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Loss is a part of the log that cannot be read.
type Loss struct {
	File     string // the first one, if segments are missing
	From, To int64  // offsets; To is 0 for whole segments
	Err      error
}

// Salvage reads a log of which parts may be damaged: it calls fn for each whole record, in order, and
// lost for each part that should have records and cannot be read. It reads everything that Recover
// delivers, with the same meaning of minSegment. Behind damage it goes on at the next good frame. The
// torn end of a log that was not closed is no loss, and what a power cut left behind that is not read.
// It calls check for each frame or compressed group, and for each block, and ends with its error.
// Salvage changes no file. An error is that of check or fn, or one that is no damage: it matches
// errWrongStore or errNewerFormat, or is of the file system. It takes as much memory as Recover.
func Salvage(opts Options, minSegment uint64, check func() error, fn func(Record) error, lost func(Loss)) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	found, err := list(opts.FS, opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s := salvager{opts: &opts, last: opts.Newest.Segment, check: check, fn: fn, lost: lost, positions: map[uint32]uint64{}}
	if n := len(found.segments); n > 0 {
		s.last = max(s.last, found.segments[n-1])
	}
	before := max(minSegment, 1) - 1
	for _, n := range found.segments {
		if n <= before {
			continue
		}
		if n > before+1 && before >= opts.Newest.certain() {
			return nil // a power cut took the segments between
		}
		s.missing(before+1, n-1)
		if err := s.segment(n); err != nil || s.torn {
			return err
		}
		before = n
	}
	s.missing(before+1, s.last)
	return nil
}

// salvager reads the segments of a damaged log one after the other.
type salvager struct {
	opts      *Options
	last      uint64
	check     func() error
	fn        func(Record) error
	failed    error // ends everything
	torn      bool  // the log ends in the segment that was read last, or before it
	lost      func(Loss)
	positions map[uint32]uint64
}

// missing reports that the segments from first to last are missing, unless there are none.
func (s *salvager) missing(first, last uint64) {
	if first == 0 || first > last {
		return
	}
	name, reason := filepath.Join(s.opts.Dir, segmentName(first)), "the segment is missing"
	if first < last {
		reason = fmt.Sprintf("segments %d to %d are missing", first, last)
	}
	s.lost(Loss{File: name, Err: corrupt(name, 0, reason)})
}

// isDamage tells a loss from an error that another try may not meet, or that damage cannot explain.
func isDamage(err error) bool {
	_, isBad := err.(bad)
	return isBad || errors.Is(err, ErrCorrupt) || errors.Is(err, fs.ErrNotExist) || vfs.IsUnreadable(err)
}

// segment reads one segment. The header of its successor, if that is intact, says where it ends.
func (s *salvager) segment(n uint64) error {
	certain := s.opts.Newest.certain()
	r, err := openSegment(s.opts, n, n >= certain || n == s.last)
	if err != nil {
		if !isDamage(err) {
			return err
		}
		if s.torn = n > certain; s.torn {
			return nil
		}
		s.lost(Loss{File: filepath.Join(s.opts.Dir, segmentName(n)), Err: err})
		return nil
	}
	defer r.file.Close()
	limit, open := int64(math.MaxInt64), n == s.last // open: a power cut may have taken its end
	if n == s.opts.Newest.Segment && s.opts.Newest.Offset != 0 {
		limit, open = s.opts.Newest.Offset, false
	} else if n < s.last {
		limit = max(r.size, blockSize)
		if next, err := openSegment(s.opts, n+1, n+1 > certain || n+1 == s.last); err == nil {
			limit = next.header.Sealed.Offset
			open = n >= certain && next.header.Version >= lazyVersion
			_ = next.file.Close() // it was only read
		} else if !isDamage(err) {
			return err
		} else if n >= certain {
			limit, open = math.MaxInt64, true
		}
	}
	s.frames(newScanner(r, seal{Offset: blockSize}, s.positions, s.record), limit, open)
	return s.failed
}

// record hands a record on, and remembers the error of fn, which ends everything.
func (s *salvager) record(rec Record) error {
	s.failed = s.fn(rec)
	return s.failed
}

// frames takes the good frames up to limit, and reports what lies between them. With open, the log may end in a torn
// tail before limit.
func (s *salvager) frames(sc *scanner, limit int64, open bool) {
	var lost *Loss
	end := func() {
		if lost != nil {
			s.lost(*lost)
			lost = nil
		}
	}
	defer end()
	for sc.at.Offset < limit {
		if s.failed = s.check(); s.failed != nil {
			return
		}
		f, err := s.frameAt(sc.r, sc.at.Offset)
		if err == nil && f.kind == frameTrailer {
			return
		}
		next := sc.at.Offset + f.size
		if err == nil {
			err = takeSalvaged(sc, f)
		} else if open && lost == nil && !vfs.IsUnreadable(err) && sc.judge("damaged") == nil {
			s.torn = true
			return
		} else if next = s.resume(sc.r, sc.at.Offset, min(limit, sc.r.size), err); next < 0 {
			next = limit
		}
		if s.failed != nil {
			return
		}
		if err != nil {
			sc.inRecord = false
			if lost == nil {
				lost = &Loss{File: sc.r.name, From: sc.at.Offset, Err: s.describe(sc, err)}
			}
			if lost.To = next; next == math.MaxInt64 {
				lost.To = sc.r.size
			}
		} else if f.kind != framePadding {
			end()
		}
		sc.at.Offset = next
	}
}

// describe names the file and the offset of what is wrong.
func (s *salvager) describe(sc *scanner, err error) error {
	if why, isBad := err.(bad); isBad {
		return sc.corrupt("%s", string(why))
	}
	return fmt.Errorf("%s, offset %d: %w", sc.r.name, sc.at.Offset, err)
}

// takeSalvaged takes a frame with a good checksum. It checks neither chain nor durable offsets, which
// count what was lost.
func takeSalvaged(sc *scanner, f frame) (err error) {
	switch f.kind {
	case framePadding:
	case frameCompressed:
		group := sc.at.Offset
		err = sc.takeCompressed(f, func(f frame) error {
			err := takeSalvaged(sc, f)
			sc.at.Offset += f.size
			return err
		})
		sc.at.Offset = group
	case frameBundle:
		_, err = sc.takeBundle(f)
	default:
		_, err = sc.takeFragment(f)
	}
	return err
}

// frameAt reads the frame at off. Where the device cannot read a chunk it reads only the blocks of the
// frame. An error that is no damage ends everything.
func (s *salvager) frameAt(r *segmentReader, off int64) (frame, error) {
	f, err := r.frameAt(off)
	if vfs.IsUnreadable(err) && off >= r.narrow {
		r.narrow = off + readChunk
		f, err = r.frameAt(off)
	}
	if err != nil && !isDamage(err) {
		s.failed = err
	}
	return f, err
}

// resume returns the offset of the next good frame above off, or -1. err is why there is none at off.
// Frames begin at multiples of 8. Behind a block that the device cannot read resume goes on at the next
// block, because each try may take seconds.
func (s *salvager) resume(r *segmentReader, off, limit int64, err error) int64 {
	for s.failed == nil {
		if vfs.IsUnreadable(err) {
			off = nextBlock(off)
		} else {
			off += 8
		}
		if off >= limit {
			return -1
		}
		if off%blockSize == 0 {
			if s.failed = s.check(); s.failed != nil {
				return -1
			}
		}
		if _, err = s.frameAt(r, off); err == nil {
			return off
		}
	}
	return -1
}
