package sstable

// Finding the data blocks of a file whose index or footer is damaged. The last bytes of a data block
// are the length of its head, and the head has a checksum that covers its place and the id of the
// file, which the manifest knows. So every place at which a block may end can be tried: where a head
// verifies a block ends, and the head says where the block begins.

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	findChunk = 256 << 10 // is read at a time
	findUnit  = 4 << 10   // and so much where the device cannot read that
	// maxStoredBlock bounds the length of a data block in the file, maxRawHead that of its head, and maxStoredHead
	// that of the head as stored.
	maxStoredBlock = maxRawBlock + maxBlockTrailers
	maxRawHead     = 4 * MaxBlockSize
	maxStoredHead  = maxRawHead + trailerSize
	// findWindow is how much of the file must be in memory to see the end of a block: the trailer of a segment, the
	// head and its length.
	findWindow = trailerSize + maxStoredHead + headLengthSize
	zstdMagic  = "\x28\xb5\x2f\xfd"
)

// finder looks for the data blocks of a file from front to back, and makes an index of them: a group for each
// block, and one for each part of the file between blocks, in which none can be read.
type finder struct {
	r       *Reader
	stop    func() error // called before each chunk: an error ends the search
	chunk   int64        // findChunk, or less in tests
	window  int          // findWindow, or less in tests
	index   indexBuilder
	gaps    map[int]Loss // by number in the index
	buffer  []byte
	data    []byte // of the file, from offset at on; a part of buffer
	at      int64
	tried   int    // no block ends in data[:tried]
	end     int64  // of the newest block, or 0
	last    []byte // the key of its last row
	open    bool   // that row goes on in the next block
	unread  error  // of the device, behind the newest block
	scratch *scratch
	head    []byte
}

func newFinder(r *Reader, stop func() error) *finder {
	return &finder{r: r, stop: stop, chunk: findChunk, window: findWindow, gaps: map[int]Loss{}}
}

// findBlocks fills the index of a file without reading the stored one. largest is the key of the last row: without
// a footer, it tells what is behind the last block from a block that cannot be read. It returns false if there is
// no block.
func (f *finder) findBlocks(size int64, largest []byte) (found bool, err error) {
	r := f.r
	f.scratch = takeScratch()
	defer f.scratch.give()
	r.footer.version, r.footer.dataLength, r.footer.fileSize = versionSegments, size, size
	known := false
	if size >= footerSize {
		if b, err := r.readRange(new([]byte), size-footerSize, footerSize); err == nil {
			switch foot, err := r.parseFooter(b, size); {
			case err != nil:
			case foot.uniqueID != r.footer.uniqueID:
				return false, nil
			case foot.version < versionSegments:
				return false, r.corrupt(foot.dataLength, fmt.Sprintf("without an index the blocks of format version %d cannot be found, they do not say where they end", foot.version))
			default:
				r.footer, known = foot, true
			}
		}
	}
	// The tail moves to the front once in a window, so a byte moves about once.
	f.buffer = make([]byte, min(r.footer.dataLength, int64(f.window)+max(f.chunk, int64(f.window))))
	f.data = f.buffer[:0]
	for offset := int64(0); offset < r.footer.dataLength; offset += f.chunk {
		if err := f.stop(); err != nil {
			return false, err
		}
		if err := f.read(offset, min(f.chunk, r.footer.dataLength-offset)); err != nil {
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
	if drop := len(f.data) - f.window; drop > 0 && int64(cap(f.data)-len(f.data)) < n {
		f.at, f.tried = f.at+int64(drop), f.tried-drop
		f.data = f.buffer[:copy(f.buffer, f.data[drop:])]
	} else if int64(cap(f.data)-len(f.data)) < n {
		f.data = f.buffer[:copy(f.buffer, f.data)]
	}
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
}

// mayBeHead says quickly of most bytes that are no stored head that they are none: those of vectors of integers, for
// instance, hold many lengths and block types.
func mayBeHead(stored []byte) bool {
	body, kind := stored[:len(stored)-trailerSize], Compression(stored[len(stored)-trailerSize])
	if kind != CompressNone {
		if len(body) <= rawLengthSize {
			return false
		}
		declared, rest := binary.LittleEndian.Uint32(body), body[rawLengthSize:]
		if kind == CompressZstd {
			return declared <= maxRawHead && bytes.HasPrefix(rest, []byte(zstdMagic))
		}
		length, _ := binary.Uvarint(rest)
		return declared > 0 && declared <= maxRawHead && length == uint64(declared)
	}
	if len(body) == 0 || body[0]&^(blockContinued|blockContinues|blockOrdered) != 0 {
		return false
	}
	var counts [5]uint64 // of rows, stamps, columns, cells and segments
	for i, at := 0, 1; i < len(counts); i++ {
		v, n := binary.Uvarint(body[at:])
		if n <= 0 || i == 0 && v == 0 || i == 1 && v < counts[0] { // each row has a stamp
			return false
		}
		counts[i], at = v, at+n
	}
	return counts[4] > 0 && counts[4] <= min(maxSegments, counts[0])
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
	if !mayBeHead(data[begin:n]) {
		return false
	}
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
