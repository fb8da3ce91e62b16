package vfs

// Functions by which tests inspect, compare and damage a simulated disk, unnoticed by the
// program under test.

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Files returns the sorted paths of all files, with slashes and without a leading one.
func (s *Sim) Files() []string {
	s.disk.mu.RLock()
	defer s.disk.mu.RUnlock()
	var names []string
	s.disk.root.walk("", func(name string, _ *inode) { names = append(names, name) })
	return names
}

// walk calls fn for each file below the directory, in order of names.
func (n *inode) walk(prefix string, fn func(name string, n *inode)) {
	for _, base := range slices.Sorted(maps.Keys(n.entries)) {
		child, name := n.entries[base], path.Join(prefix, base)
		if child.isDir() {
			child.walk(name, fn)
		} else {
			fn(name, child)
		}
	}
}

// ReadFile returns a copy of what programs see in a file.
func (s *Sim) ReadFile(name string) ([]byte, error) {
	s.disk.mu.RLock()
	defer s.disk.mu.RUnlock()
	n, err := s.disk.findFile("read", name)
	if err != nil {
		return nil, err
	}
	return n.bytes(), nil
}

func (d *disk) findFile(op, name string) (*inode, error) {
	n, err := d.find(name)
	if err == nil && n.isDir() {
		err = errIsDir
	}
	return n, pathError(op, name, err)
}

func (n *inode) bytes() []byte {
	b := make([]byte, n.visible.size)
	n.visible.readAt(b, 0)
	return b
}

// Edit replaces the content of a file with what fn makes of a copy of it, both for programs and
// on the disk. It is damage, not an operation: what was pending on the file counts as written
// before.
func (s *Sim) Edit(name string, fn func([]byte) []byte) error {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.findFile("edit", name)
	if err != nil {
		return err
	}
	b := fn(n.bytes())
	d.used -= n.pagesFrom(0)
	n.visible = content{}
	n.visible.writeAt(b, 0)
	d.used += n.pagesFrom(0)
	n.durable = n.visible.clone()
	n.forget()
	return nil
}

// FlipByte inverts the bits of mask in one byte of a file, as Edit does.
func (s *Sim) FlipByte(name string, off int64, mask byte) error {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.findFile("flip", name)
	if err != nil {
		return err
	}
	var b [1]byte
	if n.visible.readAt(b[:], off) == 0 {
		return &fs.PathError{Op: "flip", Path: name, Err: fmt.Errorf(
			"offset %d in a file of %d bytes: %w", off, n.visible.size, fs.ErrInvalid)}
	}
	b[0] ^= mask
	d.used += n.newPages(off, off+1)
	n.write(d.next(), b[:], off)
	n.sync()
	return nil
}

// Cut shortens a file to size bytes, or extends it with zeros, as Edit does.
func (s *Sim) Cut(name string, size int64) error {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.findFile("cut", name)
	if err != nil {
		return err
	}
	d.used -= n.pagesFrom(pagesFor(size))
	n.resize(d.next(), size)
	n.sync()
	return nil
}

// Digest returns a hash of all names and contents that programs see. Crash tests count by it how
// many different disks they have seen.
func (s *Sim) Digest() uint64 {
	s.disk.mu.RLock()
	defer s.disk.mu.RUnlock()
	h := xxhash.New()
	var buf [pageSize]byte
	s.disk.root.walk("", func(name string, n *inode) {
		var head []byte
		head = binary.AppendUvarint(head, uint64(len(name)))
		head = append(head, name...)
		head = binary.AppendUvarint(head, uint64(n.visible.size))
		_, _ = h.Write(head) // a hash takes everything
		for off := int64(0); off < n.visible.size; off += pageSize {
			_, _ = h.Write(buf[:n.visible.readAt(buf[:], off)])
		}
	})
	return h.Sum64()
}
