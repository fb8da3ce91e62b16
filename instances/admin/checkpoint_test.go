package admin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/flagstone-db/flagstone/instances"
)

// TestACheckpointGoesWithItsClient releases one, ends the client of another, and leaves a third to the server's end.
func TestACheckpointGoesWithItsClient(t *testing.T) {
	var dir string
	left := func() []os.DirEntry {
		list, err := os.ReadDir(filepath.Join(dir, instances.CheckpointsDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return list
	}
	t.Cleanup(func() { // after the server has stopped
		if list := left(); len(list) > 0 {
			t.Errorf("left is %v", list)
		}
	})
	dir, _, client := opened(t)
	ctx, cancel := context.WithCancel(context.Background())
	first, err1 := client.Checkpoint(context.Background())
	second, err2 := client.Checkpoint(ctx)
	third, err3 := client.Checkpoint(context.Background())
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = third.Release() })
	for _, made := range []*instances.Checkpoint{first, second, third} {
		if _, err := os.Stat(filepath.Join(dir, made.Within, instances.RegistryName)); err != nil {
			t.Error(err)
		}
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	cancel()
	for len(left()) != 1 {
		runtime.Gosched()
	}
	if _, err := os.Stat(filepath.Join(dir, third.Within)); err != nil {
		t.Error(err)
	}
	_ = second.Release() // its context has ended
}
