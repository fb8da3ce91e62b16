package wal

// Reading a log after a crash or a shutdown.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// DefaultSegmentSize is large enough that rotation costs nothing measurable. It is small enough
// that the files of an idle log, its segment and two spares, are little beside the tables: with
// 64 MiB a store of 60 MB took 260 MB.
const DefaultSegmentSize = 16 << 20

// Options say where a log is and how it is written.
type Options struct {
	FS  vfs.FS
	Dir string // created if absent
	// SegmentSize is in bytes, rounded up to blocks, at least 4 of them; 0 means
	// DefaultSegmentSize. A segment grows beyond it for a larger record, and for the records that
	// it takes over from a torn segment.
	SegmentSize int64
	// Sync says that callers will wait for Sync. The log then bypasses the page cache, which
	// syncs faster. Without it the log is written through the page cache, which is faster without
	// syncs: by HandOver, whenever writeThreshold bytes have gathered. Sync and Flush work in both
	// modes.
	Sync bool
	// Compress says which segments may have compressed groups.
	Compress Compression
	// Gathered, if not nil, is called when a group or the end of a segment is left for
	// Writer.HandOver, which should be called soon. It must not wait for anything, nor call the
	// Writer. Without Sync it is needed: otherwise records stay in memory until MakeRoom, Sync,
	// Flush or a call of HandOver.
	Gathered func()
	// Memory is the pool for the buffers of a Writer; nil is the Go heap.
	Memory *offheap.Pool
	// StoreID is in every segment, so that segments of another store are refused.
	StoreID [16]byte
	// Newest is the end of the log as the owner remembers it, from Begun and from Writer.End;
	// zero if it remembers nothing.
	Newest End
	// Begun, if not nil, is called with the number of a segment that is on the disk, with all before
	// it, and before a record in it counts as durable. The owner must remember the number: this is
	// how a lost file is noticed, and where a power cut may end the log. Without Sync it is called
	// for some segments only, since others become durable late, if at all: see lazy.go. No lock is
	// held. An error fails the Writer, unless it says that there is no space: then Begun is called
	// again later.
	Begun func(segment uint64) error
	// EagerSegments is how many segments behind a Sync are durable before the next ones begin: an owner that syncs again
	// and again finds most of the log on the device. 0 means DefaultEagerSegments.
	EagerSegments int
	// Keep, if not 0, is the first segment that is kept for its reader, see Writer.Keep.
	Keep uint64
	// Elapsed is a monotonic clock, for Writer.Waiting and CompressSlow; if nil, no device is slow.
	Elapsed func() time.Duration
	// Logger may be nil.
	Logger *slog.Logger

	remembers bool // Begun is the owner's
}

// End is where a log ends.
type End struct {
	Segment uint64 // the newest one; 0: not known
	// Offset is the end in bytes if the log was closed in good order, else 0; Records and Chain
	// count up to there.
	Offset         int64
	Records, Chain uint64
}

// withDefaults checks o and fills in defaults.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil || o.Dir == "" {
		return o, errors.New("wal: no file system or directory given")
	}
	if o.SegmentSize < 0 {
		return o, fmt.Errorf("wal: negative segment size %d", o.SegmentSize)
	}
	o.SegmentSize = max(nextBlock(cmp.Or(o.SegmentSize, DefaultSegmentSize)-1), 4*blockSize)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.EagerSegments = cmp.Or(o.EagerSegments, DefaultEagerSegments)
	o.remembers = o.Begun != nil
	if o.Begun == nil {
		o.Begun = func(uint64) error { return nil }
	}
	if o.Elapsed == nil {
		o.Elapsed = func() time.Duration { return 0 }
	}
	return o, nil
}

// Record is one record of the log.
type Record struct {
	Stream   uint32
	Position uint64 // rises strictly within the stream
	Segment  uint64
	Offset   int64  // of the record's first frame in the segment
	Payload  []byte // valid until the callback returns
	// Compressed says that the record is in a compressed group.
	Compressed bool
}

