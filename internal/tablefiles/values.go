package tablefiles

import (
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// valueFile is a value file to which table files refer.
type valueFile struct {
	meta *manifest.ValueFile
	handle[valuefile.Reader]
}

// refValues returns the value files that a table file refers to, and adds a reference to each.
// REQUIRES: reg.mu is held, the table file is live.
func (reg *Registry) refValues(meta *manifest.FileMeta) (values []*valueFile) {
	for _, use := range meta.Values {
		v := reg.mu.values[use.File]
		if v == nil {
			usage, live := reg.owner.ValueFile(use.File)
			if !live {
				panic(fmt.Sprintf("tablefiles: table file %d refers to value file %d, which is not live", meta.Number, use.File))
			}
			v = &valueFile{meta: usage.ValueFile}
			reg.mu.values[use.File] = v
			reg.mu.valueBytes += v.meta.Size
		}
		v.refs++
		values = append(values, v)
	}
	return values
}

// unrefValues drops references, and returns the files that have none left. REQUIRES: reg.mu is
// held.
func (reg *Registry) unrefValues(values []*valueFile) (unused []*valueFile) {
	for _, v := range values {
		if v.refs--; v.refs == 0 {
			delete(reg.mu.values, v.meta.Number)
			reg.mu.valueBytes -= v.meta.Size
			unused = append(unused, v)
		}
	}
	return unused
}

// releaseValues closes value files that have no references left.
func (reg *Registry) releaseValues(unused []*valueFile) {
	for _, v := range unused {
		v.release(reg.owner, manifest.ValueName(v.meta.Number))
	}
}

// HoldValues is HoldTable for a value file.
func (reg *Registry) HoldValues(number uint64) (release func(), ok bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	v := reg.mu.values[number]
	if v == nil {
		return nil, false
	}
	v.refs++
	return func() {
		reg.mu.Lock()
		unused := reg.unrefValues([]*valueFile{v})
		reg.mu.Unlock()
		reg.releaseValues(unused)
	}, true
}

// Value reads the value that the encoded reference of a cell refers to. buffer holds the value's
// memory, grown as needed; the value points into it. Errors name the value file. REQUIRES: the
// caller holds a reference to the cell's table file.
func (reg *Registry) Value(buffer *[]byte, reference []byte) ([]byte, error) {
	ref, err := row.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	r, err := reg.ValueReader(ref)
	if err != nil {
		return nil, err
	}
	return r.Value(buffer, ref)
}

// Record is like Value, but returns the value as it is stored, for valuefile.Writer.Copy.
func (reg *Registry) Record(buffer *[]byte, ref row.Reference) (valuefile.Record, error) {
	r, err := reg.ValueReader(ref)
	if err != nil {
		return valuefile.Record{}, err
	}
	return r.ReadRecord(buffer, ref)
}

// Unpack is like Value, for a packed value in memory.
func (reg *Registry) Unpack(buffer *[]byte, packed []byte) ([]byte, error) {
	return valuefile.Unpack(buffer, packed)
}

// ValueReader returns the reader of the file that a reference names, which it opens on first use.
// Errors name the value file. REQUIRES: the caller holds a reference to a table file that refers to
// it.
func (reg *Registry) ValueReader(ref row.Reference) (*valuefile.Reader, error) {
	reg.mu.Lock()
	v := reg.mu.values[ref.File]
	reg.mu.Unlock()
	if v == nil {
		// The table file that holds the reference does not list the value file in its properties.
		name := filepath.Join(reg.dir, manifest.ValueName(ref.File))
		return nil, valuefile.Corrupt(name, int64(ref.Offset), "a table file refers to it without saying so")
	}
	if r := v.reader.Load(); r != nil {
		return r, nil
	}
	meta, name := v.meta, filepath.Join(reg.dir, manifest.ValueName(ref.File))
	return v.open(reg, valueKind, name, func(file vfs.File, mapped bool) (*valuefile.Reader, error) {
		return valuefile.Open(file, valuefile.ReaderOptions{
			FileName: name, Mapped: mapped, VerifyInterval: reg.opts.VerifyInterval, Elapsed: reg.opts.Elapsed,
			Want: valuefile.Info{
				UniqueID: meta.UniqueID, Size: meta.Size, Checksum: meta.Checksum, Values: meta.Values, Bytes: meta.Bytes,
			},
		})
	})
}
