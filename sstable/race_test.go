//go:build race

package sstable

// raced: the race detector makes sync.Pool forget at random.
const raced = true
