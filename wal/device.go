package wal

import (
	"sync/atomic"
	"time"
)

// device tracks how long calls to the disk have been under way.
type device struct {
	elapsed func() time.Duration // Options.Elapsed
	calls   atomic.Int64         // under way
	// moved is when a call last returned, or began with no other under way.
	moved atomic.Int64
}

func (d *device) begin() {
	// Set moved first: otherwise Waiting could take the end of an earlier call for the beginning
	// of this one.
	if d.calls.Load() == 0 {
		d.moved.Store(int64(d.elapsed()))
	}
	d.calls.Add(1)
}

func (d *device) end() {
	d.moved.Store(int64(d.elapsed()))
	d.calls.Add(-1)
}

// Waiting returns how long writes or syncs of the log have been under way without one of them
// returning, or 0 if there are none. It never blocks, and needs Options.Elapsed.
func (w *Writer) Waiting() time.Duration {
	if w.device.calls.Load() == 0 {
		return 0
	}
	return w.device.elapsed() - time.Duration(w.device.moved.Load())
}
