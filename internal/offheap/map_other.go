//go:build !unix

package offheap

const canGuard = false

// Apart says whether the memory is outside the garbage collector's reach.
const Apart = false

func mapMemory(n int) []byte { return make([]byte, n) }

func unmapMemory([]byte) {}

func mapAligned(n int) (aligned, mapped []byte) {
	mapped = make([]byte, 2*n)
	skip := int(-address(mapped) & uintptr(n-1))
	return mapped[skip : skip+n : skip+n], mapped
}

func mapGuarded(int) (mapped, b []byte) { panic("offheap: no guard pages") }

func guardMemory([]byte) { panic("offheap: no guard pages") }
