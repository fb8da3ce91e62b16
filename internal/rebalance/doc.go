// Package rebalance replaces partitions of a table by others over the same keys: it splits and merges
// them, on request and by itself, freezes and detaches them, and lets those of another store take the place
// of detached ones. It knows when that is due and in which order it is done; the trees
// (package partition) share their files and memtables, the pipeline (internal/commit) divides the writes,
// and the manifest records the replacement.
package rebalance
