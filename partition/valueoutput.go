package partition

// The value files of one compaction or flush. They take large values, and the live values of
// value files that hold too much garbage.

import (
	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
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

	file   newFile
	writer *valuefile.Writer // nil between files

	stale     map[uint64]bool // by value file: whether its live values are moved away
	buffer    []byte          // for a record that is moved, or a value that is unpacked
	reference []byte          // of the cell written last
}

// plain reports whether a cell goes into a table file as it is.
func (env *Env) plain(c *row.Cell) bool {
	large := env.ValueThreshold > 0 && len(c.Value) >= env.ValueThreshold
	return !c.Separate && !c.Packed && !large
}

// cell puts the value of a cell that is not plain where it belongs, in a table file or a value
// file. It returns c, or a copy of c that is valid until the next call.
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
		value, err := valuefile.Unpack(&v.buffer, c.Value)
		unpacked := *c
		unpacked.Packed, unpacked.Value = false, value
		return unpacked, err
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
	var err error
	if v.file, err = o.create("value", manifest.ValueName); err != nil {
		return err
	}
	v.writer = valuefile.NewWriter(v.file.File, valuefile.WriterOptions{
		Number: v.file.number, UniqueID: o.env.Random(), Compress: o.env.PackValues, ReadBack: o.env.ReadBack,
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
	if err = v.file.end(err); err != nil {
		return err
	}
	v.metas = append(v.metas, &manifest.ValueFile{
		Number: v.file.number, UniqueID: info.UniqueID, Size: info.Size, Checksum: info.Checksum,
		Values: info.Values, Bytes: info.Bytes, CreatedMillis: o.env.Clock.NowMillis(),
	})
	return o.verify(writer.Meant(), v.file.name)
}
