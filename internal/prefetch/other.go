//go:build !amd64 && !arm64

package prefetch

// Range does nothing on this platform: see Bytes.
func Range(at uintptr, n int) {}
