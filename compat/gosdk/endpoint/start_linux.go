package endpoint

import (
	"os/exec"
	"runtime"
	"syscall"
)

// starter runs what it is sent on one thread that never ends before the
// process does: the kernel kills a child with Pdeathsig when the thread that
// started it ends.
var starter = func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
}()

// start starts a process that dies with this one, however that ends: a test
// that runs out of time runs no clean-up.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter <- func() { result <- cmd.Start() }
	return <-result
}
