//go:build !linux

package vfs

// YieldThread does nothing on this system.
func YieldThread() {}
