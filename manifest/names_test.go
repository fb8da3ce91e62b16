package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestNamesParseBackAndNothingElseDoes(t *testing.T) {
	for _, n := range []uint64{1, 42, 255, 256, 123456, 65536, 1234567, maxNumber} {
		if got, ok := ParseManifestName(manifestName(n)); !ok || got != n {
			t.Errorf("%s parses as %d, %v", manifestName(n), got, ok)
		}
		if got, ok := ParseTableName(TableName(n)); !ok || got != n {
			t.Errorf("%s parses as %d, %v", TableName(n), got, ok)
		}
		if got, ok := ParseValueName(ValueName(n)); !ok || got != n {
			t.Errorf("%s parses as %d, %v", ValueName(n), got, ok)
		}
		if n, ok := ParseTableName(ValueName(n)); ok {
			t.Errorf("a value file parses as table file %d", n)
		}
	}
	for n, want := range map[uint64]string{123: "sst/00/000123.sst", 256: "sst/01/000256.sst", 65535: "sst/ff/065535.sst", 65536: "sst/00/065536.sst"} {
		if got := filepath.ToSlash(TableName(n)); got != want {
			t.Errorf("file %d is %s, want %s", n, got, want)
		}
	}
	for _, name := range []string{"", "MANIFEST-", "MANIFEST-1", "MANIFEST-0000001", "MANIFEST-000000", "MANIFEST-+00001", "MANIFEST-00000a",
		"manifest-000001", "MANIFEST-000001.tmp", "x/MANIFEST-000001", "MANIFEST-99999999999999999999", "000001"} {
		if n, ok := ParseManifestName(name); ok {
			t.Errorf("%q parses as manifest %d", name, n)
		}
	}
	for _, name := range []string{"", "000123.sst", "00/000123.sst", "sst/000123.sst", "sst/01/000123.sst", "sst/00/123.sst",
		"sst/00/000000.sst", "sst/00/000123", "sst/00/000123.sst.tmp", "sst/00/../00/000123.sst", "/sst/00/000123.sst", "sst/00/0x0123.sst"} {
		if n, ok := ParseTableName(name); ok {
			t.Errorf("%q parses as table file %d", name, n)
		}
	}
}

// listing is a file system whose directories are listed by a function; a name is relative to the
// store's directory.
type listing struct {
	vfs.FS
	list func(dir string) ([]string, error)
}

func (l listing) List(name string) ([]string, error) {
	dir, err := filepath.Rel("store", name)
	if err != nil {
		return nil, err
	}
	return l.list(filepath.ToSlash(dir))
}

func TestTheInventoryDeletesOnlyWhatItKnows(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...) // file 3 is live, the next is 10
	files := map[string][]string{
		"sst":    {"00", "01", "0a", "0A", "lost+found", "100", "x.sst"},
		"sst/00": {"000001.sst", "000002.sst", "000003.sst", "000009.sst", "000010.sst", "000400.sst", "notes.txt", "000004.sst.bak"},
		"sst/01": {"000300.sst", "000002.sst"},
	}
	disk := listing{list: func(dir string) ([]string, error) {
		names, ok := files[dir]
		if !ok {
			return nil, fmt.Errorf("list %s: %w", dir, fs.ErrNotExist)
		}
		return names, nil
	}}
	inv, err := TakeInventory(disk, "store", s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{TableName(1), TableName(2), TableName(9)}
	if !slices.Equal(inv.Orphans, want) || inv.Highest != 300 || len(inv.Missing) != 0 {
		t.Errorf("inventory %+v, want the orphans %v", inv, want)
	}
	if want := []string{TableName(10), "sst/01/000300.sst"}; !slices.Equal(inv.Ahead, want) {
		t.Errorf("files %v are ahead, want %v", inv.Ahead, want)
	}

	files["sst/00"] = nil
	if inv, err = TakeInventory(disk, "store", s); err != nil || !slices.Equal(inv.Missing, []string{TableName(3)}) {
		t.Errorf("inventory %+v, %v: file 3 is missing", inv, err)
	}
	clear(files)
	if inv, err = TakeInventory(disk, "store", NewState(testStore)); err != nil || len(inv.Orphans)+len(inv.Missing) != 0 || inv.Highest != 0 {
		t.Errorf("empty directory: %+v, %v", inv, err)
	}
	boom := errors.New("boom")
	disk.list = func(string) ([]string, error) { return nil, boom }
	if _, err := TakeInventory(disk, "store", s); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}
