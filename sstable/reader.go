package sstable

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// BlockCache is a cache of decoded data blocks, for the files of all stores of a
// process.
type BlockCache = cache.Cache[dataBlock]

// NewBlockCache makes a cache.
func NewBlockCache(opts cache.Options) *BlockCache { return cache.New[dataBlock](opts) }

// ReaderOptions configure a reader.
type ReaderOptions struct {
	// Cache holds data blocks; without one every iterator reads for itself.
	Cache *BlockCache
	// FileName names the file in errors.
	FileName string
	// Mapped maps the file, if it can be mapped. Blocks are then read through
	// the mapping while they are in the page cache.
	Mapped bool
	// Elapsed is a monotonic clock, to judge by whether they are. Without it
	// they are taken to be.
	Elapsed func() time.Duration
	// VerifyInterval is how long the verification of values that were read through the
	// mapping is believed by iterators that may (IterOptions.Believe), from the
	// beginning of the access that verified them, by Elapsed, which it needs. 0: not at
	// all; nor if cells of the file refer to value files.
	VerifyInterval time.Duration
	// Helpers load blocks ahead of iterators that go from block to block; nil: none.
	Helpers *assist.Helpers
	// FileSize is the size in bytes that the file must have; 0 takes what it has.
	FileSize int64
	// UniqueID is the id that the file must have; all zero takes any.
	UniqueID [16]byte
}

// Reader reads one table file. Filter, index and properties stay in memory
// until Close; data blocks come and go through the cache. Its methods are safe
// for concurrent use; iterators are not.
type Reader struct {
	file     vfs.File
	name     string
	mapping  *vfs.Mapping // nil: direct
	warmth   warmth
	around   around
	reach    reach
	verified verifications
	align    int64
	cached   *cache.File[dataBlock] // nil: without a cache
	helpers  *assist.Helpers
	footer   footer
	props    Properties
	filter   filter
	index    index
	closed   atomic.Bool

	compressed Compression // what the writer compressed by, if index or properties tell
}

// readUnit rounds the size of read buffers, so that they are reused.
const readUnit = 16 << 10

// Open reads the parts of a table file that say where everything is, and
// checks them. The reader owns f from then on; after an error it is still the
// caller's. Errors are ErrCorrupt, ErrVersion and those of the file.
func Open(f vfs.File, opts ReaderOptions) (*Reader, error) {
	r := &Reader{file: f, name: opts.FileName, align: int64(f.Alignment()), helpers: opts.Helpers}
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("sstable: size of %s: %w", r.name, err)
	}
	if opts.FileSize != 0 && size != opts.FileSize {
		return nil, r.corrupt(0, fmt.Sprintf("file has %d bytes, want %d", size, opts.FileSize))
	}
	if err := r.readTail(size); err != nil {
		return nil, err
	}
	if opts.UniqueID != [16]byte{} && r.footer.uniqueID != opts.UniqueID {
		return nil, r.corrupt(size-footerSize, fmt.Sprintf("file has id %x, want %x", r.footer.uniqueID, opts.UniqueID))
	}
	if opts.Mapped {
		// It fails where there are no mappings, or where they or the address
		// space are used up: then calls have to do.
		r.mapping, _ = vfs.Map(f, size)
		r.warmth.elapsed = opts.Elapsed
		if r.mapping != nil {
			if opts.Elapsed != nil {
				r.around.open(r.footer.dataLength, r.mapping.WillNeed)
			}
			if len(r.props.ValueFiles) == 0 { // a reference is never believed
				r.verified.open(opts.Elapsed, opts.VerifyInterval, r.index.blocks)
			}
		}
	}
	if opts.Cache != nil {
		r.cached = opts.Cache.OpenFile(r.index.blocks)
	}
	return r, nil
}

func (r *Reader) corrupt(offset int64, what string) error {
	return &CorruptError{File: r.name, Offset: offset, What: what}
}

