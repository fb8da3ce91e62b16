package main

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/term"
)

// endedByKeys returns a context that ends when q or Ctrl-C is typed at the terminal of the process, if it has one that can be
// read with a deadline. The terminal shows no keys, and needs \r before \n, until release.
func endedByKeys(ctx context.Context) (typed context.Context, release func()) {
	none := func() {}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return ctx, none
	}
	control, err := tty.SyscallConn()
	if err != nil || tty.SetReadDeadline(time.Time{}) != nil {
		tty.Close()
		return ctx, none
	}
	var before *term.State
	if failed := control.Control(func(fd uintptr) { before, err = term.MakeRaw(int(fd)) }); failed != nil || err != nil {
		tty.Close()
		return ctx, none
	}
	typed, cancel := context.WithCancel(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		const interrupt = 3 // Ctrl-C, which sends no signal now
		for key := make([]byte, 1); ; {
			if _, err := tty.Read(key); err != nil {
				return
			}
			if slices.Contains([]byte{'q', 'Q', interrupt}, key[0]) {
				cancel()
				return
			}
		}
	}()
	return typed, func() {
		cancel()
		_ = tty.SetReadDeadline(time.Unix(1, 0)) // which ends the read
		<-read
		_ = control.Control(func(fd uintptr) { _ = term.Restore(int(fd), before) })
		tty.Close()
	}
}
