package sstable

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// DefaultBlockSize is the target raw size of data blocks. It holds eight rows of a kilobyte;
// larger blocks compress better, but point reads cost more.
const DefaultBlockSize = 8 << 10

// WriterOptions configure one file.
type WriterOptions struct {
	// BlockSize is the target raw size of data blocks in bytes, at most MaxBlockSize; 0
	// means DefaultBlockSize. A single larger cell still fits.
	BlockSize int
	// Compression is that of data, index and properties blocks. Blocks that it does
	// not make smaller by an eighth are stored raw.
	Compression Compression
	// FilterBitsPerKey sizes the bloom filter; 0 means no filter.
	FilterBitsPerKey float64
	// UniqueID identifies the file for ever. It must differ between any two files.
	UniqueID [16]byte
}

// errOrder reports rows or cells that were added out of order, or are not legal.
var errOrder = errors.New("sstable: cell out of place")

// maxBlockAway bounds how many bytes in value files the rows of a block refer to, because
// sizes and split points are known only per block. Rows with a value of 64 KiB fill a block
// before that. The index grows by an entry per 8 MiB.
const maxBlockAway = 8 << 20

// Writer writes one table file. It is used by one goroutine. After an error every call
// returns that error, and the caller must remove the file.
type Writer struct {
	*writerMemory
	opts       WriterOptions
	out        *outfile.Writer
	meant      outfile.Meant // set by Finish
	compressor compressor
	cutter     cutter
	props      Properties
	err        error

	inRow     bool
	key       []byte // the newest row's key
	groupKey  []byte // largest key of the last group in the index
	fragments int    // blocks of the newest row that are written already
	tie       bool   // the fragment being built begins in a tie
	last      row.Cell
	column    []byte // of last, copied
	rowHas    bool   // last is of the newest row
}

// NewWriter starts a table file in f, which must be empty. The first call reports mistakes
// in the options.
func NewWriter(f vfs.File, opts WriterOptions) *Writer {
	w := &Writer{
		writerMemory: writerMemories.Get().(*writerMemory), opts: opts, out: outfile.New(f), props: emptyProperties(),
		compressor: compressor{kind: opts.Compression}, cutter: newCutter(opts.Compression),
	}
	if w.opts.BlockSize == 0 {
		w.opts.BlockSize = DefaultBlockSize
	}
	switch {
	case w.opts.BlockSize < 0 || w.opts.BlockSize > MaxBlockSize:
		w.err = fmt.Errorf("sstable: block size %d, want 1 to %d", opts.BlockSize, MaxBlockSize)
	case opts.Compression > CompressZstd:
		w.err = fmt.Errorf("sstable: unknown %s", opts.Compression)
	case opts.FilterBitsPerKey < 0 || opts.FilterBitsPerKey > 64:
		w.err = fmt.Errorf("sstable: %g filter bits per key, want 0 to 64", opts.FilterBitsPerKey)
	}
	w.props.UniqueID = opts.UniqueID
	return w
}

func (w *Writer) fail(err error) error {
	w.err = cmp.Or(w.err, err)
	return w.err
}

// StartRow begins a row. Keys must rise strictly. Errors are errOrder for a key out of place,
// and errors of the file.
func (w *Writer) StartRow(key []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.checkKey(key); err != nil {
		return err
	}
	if err := w.endRow(); err != nil {
		return err
	}
	w.key = append(w.key[:0], key...)
	w.inRow, w.rowHas = true, false
	w.block.startRow(key)
	if w.opts.FilterBitsPerKey > 0 {
		w.hashes = append(w.hashes, Hash(key))
	}
	if w.props.Rows == 0 {
		w.props.SmallestKey = bytes.Clone(key)
	}
	w.props.Rows++
	w.props.KeyBytes += uint64(len(key))
	return nil
}

// AddCell adds a cell to the last row, in cell order. It copies the cell's memory. Errors
// are errOrder for a cell out of place, and errors of the file.
func (w *Writer) AddCell(c *row.Cell) error {
	if w.err != nil {
		return w.err
	}
	if bad := w.checkCell(c); bad != "" {
		return w.fail(fmt.Errorf("%w: row key %x: %s: %s", errOrder, w.key, c.Kind, bad))
	}
	need := cellOverhead + len(c.Value)
	if w.block.size()+need > w.opts.BlockSize && (len(w.block.rows) > 1 || w.block.rowCells() > 0) {
		if err := w.makeRoom(c, need); err != nil {
			return err
		}
	}
	w.block.addCell(c)
	if bad := w.props.addCell(c); bad != "" {
		return w.fail(fmt.Errorf("%w: row key %x: %s", errOrder, w.key, bad))
	}
	w.column = append(w.column[:0], c.Column...)
	w.last.Column, w.last.Version, w.last.Seq, w.last.Kind = w.column, c.Version, c.Seq, c.Kind
	w.rowHas = true
	return nil
}

// NoteStored says how another table stores the values of exactly the cells of the last row, which
// is complete. If the values get a segment of their own here too, and this table compresses
// alike, those bytes become the segment. So a compaction need not compress the values of
// wide rows again.
func (w *Writer) NoteStored(s row.Stored) {
	if w.err == nil && w.fragments == 0 && len(s.Bytes) > 0 {
		w.block.addStored(s)
	}
}

func (w *Writer) checkCell(c *row.Cell) string {
	switch {
	case !w.inRow:
		return "no row was started"
	case w.rowHas && row.CompareCells(&w.last, c) >= 0:
		return "not in cell order"
	}
	return checkLegal(c)
}

