package commit

// The care of the log beside the writers: the next segment is prepared, writes that their callers
// gave up are finished, the buffer is handed to the system, and a device that hangs is noticed.

import (
	"time"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
)

const (
	// handOverPeriod is how often a log without sync hands its buffer to the system. It bounds
	// what is lost when the process is killed.
	handOverPeriod = 100 * time.Millisecond
	// hangsAfter is how long a call of the log may take before the pipeline logs that the device
	// does not answer.
	hangsAfter = time.Second
)

// prepareNext prepares the next log segment before it is needed. So a full disk is noticed while
// the present segment still has room: writes are refused until there is space, and nothing is
// lost. Every write calls it until the preparation has begun, so a repeated call costs one atomic
// operation.
func (p *Pipeline) prepareNext() {
	if !p.preparing.CompareAndSwap(false, true) {
		return
	}
	p.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "preparing the next log segment"}, func() error {
		p.preparing.Store(false)
		err := p.log.PrepareNext()
		p.gate.NoteLog(err)
		return err
	})
}

// HandOver hands the log's buffer to the system if enough has gathered in it. Long background work
// calls it now and then: while all processors are busy, the job of HandOverSoon may have to wait.
func (p *Pipeline) HandOver() {
	if p.log != nil { // nil while the store is recovering
		_ = p.logged(p.log.HandOver()) // the next write finds out
	}
}

// HandOverSoon is HandOver as soon as a goroutine is free; see wal.Options.Gathered.
func (p *Pipeline) HandOverSoon() {
	p.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "handing over the log"}, func() error {
		p.HandOver()
		return nil
	})
}

// handOver hands over all of the log's buffer, again and again.
func (p *Pipeline) handOver() {
	p.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "flushing the log's buffer"}, func() error {
		_ = p.logged(p.log.Flush()) // the next write finds out
		return nil
	})
	p.jobs.After(handOverPeriod, p.handOver)
}

// watchDevice schedules a check that the present syncs return. While a check is already due it
// costs one atomic load.
func (p *Pipeline) watchDevice() {
	if !p.watching.Load() && p.watching.CompareAndSwap(false, true) {
		p.jobs.After(hangsAfter, p.lookAtDevice)
	}
}

// lookAtDevice logs when the device stops answering, and when it answers again.
func (p *Pipeline) lookAtDevice() {
	p.watching.Store(false)
	waiting := p.log.Waiting()
	hangs := waiting >= hangsAfter
	if p.hangs.Swap(hangs) != hangs {
		if hangs {
			p.opts.Logger.Warn("the device does not answer: a write or sync of the log is under way", "for", waiting)
		} else {
			p.opts.Logger.Warn("the device answers again")
		}
	}
	if waiting > 0 {
		p.watchDevice()
	}
}
