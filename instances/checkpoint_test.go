package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// TestTheInstancesOfACheckpointAreThoseOfItsTables makes checkpoints while instances of both types, with a table
// each, come and go.
func TestTheInstancesOfACheckpointAreThoseOfItsTables(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	home, err := Open(dir, Options{Store: flagstone.Options{CacheSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("i-%d", n%3)
			if err := comeAndGo(ctx, home, name, []ots.InstanceType{ots.HighPerformance, ots.Capacity}[n%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		made, err := home.Checkpoint(ctx)
		if err != nil {
			t.Error(err)
			break
		}
		held := home.Checkpoints()
		checkCopy(t, filepath.Join(dir, made.Within))
		if err := made.Release(); err != nil {
			t.Error(err)
		}
		if after := home.Checkpoints(); held != 1 || after != 0 {
			t.Errorf("%d checkpoints are held, and %d after the release", held, after)
		}
	}
	close(stop)
	group.Wait()
	if err := home.Close(); err != nil {
		t.Error(err)
	}
}

// comeAndGo makes an instance with a table and a key, and deletes it.
func comeAndGo(ctx context.Context, home *Home, name string, kind ots.InstanceType) error {
	err := home.Create(ctx, name, kind)
	if err == nil {
		_, err = home.AddKey(ctx, name)
	}
	if err == nil {
		err = home.CreateTable(ctx, name, &NewTable{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeString.String()}}})
	}
	return errors.Join(err, home.Delete(ctx, name, true))
}

// checkCopy opens a copy of a home, and fails if a table belongs to no instance, or if an instance is half deleted.
func checkCopy(t *testing.T, dir string) {
	t.Helper()
	home, err := Open(dir, Options{Store: flagstone.Options{CacheSize: 1 << 20, ReadOnly: true}})
	if err != nil {
		t.Error(err)
		return
	}
	for kind, room := range home.rooms {
		for _, table := range room.store.Tables() {
			name, _, _ := strings.Cut(table.Name(), "/")
			if in := home.registry.find(name); in == nil || in.Type != kind || in.Deleting {
				t.Errorf("table %s belongs to instance %+v", table.Name(), in)
			}
		}
	}
	if err := home.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheNextOpeningRemovesCheckpoints(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	open := func(readOnly bool) *Home {
		home, err := Open(dir, Options{Store: flagstone.Options{CacheSize: 1 << 20, ReadOnly: readOnly}})
		if err != nil {
			t.Fatal(err)
		}
		return home
	}
	home := open(false)
	made, err := home.Checkpoint(ctx)
	if err := errors.Join(err, home.Close()); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, made.Within, RegistryName)
	home = open(true)
	if _, err := home.Checkpoint(ctx); !errors.Is(err, flagstone.ErrReadOnly) {
		t.Errorf("of a home that is read only: %v", err)
	}
	if _, err := os.Stat(left); errors.Join(err, home.Close()) != nil {
		t.Errorf("an opening to read removed it: %v", err)
	}
	home = open(false)
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there")
	}
	if err := home.Close(); err != nil {
		t.Error(err)
	}
	if _, err := home.Checkpoint(ctx); err == nil {
		t.Error("a closed home makes checkpoints")
	}
}

// TestAKeyIsRemovedBesideACheckpoint has one being made that does not end: keys change, and instances wait for it
// until their context ends.
func TestAKeyIsRemovedBesideACheckpoint(t *testing.T) {
	ctx := context.Background()
	home, err := Open(t.TempDir(), Options{Store: flagstone.Options{CacheSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	done, err := home.beginChange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	key, err := home.AddKey(ctx, DefaultName)
	if err := errors.Join(err, home.RemoveKey(ctx, DefaultName, key.ID)); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = home.Checkpoint(ended)
	for what, err := range map[string]error{"create": home.Create(ended, "other", ots.Capacity), "delete": home.Delete(ended, DefaultName, true), "checkpoint": err} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	done()
	if err := home.Create(ctx, "other", ots.Capacity); err != nil {
		t.Error(err)
	}
	if err := home.Close(); err != nil {
		t.Error(err)
	}
}

func TestAHomeInMemoryHasNoCheckpoints(t *testing.T) {
	opts := flagstone.Options{CacheSize: 1 << 20}
	opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
	home, err := Open(t.TempDir(), Options{Store: opts})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := home.Checkpoint(context.Background()); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := home.Close(); err != nil {
		t.Error(err)
	}
}
