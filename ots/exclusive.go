package ots

import "context"

// exclusive admits one operation at a time, in the order in which they come. Those that wait may be
// many, and of all instances, so each waits no longer than its context.
type exclusive chan struct{}

func newExclusive() exclusive { return make(exclusive, 1) }

// enter waits until no other operation is inside. The error is for the client; without one the
// caller must leave.
func (x exclusive) enter(ctx context.Context) *Error {
	select {
	case x <- struct{}{}:
		return nil
	case <-ctx.Done():
		return timedOut(ctx.Err())
	}
}

func (x exclusive) leave() { <-x }
