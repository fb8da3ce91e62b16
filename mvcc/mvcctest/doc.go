// Package mvcctest offers runs of cells in memory, and readers of them, for tests of what reads
// and merges runs.
//
// The package is open to read and promises importers nothing: programs use the root
// package, and what is exported here changes whenever the engine needs it.
package mvcctest
