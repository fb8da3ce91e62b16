package wal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Segment n is the file NNNNNN.log, a file waiting to become a segment is spare-NNNNNN.log; six
// digits, more if needed. The numbers of spares only keep their names apart. Other files in the
// directory are left alone.
const (
	logSuffix   = ".log"
	sparePrefix = "spare-"
)

func segmentName(number uint64) string { return fmt.Sprintf("%06d%s", number, logSuffix) }
func spareName(number uint64) string   { return sparePrefix + segmentName(number) }

// parseSegmentName is the inverse of segmentName; 0 is not a segment number.
func parseSegmentName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && segmentName(n) == name
}

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

func list(fsys vfs.FS, dir string) (listing, error) {
	var l listing
	names, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	for _, name := range names {
		base, spare := strings.CutPrefix(name, sparePrefix)
		switch n, ok := parseSegmentName(base); {
		case ok && spare:
			l.spares = append(l.spares, n)
		case ok:
			l.segments = append(l.segments, n)
		}
	}
	slices.Sort(l.segments)
	slices.Sort(l.spares)
	return l, nil
}
