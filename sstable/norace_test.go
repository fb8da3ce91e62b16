//go:build !race

package sstable

const raced = false
