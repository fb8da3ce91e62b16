package sstable

import (
	"testing"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// The parsed form of a block and what the cache needs beside it are what a get waits
// for, and most of what the cache keeps of a block whose values it has not.
func TestAParsedBlockTakesEightCacheLines(t *testing.T) {
	// Where pointers are shorter it takes less.
	if n := unsafe.Sizeof(cache.Block[dataBlock]{}); n > 8*64 {
		t.Errorf("%d bytes", n)
	}
}
