package vfs

// Host is what a file system may know about the machine that it is of. Zero
// stands for unknown, or no limit.
type Host interface {
	// FileLimit is how many files this process may have open.
	FileLimit() int
	// Memory is the bytes of memory that this process may use: the machine's,
	// or a limit below it.
	Memory() int64
}

// FileLimit is Host.FileLimit of a file system, 0 if it is no Host.
func FileLimit(fs FS) int {
	if h, ok := fs.(Host); ok {
		return h.FileLimit()
	}
	return 0
}

// Memory is Host.Memory of a file system, 0 if it is no Host.
func Memory(fs FS) int64 {
	if h, ok := fs.(Host); ok {
		return h.Memory()
	}
	return 0
}

// FileLimit implements Host.
func (osFS) FileLimit() int { return fileLimit() }

// Memory implements Host.
func (osFS) Memory() int64 { return machineMemory() }
