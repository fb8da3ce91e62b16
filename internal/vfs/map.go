package vfs

// Files as memory. A read through a mapping needs no system call and no copy while the page is
// in memory. If the page cannot be read (an I/O error, a file cut short), no call returns an
// error: the access itself faults.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"unsafe"
)

// Mapping is a file, or its beginning, as memory.
type Mapping struct {
	name  string
	data  []byte
	unmap func([]byte) error // nil: memory of the heap
	// want begins to read pages; nil if they are always in memory.
	want func([]byte) error
	// read replaces data for simulated files, so that accesses fail like reads.
	read func(p []byte, off int64) (int, error)
}

// ErrFault is the error of an access to a page of a mapping that could not be read.
var ErrFault = errors.New("page cannot be read")

// NewMapping makes a mapping of data, for files outside the operating system.
func NewMapping(name string, data []byte) *Mapping { return &Mapping{name: name, data: data} }

// Access calls fn with n bytes of the mapping at an offset. It returns fn's error, or ErrFault
// if one of their pages cannot be read. fn must not keep the bytes. A fault aborts fn, so fn
// must hold no lock while it reads them. REQUIRES: they are within the mapping.
func (m *Mapping) Access(offset, n int64, fn func(data []byte) error) (err error) {
	if m.read != nil {
		p := make([]byte, n)
		if got, err := m.read(p, offset); int64(got) < n {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return &fs.PathError{Op: "read", Path: m.name, Err: fmt.Errorf("%w: %w", ErrFault, err)}
		}
		return fn(p)
	}
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			err = m.fault(p)
		}
	}(debug.SetPanicOnFault(true))
	return fn(m.data[offset : offset+n : offset+n])
}

// ReadAt fills p with the bytes of the mapping at an offset. The error is ErrFault if one of
// their pages cannot be read. REQUIRES: they are within the mapping.
func (m *Mapping) ReadAt(p []byte, offset int64) error {
	return m.Access(offset, int64(len(p)), func(data []byte) error { copy(p, data); return nil })
}

// WillNeed begins to read n bytes of the mapping at an offset into the page cache, without
// waiting. It does nothing where that is not available. REQUIRES: they are within the mapping.
func (m *Mapping) WillNeed(offset, n int64) {
	if m.want == nil {
		return
	}
	from := offset &^ int64(os.Getpagesize()-1) // the advice must begin at a page
	_ = m.want(m.data[from : offset+n])
}

// fault turns a panic into an error if an access to the mapping caused it, and panics again
// otherwise.
func (m *Mapping) fault(p any) error {
	if f, ok := p.(interface{ Addr() uintptr }); ok && len(m.data) > 0 {
		at := f.Addr() - uintptr(unsafe.Pointer(&m.data[0]))
		if at < uintptr(len(m.data)) {
			return &fs.PathError{Op: "read", Path: m.name, Err: fmt.Errorf("%w at offset %d of the mapped file", ErrFault, at)}
		}
	}
	panic(p)
}

// Close unmaps. REQUIRES: no Access is under way or follows.
func (m *Mapping) Close() error {
	data := m.data
	m.data = nil
	if m.unmap == nil || data == nil {
		return nil
	}
	return pathError("unmap", m.name, m.unmap(data))
}
