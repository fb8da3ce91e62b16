package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// ErrLocked is what Lock returns for a lock that this or another process holds.
var ErrLocked = errors.New("locked by another holder")

// ErrNotRegular is what opening returns for a symbolic link, a pipe or a device.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is what ReadFile returns for a file above its limit.
var ErrTooLarge = errors.New("too large")

// IsTooManyFiles reports whether err says that the process, or the machine, has too many files
// open.
func IsTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// IsNoSpace reports whether err says that a write found no space: the disk or the quota is full,
// or the file would exceed the largest size allowed. Such an error may go away when space is
// freed; every other write error is permanent.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EFBIG) || isPlatformNoSpace(err)
}

// IsUnreadable reports whether err says that the device cannot read what it was asked for.
func IsUnreadable(err error) bool { return errors.Is(err, syscall.EIO) }

// pathError adds the operation and the file name to an error, as package os does. A nil err
// stays nil, and an error that already names a file is left alone.
func pathError(op, name string, err error) error {
	if _, named := errors.AsType[*fs.PathError](err); err == nil || named {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// linkError is like pathError, for operations with two names. It takes the cause out of an
// *os.LinkError, so that all errors of this package have the same form.
func linkError(op, oldName, newName string, err error) error {
	if err == nil {
		return nil
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = le.Err
	}
	return &fs.PathError{Op: op, Path: oldName, Err: fmt.Errorf("to %s: %w", newName, err)}
}

// directAlignment is the block size of direct I/O. 4096 suits every device with logical blocks
// of 512 or 4096 bytes, and is the unit of the page cache and most flash devices.
const directAlignment = 4096

// AlignedBuffer returns a zeroed buffer whose address is a multiple of 4096 bytes, as direct I/O
// demands (see File.Alignment). size need not be a multiple.
func AlignedBuffer(size int) []byte {
	b := make([]byte, size+directAlignment)
	skip := (directAlignment - misalignment(b, directAlignment)) % directAlignment
	return b[skip : skip+size : skip+size]
}

// misalignment returns the address of b modulo align. The garbage collector does not move heap
// objects, so the answer holds for the life of b. Buffers that might be on a stack are never
// passed to direct I/O unchecked.
func misalignment(b []byte, align int) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(align))
}

// checkTransfer refuses what no implementation can do: a negative offset, and an offset, length
// or address that is not a multiple of the file's alignment. So the simulated and the real file
// system refuse the same calls, and the error text says more than the kernel's "invalid
// argument".
func checkTransfer(op, name string, p []byte, off int64, align int) error {
	if off < 0 {
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("negative offset %d: %w", off, fs.ErrInvalid)}
	}
	if align <= 1 || len(p) == 0 {
		return nil
	}
	if off%int64(align) != 0 || len(p)%align != 0 || misalignment(p, align) != 0 {
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf(
			"direct I/O at offset %d, length %d, address remainder %d is not aligned to %d: %w",
			off, len(p), misalignment(p, align), align, fs.ErrInvalid)}
	}
	return nil
}
