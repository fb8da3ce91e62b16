package vfs

import "golang.org/x/sys/unix"

// YieldThread lets threads go first that wait for the processor of this one. The runtime's Gosched lets goroutines
// go first; but a reader that comes back from the device is a thread. The kernel may leave it behind a thread
// that computes until its next tick, 4 ms at 250 Hz, although another processor is idle: see docs/lab/device.md.
func YieldThread() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
