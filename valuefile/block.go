package valuefile

// The old compressed form of values, from before pieces: one S2 block of the value and the guard
// behind it. It must stay readable, in files of version 1 and in logs of that age.

import (
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/row"
)

// guard follows the value in the compressed bytes. Without it the decoder copies a run that
// reaches to the value's end byte by byte.
const guard = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"

// blockLength returns the length of the value in a block; bad says what is wrong, or is "".
func blockLength(block []byte) (raw int, bad string) {
	n, err := s2.DecodedLen(block)
	if err != nil || n < len(guard) || n-len(guard) > row.MaxValueBytes {
		return 0, "its length is not that of a value"
	}
	return n - len(guard), ""
}

// unpackBlock unpacks the value of a block, raw bytes, into buffer; bad says what is wrong, or is
// "".
func unpackBlock(buffer *[]byte, raw int, block []byte) (value []byte, bad string) {
	if n, bad := blockLength(block); bad != "" || n != raw {
		return nil, "S2 record does not have its declared length"
	}
	out, err := s2.Decode(resize(buffer, raw+len(guard)), block)
	if err != nil || string(out[raw:]) != guard {
		return nil, "S2 record does not decompress"
	}
	return out[:raw:raw], ""
}
