package vfs

// Host is what a file system may know about its machine. Zero means unknown, or no limit.
type Host interface {
	// FileLimit is how many files this process may have open.
	FileLimit() int
	// Memory is how many bytes of memory this process may use: the machine's memory, or a lower
	// limit.
	Memory() int64
}

// FileLimit is the Host.FileLimit of a file system, or 0 if it is no Host.
func FileLimit(fs FS) int {
	if h, ok := fs.(Host); ok {
		return h.FileLimit()
	}
	return 0
}

// Memory is the Host.Memory of a file system, or 0 if it is no Host.
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
