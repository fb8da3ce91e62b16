// Package check verifies every byte of a store: the manifest, every block of every table file
// with its order, bounds and counts, every value of every value file, that each reference leads to
// a value, and the log. Of an open store it leaves out the log segment that is being written.
//
//	check.go  the checks, and the order in which a closed store is checked
//	open.go   the same for a store that is open and changes meanwhile
//	paced.go  reads from the device, as slowly as is asked for
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// Store is a store. If it is closed, the caller holds its lock.
type Store struct {
	FS    vfs.FS
	Dir   string
	State *manifest.State // as the manifest in Dir says, or said when the check began
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

// Run verifies a closed store and changes nothing. progress, if not nil, is called before each file. An
// error says that the check could not be made: the directory cannot be read, or ctx has ended. The
// report has all damage.
func Run(ctx context.Context, s Store, progress func(file string)) (report Report, err error) {
	c := newChecker(ctx, s, &report, progress)
	if err := c.inventory(); err != nil {
		return report, err
	}
	if err := c.allFiles(c.tables()); err != nil {
		return report, err
	}
	c.log()
	return report, ctx.Err()
}

// allFiles verifies the value files and the table files, and ends the references to these.
func (c *checker) allFiles(tables []*tablefiles.File) error {
	defer func() {
		for _, f := range tables {
			f.Unref()
		}
	}()
	if err := c.values(); err != nil {
		return err
	}
	for len(tables) > 0 {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if release, ok := c.holdTable(tables[0].Meta.Number); ok {
			err := c.table(tables[0])
			release()
			if err != nil && c.ctx.Err() == nil {
				c.problem(err)
			}
		}
		c.done += tables[0].Meta.Size
		tables[0].Unref() // closes it: the indexes of all tables together may be large
		tables = tables[1:]
	}
	return nil
}

type checker struct {
	Store
	ctx      context.Context
	report   *Report
	progress func(file string)
	found    func(problem error) // may be nil
	files    *tablefiles.Registry
	// holdTable and holdValues keep a file until release; ok is false if it is gone, because the store is open and
	// has no use for it any more.
	holdTable, holdValues func(number uint64) (release func(), ok bool)

	done   int64           // bytes of the files whose turn has been
	lost   map[uint64]bool // value files that are damaged or cannot be opened
	change row.Change      // of record
}

func newChecker(ctx context.Context, s Store, report *Report, progress func(file string)) *checker {
	if progress == nil {
		progress = func(string) {}
	}
	files := tablefiles.New(s.FS, s.Dir, tablefiles.Options{Access: tablefiles.AccessOnce}, owner{s.State})
	stays := func(uint64) (release func(), ok bool) { return func() {}, true }
	return &checker{Store: s, ctx: ctx, report: report, progress: progress, files: files, holdTable: stays, holdValues: stays, lost: map[uint64]bool{}}
}

// owner is the owner of the files.
type owner struct{ *manifest.State }

// Obsolete is not called: the check marks no file obsolete.
func (owner) Obsolete(string) {}

func (c *checker) problem(err error) {
	c.report.Problems = append(c.report.Problems, err)
	if c.found != nil {
		c.found(err)
	}
}

// inventory finds the files that the manifest does not name.
func (c *checker) inventory() error {
	inventory, err := manifest.TakeInventory(c.FS, c.Dir, c.State)
	c.report.Orphans = inventory.Orphans
	return err
}

// present fails if a file is missing, also one that the store has open.
func (c *checker) present(name string) error {
	_, err := c.FS.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: file %s is missing", c.Corrupt, name)
	}
	return err
}

// tables refers to every table file once.
func (c *checker) tables() (files []*tablefiles.File) {
	seen := map[uint64]bool{}
	for _, t := range c.State.Tables {
		if t.Log == nil {
			c.report.Tables++
		}
		for _, p := range t.Partitions {
			for _, f := range slices.Concat(p.Levels[:]...) {
				if !seen[f.Number] {
					seen[f.Number] = true
					files = append(files, c.files.Ref(f))
				}
			}
		}
	}
	return files
}

// table verifies a table file against itself and against the manifest.
func (c *checker) table(file *tablefiles.File) error {
	f := file.Meta
	name := filepath.Join(c.Dir, manifest.TableName(f.Number))
	c.progress(name)
	if err := c.present(name); err != nil {
		return err
	}
	r, err := file.Reader()
	if err != nil {
		return err
	}
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
	found := tablefiles.Describe(f.Number, r.Properties())
	found.Checksum, found.CreatedMillis, found.SeqOffset = sum, f.CreatedMillis, f.SeqOffset
	if !reflect.DeepEqual(found, f) {
		return fmt.Errorf("%w: table file %s: it does not hold what the manifest says", c.Corrupt, name)
	}
	c.report.Rows += f.Rows
	c.report.Cells += f.Cells
	return nil
}

// values verifies every value file.
func (c *checker) values() error {
	for v := range c.State.ValueFiles() {
		if release, ok := c.holdValues(v.Number); ok {
			err := c.valueFile(v.ValueFile)
			release()
			if err != nil && c.ctx.Err() == nil {
				c.problem(err)
			}
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.done += v.Size
	}
	return nil
}

// valueFile verifies a value file.
func (c *checker) valueFile(v *manifest.ValueFile) error {
	c.lost[v.Number] = true
	name := filepath.Join(c.Dir, manifest.ValueName(v.Number))
	c.progress(name)
	if err := c.present(name); err != nil {
		return err
	}
	r, err := c.files.ValueReader(row.Reference{File: v.Number})
	if err != nil {
		return err
	}
	c.report.ValueFiles++
	c.report.Values += v.Values
	c.report.ValueBytes += v.Size
	if _, err = r.Verify(c.ctx.Err); err == nil {
		delete(c.lost, v.Number)
	}
	return err
}

// reference verifies that a cell's reference leads to a record of a value file. values verifies
// the records themselves, and reports value files that are damaged or cannot be opened.
func (c *checker) reference(ref row.Reference) error {
	if c.lost[ref.File] {
		return nil
	}
	r, err := c.files.ValueReader(ref)
	if err != nil {
		return nil // or the table file does not hold what the manifest says
	}
	return r.CheckReference(ref)
}

// log reads the log and decodes every record, and checks the spare files that wait to become
// segments.
func (c *checker) log() {
	logDir := filepath.Join(c.Dir, manifest.WALDir)
	c.progress(logDir)
	opts := wal.Options{FS: c.FS, Dir: logDir, StoreID: c.State.StoreID, Newest: wal.End(c.State.NewestLog)}
	result, err := wal.Recover(opts, c.State.KnownSegment(), c.record)
	if err != nil && c.ctx.Err() == nil {
		c.problem(err)
	}
	for _, err := range wal.CheckSpares(opts, c.State.KnownSegment()) {
		c.problem(err)
	}
	c.report.LogRecords, c.report.LogBytes = result.Records, result.Bytes
}

// record decodes a record of the log.
func (c *checker) record(rec wal.Record) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	batch, err := row.NewBatchReader(rec.Payload)
	for more := err == nil; more && err == nil; {
		more, err = batch.Next(&c.change)
	}
	if err != nil {
		return fmt.Errorf("%w: log segment %d, offset %d: %w", c.Corrupt, rec.Segment, rec.Offset, err)
	}
	return nil
}