// readTail reads and parses footer, filter, index and properties.
func (r *Reader) readTail(size int64) error {
	if size < footerSize {
		return r.corrupt(0, fmt.Sprintf("file of %d bytes is too short for a footer", size))
	}
	end, err := r.readRange(new([]byte), size-footerSize, footerSize)
	if err != nil {
		return err
	}
	if r.footer, err = parseFooter(end, r.name, size); err != nil {
		return err
	}
	offset := r.footer.dataLength
	tail, err := r.readRange(new([]byte), offset, size-footerSize-offset)
	if err != nil {
		return err
	}
	section := func(length int64, what string, parse func([]byte) string) error {
		stored := tail[:length]
		tail = tail[length:]
		raw, bad := r.rawSection(stored, offset)
		if bad == "" {
			bad = parse(raw)
		}
		if bad != "" {
			return r.corrupt(offset, what+": "+bad)
		}
		offset += length
		return nil
	}
	if r.footer.filterKind != filterNone {
		if err := section(r.footer.filterLength, "filter", r.filter.parse); err != nil {
			return err
		}
	}
	err = section(r.footer.indexLength, "index", func(raw []byte) string {
		return r.index.parse(raw, r.footer.dataLength, r.footer.indexKind)
	})
	if err != nil {
		return err
	}
	err = section(r.footer.propertiesLength, "properties", func(raw []byte) string {
		return r.props.parse(raw, r.footer.version)
	})
	if err != nil {
		return err
	}
	r.props.UniqueID, r.props.FileSize = r.footer.uniqueID, size
	return nil
}

// rawSection verifies and decompresses a block outside the data, in memory of
// its own.
func (r *Reader) rawSection(stored []byte, offset int64) (raw []byte, bad string) {
	kind, body, bad := checkStored(stored, &r.footer.uniqueID, offset)
	if bad != "" {
		return nil, bad
	}
	if kind == CompressNone {
		return append(make([]byte, 0, len(body)), body...), ""
	}
	r.compressed = kind
	n, bad := rawLength(body, maxRawSection)
	if bad != "" {
		return nil, bad
	}
	s := takeScratch()
	defer s.give()
	raw = make([]byte, n)
	return raw, s.decompress(raw, kind, body)
}

// readRange reads n bytes at an offset into *buffer, which it replaces if it is
// too small, and returns them. For a direct file it reads the whole blocks that
// hold them. A file that ends too early is corrupt.
func (r *Reader) readRange(buffer *[]byte, offset, n int64) ([]byte, error) {
	from := offset / r.align * r.align
	length := (offset + n - from + r.align - 1) / r.align * r.align
	b := resize(buffer, length)
	got, err := r.file.ReadAt(b, from)
	if int64(got) < offset+n-from {
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, r.corrupt(offset, fmt.Sprintf("file ends %d bytes too early", offset+n-from-int64(got)))
		}
		return nil, fmt.Errorf("sstable: read %s at offset %d: %w", r.name, offset, err)
	}
	return b[offset-from : offset-from+n], nil
}

// resize makes the buffer one of n bytes, whatever they are, aligned for direct files.
func resize(buffer *[]byte, n int64) []byte {
	if int64(cap(*buffer)) < n {
		*buffer = vfs.AlignedBuffer(int(n+readUnit-1) / readUnit * readUnit)
	}
	return (*buffer)[:n]
}

// Properties returns what the file holds. FileChecksum is 0; see Checksum.
func (r *Reader) Properties() *Properties { return &r.props }

// MayContain reports whether the file may hold the row whose key has this
// hash (see Hash). False is certain. Without a filter it is always true.
func (r *Reader) MayContain(hash uint64) bool { return r.filter.mayContain(hash) }

