package flagstone

// Copying a store row by row into a new one, to recover from a clock that was far ahead. Issued
// times never go back, and neither do watermarks, the map from sequence numbers to times and the
// times of streams; a new store has none of these.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// ClockInfo describes the clocks of a store. Times are milliseconds since the epoch.
type ClockInfo struct {
	WallMillis int64
	// IssuedMillis is the last time that versions were stamped with; NowMillis does not go below
	// it.
	IssuedMillis int64
	// TrustedMillis is the time by which expired data is dropped. Until a reading of the wall
	// clock is believed (Believed) it counts from the epoch.
	TrustedMillis int64
	Believed      bool
	// Stood is how long the store has run while the wall clock was ahead of TrustedMillis; after
	// an hour the wall clock is believed.
	Stood time.Duration
}

// Clock returns the present readings of the store's clocks.
func (s *Store) Clock() ClockInfo {
	now := s.trusted.Look()
	return ClockInfo{
		WallMillis: s.clock.NowMillis(), IssuedMillis: s.issued.Last(),
		TrustedMillis: now.Millis, Believed: storeclock.Believed(now), Stood: time.Duration(now.Stood) * time.Millisecond,
	}
}

// CopyReport counts what CopyTo copied.
type CopyReport struct {
	Tables, Rows, Cells int
	// Restamped counts the cells whose version lay further ahead of the clock than the table's
	// Max Version Offset allows: the copy gives them its own time.
	Restamped int
}

const (
	copyBytes = 1 << 20 // of a batch: of values, names and keys, and copyCell for each row and cell
	copyCell  = 512     // about what a row takes in a batch and a memtable beside its bytes
	// copyAhead is how far ahead of the wall clock, in milliseconds, a copied version can move
	// the copy's NowMillis, so that later writes are not hidden below that version.
	copyAhead = 24 * 3600 * 1000
)

// CopyTo makes dir, which must be empty or not exist, a new store with the tables of this one and
// what is now visible of their rows, and closes it. The new store begins with the present wall
// clock, which is its purpose: a clock that was far ahead and is right again still affects the
// old store. Versions that the table's Max Version Offset does not allow now become those of now,
// in their order. Streams begin anew, with another id and without records. beside, if not nil,
// adds what else belongs to the directory and makes it durable. Until all is there, the directory
// has the name of dir with ".partial" appended, and only that is left if the process dies. After
// an error dir holds nothing, unless only the last sync of its name failed. Errors match ErrDetached if a
// partition is detached, and ErrTableNotFound if a table is dropped meanwhile: a copy lacks nothing silently.
func (s *Store) CopyTo(ctx context.Context, dir string, beside func(dir string) error) (report CopyReport, err error) {
	if err := s.mayChange(ctx); err != nil {
		return report, err
	}
	if vfs.Within(s.dir, dir) {
		return report, fmt.Errorf("%w: copy into %s, which lies in the store", ErrInvalid, dir)
	}
	err = vfs.BuildDir(s.fs, dir, func(partial string) error {
		report, err = s.copyTo(ctx, partial)
		if err == nil && beside != nil {
			err = beside(partial)
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: copy into %s: %w", ErrInvalid, dir, err)
	}
	return report, err
}

// copyTo is CopyTo into an empty directory.
func (s *Store) copyTo(ctx context.Context, dir string) (report CopyReport, err error) {
	at, err := s.Snapshot()
	if err != nil {
		return report, err
	}
	defer at.Close()
	opts := s.opts
	opts.ReadOnly, opts.Sync, opts.Shared, opts.External = false, SyncNone, nil, nil // flushed at the end
	to, err := Open(dir, opts)
	if err != nil {
		return report, err
	}
	c := copier{to: to, at: at, batch: to.NewBatch()}
	for _, t := range s.Tables() {
		if err == nil && at.moment.State.Table(t.core.ID) != nil { // else it was created meanwhile
			err = c.table(ctx, t)
		}
	}
	if err == nil {
		err = to.Flush(ctx)
	}
	return c.report, errors.Join(err, to.Close())
}

// copier copies tables from one store to another.
type copier struct {
	to     *Store
	at     *Snapshot
	batch  *Batch
	bytes  int // in the batch
	report CopyReport
}

func (c *copier) table(ctx context.Context, t *Table) error {
	info := t.Info()
	if info.ID == 0 {
		return fmt.Errorf("%w: %q was dropped meanwhile", ErrTableNotFound, t.core.Name)
	}
	spec := info.TableSpec
	stream := spec.Stream
	spec.Stream = nil // enabled after the copy, which must not be recorded
	made, err := c.to.command(ctx, external.Create, func() (*manifest.Edit, error) { return c.to.creation(&spec, t.core) })
	if err != nil {
		return err
	}
	c.report.Tables++
	for r, err := range t.Scan(ctx, nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: c.at}}).All() {
		if err == nil {
			err = c.row(ctx, t, made, r)
		}
		if err != nil {
			return fmt.Errorf("copy table %q: %w", spec.Name, err)
		}
	}
	if err := t.core.Gone(); err != nil { // the rows of one partition are read to their end
		return err
	}
	if err := c.apply(ctx); err != nil || stream == nil {
		return err
	}
	return made.Alter(ctx, TableChange{Stream: &StreamChange{Enable: stream}})
}

