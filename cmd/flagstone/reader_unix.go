//go:build unix

package main

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// withReader returns a context that ends when no process reads the pipe f any more. It notices that within a second, without
// writing. No pipe keeps the context.
func withReader(ctx context.Context, f *os.File) (read context.Context, release context.CancelFunc) {
	info, err := f.Stat()
	read, release = context.WithCancel(ctx)
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return read, release
	}
	const patience = 1000 // milliseconds, after which it looks whether the command has ended
	go func() {
		pipe := []unix.PollFd{{Fd: int32(f.Fd())}} // which always reports errors
		for read.Err() == nil {
			n, err := unix.Poll(pipe, patience)
			if n > 0 && pipe[0].Revents&unix.POLLERR != 0 {
				release()
			}
			if n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return read, release
}
