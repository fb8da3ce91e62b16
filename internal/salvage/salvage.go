// Package salvage makes a new store of what is intact in a damaged one, and lists what was lost.
//
// It copies files that verify as they are. Of a damaged table file it writes a new one, from the blocks
// that can be read, at the same level of the same partitions. So sequence numbers, tombstones and
// versions stay, and the engine judges the new store by its usual rules; nothing here looks at what a
// cell means. Records of the log go to a new log, which the next Open replays.
//
// Only the manifest and its copy say to which table a file belongs, so a store without both cannot be salvaged.
package salvage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

// Store is a closed store. The caller holds its lock.
type Store struct {
	FS       vfs.FS
	Dir      string
	State    *manifest.State   // as the manifest in Dir says,
	Lost     []manifest.Damage // but for this
	Complete bool              // the state is known to be the newest
	Table    sstable.WriterOptions
}

// Loss is a part of a store that was lost. flagstone.SalvageLoss, which has the same fields, describes them.
type Loss struct {
	File       string
	Offset     int64
	Table      string
	Stream     bool
	Partitions []uint64
	Level      int
	From, To   []byte
	KeyColumns int
	Rows       uint64 // of the block, if only the values of some are lost; else 0
	Cells      uint64
	Older      bool
	Err        error
}

// Report is what Run did.
type Report struct {
	Copied    int // files that were intact
	Rewritten int // table files of which something came back
	Lost      int // table and value files of which nothing did
	Records   int // of the log
	Leftover  []string
	Losses    []Loss
}

// Run makes a store in target, which must be empty or not exist, of what is intact in s, and changes
// nothing in s. It makes the manifest last: after an error, or if the process dies, target is no store.
// progress, if not nil, is called before each file, with how many bytes of the files are done, and of the log.
func Run(ctx context.Context, s Store, target string, progress func(file string, done, all int64)) (Report, error) {
	if names, err := s.FS.List(target); err == nil && len(names) > 0 {
		return Report{}, fmt.Errorf("%s is not empty", target)
	}
	v := &salvager{
		Store: s, ctx: ctx, target: target, next: s.State.NextFile,
		files:   tablefiles.New(s.FS, s.Dir, tablefiles.Options{Access: tablefiles.AccessOnce}, owner{s.State}),
		damaged: map[uint64]damagedValues{}, dirs: map[string]bool{},
	}
	for _, d := range s.Lost {
		v.report.Losses = append(v.report.Losses, Loss{File: d.File, Offset: d.Offset, Older: true, Err: d.Err})
	}
	if v.progress = func(string) {}; progress != nil {
		v.progress = func(file string) { progress(file, v.done, v.all) }
	}
	err := v.run()
	for _, d := range v.damaged {
		if d.reader != nil {
			err = errors.Join(err, d.reader.Close())
		}
	}
	return v.report, err
}

// owner is the owner of the damaged files.
type owner struct{ *manifest.State }

// Obsolete is not called: nothing is marked obsolete.
func (owner) Obsolete(string) {}

type salvager struct {
	Store
	ctx      context.Context
	target   string
	progress func(file string)
	done     int64 // bytes of the files whose turn has been
	all      int64 // bytes of all files, and of the log
	files    *tablefiles.Registry
	damaged  map[uint64]damagedValues
	next     uint64 // number of the next table file
	edit     manifest.Edit
	dirs     map[string]bool // of target, to be synced
	report   Report
	logLost  bool // a part of the log was lost
}

// run works through values, tables and log, makes the manifest, and then lists what it does not name.
func (v *salvager) run() error {
	if err := vfs.MakeDir(v.FS, "", v.target); err != nil {
		return err
	}
	files := v.tables()
	defer func() {
		for _, f := range files {
			f.Unref()
		}
	}()
	v.all = wal.SegmentBytes(v.FS, filepath.Join(v.Dir, manifest.WALDir), v.State.KnownSegment(), math.MaxUint64)
	for u := range v.State.ValueFiles() {
		v.all += u.Size
	}
	for _, f := range files {
		v.all += f.Meta.Size
	}
	if err := v.values(); err != nil {
		return err
	}
	for len(files) > 0 {
		if err := errors.Join(v.ctx.Err(), v.table(files[0])); err != nil {
			return err
		}
		v.done += files[0].Meta.Size
		files[0].Unref() // closes it: the indexes of all tables together may be large
		files = files[1:]
	}
	if err := v.finish(); err != nil {
		return err
	}
	return v.unnamed()
}

// errUnnamed says why a file is not brought back.
var errUnnamed = errors.New("not named by the manifest; what it holds is not brought back")

