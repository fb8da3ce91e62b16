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
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// CheckpointsDir is the directory, within that of the home, of checkpoints that are being read.
const CheckpointsDir = "checkpoints"

// maxCheckpoints is how many checkpoints may be held at once. Each keeps files that were merged away.
const maxCheckpoints = 2

// Checkpoint is a copy of a home at one moment for each of its stores.
type Checkpoint struct {
	// Within is the directory of the copy, relative to that of the home.
	Within string
	// Release deletes the copy.
	Release func() error
}

// Checkpoint copies the stores and the registry to a directory within the home. Requests are served meanwhile, and
// access keys are added and removed. The creation and deletion of instances waits, so the registry fits the stores.
// Each store is copied as it is at one moment, one store after the other. Errors are those of
// flagstone.Store.Checkpoint, or match ErrInvalid if the home has no files, or ErrQuota if other checkpoints are held.
func (h *Home) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	if h.opts.Store.Seams.FS != nil {
		return nil, fmt.Errorf("%w: the stores are in memory, and have no files to copy", ErrInvalid)
	}
	select {
	case h.held <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d backups are being made already; try again when one of them has ended", ErrQuota, maxCheckpoints)
	}
	begun, within := time.Now(), filepath.Join(CheckpointsDir, rand.Text())
	if err := h.copyTo(ctx, filepath.Join(h.dir, within)); err != nil {
		<-h.held
		return nil, err
	}
	h.opts.Logger.Info("checkpoint made", "directory", within, "took", time.Since(begun))
	release := func() error {
		err := os.RemoveAll(filepath.Join(h.dir, within))
		<-h.held
		if err != nil {
			h.opts.Logger.Error("a checkpoint is left until the next start", "directory", within, "error", err)
		} else {
			h.opts.Logger.Info("checkpoint released", "directory", within, "age", time.Since(begun))
		}
		return err
	}
	return &Checkpoint{Within: within, Release: sync.OnceValue(release)}, nil
}

// Checkpoints returns how many checkpoints are held, or being made.
func (h *Home) Checkpoints() int { return len(h.held) }

// copyTo makes a checkpoint in a directory. After an error nothing is left.
func (h *Home) copyTo(ctx context.Context, dir string) error {
	done, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	h.mu.Lock()
	err = h.changeable()
	first, second := h.rooms[ots.HighPerformance], h.rooms[ots.Capacity]
	h.mu.Unlock()
	if err != nil {
		return err
	}
	err = first.store.Checkpoint(ctx, dir)
	if err == nil && second != nil {
		err = second.store.Checkpoint(ctx, filepath.Join(dir, CapacityDir))
	}
	if err == nil {
		h.mu.Lock()
		r := h.registry // with the access keys of now
		h.mu.Unlock()
		err = r.save(dir)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// removeLeft deletes what processes that died have left. REQUIRES: this process has the home open.
func removeLeft(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, CheckpointsDir)), os.RemoveAll(filepath.Join(dir, ArrivalsDir)))
}
