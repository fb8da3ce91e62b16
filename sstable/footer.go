package sstable

// The footer, the last footerSize bytes of the file:
//
//	offset size
//	 0     16   unique id of the file
//	16      8   data length: the data blocks lie at [0, data length)
//	24      8   filter length, 0 if there is none; the filter follows the data
//	32      8   index length; the index follows the filter
//	40      8   properties length; the properties follow the index
//	48      8   file size
//	56      1   index kind: 1 = one level, 2 = with bytes of values (from version 2 on)
//	57      1   filter kind: 0 = none, 1 = blocked bloom
//	58      2   zero
//	60      4   format version: 1; 2, if cells refer to value files; 3, with blocks
//	            of segments. Writers write only 3.
//	64      8   xxhash64 of bytes 0..63
//	72      8   magic "flagSST\n"
//
// Integers are little endian. Lengths are stored lengths, trailers included.
//
// Invariants: the four lengths and footerSize add up to the file size, so a file that lost
// or gained bytes is refused. Magic and version keep their places in all later versions,
// so that a newer one is recognised.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

const (
	footerSize    = 80
	formatVersion = 3
	magic         = "flagSST\n"

	versionSegments = 3 // from here on data blocks have segments

	indexOneLevel   = 1
	indexWithValues = 2

	filterNone         = 0
	filterBlockedBloom = 1
)

// ErrCorrupt is matched by every error about bytes that are not what the writer wrote.
var ErrCorrupt = errors.New("sstable: corrupt table file")

// errVersion reports a file written in a newer format than this package knows.
var errVersion = errors.New("sstable: table file of a newer format version")

// footer is the decoded footer.
type footer struct {
	uniqueID         [16]byte
	dataLength       int64
	filterLength     int64
	indexLength      int64
	propertiesLength int64
	fileSize         int64
	indexKind        byte
	filterKind       byte
	version          uint32
}

func (f *footer) append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, f.uniqueID[:]...)
	for _, v := range []int64{f.dataLength, f.filterLength, f.indexLength, f.propertiesLength, f.fileSize} {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
	}
	dst = append(dst, f.indexKind, f.filterKind, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, f.version)
	dst = binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[from:]))
	return append(dst, magic...)
}

// parseFooter decodes the last footerSize bytes of a file of fileSize bytes.
func (f *fileBytes) parseFooter(b []byte, fileSize int64) (footer, error) {
	p := footer{version: binary.LittleEndian.Uint32(b[60:]), indexKind: b[56], filterKind: b[57]}
	copy(p.uniqueID[:], b)
	rest, fits := uint64(fileSize-footerSize), true
	for i, length := range []*int64{&p.dataLength, &p.filterLength, &p.indexLength, &p.propertiesLength} {
		v := binary.LittleEndian.Uint64(b[16+8*i:])
		fits = fits && v <= rest
		rest -= v
		*length = int64(v)
	}
	p.fileSize = int64(binary.LittleEndian.Uint64(b[48:]))
	bad := ""
	switch {
	case string(b[72:80]) != magic:
		bad = "no table file: magic number missing at the end"
	case xxhash.Sum64(b[:64]) != binary.LittleEndian.Uint64(b[64:]):
		bad = "footer checksum does not match"
	case p.version > formatVersion:
		return footer{}, fmt.Errorf("%w: %s has version %d, this program reads up to %d",
			errVersion, f.name, p.version, formatVersion)
	case p.version == 0:
		bad = "unknown format version 0"
	case !fits:
		bad = "section lengths exceed the file"
	case p.fileSize != fileSize:
		bad = fmt.Sprintf("file has %d bytes, its footer says %d", fileSize, p.fileSize)
	case rest != 0:
		bad = "section lengths do not add up to the file size"
	case max(p.filterLength, p.indexLength, p.propertiesLength) > maxRawSection+trailerSize: // stored as they are, or smaller
		bad = "a section is larger than any"
	case (p.indexKind == indexWithValues) != (p.version > 1) || p.indexKind < indexOneLevel || p.indexKind > indexWithValues:
		bad = fmt.Sprintf("unknown index kind %d", p.indexKind)
	case p.filterKind > filterBlockedBloom || (p.filterKind == filterNone) != (p.filterLength == 0):
		bad = fmt.Sprintf("unknown filter kind %d", p.filterKind)
	case b[58] != 0 || b[59] != 0:
		bad = "reserved bytes are not zero"
	case p.indexLength < trailerSize || p.propertiesLength < trailerSize ||
		p.filterLength != 0 && p.filterLength < trailerSize:
		bad = "section shorter than a block trailer"
	default:
		return p, nil
	}
	return footer{}, f.corrupt(fileSize-footerSize, bad)
}
