package flagstone

import (
	"context"

	"github.com/flagstone-db/flagstone/internal/check"
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
	// deleted. They do no harm, and the next Open deletes them.
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
