// Package prefetch asks the processor for memory that will be read soon.
//
// A load that misses the caches takes as long as hundreds of instructions, and a reader that
// finds out one by one which lines it needs waits for each. Prefetched lines come together while
// the reader goes on: no instruction waits for them. Of loads, only as many are under way as the
// processor can look ahead.
package prefetch

import "unsafe"

// Line is the size of a cache line in bytes.
const Line = 64

// Bytes prefetches the memory of b. It is a hint without a visible effect, and the memory of b
// may be gone already.
func Bytes(b []byte) { Range(uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b)) }
