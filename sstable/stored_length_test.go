package sstable

import (
	"encoding/binary"
	"testing"
)

// TestP19_ADeclaredLengthIsNotTrusted checks that the raw length that a block declares is
// bounded before that much memory is allocated.
func TestP19_ADeclaredLengthIsNotTrusted(t *testing.T) {
	for _, kind := range []Compression{CompressS2, CompressZstd} {
		for declared, ok := range map[uint32]bool{0: true, maxRawBlock: true, maxRawBlock + 1: false, 1<<32 - 1: false} {
			body := binary.LittleEndian.AppendUint32(nil, declared)
			s, bad := splitStored(appendTrailer(append(body, 0), len(body)+1, kind, &testID, 0), maxRawBlock)
			if (bad == "") != ok || ok && s.raw != int(declared) {
				t.Errorf("a block of type %d that declares %d bytes: %d bytes, %q", kind, declared, s.raw, bad)
			}
		}
		if _, bad := splitStored(appendTrailer([]byte{1, 0, 0}, 3, kind, &testID, 0), maxRawBlock); bad == "" {
			t.Errorf("a block of type %d that is shorter than its length", kind)
		}
	}
}
