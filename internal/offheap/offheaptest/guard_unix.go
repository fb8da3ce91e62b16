//go:build unix

package offheaptest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded is memory that cannot be touched once it is freed.
type guarded struct {
	mapped map[*byte][]byte // with the page at the end, by the first byte of the allocation
	freed  [][]byte         // oldest first: still mapped, inaccessible
}

func newSource() *guarded { return &guarded{mapped: map[*byte][]byte{}} }

// Map maps n bytes that end at an inaccessible page.
func (g *guarded) Map(n int) []byte {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	must(unix.Mprotect(m[size:], unix.PROT_NONE))
	b := m[size-n : size : size]
	fill(b)
	g.mapped[unsafe.SliceData(b)] = m
	return b
}

// Unmap makes the memory inaccessible and gives it back.
func (g *guarded) Unmap(b []byte) {
	at := unsafe.SliceData(b)
	m := g.mapped[at]
	delete(g.mapped, at)
	_ = unix.Madvise(m, unix.MADV_DONTNEED) // a hint
	must(unix.Mprotect(m, unix.PROT_NONE))
	g.freed = append(g.freed, m)
	if len(g.freed) <= quarantine {
		return
	}
	must(unix.Munmap(g.freed[0]))
	g.freed = g.freed[1:]
}

func (g *guarded) close() {
	for _, m := range g.freed {
		must(unix.Munmap(m))
	}
	g.freed = nil
}

func must(err error) {
	if err != nil {
		panic("offheaptest: " + err.Error())
	}
}
