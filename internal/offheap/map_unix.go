//go:build unix

package offheap

import (
	"golang.org/x/sys/unix"
)

// Apart says whether the memory is outside the garbage collector's reach.
const Apart = true

// Map maps n bytes. If the kernel refuses (a limit on address space) it takes them from the heap,
// which ends the process if it cannot grow.
func (system) Map(n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, n)
	}
	return m
}

// Unmap undoes Map. For memory of the heap, package unix returns an error, and the garbage
// collector takes it.
func (system) Unmap(m []byte) { _ = unix.Munmap(m) }
