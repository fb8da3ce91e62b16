//go:build unix

package offheap

import (
	"golang.org/x/sys/unix"
)

const canGuard = true

// Apart says whether the memory is none of the collector's.
const Apart = true

// mapMemory maps n bytes. Where the kernel refuses (a limit on address space)
// the heap has to do: it ends the process if it cannot either.
func mapMemory(n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, n)
	}
	return m
}

// unmapMemory undoes mapMemory and mapAligned. Package unix knows its mappings;
// for memory of the heap it returns an error, and the collector takes it.
func unmapMemory(m []byte) { _ = unix.Munmap(m) }

// mapAligned maps n bytes that are aligned to n, a power of two. It returns
// them and what is to be unmapped, which takes more address space but no more
// memory.
func mapAligned(n int) (aligned, mapped []byte) {
	mapped = mapMemory(2 * n)
	skip := int(-address(mapped) & uintptr(n-1))
	aligned = mapped[skip : skip+n : skip+n]
	adviseHuge(aligned)
	return aligned, mapped
}

// mapGuarded maps n bytes that end where a page begins that cannot be touched.
func mapGuarded(n int) (mapped, b []byte) {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	mapped = mapMemory(size + page)
	guardMemory(mapped[size:])
	return mapped, mapped[size-n : size : size]
}

// guardMemory makes whole pages such that to touch them is a fault, and gives back what lies
// in them.
func guardMemory(m []byte) {
	_ = unix.Madvise(m, unix.MADV_DONTNEED) // a hint
	if err := unix.Mprotect(m, unix.PROT_NONE); err != nil {
		panic("offheap: guard page: " + err.Error())
	}
}
