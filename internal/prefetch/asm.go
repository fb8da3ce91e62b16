//go:build amd64 || arm64

package prefetch

// Range prefetches n bytes from an address on, which need not be mapped: see Bytes.
func Range(at uintptr, n int)
