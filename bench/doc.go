// Package bench holds the benchmarks of the engine as a whole: rows put, read,
// updated, scanned and recovered, on the real file system. The benchmarks of
// one room are in that room's package.
//
//	go test -run '^$' -bench . -skip 'Backup|KeptLog' -benchmem -timeout 1h ./bench
//	go test -run '^$' -bench Backup -benchtime 1x -timeout 1h ./bench
//	go test -run '^$' -bench Sustained -benchtime 1x -v ./bench
//
// The first takes ten to twenty minutes. BenchmarkBackup and BenchmarkKeptLog compare phases of seconds, for minutes.
// The last shows the write amplification of several shapes of the tree, and with -v what was flushed and merged: to
// study another shape, add it to sustainedShapes. compaction/shape.go says what its fields do.
//
// Rows have ten columns of 100 bytes each, half of them compressible. What was
// measured is in BENCHMARKS.md.
package bench
