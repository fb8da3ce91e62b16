package wal

import (
	"sync/atomic"
	"time"
)

// device notes for how long calls to the disk have been under way.
type device struct {
	calls atomic.Int64 // that have not returned
	// moved is when one last began alone or returned, by Options.Elapsed.
	moved atomic.Int64
}

func (d *device) begin(elapsed func() time.Duration) {
	// In this order, or Waiting could take the end of an earlier call for the beginning of this one.
	if elapsed != nil && d.calls.Load() == 0 {
		d.moved.Store(int64(elapsed()))
	}
	d.calls.Add(1)
}

func (d *device) end(elapsed func() time.Duration) {
	if elapsed != nil {
		d.moved.Store(int64(elapsed()))
	}
	d.calls.Add(-1)
}

// Waiting returns for how long writes or syncs of the log have been under way
// without one of them returning, 0 if there are none. It never blocks, and needs
// Options.Elapsed.
func (w *Writer) Waiting() time.Duration {
	if w.opts.Elapsed == nil || w.device.calls.Load() == 0 {
		return 0
	}
	return w.opts.Elapsed() - time.Duration(w.device.moved.Load())
}
