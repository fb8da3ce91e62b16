package wal

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Segment n is the file NNNNNN.log, a file waiting to become a segment is spare-NNNNNN.log; six
// digits, more if needed. The numbers of spares only keep their names apart. Other files in the
// directory are left alone.
const sparePrefix = "spare-"

func segmentName(number uint64) string { return fmt.Sprintf("%06d.log", number) }
func spareName(number uint64) string   { return sparePrefix + segmentName(number) }

// listing is what a log's directory holds.
type listing struct {
	segments []uint64 // ascending
	spares   []uint64 // ascending
}

// dead returns the names of the files that hold nothing of a log that begins at minSegment: spares,
// and segments below it.
func (l listing) dead(minSegment uint64) (names []string) {
	for _, n := range l.spares {
		names = append(names, spareName(n))
	}
	for _, n := range l.segments {
		if n < minSegment {
			names = append(names, segmentName(n))
		}
	}
	return names
}

// SegmentBytes returns the size of the segments in dir from first to last, as far as they can be found.
func SegmentBytes(fsys vfs.FS, dir string, first, last uint64) (bytes int64) {
	found, _ := list(fsys, dir)
	for _, n := range found.segments {
		if first <= n && n <= last {
			info, _ := fsys.Stat(filepath.Join(dir, segmentName(n)))
			bytes += info.Size
		}
	}
	return bytes
}

func list(fsys vfs.FS, dir string) (listing, error) {
	var l listing
	names, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if n, ok := vfs.ParseNumber(name, segmentName); ok {
			l.segments = append(l.segments, n)
		} else if n, ok := vfs.ParseNumber(name, spareName); ok {
			l.spares = append(l.spares, n)
		}
	}
	slices.Sort(l.segments)
	slices.Sort(l.spares)
	return l, nil
}
