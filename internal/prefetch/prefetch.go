// Package prefetch asks the processor for memory that will be read soon.
//
// A load that misses the caches takes as long as hundreds of instructions, and a
// reader who finds out one by one what he needs waits for each. Asked for all at
// once the lines come together, while he does something else: no instruction waits
// for them, unlike for loads, of which only as many are under way as the processor
// can look ahead.
package prefetch

import "unsafe"

// Line is how many bytes come together.
const Line = 64

// Bytes asks for the memory of b. It is a hint that changes nothing: nobody sees
// whether it was followed, and what b points to need not exist any more.
func Bytes(b []byte) { Range(uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b)) }
