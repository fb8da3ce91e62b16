package tablefiles

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
)

const testDir = "/store"

// owner is the owner of the files of a test.
type owner struct {
	t    *testing.T
	fs   *vfs.Sim
	live map[uint64]manifest.ValueUsage
	gone []string
}

func newOwner(t *testing.T) *owner {
	return &owner{t: t, fs: vfs.NewSim(vfs.SimOptions{}), live: map[uint64]manifest.ValueUsage{}}
}

func (o *owner) ValueFile(number uint64) (manifest.ValueUsage, bool) {
	usage, live := o.live[number]
	return usage, live
}

func (o *owner) Obsolete(name string) { o.gone = append(o.gone, name) }

func (o *owner) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) create(name string) vfs.File {
	o.t.Helper()
	name = filepath.Join(testDir, name)
	o.must(o.fs.MkdirAll(filepath.Dir(name)))
	file, err := o.fs.Create(name, vfs.OpenOptions{})
	o.must(err)
	return file
}

// values writes a value file with one value and returns its encoded reference.
func (o *owner) values(number uint64, value string) []byte {
	o.t.Helper()
	file := o.create(manifest.ValueName(number))
	w := valuefile.NewWriter(file, valuefile.WriterOptions{Number: number, UniqueID: [16]byte{byte(number)}})
	ref, err := w.Add([]byte(value))
	o.must(err)
	info, err := w.Finish()
	o.must(err)
	o.must(file.Close())
	o.live[number] = manifest.ValueUsage{ValueFile: &manifest.ValueFile{
		Number: number, UniqueID: info.UniqueID, Size: info.Size, Checksum: info.Checksum, Values: info.Values, Bytes: info.Bytes,
	}}
	return ref.Append(nil)
}

// table writes a table file with one row, whose cell refers to a value file if reference is not
// nil.
func (o *owner) table(number uint64, reference []byte) *manifest.FileMeta {
	o.t.Helper()
	key, err := row.AppendKey(nil, 1, row.Integer(int64(number)))
	o.must(err)
	file := o.create(manifest.TableName(number))
	w := sstable.NewWriter(file, sstable.WriterOptions{UniqueID: [16]byte{byte(number)}})
	c := row.Cell{Column: []byte("c"), Version: 1, Seq: 1, Kind: row.KindPut, Type: row.TypeString, Value: []byte("v")}
	if reference != nil {
		c.Value, c.Separate = reference, true
	}
	o.must(w.StartRow(key))
	o.must(w.AddCell(&c))
	props, err := w.Finish()
	o.must(err)
	o.must(file.Close())
	return Describe(number, &props)
}

func TestAFileIsOpenedOnceAndClosedWithItsLastReference(t *testing.T) {
	o := newOwner(t)
	reg := New(o.fs, testDir, Options{}, o)
	meta := o.table(1, nil)
	a, b := reg.Ref(meta), reg.Ref(meta)
	if a != b || len(o.fs.OpenFiles()) != 0 {
		t.Errorf("the file is registered twice, or open before its first use: %v", o.fs.OpenFiles())
	}
	r, err := a.Reader()
	o.must(err)
	again, err := b.Reader()
	o.must(err)
	if r != again || len(o.fs.OpenFiles()) != 1 {
		t.Errorf("the file was opened again: %v", o.fs.OpenFiles())
	}
	if s := reg.Stats(); s.Open != 1 || s.ReaderBytes <= 0 || s.Mapped != 1 {
		t.Errorf("%+v", s)
	}
	a.Unref()
	if len(o.fs.OpenFiles()) != 1 {
		t.Error("the file was closed under a reference")
	}
	b.Unref()
	if open := o.fs.OpenFiles(); len(open) != 0 || len(o.gone) != 0 || reg.Stats() != (Stats{}) {
		t.Errorf("open: %v, handed over: %v, %+v", open, o.gone, reg.Stats())
	}
}

func TestATableFileKeepsItsValueFiles(t *testing.T) {
	o := newOwner(t)
	reg := New(o.fs, testDir, Options{}, o)
	reference := o.values(3, "large")
	one, two := reg.Ref(o.table(1, reference)), reg.Ref(o.table(2, reference))
	nothing := new(manifest.State)
	one.MarkObsolete(nothing)
	two.MarkObsolete(nothing)
	one.Unref()
	if want := []string{manifest.TableName(1)}; !slices.Equal(o.gone, want) {
		t.Errorf("handed over: %v, want %v", o.gone, want)
	}
	var buffer []byte
	if value, err := reg.Value(&buffer, reference); err != nil || string(value) != "large" {
		t.Errorf("%q, %v", value, err)
	}
	two.Unref()
	if want := []string{manifest.TableName(1), manifest.TableName(2), manifest.ValueName(3)}; !slices.Equal(o.gone, want) {
		t.Errorf("handed over: %v, want %v", o.gone, want)
	}
	if open := o.fs.OpenFiles(); len(open) != 0 {
		t.Errorf("open: %v", open)
	}
	if _, err := reg.Value(&buffer, reference); !errors.Is(err, valuefile.ErrCorrupt) {
		t.Errorf("a reference that no table file admits: %v", err)
	}
}

