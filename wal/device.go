package wal

import (
	"sync/atomic"
	"time"
)

// device tracks how long calls to the disk have been under way.
type device struct {
	calls atomic.Int64 // under way
	// moved is when a call last returned, or began with no other under way, by Options.Elapsed.
	moved atomic.Int64
}

func (d *device) begin(elapsed func() time.Duration) {
	// Set moved first: otherwise Waiting could take the end of an earlier call for the beginning
	// of this one.
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

// Waiting returns how long writes or syncs of the log have been under way without one of them
// returning, or 0 if there are none. It never blocks, and needs Options.Elapsed.
func (w *Writer) Waiting() time.Duration {
	if w.opts.Elapsed == nil || w.device.calls.Load() == 0 {
		return 0
	}
	return w.opts.Elapsed() - time.Duration(w.device.moved.Load())
}
