//go:build !linux

package offheap

// adviseHuge does nothing: only Linux has this advice.
func adviseHuge([]byte) {}
