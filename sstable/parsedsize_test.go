package sstable

import (
	"testing"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// A get waits for the parsed form of a block and what the cache needs beside it. They are
// also most of what the cache keeps of a block without its values.
func TestAParsedBlockTakesEightCacheLines(t *testing.T) {
	// It takes less where pointers are shorter.
	if n := unsafe.Sizeof(cache.Block[dataBlock]{}); n > 8*64 {
		t.Errorf("%d bytes", n)
	}
}
