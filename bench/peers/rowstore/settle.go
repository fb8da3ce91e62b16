package rowstore

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Asking is what it took to learn that a store had settled. It is not the engine's work,
// so nothing of it is charged to the engine.
type Asking struct {
	// Late is the time from the last question that found the engine working to the end of
	// the last question.
	Late time.Duration
	// CPU is the processor time of the questions.
	CPU time.Duration
}

// Activity is what an engine does when it is asked.
type Activity int

const (
	Quiet Activity = iota
	// Due: it says that it has something to do, and does not do it. It is waited for, but
	// not for ever, and the waiting is not charged unless it works after that.
	Due
	Working
)

// AwaitQuiet asks an engine at intervals what it does, until it was quiet so many times in a
// row; due for longer than patience counts as quiet. It is for engines that cannot be
// waited for.
func AwaitQuiet(interval time.Duration, times int, patience time.Duration, ask func() (Activity, error)) (a Asking, err error) {
	// The questions have a thread to themselves, calls into C included, so its processor
	// time is theirs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, worked := threadCPU(), time.Now()
	for quiet := 0; quiet < times; {
		asked := time.Now()
		does, err := ask()
		if err != nil {
			return a, err
		}
		quiet++
		if does == Working {
			worked = asked
		}
		if does == Working || does == Due && time.Since(worked) < patience {
			quiet = 0
		}
		if quiet < times {
			time.Sleep(interval)
		}
	}
	return Asking{Late: time.Since(worked), CPU: threadCPU() - before}, nil
}

// threadCPU is the processor time that this thread has used; 0 if the kernel does not say.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