// OffsetOf estimates the number of bytes of data before the first row whose
// key is at least key, as stored, values in value files included. It reads the
// index alone. The estimate is
// too small by less than one block, or the length of one long row.
func (r *Reader) OffsetOf(key []byte) int64 {
	g := r.index.search(key)
	if g < 0 {
		return 0
	}
	if g == r.index.groups-1 && string(key) > string(r.props.LargestKey) {
		return r.DataSize()
	}
	return r.index.sizeBefore(r.index.firstBlock(g))
}

// DataSize is the number of bytes of data, as stored, values in value files
// included: what OffsetOf returns for a key above all rows.
func (r *Reader) DataSize() int64 { return r.index.sizeBefore(r.index.blocks) }

// Mapped reports whether the file is mapped.
func (r *Reader) Mapped() bool { return r.mapping != nil }

// MemoryUsed is the number of bytes that filter, index and the places of blocks
// in the cache take while the reader is open.
func (r *Reader) MemoryUsed() int64 {
	heads := len(r.index.heads) * 8 * fanout / (fanout - 1)
	return int64(len(r.filter.words)*8 + len(r.index.data) + heads + r.index.blocks*16 + (len(r.verified.blocks)+len(r.around.chunks))*8)
}

// WalkIndex calls fn, in order, for places between the keys low and high where the
// file can be cut, with what lies between each and the one before, in bytes as
// stored, values in value files included. An empty low and a nil high are no bounds.
// The first place is the first there is; the next lies, each time, at least as many
// bytes on as fn returned, and below 0 is the end. The result is what lies behind
// the last place, below high; of the blocks that hold a bound itself, all counts
// that is there above low, and nothing that is there below high.
// A separator is valid during the call only. It is a shortened key, not a key
// of the file: bytes that sort above one row and not above the next, which may
// end within a key column.
func (r *Reader) WalkIndex(low, high []byte, fn func(separator []byte, since int64) (apart int64)) (rest int64) {
	x := &r.index
	g, end := max(x.search(low), 0), x.groups
	to := x.offset(end)
	if high != nil && string(high) <= string(r.props.LargestKey) {
		end = x.search(high) + 1
		to = x.offset(max(end-1, 0))
	}
	if g >= end || string(low) > string(r.props.LargestKey) {
		return 0
	}
	before, taken, span := x.offset(g), float64(end-g), float64(max(to-x.offset(g), 1))
	separator := x.appendSeparator(nil, g)
	if string(separator) < string(low) {
		g++
	}
	for g < end {
		separator = x.appendSeparator(separator[:0], g)
		if high != nil && string(separator) >= string(high) {
			break
		}
		at := x.offset(g)
		apart := fn(separator, at-before)
		before = at
		if apart < 0 {
			break
		}
		apart = min(apart, to-at+1)
		// Groups are likely to be as large as they were since the place before.
		next := x.groupFrom(g+1, g+int(float64(apart)*taken/span), at+apart)
		taken, span = float64(next-g), float64(x.offset(next)-at)
		g = next
	}
	return to - before
}

// Checksum reads the whole file and returns the xxhash64 of its bytes, which
// is the FileChecksum that Finish returned.
func (r *Reader) Checksum() (uint64, error) {
	var d xxhash.Digest
	d.Reset()
	const chunk = 512 << 10
	buffer := vfs.AlignedBuffer(chunk)
	for offset := int64(0); offset < r.footer.fileSize; {
		n := min(int64(chunk), r.footer.fileSize-offset)
		b, err := r.readRange(&buffer, offset, n)
		if err != nil {
			return 0, err
		}
		_, _ = d.Write(b)
		offset += n
	}
	return d.Sum64(), nil
}

// Close closes the file and gives its blocks in the cache free. Iterators must
// have been closed. A second Close does nothing.
func (r *Reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if r.cached != nil {
		r.cached.Close()
	}
	var err error
	if r.mapping != nil {
		err = r.mapping.Close()
	}
	if err := errors.Join(err, r.file.Close()); err != nil {
		return fmt.Errorf("sstable: close %s: %w", r.name, err)
	}
	return nil
}
