package runner

// A virtual machine may give free memory back to its host (free page reporting,
// balloons). The first process that touches such memory waits for the host: up
// to 7 ms for 2 MiB where 0.3 ms is usual, in whatever operation it happens to
// be. Which engine meets how much of it is chance, so it is fetched back before
// each run, by this process and for all alike.

import "golang.org/x/sys/unix"

// fetchMemory touches that many bytes and gives them back to the kernel, which
// hands out first what was freed last. Where they cannot be mapped it does
// nothing: then the run itself will say what it lacks.
func fetchMemory(bytes int64) {
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	for i := 0; i < len(b); i += 4 << 10 {
		b[i] = 1
	}
	_ = unix.Munmap(b)
}
