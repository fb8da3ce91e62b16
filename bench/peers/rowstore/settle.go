package rowstore

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Asking is what it took to learn that a store had settled. It is not the engine's work,
// so nothing of it is charged to the engine.
type Asking struct {
	// Late is the time from the last question that found the engine at work to the end of
	// the last question.
	Late time.Duration
	// CPU is the processor time of the questions.
	CPU time.Duration
}

// AwaitQuiet asks an engine at intervals whether it is busy, until it was not so many times
// in a row. It is for engines that cannot be waited for.
func AwaitQuiet(interval time.Duration, times int, busy func() (bool, error)) (a Asking, err error) {
	// The questions have a thread to themselves, calls into C included, so its processor
	// time is theirs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, seen := threadCPU(), time.Now()
	for quiet := 0; quiet < times; {
		asked := time.Now()
		working, err := busy()
		if err != nil {
			return a, err
		}
		if quiet++; working {
			quiet, seen = 0, asked
		}
		if quiet < times {
			time.Sleep(interval)
		}
	}
	return Asking{Late: time.Since(seen), CPU: threadCPU() - before}, nil
}

// threadCPU is the processor time that this thread has used; 0 if the kernel does not say.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
