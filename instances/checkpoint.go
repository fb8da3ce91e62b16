package instances

// This file makes checkpoints of a home, for backups. A checkpoint is a directory within the home, so its files are
// links. It goes when its reader releases it, or at the next opening.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flagstone-db/flagstone/ots"
)

// CheckpointsDir is the directory, within that of the home, of checkpoints that are being read.
const CheckpointsDir = "checkpoints"

// Checkpoint is a copy of a home at one moment for each of its stores.
type Checkpoint struct {
	// Within is the directory of the copy, relative to that of the home.
	Within string
	// Release deletes the copy.
	Release func() error
}

// Checkpoint copies the stores and the registry to a directory within the home. Requests are served meanwhile;
// changes of instances wait, so the registry fits the stores. Each store is copied as it is at one moment, one
// store after the other. Errors are those of flagstone.Store.Checkpoint, or match ErrInvalid if the home has no
// files.
func (h *Home) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	if h.opts.Store.Seams.FS != nil {
		return nil, fmt.Errorf("%w: the stores are in memory, and have no files to copy", ErrInvalid)
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	err := h.changeable()
	r, rooms := h.registry, []*room{h.rooms[ots.HighPerformance], h.rooms[ots.Capacity]}
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	within := filepath.Join(CheckpointsDir, rand.Text())
	c := &Checkpoint{Within: within, Release: func() error { return os.RemoveAll(filepath.Join(h.dir, within)) }}
	dir := filepath.Join(h.dir, within)
	err = rooms[0].store.Checkpoint(ctx, dir)
	if err == nil && rooms[1] != nil {
		err = rooms[1].store.Checkpoint(ctx, filepath.Join(dir, CapacityDir))
	}
	if err == nil {
		err = r.save(dir)
	}
	if err != nil {
		return nil, errors.Join(err, c.Release())
	}
	return c, nil
}

// removeCheckpoints deletes what processes that died have left. REQUIRES: this process has the home open.
func removeCheckpoints(dir string) error { return os.RemoveAll(filepath.Join(dir, CheckpointsDir)) }
