//go:build unix && !linux

package offheap

// adviseHuge does nothing: huge pages are Linux's.
func adviseHuge([]byte) {}
