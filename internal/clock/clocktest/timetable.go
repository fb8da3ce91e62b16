package clocktest

import (
	"context"
	"time"
)

// timers are those of a clock.Clock.
type timers interface {
	Elapsed() time.Duration
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Timetable sends the numbers from 0 on, so many in a second, and closes the channel when the context ends. A number for
// which nobody was ready comes late, and those that became due meanwhile come right behind it.
func Timetable(ctx context.Context, c timers, perSecond int) <-chan int {
	due := make(chan int)
	go func() {
		defer close(due)
		start := c.Elapsed()
		for n := 0; ; n++ {
			if wait := start + time.Duration(n)*time.Second/time.Duration(perSecond) - c.Elapsed(); wait > 0 {
				come := make(chan struct{})
				stop := c.AfterFunc(wait, func() { close(come) })
				select {
				case <-come:
				case <-ctx.Done():
					stop()
					return
				}
			}
			select {
			case due <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	return due
}
