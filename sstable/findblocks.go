package sstable

// Finding the data blocks of a file whose index or footer is damaged. The last bytes of a data block
// are the length of its head, and the head has a checksum that covers its place and the id of the
// file, which the manifest knows. So every place at which a block may end can be tried: where a head
// verifies a block ends, and the head says where the block begins.

import (
	"bytes"
	"encoding/binary"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	findChunk = 256 << 10 // is read at a time
	findUnit  = 4 << 10   // and so much where the device cannot read that
	// maxStoredBlock bounds the length of a data block in the file, and maxStoredHead that of its head.
	maxStoredBlock = maxRawBlock + maxBlockTrailers
	maxStoredHead  = 4*maxBlockSize + trailerSize
)

// finder looks for the data blocks of a file from front to back, and makes an index of them: a group for each
// block, and one for each part of the file between blocks, in which none can be read.
type finder struct {
	r       *Reader
	index   indexBuilder
	gaps    map[int]Loss // by number in the index
	data    []byte       // of the file, from offset at on
	at      int64
	tried   int    // no block ends in data[:tried]
	end     int64  // of the newest block, or 0
	last    []byte // the key of its last row
	open    bool   // that row goes on in the next block
	unread  error  // of the device, behind the newest block
	scratch *scratch
	head    []byte
}

// findBlocks fills the index of a file without reading the stored one. largest is the key of the last row: without
// a footer, it tells what is behind the last block from a block that cannot be read. It returns false if there is
// no block.
func (r *Reader) findBlocks(size int64, largest []byte) (found bool, err error) {
	f := finder{r: r, gaps: map[int]Loss{}, scratch: takeScratch()}
	defer f.scratch.give()
	r.footer.version, r.footer.dataLength, r.footer.fileSize = versionSegments, size, size
	known := false
	if size >= footerSize {
		if b, err := r.readRange(new([]byte), size-footerSize, footerSize); err == nil {
			switch foot, err := r.parseFooter(b, size); {
			case err != nil:
			case foot.uniqueID != r.footer.uniqueID || foot.version < versionSegments:
				return false, nil // the blocks of older versions do not say where they end
			default:
				r.footer, known = foot, true
			}
		}
	}
	for offset := int64(0); offset < r.footer.dataLength; offset += findChunk {
		if err := f.read(offset, min(findChunk, r.footer.dataLength-offset)); err != nil {
			return false, err
		}
		f.search()
	}
	if f.end == 0 {
		return false, nil
	}
	if !known && !f.open && bytes.Equal(f.last, largest) {
		r.footer.dataLength = f.end
	} else if !known || f.end < r.footer.dataLength {
		f.gap(r.footer.dataLength, nil, false)
	}
	f.index.first = nil // separators share no prefix
	r.gaps = f.gaps
	bad := r.index.decode(f.index.encode(), indexWithValues)
	if bad != "" {
		return false, r.corrupt(0, bad)
	}
	return true, nil
}

// read appends n bytes of the file to data: zeros where the device cannot read.
func (f *finder) read(offset, n int64) error {
	var buffer []byte
	b, err := f.r.readRange(&buffer, offset, n)
	if err == nil || !vfs.IsUnreadable(err) {
		f.data = append(f.data, b...)
		return err
	}
	for end := offset + n; offset < end; offset += findUnit {
		n := min(findUnit, end-offset)
		if b, err = f.r.readRange(&buffer, offset, n); err != nil {
			if !vfs.IsUnreadable(err) {
				return err
			}
			f.unread, b = err, make([]byte, n)
		}
		f.data = append(f.data, b...)
	}
	return nil
}

// search takes the blocks that end in data.
func (f *finder) search() {
	for f.tried < len(f.data) {
		f.tried++
		if f.blockEnds(f.data[:f.tried]) {
			f.at, f.data, f.tried = f.at+int64(f.tried), f.data[f.tried:], 0
		}
	}
	if drop := len(f.data) - maxStoredBlock; drop > 0 {
		f.at, f.data, f.tried = f.at+int64(drop), f.data[drop:], f.tried-drop
	}
}

// blockEnds takes the block that ends with data, if there is one.
func (f *finder) blockEnds(data []byte) bool {
	n := len(data) - headLengthSize
	if n < 2*trailerSize { // of a segment and the head
		return false
	}
	length := binary.LittleEndian.Uint32(data[n:])
	if length < trailerSize || length > maxStoredHead || int(length) > n-trailerSize || data[n-trailerSize] > byte(CompressZstd) {
		return false
	}
	begin := n - int(length)
	headAt := f.at + int64(begin)
	stored, bad := checkStored(data[begin:n], &f.r.footer.uniqueID, headAt, maxRawBlock)
	if bad != "" {
		return false
	}
	f.head = append(f.head[:0], make([]byte, stored.raw)...)
	var block dataBlock
	if f.scratch.expand(f.head, stored) != "" || block.parse(f.head, anyPlace) != "" {
		return false
	}
	from := headAt - int64(block.partEnd.at(block.data, block.segments-1))
	key := block.appendKey(nil, 0)
	if from > f.end {
		f.gap(from, key, block.continued)
	}
	f.add(key, f.at+int64(len(data)))
	f.last, f.open, f.unread = block.appendKey(f.last[:0], block.rows-1), block.continues, nil
	return true
}

// gap adds what lies between the newest block and to. key is that of the row at to, and
// continued says that the row has parts before it.
func (f *finder) gap(to int64, key []byte, continued bool) {
	l := Loss{Offset: f.end, From: bytes.Clone(f.last), To: key, Partial: f.open || continued, Err: f.unread}
	if l.Err == nil {
		l.Err = f.r.corrupt(f.end, "no data block can be read here")
	}
	if continued { // the rows that are lost in part end with this one
		l.To = append(bytes.Clone(key), 0)
		if !f.open && l.From != nil { // and begin behind the newest one
			l.From = append(l.From, 0)
		}
	}
	f.gaps[len(f.index.arrays[idxBlockEnd])] = l
	f.add(l.From, to)
}

// add adds a group of one block, which begins where the one before ends.
func (f *finder) add(key []byte, to int64) {
	f.index.addGroup(nil, key)
	f.index.addBlock(to, nil, 0, false, 0)
	f.end = to
}
