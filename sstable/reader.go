package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// BlockCache is a cache of decoded data blocks, for the files of all stores of a process.
type BlockCache = cache.Cache[dataBlock]

// NewBlockCache makes a cache.
func NewBlockCache(opts cache.Options) *BlockCache { return cache.New[dataBlock](opts) }

// ReaderOptions configure a reader.
type ReaderOptions struct {
	// Cache holds data blocks; without one every iterator reads them for itself.
	Cache *BlockCache
	// FileName names the file in errors.
	FileName string
	// Mapped maps the file, if that is possible. Blocks are then read through the
	// mapping while they are in the page cache.
	Mapped bool
	// Elapsed is a monotonic clock, which measures whether blocks are in the page cache.
	// Without it the reader assumes that they are.
	Elapsed func() time.Duration
	// Keep says which share of the file's blocks the page cache is asked to keep, in parts of KeepAll; nil: all.
	Keep *atomic.Uint32
	// VerifyInterval is how long iterators with IterOptions.Believe trust a verification
	// of values that were read through the mapping. It counts, by Elapsed, from the
	// beginning of the access that verified them. 0 means no trust; nor is there any
	// without Elapsed, or if cells of the file refer to value files.
	VerifyInterval time.Duration
	// Helpers load blocks ahead for iterators that go from block to block; nil: no helpers.
	Helpers *assist.Helpers
	// FileSize is the size in bytes that the file must have; 0 accepts any.
	FileSize int64
	// UniqueID is the id that the file must have; all zero accepts any.
	UniqueID [16]byte
	// SeqOffset is added to every sequence number that the file holds, in cells and in properties.
	SeqOffset uint64
}

// Reader reads one table file. Filter, index and properties stay in memory until Close;
// data blocks come and go through the cache. Its methods are safe for concurrent use, but
// its iterators are not.
type Reader struct {
	fileBytes
	verified verifications
	cached   *cache.File[dataBlock] // nil: no cache
	helpers  *assist.Helpers
	props    Properties
	filter   filter
	index    index
	closed   atomic.Bool

	compressed Compression // the writer's compression, if index or properties tell
	seqOffset  uint64      // see ReaderOptions

	gaps map[int]Loss // blocks of an index that was made again that are none, see findBlocks; nil if the index is the file's
}

// Open reads and checks the parts of a table file that say where everything is. On success
// the reader owns f; after an error the caller still does. Errors are ErrCorrupt, errVersion
// and those of the file.
func Open(f vfs.File, opts ReaderOptions) (*Reader, error) { return open(f, opts, false) }

// open opens a file; tolerant says that it does without filter and properties, if they are damaged.
func open(f vfs.File, opts ReaderOptions, tolerant bool) (*Reader, error) {
	r := newReader(f, opts)
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("sstable: size of %s: %w", r.name, err)
	}
	if opts.FileSize != 0 && size != opts.FileSize {
		return nil, r.corrupt(0, fmt.Sprintf("file has %d bytes, want %d", size, opts.FileSize))
	}
	if err := r.readTail(size, tolerant); err != nil {
		return nil, err
	}
	if opts.UniqueID != [16]byte{} && r.footer.uniqueID != opts.UniqueID {
		return nil, r.corrupt(size-footerSize, fmt.Sprintf("file has id %x, want %x", r.footer.uniqueID, opts.UniqueID))
	}
	if opts.Mapped {
		// Map fails on systems without mappings, or if mappings or address space are
		// used up. Then the reader uses calls.
		r.mapping, _ = f.Map(size)
	}
	if f.Alignment() > 1 { // it has direct reads
		r.starter, _ = f.(vfs.Starter)
	}
	if opts.Elapsed != nil {
		willNeed := f.WillNeed
		if r.mapping != nil {
			willNeed = r.mapping.WillNeed
		}
		r.residency.elapsed = opts.Elapsed
		r.prefetch.open(r.footer.dataLength, willNeed)
		r.prefetch.keep, r.prefetch.seed = opts.Keep, binary.LittleEndian.Uint64(r.footer.uniqueID[:])
		if r.mapping != nil && opts.VerifyInterval > 0 && len(r.props.ValueFiles) == 0 { // a verification of references is not trusted
			r.verified = verifications{opts.Elapsed, opts.VerifyInterval, make([]atomic.Uint64, r.index.blocks)}
		}
	}
	if opts.Cache != nil {
		r.cached = opts.Cache.OpenFile(r.index.blocks)
	}
	return r, nil
}

func newReader(f vfs.File, opts ReaderOptions) *Reader {
	return &Reader{fileBytes: fileBytes{file: f, name: opts.FileName, align: int64(f.Alignment())}, helpers: opts.Helpers, seqOffset: opts.SeqOffset}
}

