package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// valueEdit adds table file number, which refers to value files, at level 0 of partition 1.
func valueEdit(number uint64, seq uint64, uses ...ValueUse) *Edit {
	f := testFile(number, 1, 9, seq)
	f.Values = uses
	e := &Edit{}
	e.AddFile(1, 0, f)
	return e
}

// valueState has table files 1 and 2, which refer to value file 5; 2 also refers to value file
// 6.
func valueState(t *testing.T) *State {
	create := smallEdits()[0]
	first := valueEdit(1, 1, ValueUse{5, 2, 400})
	first.AddValueFile(1, testValueFile(5))
	second := valueEdit(2, 11, ValueUse{5, 1, 100}, ValueUse{6, 5, 1000})
	second.AddValueFile(1, testValueFile(6))
	return mustApply(t, NewState(testStore), create, first, second)
}

// live lists the value files of a state with their live bytes.
func live(s *State) string {
	text := ""
	for u := range s.ValueFiles() {
		text += fmt.Sprintf("%d:%d/%d ", u.Number, u.Live, u.Garbage())
	}
	return text
}

func TestValueFilesLiveAsLongAsTableFilesReferToThem(t *testing.T) {
	s := valueState(t)
	if got := live(s); got != "5:500/500 6:1000/0 " {
		t.Fatal(got)
	}
	move := &Edit{}
	move.DeleteFile(1, 0, 1)
	move.AddFile(1, 4, s.File(1))
	s = mustApply(t, s, move)
	if got := live(s); got != "5:500/500 6:1000/0 " {
		t.Fatalf("moving a file changed the usage: %s", got)
	}

	split := &Edit{}
	left := &Partition{ID: 2, End: testKey(5, -1), Epoch: 2}
	right := &Partition{ID: 3, Start: testKey(5, -1), Epoch: 2}
	p := s.Tables[0].Partitions[0]
	left.Levels, right.Levels = p.Levels, p.Levels
	split.ReplacePartitions(1, []uint64{1}, []*Partition{left, right})
	s = mustApply(t, s, split)
	if got := live(s); got != "5:500/500 6:1000/0 " {
		t.Fatalf("a file that two partitions share counts twice: %s", got)
	}

	drop := &Edit{}
	drop.DeleteFile(2, 0, 2)
	s = mustApply(t, s, drop)
	if _, ok := s.ValueFile(6); !ok {
		t.Fatal("a value file is gone while the other partition refers to it")
	}
	drop = &Edit{}
	drop.DeleteFile(3, 0, 2)
	s = mustApply(t, s, drop)
	if got := live(s); got != "5:400/600 " {
		t.Fatal(got)
	}
	table := &Edit{}
	table.DropTable(1)
	if s = mustApply(t, s, table); live(s) != "" {
		t.Fatal("value files outlive their table")
	}
}

