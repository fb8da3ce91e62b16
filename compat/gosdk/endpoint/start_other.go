//go:build !linux

package endpoint

import "os/exec"

// start starts a process. Where the kernel does not tie it to this one, the
// tests' clean-up has to end it.
func start(cmd *exec.Cmd) error { return cmd.Start() }
