package flagstone

import (
	"context"

	"github.com/flagstone-db/flagstone/internal/check"
	"github.com/flagstone-db/flagstone/internal/event"
)

// CheckReport is what Check found.
type CheckReport struct {
	Tables     int
	TableFiles int
	Rows       uint64 // of all table files; a row in two files counts twice
	Cells      uint64
	FileBytes  int64 // of the table files
	ValueFiles int
	Values     uint64 // of all value files, garbage included
	ValueBytes int64  // of the value files
	LogRecords int
	LogBytes   int64
	// Orphans are files to which nothing refers: a crash left them behind, or Close came before they were
	// deleted. They do no harm, and the next Open deletes them. Store.Check does not look for them.
	Orphans []string
	// Problems are the damage found: each error names the file and, where it is known, the
	// offset.
	Problems []error
}

// Check verifies every byte of the store in dir and changes nothing. The store must not be open.
// Check verifies the manifest, every block of every table file with its order, bounds and counts,
// every value of every value file, that each reference leads to a value, and the log. An error
// says that the check could not be made: the store is open (ErrLocked), or its manifest cannot be
// read. The report has all other damage. progress, if not nil, is called before each file. opts
// are as for Open; ReadOnly is implied.
func Check(ctx context.Context, dir string, opts Options, progress func(file string)) (CheckReport, error) {
	opts.ReadOnly = true
	opts, err := opts.withDefaults()
	if err != nil {
		return CheckReport{}, err
	}
	s := &Store{dir: dir, opts: opts, fs: opts.Seams.FS, clock: opts.Seams.Clock}
	defer func() {
		if s.lock != nil {
			s.lock.Close()
		}
	}()
	if err := s.openFiles(); err != nil {
		return CheckReport{}, s.describe(err)
	}
	report, err := check.Run(ctx, check.Store{FS: s.fs, Dir: dir, State: s.frozen, Corrupt: ErrCorrupt}, progress)
	for i := range report.Problems {
		report.Problems[i] = s.describe(report.Problems[i])
	}
	return CheckReport(report), s.describe(err)
}

// CheckOptions say how an open store is checked.
type CheckOptions struct {
	// Pace, if not nil, is called before bytes are read from a file, a mebibyte at most. It may wait, to bound the rate;
	// its error ends the check.
	Pace func(bytes int) error
	// Progress, if not nil, is called before each file, with how many bytes of all table files, value files and log
	// segments are done.
	Progress func(file string, done, all int64)
	// Problem, if not nil, is called with each problem when it is found.
	Problem func(error)
}

// Check verifies the files of the open store, and changes nothing: the manifest, and what Check, the function, verifies
// of table files, value files and the log, but for the segment of the log that is being written. Reads and writes go on.
// Files come from the device and not from a cache, and Check leaves the caches as they are. It verifies the files that
// the store had when the call began, unless the store has no use for one any more when its turn comes. It takes memory
// for the manifest, the index of one table file and some MiB. Each problem is logged and reported as an EventFailure
// whose Reason is "check". An error says that the check ended early: ctx or Pace ended it, or the store was closed.
// Close waits until the check has ended, so the functions of opts must not call it.
func (s *Store) Check(ctx context.Context, opts CheckOptions) (CheckReport, error) {
	if !s.jobs.Begin() {
		return CheckReport{}, ErrClosed
	}
	defer s.jobs.End()
	live := check.Live{Files: s.files, Manifest: func() error { return nil }, Pace: func(bytes int) error {
		if s.closed.Load() {
			return ErrClosed
		}
		if opts.Pace == nil {
			return nil
		}
		return opts.Pace(bytes)
	}, Problem: func(err error) {
		err = s.describe(err)
		s.opts.Logger.Error("damage found", "error", err)
		s.events.Note(event.Event{Kind: event.Failure, Reason: "check", Err: err})
		if opts.Problem != nil {
			opts.Problem(err)
		}
	}}
	if s.manifest != nil {
		live.Manifest = s.manifest.Verify
	}
	if s.log != nil {
		live.Oldest, live.Newest = func() uint64 { return s.state().MinLog }, s.log.Newest
	}
	report, err := check.RunOpen(ctx, check.Store{FS: s.fs, Dir: s.dir, State: s.state(), Corrupt: ErrCorrupt}, live, opts.Progress)
	for i := range report.Problems {
		report.Problems[i] = s.describe(report.Problems[i])
	}
	return CheckReport(report), s.describe(err)
}
