package valuefile

// The compressed form that values had until they were packed in pieces: one S2
// block of the value and the guard behind it. It is read for ever, from files of
// version 1 and from the logs of their time.

import (
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/row"
)

// guard follows the value in what is compressed. Without it the decoder copies a
// run that reaches to the value's end byte by byte.
const guard = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"

// blockLength returns the length of the value in a block, and what is wrong, or "".
func blockLength(block []byte) (raw int, bad string) {
	n, err := s2.DecodedLen(block)
	if err != nil || n < len(guard) || n-len(guard) > row.MaxValueBytes {
		return 0, "its length is not that of a value"
	}
	return n - len(guard), ""
}

// unpackBlock makes buffer hold the value of a block, raw bytes, and returns it and
// what is wrong, or "".
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
