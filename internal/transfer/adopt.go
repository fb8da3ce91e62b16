package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
)

// maxOpen bounds the descriptors of an adoption.
const maxOpen = 64

// adoption makes the staged files of a fragment files of the store, to which no partition refers yet.
type adoption struct {
	m        *Mover
	ctx      context.Context
	fragment *manifest.Fragment

	// partitions and values are those of the fragment, with the store's file numbers.
	partitions []*manifest.Partition
	values     []*manifest.ValueFile

	own  map[uint64]*manifest.ValueFile // of the store, by the fragment's number
	open map[uint64]*valuefile.Reader   // likewise; at most maxOpen
	made []string                       // paths
	dirs map[string]bool                // of made
}

// adopt verifies the staged files of a fragment and puts them into the store's directories, durable with
// their names. The staged ones stay. Errors match ErrRefused if a file is not there or is not what the
// fragment says, or are those of the context or the file system; then no file is left.
func (m *Mover) adopt(ctx context.Context, f *manifest.Fragment) (*adoption, error) {
	a := &adoption{
		m: m, ctx: ctx, fragment: f,
		own: map[uint64]*manifest.ValueFile{}, open: map[uint64]*valuefile.Reader{}, dirs: map[string]bool{},
	}
	err := a.all()
	for _, r := range a.open {
		r.Close()
	}
	for dir := range a.dirs {
		if err == nil {
			err = m.Trees.FS.SyncDir(dir)
		}
	}
	if err != nil {
		a.discard()
		return nil, err
	}
	return a, nil
}

func (a *adoption) all() error {
	// New numbers ascend with the old ones: the order of files can depend on them.
	for _, v := range a.fragment.Values {
		if err := a.value(v); err != nil {
			return err
		}
	}
	files := map[uint64]*manifest.FileMeta{}
	for _, t := range a.fragment.Files() {
		file, err := a.table(t)
		if err != nil {
			return err
		}
		files[t.Number] = file
	}
	for _, p := range a.fragment.Table.Partitions {
		own := *p
		for level, list := range p.Levels {
			own.Levels[level] = slices.Clone(list)
			for i, t := range list {
				own.Levels[level][i] = files[t.Number]
			}
		}
		a.partitions = append(a.partitions, &own)
	}
	return nil
}

// discard deletes the files. REQUIRES: the manifest does not name them.
func (a *adoption) discard() {
	for _, path := range a.made {
		a.m.Trees.FS.Remove(path) // else it is an orphan, which a later Open removes
	}
}

// place names a file of the store that is about to be made.
func (a *adoption) place(path string) (string, error) {
	path = filepath.Join(a.m.Trees.Dir, path)
	dir := filepath.Dir(path)
	known := a.dirs[dir]
	a.dirs[dir], a.made = true, append(a.made, path)
	if known {
		return path, nil
	}
	return path, vfs.MakeDir(a.m.Trees.FS, a.m.Trees.Dir, dir)
}

// take gives a staged file a place in the store and opens it there: what is verified is what stays.
func (a *adoption) take(staged, path string) (vfs.File, error) {
	to, err := a.place(path)
	if err == nil {
		err = outfile.Link(a.m.Trees.FS, a.m.staged(staged), to)
	}
	if err != nil {
		return nil, missing(staged, err)
	}
	return a.m.Trees.FS.Open(to, vfs.OpenOptions{Sequential: true})
}

// missing is the error of a staged file that cannot be opened.
func missing(staged string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: file %s", ErrNotStaged, staged)
	}
	return err
}

// value verifies a value file and makes it the store's.
func (a *adoption) value(v *manifest.ValueFile) error {
	own := *v
	own.Number = a.m.Trees.Manifest.NextFile()
	a.own[v.Number] = &own
	a.values = append(a.values, &own)
	f, err := a.take(name(v.UniqueID, valueSuffix), manifest.ValueName(own.Number))
	if err != nil {
		return err
	}
	r, err := a.reader(v, f)
	if err == nil {
		_, err = r.Verify(a.ctx.Err)
	}
	return a.found(err)
}

// found is the error of a verification. It matches ErrRefused if the file is damaged, but not if the context has
// ended or the file cannot be read.
func (a *adoption) found(err error) error {
	switch {
	case err == nil || a.ctx.Err() != nil:
		return a.ctx.Err()
	case errors.Is(err, sstable.ErrCorrupt) || errors.Is(err, valuefile.ErrCorrupt):
		return refused("%w", err)
	}
	return err
}