// RecoverResult is what Recover found, and what NewWriter needs to go on.
type RecoverResult struct {
	NextSegment uint64 // above all that are part of the log
	Records     int
	Bytes       int64 // of the segments read
	// Torn is what the reader found instead of the next record if the log was not closed in good
	// order; "" if it was, or is empty.
	Torn string

	segments   []uint64 // ascending
	unsynced   []uint64 // those of segments that may not be durable, ascending
	lost       []uint64 // segments behind the end, ascending
	ends       error    // why the log ends before a segment that has a file, or before a gap; nil if it does not
	closed     bool     // the last segment has a trailer
	sealedOnly bool     // the last segment is opened, but not read
	minSegment uint64
	positions  map[uint32]uint64
	// The successor of the last segment seals it at sealed, and carries over the records from
	// there to end.
	sealed, end seal
}

// Durable reports whether every record that Recover delivered is known to be on the disk.
// Otherwise some may be in the page cache alone: callers must not build on them before NewWriter
// has carried them over.
func (res *RecoverResult) Durable() bool {
	return res.end.Offset == res.sealed.Offset && len(res.unsynced) == 0
}

// Recover reads the log and calls fn for each record in order.
//
// minSegment is the number of a segment that is known to exist, or 0 if none is known. Segments
// below it are dead, whether their files still exist or not. A missing segment is ErrCorrupt, up to
// Options.Newest or, if that is not known, minSegment. A caller may record a minSegment only once
// Writer.Newest has reported that number or a larger one.
//
// The end of the last segment may be torn, which Torn reports. Any other difference from what was
// written gives ErrCorrupt, errWrongStore or errNewerFormat, and the result must not be used. An
// error of fn ends recovery and is returned unchanged. Recover changes no file. Memory: the
// largest record, a read buffer, the largest compressed group twice, and 24 bytes for each group of one segment.
func Recover(opts Options, minSegment uint64, fn func(Record) error) (RecoverResult, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return RecoverResult{}, err
	}
	found, err := list(opts.FS, opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return RecoverResult{}, err
	}
	first := max(minSegment, 1)
	res := RecoverResult{minSegment: minSegment, positions: map[uint32]uint64{}}
	if err := res.liveSegments(&opts, found.segments, first); err != nil {
		return RecoverResult{}, err
	}
	if err := res.scanAll(&opts, fn); err != nil {
		return RecoverResult{}, err
	}
	if res.ends != nil && res.closed {
		return RecoverResult{}, res.ends // a trailer is on the disk before the next segment has a name
	}
	res.NextSegment = first + uint64(len(res.segments))
	if res.NextSegment-1 > opts.Newest.certain() {
		at, _ := slices.BinarySearch(res.segments, opts.Newest.certain())
		res.unsynced = res.segments[at:]
	}
	if res.ends != nil {
		opts.Logger.Info("log was not closed; it ends before a segment that was not durable", "next", res.NextSegment, "found", res.ends)
	}
	if res.Torn != "" {
		opts.Logger.Info("log was not closed; it ends at the last whole record",
			"file", filepath.Join(opts.Dir, segmentName(res.NextSegment-1)), "offset", res.end.Offset, "found", res.Torn)
	}
	return res, nil
}

// CheckSealed reads the segments from first up to newest, which may be written meanwhile and is not read. It is
// like Recover otherwise: an error says that a segment is damaged, missing, or was released meanwhile. The caller can
// tell that by what it has released. REQUIRES: first is below newest, which is on the disk.
func CheckSealed(opts Options, first, newest uint64, fn func(Record) error) (RecoverResult, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return RecoverResult{}, err
	}
	res := RecoverResult{sealedOnly: true, positions: map[uint32]uint64{}}
	for number := max(first, 1); number <= newest; number++ {
		res.segments = append(res.segments, number)
	}
	return res, res.scanAll(&opts, fn)
}

// certain returns the newest segment that is known to be on the disk with all before it. If the owner knows none, no
// segment may be durable late.
func (e End) certain() uint64 { return cmp.Or(e.Segment, math.MaxUint64) }

