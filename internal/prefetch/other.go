//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// Range asks for n bytes from p on: see Bytes. Here it does nothing.
func Range(p unsafe.Pointer, n int) {}