// readTail reads and parses footer, filter, index and properties. If it is tolerant, damaged filters and
// properties are empty.
func (r *Reader) readTail(size int64, tolerant bool) error {
	if size < footerSize {
		return r.corrupt(0, fmt.Sprintf("file of %d bytes is too short for a footer", size))
	}
	end, err := r.readRange(new([]byte), size-footerSize, footerSize)
	if err != nil {
		return err
	}
	if r.footer, err = r.parseFooter(end, size); err != nil {
		return err
	}
	offset := r.footer.dataLength
	tail, err := r.readRange(new([]byte), offset, size-footerSize-offset)
	if err != nil {
		return err
	}
	memory := takeScratch()
	defer memory.give()
	for _, section := range []struct {
		length int64
		what   string
		parse  func(raw []byte) (bad string)
	}{
		{r.footer.filterLength, "filter", r.filter.parse},
		{r.footer.indexLength, "index", func(raw []byte) string {
			return r.index.parse(raw, r.footer.dataLength, r.footer.indexKind)
		}},
		{r.footer.propertiesLength, "properties", func(raw []byte) string { return r.props.parse(raw, r.footer.version) }},
	} {
		if section.length == 0 {
			continue // no filter
		}
		stored, bad := checkStored(tail[:section.length], &r.footer.uniqueID, offset, maxRawSection)
		raw := make([]byte, stored.raw)
		if bad == "" {
			bad = memory.expand(raw, stored)
		}
		if bad == "" {
			bad = section.parse(raw)
		}
		if bad != "" {
			if !tolerant || section.what == "index" {
				return r.corrupt(offset, section.what+": "+bad)
			}
			if section.what == "filter" {
				r.filter = filter{}
			} else {
				r.props = emptyProperties()
			}
		} else if stored.kind != CompressNone {
			r.compressed = stored.kind
		}
		tail, offset = tail[section.length:], offset+section.length
	}
	r.props.UniqueID, r.props.FileSize = r.footer.uniqueID, size
	r.props.shift(r.seqOffset)
	return nil
}

// Properties returns what the file holds. FileChecksum is 0; see Checksum.
func (r *Reader) Properties() *Properties { return &r.props }

// MayContain reports whether the file may hold the row whose key has this hash (see Hash).
// False is certain. Without a filter it is always true.
func (r *Reader) MayContain(hash uint64) bool { return r.filter.mayContain(hash) }

// Expect prefetches what MayContain looks at.
func (r *Reader) Expect(hash uint64) { r.filter.expect(hash) }

// Far reports whether the block that may hold a row with this key has probably to be read from the device, and
// Iterator.StartRead can begin such reads.
func (r *Reader) Far(key []byte) bool {
	if r.starter == nil || r.residency.resident() {
		return false
	}
	g := r.index.search(key)
	return g >= 0 && (r.cached == nil || !r.cached.Holds(r.index.firstBlock(g)))
}

// HidesOlder reports whether most rows of the file probably hide what older files hold of them: it has more tombstones, of
// rows or columns, than half as many as rows.
func (r *Reader) HidesOlder() bool { return 2*r.props.Tombstones > r.props.Rows }

// Mapped reports whether the file is mapped.
func (r *Reader) Mapped() bool { return r.mapping != nil }

// MemoryUsed is how many bytes the open reader takes: filter, index, places of blocks in the
// cache, and the states of verifications and of chunks.
func (r *Reader) MemoryUsed() int64 {
	words := len(r.filter.words) + len(r.index.heads) + 2*r.index.blocks + len(r.verified.blocks) + len(r.prefetch.chunks)
	return int64(len(r.index.data) + 8*words)
}

// WalkIndex calls fn, in order, for places between the keys low and high where the file can
// be cut. since is how many bytes lie between this place and the one before, as stored,
// including values in value files. An empty low and a nil high are no bounds. The walk begins
// at the first place there is. Each next place is at least as many bytes further as fn
// returned; a negative result ends the walk. rest is how many bytes lie between the last
// place and high. The block that holds low counts in full, the block that holds high not
// at all. fn must not keep separator, which is not a key of the file, but a shortened key: it
// sorts above one row and not above the next, and may end within a key column.
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
	before := x.offset(g)
	density := float64(end-g) / float64(max(to-before, 1)) // groups per byte
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
		g = x.groupFrom(g+1, g+1+int(float64(apart)*density), at+apart)
	}
	return to - before
}

// Checksum reads the whole file and returns the xxhash64 of its bytes, which Finish returned
// as FileChecksum.
func (r *Reader) Checksum() (uint64, error) {
	const chunk = 512 << 10
	d, buffer := xxhash.New(), []byte(nil)
	for offset := int64(0); offset < r.footer.fileSize; offset += chunk {
		b, err := r.readRange(&buffer, offset, min(chunk, r.footer.fileSize-offset))
		if err != nil {
			return 0, err
		}
		_, _ = d.Write(b)
	}
	return d.Sum64(), nil
}

// Close closes the file and frees its blocks in the cache. A second Close does nothing.
// REQUIRES: all iterators are closed.
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
