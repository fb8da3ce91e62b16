// Package check verifies every byte of a closed store: the manifest, every block of every table file
// with its order, bounds and counts, every value of every value file, that each reference leads to
// a value, and the log.
package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

// Store is a closed store. The caller holds its lock.
type Store struct {
	FS    vfs.FS
	Dir   string
	State *manifest.State // as the manifest in Dir says
	// Corrupt is matched by the errors of damage that no lower package reports.
	Corrupt error
}

// Report is what Run found. flagstone.CheckReport, which has the same fields, describes them.
type Report struct {
	Tables     int
	TableFiles int
	Rows       uint64
	Cells      uint64
	FileBytes  int64
	ValueFiles int
	Values     uint64
	ValueBytes int64
	LogRecords int
	LogBytes   int64
	Orphans    []string
	Problems   []error
}

// Run verifies a store and changes nothing. progress, if not nil, is called before each file. An
// error says that the check could not be made: the directory cannot be read, or ctx has ended. The
// report has all damage.
func Run(ctx context.Context, s Store, progress func(file string)) (report Report, err error) {
	c := checker{Store: s, ctx: ctx, report: &report, progress: progress}
	if progress == nil {
		c.progress = func(string) {}
	}
	if err := c.inventory(); err != nil {
		return report, err
	}
	if err := c.values(); err != nil {
		return report, err
	}
	err = c.tables()
	c.closeValues()
	if err != nil {
		return report, err
	}
	c.log()
	return report, ctx.Err()
}

type checker struct {
	Store
	ctx      context.Context
	report   *Report
	progress func(file string)

	open map[uint64]*valuefile.Reader // by number, to follow references
}

func (c *checker) problem(err error) { c.report.Problems = append(c.report.Problems, err) }

// inventory compares the directory with the manifest.
func (c *checker) inventory() error {
	inventory, err := manifest.TakeInventory(c.FS, c.Dir, c.State)
	if err != nil {
		return err
	}
	c.report.Orphans = inventory.Orphans
	for _, name := range inventory.Missing {
		c.problem(fmt.Errorf("%w: file %s is missing", c.Corrupt, filepath.Join(c.Dir, name)))
	}
	return nil
}

// tables verifies every table file once.
func (c *checker) tables() error {
	seen := map[uint64]bool{}
	for _, t := range c.State.Tables {
		if t.Log == nil {
			c.report.Tables++
		}
		for _, p := range t.Partitions {
			for _, level := range p.Levels {
				for _, f := range level {
					if err := c.ctx.Err(); err != nil {
						return err
					}
					if seen[f.Number] {
						continue
					}
					seen[f.Number] = true
					if err := c.table(f); err != nil {
						c.problem(err)
					}
				}
			}
		}
	}
	return nil
}

// table verifies a table file against itself and against the manifest.
func (c *checker) table(f *manifest.FileMeta) error {
	name := filepath.Join(c.Dir, manifest.TableName(f.Number))
	if _, err := c.FS.Stat(name); err != nil {
		return nil // missing: reported already
	}
	c.progress(name)
	r, err := tablefiles.OpenTable(c.FS, c.Dir, f)
	if err != nil {
		return err
	}
	defer r.Close()
	c.report.TableFiles++
	c.report.FileBytes += f.Size
	if err := r.Verify(c.reference); err != nil {
		return err
	}
	sum, err := r.Checksum()
	if err != nil {
		return err
	}
	if sum != f.Checksum {
		return fmt.Errorf("%w: table file %s: the checksum of the whole file is not the manifest's", c.Corrupt, name)
	}
	if p := r.Properties(); !agree(p, f) {
		return fmt.Errorf("%w: table file %s: it does not hold what the manifest says", c.Corrupt, name)
	}
	c.report.Rows += f.Rows
	c.report.Cells += f.Cells
	return nil
}

// agree reports whether a file's properties are what the manifest says.
func agree(p *sstable.Properties, f *manifest.FileMeta) bool {
	return p.Rows == f.Rows && p.Cells == f.Cells && p.Puts == f.Puts && p.Tombstones == f.Tombstones &&
		bytes.Equal(p.SmallestKey, f.Smallest) && bytes.Equal(p.LargestKey, f.Largest) &&
		p.SmallestSeq == f.SmallestSeq && p.LargestSeq == f.LargestSeq &&
		p.MinVersion == f.MinVersion && p.MaxVersion == f.MaxVersion &&
		p.Permanent == f.Permanent && p.NewestTombstone == f.NewestTombstone &&
		slices.EqualFunc(p.ValueFiles, f.Values, func(v sstable.ValueFile, use manifest.ValueUse) bool {
			return v.Number == use.File && v.Values == use.Values && v.Bytes == use.Bytes
		})
}

// values verifies every value file.
func (c *checker) values() error {
	for v := range c.State.ValueFiles() {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(c.Dir, manifest.ValueName(v.Number))
		if _, err := c.FS.Stat(name); err != nil {
			continue // missing: reported already
		}
		c.progress(name)
		r, err := tablefiles.OpenValues(c.FS, c.Dir, v.ValueFile)
		if err == nil {
			c.report.ValueFiles++
			c.report.Values += v.Values
			c.report.ValueBytes += v.Size
			err = errors.Join(r.Verify(c.ctx.Err), r.Close())
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if err != nil {
			c.problem(err)
		}
	}
	return nil
}

// maxOpenValues bounds the value files that are open to follow references.
const maxOpenValues = 64

// reference verifies that a cell's reference leads to a record of a value file. values verifies
// the records themselves, and reports value files that cannot be opened; inventory reports
// missing ones.
func (c *checker) reference(ref row.Reference) error {
	r, ok := c.open[ref.File]
	if !ok {
		v, live := c.State.ValueFile(ref.File)
		if !live {
			return nil // the table file does not hold what the manifest says
		}
		if len(c.open) >= maxOpenValues || c.open == nil {
			c.closeValues()
			c.open = map[uint64]*valuefile.Reader{}
		}
		r, _ = tablefiles.OpenValues(c.FS, c.Dir, v.ValueFile)
		c.open[ref.File] = r
	}
	if r == nil {
		return nil
	}
	return r.CheckReference(ref)
}

func (c *checker) closeValues() {
	for _, r := range c.open {
		if r != nil {
			r.Close()
		}
	}
	c.open = nil
}

// log reads the log and decodes every record, and checks the spare files that wait to become
// segments.
func (c *checker) log() {
	logDir := filepath.Join(c.Dir, manifest.WALDir)
	c.progress(logDir)
	opts := wal.Options{FS: c.FS, Dir: logDir, StoreID: c.State.StoreID, Newest: wal.End(c.State.NewestLog)}
	var change row.Change
	result, err := wal.Recover(opts, c.State.KnownSegment(), func(rec wal.Record) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		batch, err := row.NewBatchReader(rec.Payload)
		for more := err == nil; more && err == nil; {
			more, err = batch.Next(&change)
		}
		if err != nil {
			return fmt.Errorf("%w: log segment %d, offset %d: %w", c.Corrupt, rec.Segment, rec.Offset, err)
		}
		return nil
	})
	if err != nil && c.ctx.Err() == nil {
		c.problem(err)
	}
	for _, err := range wal.CheckSpares(opts, c.State.KnownSegment()) {
		c.problem(err)
	}
	c.report.LogRecords, c.report.LogBytes = result.Records, result.Bytes
}
