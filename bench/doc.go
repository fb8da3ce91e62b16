// Package bench holds the benchmarks of the engine as a whole: rows put, read,
// updated, scanned and recovered, on the real file system. The benchmarks of
// one room are in that room's package.
//
//	go test -bench . -benchmem ./bench/...
//
// Rows have ten columns of 100 bytes each, half of them compressible. What was
// measured is in BENCHMARKS.md.
package bench
