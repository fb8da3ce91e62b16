package partition

// The value files of a store. They are pinned through the table files that refer to them: a
// reader with a pinned version can read every value of its cells.

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// valueFile is one value file and its reader.
type valueFile struct {
	meta *manifest.ValueFile
	refs int // registered table files that refer to it; guarded by Files.mu

	// obsolete is set when the manifest does not hold the file any more.
	obsolete atomic.Bool

	open struct {
		sync.Mutex
		reader atomic.Pointer[valuefile.Reader]
	}
}

// refValues returns the value files that a table file refers to, and adds a reference to each.
// REQUIRES: f.mu is held, the table file is live.
func (f *Files) refValues(meta *manifest.FileMeta) (values []*valueFile) {
	for _, use := range meta.Values {
		v := f.mu.values[use.File]
		if v == nil {
			usage, live := f.Values(use.File)
			if !live {
				panic(fmt.Sprintf("partition: table file %d refers to value file %d, which is not live", meta.Number, use.File))
			}
			v = &valueFile{meta: usage.ValueFile}
			f.mu.values[use.File] = v
			f.mu.valueBytes += v.meta.Size
		}
		v.refs++
		values = append(values, v)
	}
	return values
}

// unrefValues drops references, and returns the files that have none left. REQUIRES: f.mu is
// held.
func (f *Files) unrefValues(values []*valueFile) (unused []*valueFile) {
	for _, v := range values {
		if v.refs--; v.refs == 0 {
			delete(f.mu.values, v.meta.Number)
			f.mu.valueBytes -= v.meta.Size
			unused = append(unused, v)
		}
	}
	return unused
}

// release closes a file without references and, if it is obsolete, hands it over for deletion.
func (v *valueFile) release(f *Files) {
	if r := v.open.reader.Swap(nil); r != nil {
		r.Close()
	}
	if v.obsolete.Load() {
		f.obsolete(manifest.ValueName(v.meta.Number))
	}
}

// Value reads the value that the encoded reference of a cell refers to. buffer holds the value's
// memory, grown as needed; the value points into it. REQUIRES: the caller has pinned the cell's
// table file.
func (f *Files) Value(buffer *[]byte, reference []byte) ([]byte, error) {
	ref, r, err := f.find(reference)
	if err != nil {
		return nil, err
	}
	return r.Value(buffer, ref)
}

// Unpack is like Value, for a packed value in memory.
func (f *Files) Unpack(buffer *[]byte, packed []byte) ([]byte, error) {
	return valuefile.Unpack(buffer, packed, f.opts.Helpers)
}

// find decodes a reference and returns the reader of its file.
func (f *Files) find(reference []byte) (row.Reference, *valuefile.Reader, error) {
	ref, err := row.ParseReference(reference)
	if err != nil {
		return ref, nil, err
	}
	f.mu.Lock()
	v := f.mu.values[ref.File]
	f.mu.Unlock()
	if v == nil {
		// The pinned table file that holds the reference does not list the value file in its
		// properties.
		return ref, nil, &valuefile.CorruptError{
			File: filepath.Join(f.dir, manifest.ValueName(ref.File)), Offset: int64(ref.Offset),
			What: "a table file refers to it without saying so",
		}
	}
	r, err := v.reader(f)
	return ref, r, err
}

func (v *valueFile) reader(f *Files) (*valuefile.Reader, error) {
	if r := v.open.reader.Load(); r != nil {
		return r, nil
	}
	v.open.Lock()
	defer v.open.Unlock()
	if r := v.open.reader.Load(); r != nil {
		return r, nil
	}
	name := filepath.Join(f.dir, manifest.ValueName(v.meta.Number))
	file, err := f.open.file(name, vfs.OpenOptions{Random: true})
	if err != nil {
		return nil, fmt.Errorf("open value file %s: %w", name, err)
	}
	r, err := newValueReader(file, v.meta, valuefile.ReaderOptions{
		FileName: name, Mapped: f.mappedValues(), VerifyInterval: f.opts.VerifyInterval,
		Elapsed: f.opts.Elapsed, Helpers: f.opts.Helpers,
	})
	if err != nil {
		return nil, err
	}
	v.open.reader.Store(r)
	return r, nil
}

// OpenValues opens the value file that meta describes, of the store in dir, for a caller that
// reads it once.
func OpenValues(fs vfs.FS, dir string, meta *manifest.ValueFile) (*valuefile.Reader, error) {
	name := filepath.Join(dir, manifest.ValueName(meta.Number))
	file, err := fs.Open(name, vfs.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("open value file %s: %w", name, err)
	}
	return newValueReader(file, meta, valuefile.ReaderOptions{FileName: name})
}

// newValueReader makes the reader of an open file, and closes it if it is not
// the file that meta describes.
func newValueReader(file vfs.File, meta *manifest.ValueFile, opts valuefile.ReaderOptions) (*valuefile.Reader, error) {
	opts.Want = valuefile.Info{
		UniqueID: meta.UniqueID, Size: meta.Size, Checksum: meta.Checksum, Values: meta.Values, Bytes: meta.Bytes,
	}
	r, err := valuefile.Open(file, opts)
	if err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}
