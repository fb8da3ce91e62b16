package sstable

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// ReaderOptions configure the reader of one file.
type ReaderOptions struct {
	// Cache keeps data blocks between reads; nil reads every block anew.
	Cache *cache.Cache
	// FileName is what errors call the file.
	FileName string
	// FileSize and UniqueID are what the caller knows of the file; a file that
	// differs is refused. Zero values are not checked.
	FileSize int64
	UniqueID [16]byte
}

// Reader reads one table file. It is safe for concurrent use. Index, filter and
// properties stay in memory; data blocks come through the cache.
type Reader struct {
	file    vfs.File
	name    string
	cache   *cache.Cache
	cacheID uint64
	footer  footer
	index   index
	filter  filter
	props   Properties
}

// Open reads and checks everything of a file but its data blocks. The reader
// owns f from then on; after an error f is still the caller's. Errors match
// ErrCorrupt or ErrVersion, or are those of the file.
func Open(f vfs.File, opts ReaderOptions) (*Reader, error) {
	r := &Reader{file: f, name: opts.FileName, cache: opts.Cache}
	if r.cache != nil {
		r.cacheID = r.cache.NewID()
	}
	if err := r.readFooter(&opts); err != nil {
		return nil, err
	}
	at := r.footer.dataLength
	if r.footer.filterLength > 0 {
		if err := r.section(at, r.footer.filterLength, r.filter.parse); err != nil {
			return nil, err
		}
	}
	at += r.footer.filterLength
	err := r.section(at, r.footer.indexLength, func(data []byte) string {
		return r.index.parse(data, r.footer.dataLength)
	})
	if err != nil {
		return nil, err
	}
	at += r.footer.indexLength
	if err := r.section(at, r.footer.propertiesLength, r.props.parse); err != nil {
		return nil, err
	}
	r.props.UniqueID, r.props.FileSize = r.footer.uniqueID, r.footer.fileSize
	return r, nil
}

func (r *Reader) readFooter(opts *ReaderOptions) error {
	size, err := r.file.Size()
	if err != nil {
		return fmt.Errorf("sstable: size of %s: %w", r.name, err)
	}
	if opts.FileSize != 0 && size != opts.FileSize {
		return r.corrupt(0, fmt.Sprintf("the file has %d bytes, the manifest says %d", size, opts.FileSize))
	}
	if size < footerSize {
		return r.corrupt(0, fmt.Sprintf("a file of %d bytes is too short to be a table", size))
	}
	var b [footerSize]byte
	if err := r.readAt(b[:], size-footerSize); err != nil {
		return err
	}
	if r.footer, err = parseFooter(b[:], r.name, size); err != nil {
		return err
	}
	if opts.UniqueID != ([16]byte{}) && r.footer.uniqueID != opts.UniqueID {
		return r.corrupt(size-footerSize, "this is another table file: its unique id is not the manifest's")
	}
	return nil
}

func (r *Reader) corrupt(offset int64, what string) error {
	return &CorruptError{File: r.name, Offset: offset, What: what}
}

// readAt fills b from the file.
func (r *Reader) readAt(b []byte, offset int64) error {
	n, err := r.file.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return r.corrupt(offset, "the file ends early")
	}
	return fmt.Errorf("sstable: read %s at offset %d: %w", r.name, offset, err)
}

// section reads a block that is not a data block, and parses it.
func (r *Reader) section(offset, length int64, parse func([]byte) string) error {
	if length > maxRawIndex {
		return r.corrupt(offset, "section too large")
	}
	stored := make([]byte, length)
	if err := r.readAt(stored, offset); err != nil {
		return err
	}
	kind, body, bad := checkStored(stored, &r.footer.uniqueID, offset)
	if bad != "" {
		return r.corrupt(offset, bad)
	}
	raw := body
	if kind != CompressNone {
		n, bad := rawLength(body, maxRawIndex)
		if bad != "" {
			return r.corrupt(offset, bad)
		}
		raw = make([]byte, n)
		s := takeScratch()
		bad = s.decompress(raw, kind, body)
		s.give()
		if bad != "" {
			return r.corrupt(offset, bad)
		}
	}
	if bad := parse(raw); bad != "" {
		return r.corrupt(offset, bad)
	}
	return nil
}

// decodeBlock verifies and decompresses a stored data block into memory that
// allocate gives, and parses it into b.
func (r *Reader) decodeBlock(b *dataBlock, stored []byte, offset int64, s *scratch, allocate func(n int) []byte) error {
	kind, body, bad := checkStored(stored, &r.footer.uniqueID, offset)
	if bad != "" {
		return r.corrupt(offset, bad)
	}
	var raw []byte
	if kind == CompressNone {
		raw = allocate(len(body))
		copy(raw, body)
	} else {
		n, bad := rawLength(body, maxRawBlock)
		if bad != "" {
			return r.corrupt(offset, bad)
		}
		raw = allocate(n)
		if bad := s.decompress(raw, kind, body); bad != "" {
			return r.corrupt(offset, bad)
		}
	}
	if bad := b.parse(raw); bad != "" {
		return r.corrupt(offset, bad)
	}
	return nil
}

// blockLoad fills the cache with one block. It implements cache.Filler.
type blockLoad struct {
	reader *Reader
	block  int
}

// FillBlock reads and decodes the block.
func (l *blockLoad) FillBlock(b *cache.Block) error {
	from, to := l.reader.index.blockRange(l.block)
	s := takeScratch()
	defer s.give()
	stored := s.bytes(int(to - from))
	if err := l.reader.readAt(stored, from); err != nil {
		return err
	}
	decoded, ok := b.Decoded.(*dataBlock)
	if !ok {
		decoded = new(dataBlock)
	}
	if err := l.reader.decodeBlock(decoded, stored, from, s, b.Allocate); err != nil {
		return err
	}
	b.Decoded = decoded
	return nil
}

