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
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Checkpoint(context.Background()); !errors.Is(err, instances.ErrQuota) {
		t.Errorf("a third one at once: %v", err)
	}
	for _, made := range []*instances.Checkpoint{first, second} {
		if _, err := os.Stat(filepath.Join(dir, made.Within, instances.RegistryName)); err != nil {
			t.Error(err)
		}
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	cancel()
	for len(left()) != 0 {
		runtime.Gosched()
	}
	third, err := client.Checkpoint(context.Background())
	for errors.Is(err, instances.ErrQuota) { // the directory goes a little before the place
		third, err = client.Checkpoint(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = third.Release() })
	if _, err := os.Stat(filepath.Join(dir, third.Within)); err != nil {
		t.Error(err)
	}
	_ = second.Release() // its context has ended
}