func TestATableFileNeedsLiveValueFiles(t *testing.T) {
	o := newOwner(t)
	meta := o.table(1, o.values(3, "large"))
	delete(o.live, 3)
	defer func() {
		if recover() == nil {
			t.Error("a table file refers to a value file that is not live")
		}
	}()
	New(o.fs, testDir, Options{}, o).Ref(meta)
}

func TestAnotherFileOfTheSameNameIsRefused(t *testing.T) {
	o := newOwner(t)
	reg := New(o.fs, testDir, Options{}, o)
	meta := o.table(1, nil)
	wrong := *meta
	wrong.UniqueID[5]++
	f := reg.Ref(&wrong)
	for range 2 {
		if _, err := f.Reader(); !errors.Is(err, sstable.ErrCorrupt) {
			t.Errorf("opened: %v", err)
		}
	}
	f.Unref()
	f = reg.Ref(meta)
	defer f.Unref()
	if _, err := f.Reader(); err != nil || len(o.fs.OpenFiles()) != 1 {
		t.Errorf("%v, open: %v", err, o.fs.OpenFiles())
	}
}

// host is a file system of a machine with that much memory.
type host struct {
	*vfs.Sim
	memory int64
}

func (h host) Memory() int64  { return h.memory }
func (h host) FileLimit() int { return 0 }

func TestFilesAreMappedWhileTheyFitInMemory(t *testing.T) {
	for _, c := range []struct {
		access                 Access
		memory, tables, values int64
		mapped, mappedValues   bool
		sparing, ordered       bool
		percent                uint32 // of the tables that the page cache is asked to keep; 0 stands for 100
	}{
		{memory: 100, tables: 49, mapped: true, mappedValues: true},
		{memory: 100, tables: 50, sparing: true},
		{memory: 100, tables: 75, sparing: true},
		{memory: 100, tables: 76, sparing: true, percent: 99},
		{memory: 100, tables: 200, sparing: true, percent: 37},
		{memory: 100, tables: 500, sparing: true, percent: 15},
		{memory: 100, tables: 201, sparing: true, percent: 37},
		{memory: 100, tables: 40, values: 10, mapped: true},
		{tables: 1 << 40, mapped: true, mappedValues: true},
		{access: AccessMapped, memory: 100, tables: 1000, mapped: true, mappedValues: true, percent: 7},
		{access: AccessDirect, memory: 100},
		{access: AccessOnce, memory: 100, tables: 40, ordered: true},
	} {
		o := newOwner(t)
		o.live[9] = manifest.ValueUsage{ValueFile: &manifest.ValueFile{Number: 9, Size: c.values}}
		reg := New(host{o.fs, c.memory}, testDir, Options{Access: c.access}, o)
		file := reg.Ref(&manifest.FileMeta{Number: 1, Size: c.tables, Values: []manifest.ValueUse{{File: 9}}})
		mapped, how := reg.access(false)
		mappedValues, howValues := reg.access(true)
		if mapped != c.mapped || mappedValues != c.mappedValues || how.Sparing != c.sparing || howValues.Sparing ||
			how.Random == c.ordered || howValues.Random == c.ordered {
			t.Errorf("%+v: mapped %t, values %t, opened %+v and %+v", c, mapped, mappedValues, how, howValues)
		}
		if got, want := percent(file), cmp.Or(c.percent, 100); got != want {
			t.Errorf("%+v: asks for %d percent of the tables", c, got)
		}
		if got, want := reg.Outgrown(), c.memory == 0 || c.tables > 2*c.memory; got != want {
			t.Errorf("%+v: has outgrown the memory: %t", c, got)
		}
		file.Unref()
		if got := percent(file); got != 100 {
			t.Errorf("%+v: without tables the share is %d percent", c, got)
		}
	}
}

// percent is which part of the blocks of a file the page cache is asked to keep, rounded.
func percent(f *File) uint32 { return (f.keep().Load()*100 + sstable.KeepAll/2) / sstable.KeepAll }

func TestThePageCacheKeepsDenseFilesFirst(t *testing.T) {
	rows := &manifest.FileMeta{Number: 1, Size: 4000, Rows: 10}
	updates := &manifest.FileMeta{Number: 2, Size: 200, Rows: 10}
	many := &manifest.FileMeta{Number: 3, Size: 1000, Rows: 100}
	for _, c := range []struct {
		name  string
		files []*manifest.FileMeta
		want  []uint32 // percent, for each of files
	}{
		{"rows alone", []*manifest.FileMeta{rows}, []uint32{19}},
		{"rows have what updates leave", []*manifest.FileMeta{rows, updates}, []uint32{14, 100}},
		{"half is for all alike", []*manifest.FileMeta{rows, updates, many}, []uint32{7, 7, 45}},
	} {
		o := newOwner(t)
		reg := New(host{o.fs, 1000}, testDir, Options{}, o)
		var files []*File
		for _, meta := range c.files {
			files = append(files, reg.Ref(meta))
		}
		kept := int64(0)
		for i, f := range files {
			if got := percent(f); got != c.want[i] {
				t.Errorf("%s: asks for %d percent of table %d, want %d", c.name, got, f.Meta.Number, c.want[i])
			}
			kept += f.Meta.Size * int64(f.keep().Load()) / sstable.KeepAll
		}
		if kept > 750 {
			t.Errorf("%s: asks for %d bytes of 750", c.name, kept)
		}
	}
}