// unnamed lists the table and value files that the manifest does not name. If the state is the newest, a flush or
// compaction that was interrupted left them. Otherwise they may be needed: a manifest whose end is lost is intact as an
// older one. That its files, or segments of the log that it needs, are gone speaks for an older one, too.
func (v *salvager) unnamed() error {
	inventory, err := manifest.TakeInventory(v.FS, v.Dir, v.State)
	if err != nil {
		if !isDamage(err) {
			return err
		}
		v.report.Losses = append(v.report.Losses, Loss{File: v.Dir, Offset: -1, Older: true, Err: fmt.Errorf("files that the manifest does not name cannot be listed: %w", err)})
	}
	for _, name := range slices.Concat(inventory.Orphans, inventory.Ahead) {
		name = filepath.Join(v.Dir, name)
		if v.Complete && len(inventory.Missing) == 0 && !v.logLost {
			v.report.Leftover = append(v.report.Leftover, name)
		} else {
			v.report.Losses = append(v.report.Losses, Loss{File: name, Offset: -1, Older: true, Err: errUnnamed})
		}
	}
	return nil
}

// finish writes the log, copies the value files that are still referred to, and makes the manifest, which
// is complete when it appears.
func (v *salvager) finish() error {
	state := *v.State
	state.MinLog, state.NewestLog, state.NextFile = 1, manifest.LogEnd{}, v.next
	state.Kept, state.Origin = manifest.KeptLog{}, manifest.LogOrigin{}
	rand.Read(state.StoreID[:])
	if v.State.External == nil {
		var err error
		if v.edit.NewestLog, err = v.log(state.StoreID); err != nil {
			return err
		}
	}
	next, err := state.Apply(&v.edit)
	if err != nil {
		return err
	}
	for u := range next.ValueFiles() {
		if err := errors.Join(v.ctx.Err(), v.copy(manifest.ValueName(u.Number))); err != nil {
			return err
		}
	}
	for dir := range v.dirs {
		if err := v.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return manifest.Create(v.FS, v.target, next)
}

// source is a table file, and the partitions that refer to it.
type source struct {
	*tablefiles.File
	table *manifest.Table
	uses  []manifest.Deletion // where it is
}

// tables lists the table files in the order of the manifest, each once.
func (v *salvager) tables() (files []*source) {
	seen := map[uint64]*source{}
	for _, t := range v.State.Tables {
		for _, p := range t.Partitions {
			for level, list := range p.Levels {
				for _, f := range list {
					s := seen[f.Number]
					if s == nil {
						s = &source{File: v.files.Ref(f), table: t}
						seen[f.Number] = s
						files = append(files, s)
					}
					s.uses = append(s.uses, manifest.Deletion{Partition: p.ID, Level: level, Number: f.Number})
				}
			}
		}
	}
	return files
}

// damagedValues is a damaged value file, of which some values may be left, or the error of opening it.
type damagedValues struct {
	reader *valuefile.Reader
	err    error
}

// values finds the damaged value files.
func (v *salvager) values() error {
	for u := range v.State.ValueFiles() {
		name := filepath.Join(v.Dir, manifest.ValueName(u.Number))
		v.progress(name)
		v.done += u.Size
		r, err := v.files.ValueReader(row.Reference{File: u.Number})
		if err == nil {
			_, err = r.Verify(v.ctx.Err)
		}
		if v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		if err == nil {
			continue
		}
		var d damagedValues
		var file vfs.File
		if isDamage(err) {
			file, err = v.files.OpenFile(name)
		}
		switch {
		case err == nil:
			d.reader = valuefile.OpenDamaged(file, valuefile.ReaderOptions{FileName: name, Want: valuefile.Info{UniqueID: u.UniqueID, Size: u.Size}})
		case isDamage(err):
			d.err = err
		default:
			return err
		}
		v.damaged[u.Number] = d
	}
	return nil
}

// value reads a value of a damaged value file.
func (d damagedValues) value(buffer *[]byte, ref row.Reference) ([]byte, error) {
	if d.reader == nil {
		return nil, d.err
	}
	return d.reader.Value(buffer, ref)
}

// table copies a table file, or writes what can be read of it to a new one.
func (v *salvager) table(s *source) error {
	name := manifest.TableName(s.Meta.Number)
	v.progress(filepath.Join(v.Dir, name))
	intact, err := v.intact(s)
	if err != nil {
		return err
	}
	if intact {
		return v.copy(name)
	}
	meta, err := v.rewrite(s)
	if err != nil {
		return err
	}
	v.edit.Deleted = append(v.edit.Deleted, s.uses...)
	if meta == nil {
		v.report.Lost++
		return nil
	}
	kept := len(v.edit.Added)
	for _, u := range s.uses {
		if _, p := v.State.Partition(u.Partition); p.Overlaps(meta.Smallest, meta.Largest) {
			v.edit.Added = append(v.edit.Added, manifest.Addition{Partition: u.Partition, Level: u.Level, File: meta})
		}
	}
	if len(v.edit.Added) == kept { // all rows that are left belong to partitions that did not refer to the file
		v.report.Lost++
		return v.FS.Remove(filepath.Join(v.target, manifest.TableName(meta.Number)))
	}
	v.report.Rewritten++
	return nil
}

// intact reports whether a file and all value files that it refers to can be copied as they are.
func (v *salvager) intact(s *source) (bool, error) {
	for _, u := range s.Meta.Values {
		if _, damaged := v.damaged[u.File]; damaged {
			return false, nil
		}
	}
	r, err := s.Reader()
	if err == nil {
		err = r.Verify(func(row.Reference) error { return v.ctx.Err() })
	}
	var sum uint64
	if err == nil {
		sum, err = r.Checksum()
	}
	if err != nil && !isDamage(err) {
		return false, err
	}
	return err == nil && sum == s.Meta.Checksum, nil
}

// isDamage tells a loss from an error that another try may not meet, or that damage cannot explain: a
// newer format, files of another store, too many open files.
func isDamage(err error) bool {
	return errors.Is(err, sstable.ErrCorrupt) || errors.Is(err, valuefile.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) || vfs.IsUnreadable(err)
}

// copy copies a file of the store.
func (v *salvager) copy(name string) error {
	to, err := v.prepare(name)
	if err != nil {
		return err
	}
	in, err := v.FS.Open(filepath.Join(v.Dir, name), vfs.OpenOptions{Sequential: true})
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err == nil {
		_, err = outfile.WriteFile(v.FS, to, io.NewSectionReader(in, 0, size))
	}
	if err == nil {
		v.report.Copied++
	}
	return err
}

// prepare makes the directory of a file in target.
func (v *salvager) prepare(name string) (to string, err error) {
	to = filepath.Join(v.target, name)
	for dir := filepath.Dir(to); !v.dirs[dir] && dir != v.target; dir = filepath.Dir(dir) {
		v.dirs[dir] = true
	}
	v.dirs[v.target] = true
	return to, v.FS.MkdirAll(filepath.Dir(to))
}

// lost lists a loss of a table file. Older versions of what it held may come back from other files.
func (v *salvager) lost(s *source, l Loss) {
	l.File = cmp.Or(l.File, filepath.Join(v.Dir, manifest.TableName(s.Meta.Number)))
	l.Table, l.KeyColumns, l.Level, l.Older = s.table.Name, len(s.table.Key), s.uses[0].Level, true
	if s.table.Log != nil {
		l.Stream = true
		if of := v.State.Table(s.table.Log.Of); of != nil {
			l.Table = of.Name
		}
	}
	for _, u := range s.uses {
		l.Partitions = append(l.Partitions, u.Partition)
	}
	v.report.Losses = append(v.report.Losses, l)
}

// log copies the records that can be read to a new log, and returns where that ends.
func (v *salvager) log(id [16]byte) (manifest.LogEnd, error) {
	from := wal.Options{FS: v.FS, Dir: filepath.Join(v.Dir, manifest.WALDir), StoreID: v.State.StoreID, Newest: wal.End(v.State.NewestLog)}
	to := wal.Options{FS: v.FS, Dir: filepath.Join(v.target, manifest.WALDir), StoreID: id, Sync: true}
	v.progress(from.Dir)
	nothing, err := wal.Recover(to, 0, nil)
	if err != nil {
		return manifest.LogEnd{}, err
	}
	w, err := wal.NewWriter(to, nothing)
	if err != nil {
		return manifest.LogEnd{}, err
	}
	err = wal.Salvage(from, v.State.KnownSegment(), v.ctx.Err, func(rec wal.Record) error {
		v.report.Records++
		_, err := w.AppendNow(rec.Stream, rec.Position, rec.Payload)
		for errors.Is(err, wal.ErrRoom) {
			if err = w.MakeRoom(v.ctx, rec.Payload); err == nil {
				_, err = w.AppendNow(rec.Stream, rec.Position, rec.Payload)
			}
		}
		return errors.Join(err, v.ctx.Err())
	}, func(l wal.Loss) {
		v.logLost = true
		if l.To == 0 {
			l.From = -1
		}
		v.report.Losses = append(v.report.Losses, Loss{File: l.File, Offset: l.From, Older: true, Err: l.Err})
	})
	err = errors.Join(err, w.Close())
	return manifest.LogEnd(w.End()), err
}