// makeRoom writes the rows before the newest one. If that does not make room, it also writes
// the newest row's cells, as a fragment.
func (w *Writer) makeRoom(c *row.Cell, need int) error {
	if n := len(w.block.rows); n > 1 {
		w.block.moveLastRow(w.next)
		if err := w.emit(n-1, false, false); err != nil {
			return err
		}
		w.block, w.next = w.next, w.block
	}
	if w.block.rowCells() == 0 || w.block.size()+need <= w.opts.BlockSize {
		return nil
	}
	if err := w.emit(1, w.fragments > 0, true); err != nil {
		return err
	}
	w.fragments++
	w.tie = w.last.Version == c.Version && bytes.Equal(w.last.Column, c.Column)
	w.block.reset()
	w.block.startRow(w.key)
	return nil
}

// endRow completes the newest row. The rest of a long row is written at once, so that the
// next row begins in a block of its own.
func (w *Writer) endRow() error {
	if !w.inRow {
		return nil
	}
	w.inRow = false
	if !w.rowHas {
		return w.fail(fmt.Errorf("%w: row key %x has no cells", errOrder, w.key))
	}
	if w.fragments == 0 && w.block.size() < w.opts.BlockSize && w.block.away < maxBlockAway {
		return nil
	}
	return w.flushBlock()
}

// flushBlock writes all complete rows, or the last fragment of a long one.
func (w *Writer) flushBlock() error {
	if len(w.block.rows) == 0 {
		return nil
	}
	if err := w.emit(len(w.block.rows), w.fragments > 0, false); err != nil {
		return err
	}
	w.fragments = 0
	w.block.reset()
	return nil
}

// emit writes the first n rows of the block and adds it to the index.
func (w *Writer) emit(n int, continued, continues bool) error {
	b := w.block
	w.appendSegments(n)
	w.raw = b.encode(w.raw[:0], n, continued, continues, w.parts)
	raw := len(w.raw) + b.valuesEnd(n)
	if raw > maxRawBlock {
		return w.fail(fmt.Errorf("sstable: block of %d bytes, at most %d", raw, maxRawBlock))
	}
	if !continued {
		w.index.addGroup(w.groupKey, b.key(0))
		w.groupKey = append(w.groupKey[:0], b.key(n-1)...)
	}
	var column []byte
	var version int64
	tie := false
	if continued {
		first := &b.cells[0]
		column, version, tie = b.name(first.column), first.version, w.tie
	}
	if err := w.appendHead(raw); err != nil {
		return err
	}
	w.index.addBlock(w.out.Offset(), column, version, tie, b.awayBytes(n))
	w.props.DataBlocks++
	w.props.RawBytes += uint64(raw)
	return nil
}

// appendBlock compresses a block and writes it with its trailer. It returns the length of both.
func (w *Writer) appendBlock(raw []byte, c *compressor) (int64, error) {
	w.stored = c.appendStored(w.stored[:0], raw, &w.opts.UniqueID, w.out.Offset())
	if _, err := w.out.Write(w.stored); err != nil {
		return 0, w.fail(err)
	}
	return int64(len(w.stored)), nil
}

// EstimatedSize is about the size in bytes that the file would have if it were finished now.
func (w *Writer) EstimatedSize() int64 {
	filter := int64(float64(len(w.hashes)) * w.opts.FilterBitsPerKey / 8)
	return w.out.Offset() + int64(w.block.size()) + int64(w.index.size()) + filter + footerSize
}

// Finish completes the file and hands it to the operating system. The caller syncs and
// closes it. The writer cannot be used afterwards.
func (w *Writer) Finish() (Properties, error) {
	if w.err != nil {
		return Properties{}, w.err
	}
	if err := w.endRow(); err != nil {
		return Properties{}, err
	}
	if err := w.flushBlock(); err != nil {
		return Properties{}, err
	}
	if w.props.Rows > 0 {
		w.props.LargestKey = bytes.Clone(w.key)
	}
	f := footer{uniqueID: w.opts.UniqueID, dataLength: w.out.Offset(), version: formatVersion, indexKind: indexWithValues}
	var err error
	if len(w.hashes) > 0 {
		f.filterKind = filterBlockedBloom
		uncompressed := compressor{kind: CompressNone} // the filter's bits are random
		if f.filterLength, err = w.appendBlock(encodeFilter(w.hashes, w.opts.FilterBitsPerKey), &uncompressed); err != nil {
			return Properties{}, err
		}
	}
	encoded := w.index.encode()
	if len(encoded) > maxRawSection {
		return Properties{}, w.fail(fmt.Errorf("sstable: index of %d bytes, at most %d", len(encoded), maxRawSection))
	}
	if f.indexLength, err = w.appendBlock(encoded, &w.compressor); err != nil {
		return Properties{}, err
	}
	if f.propertiesLength, err = w.appendBlock(w.props.encode(), &w.compressor); err != nil {
		return Properties{}, err
	}
	f.fileSize = w.out.Offset() + footerSize
	if _, err = w.out.Write(f.append(nil)); err == nil {
		w.meant, err = w.out.Finish()
	}
	if err != nil {
		return Properties{}, w.fail(err)
	}
	w.props.FileSize = w.meant.Size
	w.props.FileChecksum = w.meant.Checksum()
	w.give()
	w.writerMemory = nil
	w.err = errors.New("sstable: writer is finished")
	return w.props, nil
}

// Meant describes the content that the file should have, to read it back. REQUIRES: Finish succeeded.
func (w *Writer) Meant() outfile.Meant { return w.meant }
