package partition

// The value files of one compaction or flush. They take large values, and the live values of
// value files that hold too much garbage.

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
)

const (
	// ValueThreshold is the size from which values go to value files. Rows with a value of 16
	// KiB and a small column are then put 1.6 times as fast and read no slower, and ten updates
	// of every small column write 6 MB instead of 286, for 128 MB of rows (BenchmarkLarge in
	// bench). In memory this holds down to 4 KiB. But a full scan reads value files one value at
	// a time, and each value costs a random access on a device.
	ValueThreshold = 16 << 10
	// valueFileFactor is the size at which a value file is cut, in table files. Small files cost
	// only their number, since a value file is written once; and a file that is all garbage is
	// deleted without being read.
	valueFileFactor = 2
)

// valueOutput makes the value files of an output.
type valueOutput struct {
	metas []*manifest.ValueFile
	made  []uint64 // numbers of all files that were begun

	number uint64 // of the file being written
	name   string
	file   vfs.File
	writer *valuefile.Writer // nil between files

	stale     map[uint64]bool // by value file: whether its live values are moved away
	buffer    []byte          // for a record that is moved, or a value that is unpacked
	reference []byte          // of the cell written last
}

// separates reports whether the value of a cell that is not packed is large enough for a value
// file.
func (env *Env) separates(c *row.Cell) bool {
	return env.ValueThreshold > 0 && len(c.Value) >= env.ValueThreshold
}

// plain reports whether a cell goes into a table file as it is.
func (env *Env) plain(c *row.Cell) bool { return !c.Separate && !c.Packed && !env.separates(c) }

// cell puts the value of a cell where it belongs, in a table file or a value file. It returns c,
// or a copy of c that is valid until the next call.
func (o *output) cell(c *row.Cell) (row.Cell, error) {
	v := &o.values
	var old, ref row.Reference
	var err error
	switch {
	case c.Separate:
		if old, err = row.ParseReference(c.Value); err != nil || !o.isStale(old.File) {
			return *c, err
		}
	case c.Packed && o.env.ValueThreshold <= 0: // the log is of a store that had value files
		value, err := valuefile.Unpack(&v.buffer, c.Value, nil)
		unpacked := *c
		unpacked.Packed, unpacked.Value = false, value
		return unpacked, err
	case !c.Packed && !o.env.separates(c):
		return *c, nil
	}
	if err := o.startValues(); err != nil {
		return *c, err
	}
	switch {
	case c.Separate:
		var record valuefile.Record
		if record, err = o.env.Files.Record(&v.buffer, old); err == nil {
			ref, err = v.writer.Copy(record)
		}
	case c.Packed:
		ref, err = v.writer.AddPacked(c.Value)
	default:
		ref, err = v.writer.Add(c.Value)
	}
	if err != nil {
		return *c, err
	}
	v.reference = ref.Append(v.reference[:0])
	moved := *c
	moved.Separate, moved.Packed, moved.Value = true, false, v.reference
	if v.writer.Size() >= valueFileFactor*o.env.Compaction.TableFileSize {
		return moved, o.finishValues()
	}
	return moved, nil
}

// isStale reports whether the value file holds so much garbage that its live values are worth
// moving. The answer does not change during a compaction.
func (o *output) isStale(number uint64) bool {
	stale, known := o.values.stale[number]
	if !known {
		usage, live := o.env.Manifest.ValueFile(number)
		stale = live && compaction.StaleValues(usage)
		if o.values.stale == nil {
			o.values.stale = map[uint64]bool{}
		}
		o.values.stale[number] = stale
	}
	return stale
}

// startValues begins a value file if none is being written.
func (o *output) startValues() error {
	v := &o.values
	if v.writer != nil {
		return nil
	}
	v.number = o.env.Manifest.NextFile()
	v.name = filepath.Join(o.env.Dir, manifest.ValueName(v.number))
	if err := o.makeDir(filepath.Dir(v.name)); err != nil {
		return err
	}
	v.made = append(v.made, v.number)
	file, err := o.env.FS.Create(v.name, vfs.OpenOptions{Direct: o.direct, WriteBehind: true})
	if err != nil {
		return fmt.Errorf("create value file: %w", err)
	}
	v.file = file
	v.writer = valuefile.NewWriter(file, valuefile.WriterOptions{
		Number: v.number, UniqueID: o.env.Random(), Compress: o.env.Table.Compression != sstable.CompressNone,
	})
	return nil
}

// finishValues completes, syncs and closes the value file being written, if there is one, and
// starts its read-back.
func (o *output) finishValues() error {
	v := &o.values
	if v.writer == nil {
		return nil
	}
	writer := v.writer
	info, err := writer.Finish()
	v.writer = nil
	if err == nil {
		err = v.file.Sync()
	}
	if err = errors.Join(err, v.file.Close()); err != nil {
		return fmt.Errorf("write value file %s: %w", v.name, err)
	}
	v.metas = append(v.metas, &manifest.ValueFile{
		Number: v.number, UniqueID: info.UniqueID, Size: info.Size, Checksum: info.Checksum,
		Values: info.Values, Bytes: info.Bytes, CreatedMillis: o.env.Clock.NowMillis(),
	})
	return o.verify(writer.Meant(), v.name)
}
