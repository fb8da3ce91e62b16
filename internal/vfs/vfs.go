// Package vfs is the engine's only door to files, so that tests can fail, delay, tear and lose
// what a real disk can. No other engine package imports os, and only internal/offheap also
// imports golang.org/x/sys.
//
// Implementations: OS (real files, buffered or direct), Sim (in memory; distinguishes what was
// written from what was synced, and can be crashed), and Fault (wraps any of them and injects
// errors).
//
// Names are paths made with path/filepath. Errors are *PathError values
// (io/fs) that match fs.ErrNotExist and friends with errors.Is.
package vfs

import (
	"fmt"
	"io"
)

// FS is what the engine needs of a file system.
type FS interface {
	// Create makes a file for reading and writing; an existing file is truncated. The new
	// directory entry is durable only after SyncDir.
	Create(name string, opts OpenOptions) (File, error)
	// Open opens an existing file for reading.
	Open(name string, opts OpenOptions) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string, opts OpenOptions) (File, error)
	// Remove deletes a file. Rename replaces newName if it exists. Link makes a second name for
	// a file. All three are durable only after SyncDir.
	Remove(name string) error
	Rename(oldName, newName string) error
	Link(oldName, newName string) error
	// RemoveDir deletes an empty directory.
	RemoveDir(dir string) error
	// MkdirAll makes a directory and its parents. Each is durable only after SyncDir of its
	// parent; MakeDir does both.
	MkdirAll(dir string) error
	// List returns the names, not paths, in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// Lstat is Stat without following a symbolic link. Of a name that is neither a file nor a directory it
	// returns ErrNotRegular.
	Lstat(name string) (Info, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with the process or with Close. It returns
	// ErrLocked if this or another process holds the lock. LockToWrite makes the file;
	// LockToRead writes nothing.
	Lock(name string, mode LockMode) (io.Closer, error)
	// Restrict leaves only the owner's permissions on a file or directory that another program,
	// or an earlier version, made, so that it is as Create and MkdirAll make it. A symbolic link
	// to one that others may use is an error. It does nothing if the file system has no
	// permissions.
	Restrict(name string) error
	// FileLimit is how many files this process may have open; 0 means unknown, or no limit.
	FileLimit() int
	// Memory is how many bytes of memory this process may use: the machine's memory, or a lower
	// limit; 0 means unknown.
	Memory() int64
}

// OpenOptions choose how a file is accessed.
type OpenOptions struct {
	// Direct asks for I/O that bypasses the page cache. Where the platform or file system does
	// not offer it, the file is opened buffered; see File.Alignment.
	Direct bool
	// Sparing asks for reads that leave the page cache to what is read often. What the cache
	// holds is read from it; most of the rest is read past it, as with Direct. It is for files
	// that memory cannot hold as a whole. Where the platform or file system does not offer it, the
	// file is opened buffered; see File.Alignment.
	Sparing bool
	// Async, if not nil, takes those reads of a file opened with Sparing that go to the device while
	// others do.
	Async *AsyncReads
	// Uncached asks for reads of what the device holds, that is, what was synced. They use
	// direct I/O or, where there is none, ask the system to drop the file's pages from the page
	// cache first. It is for files open for reading.
	Uncached bool
	// Sequential hints that the file will be read from front to back. Random hints that the
	// caller knows how much to read at once: there is no read-ahead.
	Sequential, Random bool
	// WriteBehind hints that writes should be on their way to the device before a Sync, which
	// then takes less time. It says nothing about what is durable.
	WriteBehind bool
}

// Starter is a file, opened with OpenOptions.Sparing and Async, that can begin a read before its bytes are needed.
type Starter interface {
	// StartRead begins to read into p what ReadAt would, for a caller that has something to do before it needs the bytes.
	// p is written at any time until Started.Wait returns. It returns false and does nothing if a call is better, or the
	// read is not possible.
	StartRead(p []byte, off int64) (Started, bool)
}

// MostStarted is the length of the longest read that StartRead begins.
const MostStarted = 32 << 10

// Started is a read under way.
type Started interface {
	// Wait waits for the read and ends it. It reports whether the bytes were read, up to the end of the file; if not, a
	// ReadAt says why. REQUIRES: it was not called before.
	Wait() bool
}

// LockMode says what a lock is taken for. Every mode is exclusive.
type LockMode int

const (
	LockToRead LockMode = iota
	LockToWrite
)

// ReadFile returns the content of a file of at most most bytes. A larger one gives ErrTooLarge.
func ReadFile(fsys FS, name string, most int64) ([]byte, error) {
	f, err := fsys.Open(name, OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, pathError("read", name, fmt.Errorf("%w: %d bytes, at most %d are expected", ErrTooLarge, size, most))
	}
	content := make([]byte, size)
	n, err := f.ReadAt(content, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return content[:n], nil
}

// Info describes a file.
type Info struct {
	Size int64
	Dir  bool
}

// File is an open file. Reads and writes at an offset are safe for concurrent use; the appending
// Write is not.
type File interface {
	// ReadAt and WriteAt behave as in package io. On a file with an Alignment above 1, offsets,
	// lengths and buffer addresses must be multiples of it (AlignedBuffer makes such buffers),
	// or they fail with fs.ErrInvalid. A read at the end of the file may return fewer bytes with
	// io.EOF.
	io.ReaderAt
	io.WriterAt
	// Write appends at the end of what Write has written, starting at 0.
	io.Writer
	// Alignment is 1, or the block size that direct I/O demands.
	Alignment() int
	// Truncate sets the size.
	Truncate(size int64) error
	// Preallocate reserves space for [0, size) and sets the size if it is smaller. Where space
	// cannot be reserved it only sets the size. On some file systems (ext4) the first write to
	// reserved space still commits metadata; only space that was written before does not.
	Preallocate(size int64) error
	// Sync makes content and metadata durable; SyncData makes durable the content and what is
	// needed to read it back. After an error the caller may assume nothing about what is
	// durable, and must not trust later calls on this file.
	Sync() error
	SyncData() error
	// Size returns the current size.
	Size() (int64, error)
	// Map maps the first size bytes for reading. Later writes to the file may be visible or not.
	// The mapping outlives the File. The error is errors.ErrUnsupported if files cannot be mapped.
	Map(size int64) (*Mapping, error)
	// WillNeed begins to read n bytes at an offset into the page cache, without waiting. It is a
	// hint, and does nothing where that is not available.
	WillNeed(offset, n int64)
	// Close releases the file.
	io.Closer
}
