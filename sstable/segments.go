package sstable

// How the writer cuts the values of a block into segments. Small segments make gets cheap: a
// get of a row of a kilobyte, half compressible and only in the page cache, takes three
// quarters of the time that it takes with one segment for a block of 8 KiB. But they
// compress worse: text that takes 0.47 of its size in pieces of 8 KiB takes 0.54 in pieces of
// 4, 0.63 of 2 and 0.77 of 1. So the writer tries now and then what each size costs, and
// takes the smallest that costs little.

import "encoding/binary"

// segmentSizes are the sizes that the writer tries, in bytes before compression. Segments of a size
// may enlarge the values of a block by one part in share, compared with no cuts. The largest may enlarge
// them most: blocks of small rows have 8 KiB, so a get decompresses half as much.
var segmentSizes = [...]struct{ size, share int }{{1 << 10, 16}, {2 << 10, 16}, {4 << 10, 5}}

// cutEvery: one of so many blocks is cut in several ways, to choose the size for all.
const cutEvery = 32

// cutter decides how to cut the next blocks.
type cutter struct {
	size   int // of a segment
	blocks int // how many until the next trial
}

// newCutter returns the cutter for a compression. Without compression small segments lose
// nothing. With zstd, which is for density, all values go into one segment.
func newCutter(c Compression) cutter {
	if c == CompressZstd {
		return cutter{size: maxRawBlock}
	}
	return cutter{size: segmentSizes[0].size}
}

// appendSegments begins a stored block with the segments of the first n rows, and sets parts
// to where they end.
func (w *Writer) appendSegments(n int) {
	c := &w.cutter
	c.blocks--
	if c.blocks < 0 && n > 1 && w.opts.Compression == CompressS2 {
		w.tryCuts(n)
	}
	w.cutSegments(n, c.size)
}

// tryCuts cuts a block of n rows in several ways, and chooses the size for it and the next ones.
func (w *Writer) tryCuts(n int) {
	c := &w.cutter
	c.blocks, c.size = cutEvery-1, maxRawBlock
	w.cutSegments(n, c.size)
	uncut := len(w.stored)
	for _, cut := range segmentSizes {
		w.cutSegments(n, cut.size)
		if len(w.stored) <= uncut+uncut/cut.share {
			c.size = cut.size
			break
		}
	}
}

// cutSegments is appendSegments for segments of about the given size.
func (w *Writer) cutSegments(n, size int) {
	b := w.block
	w.stored, w.parts = w.stored[:0], w.parts[:0]
	from, row := 0, 0
	for _, end := range b.cut(n, size) {
		to := b.valuesEnd(int(end))
		at := w.out.Offset() + int64(len(w.stored))
		var form Compression
		var body []byte
		if int(end) == row+1 {
			form, body = b.storedRow(row, w.opts.Compression)
		}
		if len(body) > 0 {
			w.stored = appendTrailer(append(w.stored, body...), len(body), form, &w.opts.UniqueID, at)
		} else {
			w.stored = w.compressor.appendStored(w.stored, b.values[from:to], &w.opts.UniqueID, at)
		}
		w.parts = append(w.parts, uint64(len(w.stored)))
		from, row = to, int(end)
	}
}

// appendHead completes the stored block, of raw bytes before compression, with its head, and
// writes it. A head is read more often than any segment. So, except with zstd, it is
// compressed only if it is at least a quarter of the block.
func (w *Writer) appendHead(raw int) error {
	c, plain := &w.compressor, compressor{kind: CompressNone}
	if len(w.raw) < raw/4 && c.kind != CompressZstd {
		c = &plain
	}
	at := len(w.stored)
	w.stored = c.appendStored(w.stored, w.raw, &w.opts.UniqueID, w.out.Offset()+int64(at))
	w.stored = binary.LittleEndian.AppendUint32(w.stored, uint32(len(w.stored)-at))
	if _, err := w.out.Write(w.stored); err != nil {
		return w.fail(err)
	}
	return nil
}