func TestValueFilesAreRefusedUnlessTheyFit(t *testing.T) {
	s := valueState(t)
	other := &Edit{}
	other.CreateTable(testTable(2, 7, "other"))
	s = mustApply(t, s, other)
	for what, edit := range map[string]func(e *Edit, f *FileMeta){
		"nobody refers to it":        func(e *Edit, _ *FileMeta) { e.AddValueFile(1, testValueFile(8)) },
		"the number of a table file": func(e *Edit, f *FileMeta) { e.AddValueFile(1, testValueFile(2)); f.Values[0].File = 2 },
		"number of a value file":     func(_ *Edit, f *FileMeta) { f.Number = 5 },
		"not allocated":              func(e *Edit, f *FileMeta) { e.AddValueFile(1, testValueFile(99)); f.Values[0].File = 99 },
		"unknown":                    func(_ *Edit, f *FileMeta) { f.Values[0].File = 8 },
		"no bytes":                   func(_ *Edit, f *FileMeta) { f.Values[0].Bytes = 0 },
		"no values":                  func(_ *Edit, f *FileMeta) { f.Values[0].Values = 0 },
		"more bytes than there are":  func(_ *Edit, f *FileMeta) { f.Values[0].Bytes = 1001 },
		"more values than puts":      func(_ *Edit, f *FileMeta) { f.Puts = 1; f.Values[0].Values = 2 },
		"twice":                      func(_ *Edit, f *FileMeta) { f.Values = append(f.Values, f.Values[0]) },
		"out of order":               func(_ *Edit, f *FileMeta) { f.Values = []ValueUse{{6, 1, 1}, {5, 1, 1}} },
		"added twice": func(e *Edit, f *FileMeta) {
			e.AddValueFile(1, testValueFile(5))
		},
		"without content": func(e *Edit, f *FileMeta) {
			v := testValueFile(8)
			v.Values = 0
			e.AddValueFile(1, v)
			f.Values[0].File = 8
		},
		"of another table": func(e *Edit, f *FileMeta) {
			e.AddValueFile(2, testValueFile(8))
			f.Values[0].File = 8
		},
	} {
		e, f := &Edit{}, testFile(4, 1, 9, 30)
		f.Values = []ValueUse{{5, 1, 10}}
		e.AddFile(1, 0, f)
		if _, err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
		edit(e, f)
		if _, err := s.Apply(e); !errors.Is(err, ErrInvalidEdit) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestASnapshotWithoutAReferenceToAValueFileIsCorrupt(t *testing.T) {
	s := valueState(t)
	encoded := appendSnapshot(nil, s)
	if read, err := decodeSnapshot(encoded, testStore); err != nil || image(read) != image(s) {
		t.Fatal(err)
	}
	addition := func(number uint64) []byte {
		var c codec
		c.valueAddition(&ValueAddition{Table: 1, File: testValueFile(number)})
		return rawField(stateValueFile, c.bytes...)
	}
	extra := join(encoded, addition(8))
	if _, err := decodeSnapshot(extra, testStore); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	disorder := join(encoded, addition(5))
	if _, err := decodeSnapshot(disorder, testStore); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestTheInventoryKnowsValueFiles(t *testing.T) {
	s := valueState(t)
	files := map[string][]string{
		"sst": {"00"}, "sst/00": {"000001.sst", "000002.sst"},
		"val": {"00", "01", "zz"}, "val/00": {"000003.val", "000005.val", "000005.sst", "000011.val"}, "val/01": {"000300.val", "000006.val"},
	}
	inv, err := TakeInventory(listing{list: func(dir string) ([]string, error) {
		names, ok := files[dir]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return names, nil
	}}, "store", s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(inv.Orphans, []string{ValueName(3)}) || !slices.Equal(inv.Missing, []string{ValueName(6)}) || inv.Highest != 300 {
		t.Fatalf("%+v", inv)
	}
}

func TestTheFilesOfAStateAreLinked(t *testing.T) {
	s := valueState(t)
	fsys := vfs.NewSim(vfs.SimOptions{})
	names := []string{TableName(1), TableName(2), ValueName(5), ValueName(6)}
	for _, name := range append(names, TableName(3)) { // nothing refers to the last one
		full := filepath.Join("store", name)
		if err := fsys.MkdirAll(filepath.Dir(full)); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Create(full, vfs.OpenOptions{})
		if err == nil {
			_, err = f.Write([]byte(name))
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	err := vfs.MakeDir(fsys, "", "copy")
	if err = errors.Join(err, LinkFiles(t.Context(), fsys, "store", "copy", s)); err != nil {
		t.Fatal(err)
	}
	fsys = fsys.Crash(vfs.CrashLoseAll, 1) // links are durable
	var copied []string
	for _, name := range fsys.Files() {
		if rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "/"), "copy/"); ok {
			content, err := fsys.ReadFile(name)
			if err != nil || string(content) != filepath.FromSlash(rest) {
				t.Errorf("%s holds %q, %v", name, content, err)
			}
			copied = append(copied, filepath.FromSlash(rest))
		}
	}
	if slices.Sort(copied); !slices.Equal(copied, names) {
		t.Errorf("copied %q, want %q", copied, names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := LinkFiles(ctx, fsys, "store", "again", s); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}
