// Package lmdb compares LMDB, the mapped B+tree that bbolt's design comes from. Its
// binding compiles the library with cgo; without the build tag lmdb the package is empty.
package lmdb