// bytes returns a buffer of n bytes with undefined content.
func (s *scratch) bytes(n int) []byte {
	if cap(s.stored) < n {
		s.stored = make([]byte, n+n/4)
	}
	return s.stored[:n]
}

// Properties say what the file holds. They are shared; FileChecksum is zero.
func (r *Reader) Properties() *Properties { return &r.props }

// MayContain reports whether the file may hold a row whose key has this hash
// (see Hash); false is certain.
func (r *Reader) MayContain(hash uint64) bool { return r.filter.mayContain(hash) }

// OffsetOf is about where in the file the row key is or would be, from the
// index alone: the offset of the first block that may hold it.
func (r *Reader) OffsetOf(key []byte) int64 {
	g := r.index.search(key)
	if g < 0 {
		return 0
	}
	from, _ := r.index.blockRange(r.index.firstBlock(g))
	return from
}

// WalkIndex calls fn with ascending keys, which are row keys or beginnings of
// such, and the offset in the file at which rows from that key on begin; last
// with the largest key and the length of all data. It ends when fn returns
// false. The key is valid until fn returns. No data is read.
func (r *Reader) WalkIndex(fn func(key []byte, offset int64) bool) {
	var key []byte
	for g := range r.index.groups {
		key = r.index.appendSeparator(key[:0], g)
		from, _ := r.index.blockRange(r.index.firstBlock(g))
		if !fn(key, from) {
			return
		}
	}
	if r.index.groups > 0 {
		fn(r.props.LargestKey, r.footer.dataLength)
	}
}

// Verify reads the whole file and checks it: every checksum, the order of rows
// and cells, the index, the filter, and the properties.
func (r *Reader) Verify() error {
	it := r.NewIterator(IterOptions{NoCacheFill: true, verify: true})
	defer it.Close()
	seen := emptyProperties()
	var before []byte
	for ok := it.First(); ok; ok = it.NextRow() {
		key := it.RowKey()
		at := r.OffsetOf(key)
		if seen.Rows > 0 && bytes.Compare(before, key) >= 0 {
			return r.corrupt(at, "row keys out of order")
		}
		if from, _ := r.index.blockRange(r.index.firstBlock(it.group)); from != at {
			return r.corrupt(at, "the index does not lead to a row")
		}
		if !r.MayContain(Hash(key)) {
			return r.corrupt(r.footer.dataLength, "the filter misses a row")
		}
		if seen.Rows == 0 {
			seen.SmallestKey = bytes.Clone(key)
		}
		before = append(before[:0], key...)
		seen.Rows++
		seen.KeyBytes += uint64(len(key))
		if err := r.verifyRow(it, &seen, at); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if seen.Rows > 0 {
		seen.LargestKey = before
	}
	return r.compareProperties(&seen)
}

// verifyRow checks the cells of the current row and counts them.
func (r *Reader) verifyRow(it *Iterator, seen *Properties, at int64) error {
	last := it.Cell().Clone()
	first := true
	for ok := it.FirstCell(); ok; ok = it.NextCell() {
		c := it.Cell()
		if !first && row.CompareCells(&last, c) >= 0 {
			return r.corrupt(at, "cells out of order")
		}
		if c.Kind.IsRowLevel() != (len(c.Column) == 0) {
			return r.corrupt(at, "cell kind does not go with its column")
		}
		last.Column = append(last.Column[:0], c.Column...)
		last.Version, last.Seq, last.Kind = c.Version, c.Seq, c.Kind
		first = false
		seen.addCell(c)
	}
	if err := it.Error(); err != nil {
		return err
	}
	if first {
		return r.corrupt(at, "row without cells")
	}
	return nil
}

func (r *Reader) compareProperties(seen *Properties) error {
	p := &r.props
	same := p.Rows == seen.Rows && p.Cells == seen.Cells && p.Puts == seen.Puts && p.Tombstones == seen.Tombstones &&
		bytes.Equal(p.SmallestKey, seen.SmallestKey) && bytes.Equal(p.LargestKey, seen.LargestKey) &&
		p.SmallestSeq == seen.SmallestSeq && p.LargestSeq == seen.LargestSeq &&
		p.MinVersion == seen.MinVersion && p.MaxVersion == seen.MaxVersion && p.Permanent == seen.Permanent &&
		p.NewestTombstone == seen.NewestTombstone && p.KeyBytes == seen.KeyBytes && p.ValueBytes == seen.ValueBytes
	if !same {
		return r.corrupt(r.footer.fileSize-footerSize-r.footer.propertiesLength, "the properties are not those of the rows")
	}
	return nil
}

// FileChecksum reads the whole file and returns the xxhash64 of its bytes: what
// Finish returned as Properties.FileChecksum, if nothing has changed.
func (r *Reader) FileChecksum() (uint64, error) {
	h := xxhash.New()
	buffer := make([]byte, 1<<20)
	for at := int64(0); at < r.footer.fileSize; {
		n := min(int64(len(buffer)), r.footer.fileSize-at)
		if err := r.readAt(buffer[:n], at); err != nil {
			return 0, err
		}
		h.Write(buffer[:n])
		at += n
	}
	return h.Sum64(), nil
}

// Close closes the file. Iterators must have been closed.
func (r *Reader) Close() error { return r.file.Close() }