// reader makes the reader of a value file of the fragment, and remembers it.
func (a *adoption) reader(v *manifest.ValueFile, f vfs.File) (*valuefile.Reader, error) {
	r, err := valuefile.Open(f, valuefile.ReaderOptions{
		FileName: name(v.UniqueID, valueSuffix),
		Want:     valuefile.Info{UniqueID: v.UniqueID, Size: v.Size, Checksum: v.Checksum, Values: v.Values, Bytes: v.Bytes},
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for other, r := range a.open {
		if len(a.open) < maxOpen {
			break
		}
		r.Close()
		delete(a.open, other)
	}
	a.open[v.Number] = r
	return r, nil
}

// refer verifies that a reference, with the fragment's number, leads to a value.
func (a *adoption) refer(ref row.Reference) error {
	r := a.open[ref.File]
	if r == nil {
		own := a.own[ref.File]
		if own == nil {
			return refused("a reference to value file %d, which the fragment does not have", ref.File)
		}
		f, err := a.m.Trees.FS.Open(filepath.Join(a.m.Trees.Dir, manifest.ValueName(own.Number)), vfs.OpenOptions{Random: true})
		if err != nil {
			return err
		}
		theirs := *own
		theirs.Number = ref.File
		if r, err = a.reader(&theirs, f); err != nil {
			return err
		}
	}
	return cmp.Or(a.ctx.Err(), r.CheckReference(ref))
}

// table verifies a table file, makes it the store's and returns its description.
func (a *adoption) table(t *manifest.FileMeta) (*manifest.FileMeta, error) {
	if err := a.ctx.Err(); err != nil {
		return nil, err
	}
	own, staged := *t, name(t.UniqueID, tableSuffix)
	own.Number = a.m.Trees.Manifest.NextFile()
	var f vfs.File
	var err error
	if len(t.Values) == 0 {
		f, err = a.take(staged, manifest.TableName(own.Number))
	} else {
		f, err = a.m.Trees.FS.Open(a.m.staged(staged), vfs.OpenOptions{Sequential: true})
	}
	if err != nil {
		return nil, missing(staged, err)
	}
	r, err := sstable.Open(f, sstable.ReaderOptions{FileName: staged, FileSize: t.Size, UniqueID: t.UniqueID, SeqOffset: t.SeqOffset})
	if err != nil {
		return nil, errors.Join(a.found(err), f.Close())
	}
	defer r.Close()
	if err := a.verify(r, t); err != nil {
		return nil, a.found(err)
	}
	if len(t.Values) == 0 {
		return &own, nil
	}
	return a.rewrite(r, &own)
}

// verify checks every byte of a table file, and that it is what the fragment says.
func (a *adoption) verify(r *sstable.Reader, t *manifest.FileMeta) error {
	if err := r.Verify(a.refer); err != nil {
		return err
	}
	sum, err := r.Checksum()
	if err != nil {
		return err
	}
	found := tablefiles.Describe(t.Number, r.Properties())
	found.Checksum, found.CreatedMillis, found.SeqOffset = sum, t.CreatedMillis, t.SeqOffset
	if !reflect.DeepEqual(found, t) {
		return refused("table file %s does not hold what the fragment says", name(t.UniqueID, tableSuffix))
	}
	var it sstable.Iterator
	it.Init(r, sstable.IterOptions{NoCacheFill: true})
	defer it.Close()
	columns := a.fragment.Table.Key
	var key []row.Value
	for ok := it.First(); ok && a.ctx.Err() == nil; ok = it.NextRow() {
		key, err = row.DecodeKeyTo(key[:0], it.RowKey(), len(columns))
		fits := err == nil && slices.EqualFunc(key, columns, func(v row.Value, c manifest.KeyColumn) bool { return v.Type() == c.Type })
		if !fits {
			return refused("table file %s: row %x has no key of table %q", name(t.UniqueID, tableSuffix), it.RowKey(), a.fragment.Table.Name)
		}
	}
	return cmp.Or(a.ctx.Err(), it.Error())
}

// rewrite writes a table file anew, with references that have the store's numbers of value files.
func (a *adoption) rewrite(r *sstable.Reader, own *manifest.FileMeta) (*manifest.FileMeta, error) {
	path, err := a.place(manifest.TableName(own.Number))
	if err != nil {
		return nil, err
	}
	file, err := a.m.Trees.FS.Create(path, vfs.OpenOptions{WriteBehind: true})
	if err != nil {
		return nil, err
	}
	opts := a.m.Trees.Table
	opts.UniqueID = a.m.Trees.Random()
	w := sstable.NewWriter(file, opts)
	err = a.copy(w, r)
	var props sstable.Properties
	if err == nil {
		props, err = w.Finish()
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("write table file %s: %w", path, err)
	}
	meant := w.Meant()
	meta := tablefiles.Describe(own.Number, &props)
	meta.CreatedMillis = own.CreatedMillis
	return meta, meant.ReadBack(a.m.Trees.FS, path)
}

// copy copies all rows.
func (a *adoption) copy(w *sstable.Writer, r *sstable.Reader) error {
	var it sstable.Iterator
	it.Init(r, sstable.IterOptions{NoCacheFill: true})
	defer it.Close()
	var reference []byte
	for ok := it.First(); ok; ok = it.NextRow() {
		if err := cmp.Or(a.ctx.Err(), w.StartRow(it.RowKey())); err != nil {
			return err
		}
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			c := *it.Cell()
			if c.Separate {
				ref, err := row.ParseReference(c.Value)
				if err != nil {
					return err
				}
				ref.File = a.own[ref.File].Number
				reference = ref.Append(reference[:0])
				c.Value = reference
			}
			if err := w.AddCell(&c); err != nil {
				return err
			}
		}
	}
	return it.Error()
}
