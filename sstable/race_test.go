//go:build race

package sstable

// raced is true because the race detector makes sync.Pool drop items at random.
const raced = true
