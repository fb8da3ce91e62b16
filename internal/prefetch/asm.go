//go:build amd64 || arm64

package prefetch

// Range asks for n bytes from an address on, which may be of no memory at all: see Bytes.
func Range(at uintptr, n int)