func (c *copier) apply(ctx context.Context) error {
	defer c.batch.Reset()
	c.bytes = 0
	return c.to.Apply(ctx, c.batch)
}

func (c *copier) row(ctx context.Context, t, made *Table, r *Row) error {
	c.report.Rows++
	forever := c.at.moment.State.Table(t.core.ID).Options.TTLSeconds == NeverExpires
	if !forever || len(r.cells) == 0 {
		if err := c.marker(ctx, t, made, r, forever); err != nil {
			return err
		}
	}
	c.report.Restamped += c.restamp(made, r.cells)
	for i := range r.cells {
		cell := &r.cells[i]
		v, err := row.PayloadValue(cell.Type, cell.Value)
		if err != nil {
			return err
		}
		c.batch.Row(made, r.Key()).Put(string(cell.Column), cell.Version, v)
		c.report.Cells++
		if c.bytes += len(r.rowKey) + len(cell.Column) + len(cell.Value) + copyCell; c.bytes >= copyBytes {
			if err := c.apply(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// marker keeps rows in existence that their copied cells would not: a row that never expires
// stays so, and a row without cells lives as long as one written now. It applies these changes
// apart from those of the cells.
func (c *copier) marker(ctx context.Context, t, made *Table, r *Row, forever bool) error {
	if !forever {
		g := t.core.NewGetter(r.rowKey)
		defer g.Close()
		view := mvcc.View{Seq: c.at.moment.Seq, MaxVersions: 1, Cutoff: math.MaxInt64} // shows only what never expires
		// The scan may go on in a tree that was detached meanwhile.
		err := t.core.Readable(g.Tree(), view.Seq)
		if err != nil {
			return err
		}
		if forever, err = g.Get(r.rowKey, view, &mvcc.Selection{NoCells: true}, new(row.Collector), 0); err != nil {
			return err
		}
	}
	change := c.batch.Row(made, r.Key())
	switch {
	case forever:
		change.PutRow()
	case len(r.cells) > 0:
		return nil
	default:
		change.Put("-", c.to.NowMillis(), row.Integer(0))
		if err := c.apply(ctx); err != nil {
			return err
		}
		c.batch.Row(made, r.Key()).DeleteColumn("-")
	}
	return c.apply(ctx)
}

// restamp replaces the versions that the table does not allow now, and counts them.
func (c *copier) restamp(t *Table, cells []row.Cell) (restamped int) {
	now := c.to.WallMillis()
	limit := change.VersionLimit(now, t.core.Meta().Options.MaxVersionOffsetSeconds)
	newest, lowest := int64(0), now // NowMillis must not fall below newest
	for i := len(cells) - 1; i >= 0; i-- {
		// From the back, the versions of a column ascend; those beyond the limit come last.
		cell := &cells[i]
		beyond := cell.Version >= limit
		if beyond {
			cell.Version = lowest
			restamped++
		}
		lowest = max(lowest, cell.Version+1)
		if i > 0 && bytes.Equal(cells[i-1].Column, cell.Column) {
			continue
		}
		if beyond || cell.Version < now+copyAhead {
			newest = max(newest, cell.Version)
		}
		lowest = now
	}
	c.to.issued.Raise(newest)
	return restamped
}
