// Package event describes what a store does in the background, and what happens to it.
package event

import (
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// Kind says what an event is about.
type Kind string

// The kinds. All but LogSegment and Failure are jobs: each has a beginning and an end.
const (
	Flush      Kind = "flush"       // of memtables to table files
	Compaction Kind = "compaction"  // of table files
	Stall      Kind = "stall"       // writers wait
	LogSegment Kind = "log segment" // a new one is on the device
	Split      Kind = "split"       // of a partition
	Merge      Kind = "merge"       // of two partitions
	Load       Kind = "load"        // the files of a bulk load become part of a table
	Ingest     Kind = "ingest"      // partitions of another store become part of a table
	Detach     Kind = "detach"      // the rows of a partition are removed
	Failure    Kind = "failure"     // of background work
)

// Event is the beginning or the end of a job, or something that has no duration. Fields that its kind does not
// have are zero.
type Event struct {
	Kind  Kind
	Job   uint64 // number of the job, 0 if it is none
	Begun bool   // the job begins

	Table      uint64
	Partitions []uint64 // of a split or merge those before it
	Made       []uint64 // the partitions after it
	Reason     string   // of a compaction or stall; the work that failed
	Level      int      // from which a compaction takes files
	Output     int      // to which it writes
	Files      int      // how many it takes
	Moved      bool     // the compaction moves a file unchanged
	Input      int64    // bytes of memtables, or of table files and value files that it takes
	Segment    uint64

	// At the end:
	Written int64  // bytes of table and value files
	Dropped uint64 // cells that a compaction left out
	Took    time.Duration
	Err     error
}

// Source hands events to a listener. A zero Source, and nil, drop them.
type Source struct {
	Clock clock.Clock
	// To is called by the goroutine that does the work, at times by several at once.
	To func(Event)

	jobs atomic.Uint64
}

// Note hands over an event.
func (s *Source) Note(e Event) {
	if s != nil && s.To != nil {
		s.To(e)
	}
}

// Begin hands over the beginning of something.
func (s *Source) Begin(e Event) *Job {
	j := &Job{Event: e, source: s}
	if s != nil && s.To != nil {
		j.Job, j.began = s.jobs.Add(1), s.Clock.Elapsed()
		j.Begun = true
		s.To(j.Event)
	}
	return j
}

// Job is something that has begun. Its owner sets the fields of Event that its end is to have.
type Job struct {
	Event
	source *Source
	began  time.Duration
}

// End hands over the end. err says why it failed.
func (j *Job) End(err error) {
	if s := j.source; s != nil && s.To != nil {
		j.Begun, j.Err, j.Took = false, err, s.Clock.Elapsed()-j.began
		s.To(j.Event)
	}
}