// liveSegments sets the segments from first on. They must include the certain ones. Behind those, a gap is the end of
// the log.
func (res *RecoverResult) liveSegments(opts *Options, found []uint64, first uint64) error {
	at, _ := slices.BinarySearch(found, first)
	res.segments = found[at:]
	want, known := first, cmp.Or(opts.Newest.Segment, res.minSegment)
	for i := 0; i < len(res.segments) || want <= known; i++ {
		if i == len(res.segments) || res.segments[i] != want {
			err := corrupt(filepath.Join(opts.Dir, segmentName(want)), 0, "the segment is missing")
			if want <= opts.Newest.certain() {
				return err
			}
			res.endBefore(i, err)
		}
		want++
	}
	return nil
}

// endBefore says that the log ends before the segment with an index.
func (res *RecoverResult) endBefore(i int, why error) {
	res.segments, res.lost, res.ends = res.segments[:i:i], slices.Concat(res.segments[i:], res.lost), why
}

// scanAll reads all segments, each once its successor's header is known.
func (res *RecoverResult) scanAll(opts *Options, fn func(Record) error) error {
	r, err := res.open(opts, 0)
	for i := 0; r != nil && err == nil; i++ {
		var next *segmentReader
		next, err = res.open(opts, i+1)
		if err == nil && (next != nil || !res.sealedOnly) {
			err = res.scanSegment(r, next, opts.Newest, fn)
		}
		err = cmp.Or(err, r.file.Close())
		if next != nil {
			next.buf = r.buf
			if err != nil || res.Torn != "" {
				_ = next.file.Close() // the first error tells more
				next = nil
				res.endBefore(i+1, nil)
			}
		}
		r = next
	}
	return err
}

// open opens the segment with an index, and returns nil if there is none. A header that is not there
// is the end of the log, unless the segment must be on the disk.
//
// It reads segments that may not be durable past the page cache where possible: the cache may hold pages that a sync
// failed to write and that count as clean.
func (res *RecoverResult) open(opts *Options, i int) (*segmentReader, error) {
	if i >= len(res.segments) {
		return nil, nil
	}
	number, certain := res.segments[i], opts.Newest.certain()
	r, err := openSegment(opts, number, number >= certain || i == len(res.segments)-1)
	if number > certain && errors.Is(err, ErrCorrupt) {
		res.endBefore(i, err)
		return nil, nil
	}
	return r, err
}

// scanSegment reads one segment; next is nil for the last one.
func (res *RecoverResult) scanSegment(r, next *segmentReader, known End, fn func(Record) error) (err error) {
	s := newScanner(r, seal{Offset: blockSize}, res.positions, fn)
	var torn bad
	switch {
	case next != nil && next.header.Previous != r.header.Number:
		return next.corrupt(40, "the header names segment %d as the one before", next.header.Previous)
	case next != nil && (res.sealedOnly || next.header.Version < lazyVersion || r.header.Number < known.certain()):
		err = s.scanSealed(next.header.Sealed)
	case next != nil:
		torn, err = s.scanLazy(next.header.Sealed)
	case r.size < r.header.Size && (r.header.Version < lazyVersion || r.header.Number <= known.certain()):
		return r.corrupt(r.size, "the last segment is shorter than %d bytes, its size when it began", r.header.Size)
	default:
		torn, err = s.scanOpen()
	}
	if err != nil {
		return err
	}
	if next == nil || torn != "" {
		res.sealed, res.end, res.Torn, res.closed = s.durable, s.end, string(torn), s.closed
	}
	if known.Segment == r.header.Number && known.Offset != 0 && s.end != (seal{known.Offset, known.Records, known.Chain}) {
		return r.corrupt(s.end.Offset, "found %d records and chain %016x, but the log was closed with %d and %016x at offset %d",
			s.end.Records, s.end.Chain, known.Records, known.Chain, known.Offset)
	}
	res.Records += int(s.end.Records)
	res.Bytes += s.end.Offset
	return nil
}
