//go:build unix

package offheap

import (
	"golang.org/x/sys/unix"
)

const canGuard = true

// Apart says whether the memory is outside the garbage collector's reach.
const Apart = true

// mapMemory maps n bytes. If the kernel refuses (a limit on address space) it takes them from
// the heap, which ends the process if it cannot grow.
func mapMemory(n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, n)
	}
	return m
}

// unmapMemory undoes mapMemory and mapAligned. For memory of the heap, package unix returns an
// error, and the garbage collector takes it.
func unmapMemory(m []byte) { _ = unix.Munmap(m) }

// mapAligned maps n bytes aligned to n, a power of two. It returns them and the mapping to
// unmap, which takes more address space but no more memory.
func mapAligned(n int) (aligned, mapped []byte) {
	mapped = mapMemory(2 * n)
	skip := int(-address(mapped) & uintptr(n-1))
	aligned = mapped[skip : skip+n : skip+n]
	adviseHuge(aligned)
	return aligned, mapped
}

// mapGuarded maps n bytes that end at an inaccessible page.
func mapGuarded(n int) (mapped, b []byte) {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	mapped = mapMemory(size + page)
	guardMemory(mapped[size:])
	return mapped, mapped[size-n : size : size]
}

// guardMemory makes whole pages inaccessible and gives their memory back.
func guardMemory(m []byte) {
	_ = unix.Madvise(m, unix.MADV_DONTNEED) // a hint
	if err := unix.Mprotect(m, unix.PROT_NONE); err != nil {
		panic("offheap: guard page: " + err.Error())
	}
}
