package wal

// Reading what a damaged log still has.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
)

// Loss is a part of the log that cannot be read.
type Loss struct {
	File     string
	From, To int64 // offsets; To is 0 for the whole segment
	Err      error
}

// Salvage reads a log of which parts may be damaged: it calls fn for each whole record, in order, and
// lost for each part that should have records and cannot be read. It reads everything that Recover
// delivers, with the same meaning of minSegment. Behind damage it goes on at the next good frame. The
// torn end of a log that was not closed is no loss. Salvage changes no file. An error is that of the
// directory or of fn. It takes as much memory as Recover.
func Salvage(opts Options, minSegment uint64, fn func(Record) error, lost func(Loss)) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	found, err := list(opts.FS, opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	last := opts.Newest.Segment
	if n := len(found.segments); n > 0 {
		last = max(last, found.segments[n-1])
	}
	s := salvager{opts: &opts, last: last, fn: fn, lost: lost, positions: map[uint32]uint64{}}
	for n := max(minSegment, 1); n <= last; n++ {
		if _, exists := slices.BinarySearch(found.segments, n); !exists {
			if minSegment > 0 || len(found.segments) == 0 || n > found.segments[0] || opts.Newest.Segment == n {
				lost(Loss{File: filepath.Join(opts.Dir, segmentName(n)), Err: corrupt(filepath.Join(opts.Dir, segmentName(n)), 0, "the segment is missing")})
			}
			continue
		}
		if err := s.segment(n); err != nil {
			return err
		}
	}
	return nil
}

// salvager reads the segments of a damaged log one after the other.
type salvager struct {
	opts      *Options
	last      uint64
	fn        func(Record) error
	failed    error // of fn
	lost      func(Loss)
	positions map[uint32]uint64
}

// segment reads one segment. The header of its successor, if that is intact, says where it ends.
func (s *salvager) segment(n uint64) error {
	r, err := openSegment(s.opts, n, n == s.last)
	if err != nil {
		s.lost(Loss{File: filepath.Join(s.opts.Dir, segmentName(n)), Err: err})
		return nil
	}
	defer r.file.Close()
	limit := int64(math.MaxInt64)
	if n == s.opts.Newest.Segment && s.opts.Newest.Offset != 0 {
		limit = s.opts.Newest.Offset
	} else if n < s.last {
		if next, err := openSegment(s.opts, n+1, n+1 == s.last); err == nil {
			limit = next.header.Sealed.Offset
			_ = next.file.Close() // it was only read
		}
	}
	s.frames(newScanner(r, seal{Offset: blockSize}, s.positions, s.record), limit)
	return s.failed
}

// record hands a record on, and remembers the error of fn, which ends everything.
func (s *salvager) record(rec Record) error {
	s.failed = s.fn(rec)
	return s.failed
}

// frames takes the good frames up to limit, and reports what lies between them.
func (s *salvager) frames(sc *scanner, limit int64) {
	var bad *Loss
	end := func() {
		if bad != nil {
			s.lost(*bad)
			bad = nil
		}
	}
	defer end()
	for sc.at.Offset < limit {
		f, err := sc.r.frameAt(sc.at.Offset)
		if err == nil && f.kind == frameTrailer {
			return
		}
		next := sc.at.Offset + f.size
		if err != nil {
			if limit == math.MaxInt64 && bad == nil && sc.judge("damaged") == nil {
				return // the torn end
			}
			if next = s.resume(sc.r, sc.at.Offset, min(limit, sc.r.size)); next < 0 {
				next = limit
			}
			sc.inRecord = false
		} else if err = takeSalvaged(sc, f); s.failed != nil {
			return
		}
		if err != nil {
			if bad == nil {
				bad = &Loss{File: sc.r.name, From: sc.at.Offset, Err: s.describe(sc, err)}
			}
			if bad.To = next; next == math.MaxInt64 {
				bad.To = sc.r.size
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
	case frameBundle:
		_, err = sc.takeBundle(f)
	default:
		_, err = sc.takeFragment(f)
	}
	return err
}

// resume returns the offset of the next good frame above off, or -1. Frames begin at multiples of 8.
func (s *salvager) resume(r *segmentReader, off, limit int64) int64 {
	for off += 8; off < limit; off += 8 {
		if _, err := r.frameAt(off); err == nil {
			return off
		}
	}
	return -1
}
