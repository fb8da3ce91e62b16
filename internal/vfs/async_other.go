//go:build !linux

package vfs

// AsyncReads are nothing on this system: reads wait in calls.
type AsyncReads struct{}

// NewAsyncReads returns nothing to wait for.
func NewAsyncReads() *AsyncReads { return nil }

// Close does nothing.
func (a *AsyncReads) Close() error { return nil }
