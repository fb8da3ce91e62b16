package partition

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// output makes the table files of one compaction or flush. Nothing refers to them until the edit
// that adds them is committed; if it is not, discard deletes them.
type output struct {
	env    *Env
	direct bool // bypass the page cache: the files are unlikely to be read soon
	metas  []*manifest.FileMeta
	made   []string // names of all files that were begun, value files too
	dirs   map[string]bool
	values valueOutput
	// readBack waits for the read-back of the last finished file; nil if there is none, or its
	// outcome was taken.
	readBack func() error
}

func newOutput(env *Env, direct bool) *output {
	return &output{env: env, direct: direct, dirs: map[string]bool{}, values: valueOutput{stale: map[uint64]bool{}}}
}

// join adds the files of a part.
func (o *output) join(part *output) {
	o.metas = append(o.metas, part.metas...)
	o.made = append(o.made, part.made...)
	o.values.metas = append(o.values.metas, part.values.metas...)
	maps.Copy(o.dirs, part.dirs)
}

// written is the total size of the output's files, in bytes.
func (o *output) written() int64 {
	total := totalSize(o.metas)
	for _, v := range o.values.metas {
		total += v.Size
	}
	return total
}

func totalSize(metas []*manifest.FileMeta) (total int64) {
	for _, m := range metas {
		total += m.Size
	}
	return total
}

// newFile is a file being written.
type newFile struct {
	vfs.File
	kind   string // for errors: table or value
	number uint64
	name   string
}

// create begins a file, which nameOf names in the store's directory.
func (o *output) create(kind string, nameOf func(number uint64) string) (newFile, error) {
	f := newFile{kind: kind, number: o.env.Manifest.NextFile()}
	f.name = filepath.Join(o.env.Dir, nameOf(f.number))
	dir := filepath.Dir(f.name)
	if _, made := o.env.dirs.Load(dir); !made {
		if err := vfs.MakeDir(o.env.FS, o.env.Dir, dir); err != nil {
			return f, fmt.Errorf("make directory for %s files: %w", kind, err)
		}
		o.env.dirs.Store(dir, true)
	}
	o.dirs[dir] = true
	o.made = append(o.made, f.name)
	var err error
	if f.File, err = o.env.FS.Create(f.name, vfs.OpenOptions{Direct: o.direct, WriteBehind: true}); err != nil {
		return f, fmt.Errorf("create %s file: %w", kind, err)
	}
	return f, nil
}

// end syncs and closes the file; err is that of its writer.
func (f *newFile) end(err error) error {
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s file %s: %w", f.kind, f.name, err)
	}
	return nil
}

// NewTable begins a table file.
func (o *output) NewTable() (compaction.TableWriter, error) {
	file, err := o.create("table", manifest.TableName)
	if err != nil {
		return nil, err
	}
	opts := o.env.Table
	opts.UniqueID = o.env.Random()
	return &tableOutput{output: o, file: file, Writer: sstable.NewWriter(file.File, opts)}, nil
}

// addTo adds the files to an edit, at a level of a partition of a table.
func (o *output) addTo(e *manifest.Edit, table, partition uint64, level int) {
	for _, f := range o.metas {
		e.Added = append(e.Added, manifest.Addition{Partition: partition, Level: level, File: f})
	}
	o.addValues(e, table)
}

// addValues adds the value files to an edit.
func (o *output) addValues(e *manifest.Edit, table uint64) {
	for _, v := range o.values.metas {
		e.Values = append(e.Values, manifest.ValueAddition{Table: table, File: v})
	}
}

// verify starts reading a finished file back from the device and returns the outcome for the
// file before it. The compaction goes on meanwhile: reading back takes little of the processor,
// and keeps the device busy with reads and writes at once.
func (o *output) verify(meant outfile.Meant, name string) error {
	if !o.env.ReadBack {
		return nil
	}
	err := o.verified()
	o.readBack = o.env.Executor.Beside(func() error { return meant.ReadBack(o.env.FS, name) })
	return err
}

// verified waits for the read-back under way, if there is one, and returns its outcome.
func (o *output) verified() (err error) {
	if o.readBack != nil {
		err = o.readBack()
		o.readBack = nil
	}
	return err
}

// end completes the value file under way once the compaction has ended, with err. Table files
// are finished by the compaction itself.
func (o *output) end(err error) error {
	if err == nil {
		return o.finishValues()
	}
	if o.values.writer != nil {
		o.values.file.Close()
	}
	return err
}

// sync makes the directory entries of the files durable. The files themselves
// are synced as they are finished.
func (o *output) sync() error {
	for dir := range o.dirs {
		if err := o.env.FS.SyncDir(dir); err != nil {
			return fmt.Errorf("sync directory of table files: %w", err)
		}
	}
	return nil
}

// discard deletes the files. A file that cannot be deleted is an orphan, which the next Open
// removes.
func (o *output) discard() {
	for _, name := range o.made {
		o.env.FS.Remove(name)
	}
}

// tableOutput writes one table file.
type tableOutput struct {
	output *output
	*sstable.Writer
	file  newFile
	moved bool // a value of the row may be in a value file
}

// Abandon closes the file, which discard deletes.
func (t *tableOutput) Abandon() { t.file.Close() }

// StartRow begins a row.
func (t *tableOutput) StartRow(key []byte) error {
	t.moved = false
	return t.Writer.StartRow(key)
}

// NoteStored says how another table stores the values of the last row. It says nothing of values
// that are in value files or go there.
func (t *tableOutput) NoteStored(s row.Stored) {
	if !t.moved {
		t.Writer.NoteStored(s)
	}
}

// AddCell adds a cell; its value may go to a value file.
func (t *tableOutput) AddCell(c *row.Cell) error {
	if t.output.env.plain(c) {
		return t.Writer.AddCell(c)
	}
	t.moved = true
	moved, err := t.output.cell(c)
	if err != nil {
		return err
	}
	return t.Writer.AddCell(&moved)
}

// Finish completes, syncs and closes the file, notes its properties, and starts its read-back.
func (t *tableOutput) Finish() error {
	props, err := t.Writer.Finish()
	if err = t.file.end(err); err != nil {
		return err
	}
	meta := tablefiles.Describe(t.file.number, &props)
	meta.CreatedMillis = t.output.env.Clock.NowMillis()
	t.output.metas = append(t.output.metas, meta)
	return t.output.verify(t.Writer.Meant(), t.file.name)
}
