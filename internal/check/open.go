package check

import (
	"context"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/wal"
)

// Live is what the check of an open store asks of it.
type Live struct {
	// Files keeps the store's files while they are read.
	Files *tablefiles.Registry
	// Manifest verifies the manifest.
	Manifest func() error
	// Oldest and Newest are the log's segments: the oldest that the store needs, and the newest, which is not checked.
	// Oldest is nil if the store has no log.
	Oldest, Newest func() uint64
	// Pace is called before bytes are read from a file; it may wait. Its error ends the check.
	Pace func(bytes int) error
	// Problem is called with damage when it is found.
	Problem func(error)
}

// RunOpen verifies a store that is open, and changes nothing. It verifies the files that s.State names, as far as the
// store has a use for them until their turn comes, and the log's segments but for the newest one. It holds one file
// at a time: the store can delete all others. progress is told before each file how many bytes of the table files, the
// value files and the log are done. Results are those of Run.
func RunOpen(ctx context.Context, s Store, live Live, progress func(file string, done, all int64)) (report Report, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.FS = &pacedFS{s.FS, func(bytes int) error {
		if err := live.Pace(bytes); err != nil {
			stop(err)
		}
		return context.Cause(ctx)
	}}
	c, all := newChecker(ctx, s, &report, nil), int64(0)
	if progress != nil {
		c.progress = func(file string) { progress(file, c.done, all) }
	}
	for v := range s.State.ValueFiles() {
		all += v.Size
	}
	tables := c.tables()
	for _, f := range tables {
		all += f.Meta.Size
	}
	if live.Oldest != nil {
		all += wal.SegmentBytes(c.FS, filepath.Join(c.Dir, manifest.WALDir), live.Oldest(), live.Newest()-1)
	}
	c.found, c.holdTable, c.holdValues = live.Problem, live.Files.HoldTable, live.Files.HoldValues
	if err := live.Manifest(); err != nil {
		c.problem(err)
	}
	if err := c.allFiles(tables); err != nil {
		return report, context.Cause(ctx)
	}
	if live.Oldest != nil {
		c.sealedLog(live)
	}
	return report, context.Cause(ctx)
}

// sealedLog reads the segments of the log that are written no more. The store may release them meanwhile and use their
// files again: then it goes on with the first that is still needed.
func (c *checker) sealedLog(live Live) {
	opts := wal.Options{FS: c.FS, Dir: filepath.Join(c.Dir, manifest.WALDir), StoreID: c.State.StoreID}
	c.progress(opts.Dir)
	newest := live.Newest()
	for oldest := live.Oldest(); oldest < newest; {
		result, err := wal.CheckSealed(opts, oldest, newest, c.record)
		c.report.LogRecords, c.report.LogBytes = result.Records, result.Bytes
		now := live.Oldest()
		if err == nil || c.ctx.Err() != nil || now == oldest {
			if err != nil && c.ctx.Err() == nil {
				c.problem(err)
			}
			return
		}
		oldest = now
	}
}
