package vfs_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestADirectoryIsThereAfterAPowerCutOnceItsParentsAreSynced: without that, the directory is
// lost with all its content, even if that was synced.
func TestADirectoryIsThereAfterAPowerCutOnceItsParentsAreSynced(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(fsys vfs.FS) error
		want error
	}{
		{"never", func(fsys vfs.FS) error { return fsys.MkdirAll("a/b") }, fs.ErrNotExist},
		{"the last one only", func(fsys vfs.FS) error { return errors.Join(fsys.MkdirAll("a/b"), fsys.SyncDir("a")) }, fs.ErrNotExist},
		{"all", func(fsys vfs.FS) error { return vfs.MakeDir(fsys, "", "a/b") }, nil},
		{"all, of one that existed", func(fsys vfs.FS) error {
			return errors.Join(fsys.MkdirAll("a/b"), vfs.MakeDir(fsys, "", "a/b"))
		}, nil},
		{"below one that is durable", func(fsys vfs.FS) error {
			return errors.Join(vfs.MakeDir(fsys, "", "a"), vfs.MakeDir(fsys, "a", "a/b"))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := vfs.NewSim(vfs.SimOptions{})
			must(t, c.make(sim))
			put(t, sim, "a/b/f", "content")
			must(t, sim.SyncDir("a/b"))
			_, err := sim.Crash(vfs.CrashLoseAll, 1).Stat("a/b/f")
			if !errors.Is(err, c.want) {
				t.Errorf("error %v; want %v", err, c.want)
			}
		})
	}
}

// TestADirectoryThatCannotBeReplacedIsRefusedBeforeTheWork has a mount point, which cannot be removed.
func TestADirectoryThatCannotBeReplacedIsRefusedBeforeTheWork(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	must(t, sim.MkdirAll("mnt/x"))
	busy := errors.New("busy")
	fault := vfs.NewFault(sim, 1)
	fault.Add(vfs.Rule{Ops: vfs.OpRemoveDir, Glob: "x", Times: vfs.Forever, Action: vfs.FailWith(busy)})
	err := vfs.BuildDir(fault, "mnt/x", func(string) error {
		t.Error("it is built")
		return nil
	})
	if !errors.Is(err, busy) || !strings.Contains(err.Error(), filepath.Join("mnt", "x", "store")) {
		t.Error(err)
	}
	must(t, vfs.BuildDir(fault, "mnt/x/store", func(partial string) error { put(t, sim, partial+"/f", "content"); return nil }))
}
