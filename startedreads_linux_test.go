package flagstone

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// startedReads is a machine with little memory that counts the reads which are begun before their bytes are needed.
type startedReads struct {
	vfs.FS
	started *atomic.Int64
}

func (startedReads) Memory() int64 { return 64 << 10 }

func (s startedReads) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	f, err := s.FS.Open(name, opts)
	if starter, ok := f.(vfs.Starter); ok && err == nil {
		return countedStarts{f, starter, s.started}, nil
	}
	return f, err
}

type countedStarts struct {
	vfs.File
	starter vfs.Starter
	started *atomic.Int64
}

func (c countedStarts) StartRead(p []byte, off int64) (vfs.Started, bool) {
	started, ok := c.starter.StartRead(p, off)
	if ok {
		c.started.Add(1)
	}
	return started, ok
}

// slowDevice is a clock on which each access to a file takes long.
type slowDevice struct {
	clock.Clock
	elapsed *atomic.Int64
}

func (s slowDevice) Elapsed() time.Duration { return time.Duration(s.elapsed.Add(1e6)) }

// TestAGetReadsOlderRunsBesideTheNewest gets rows that lie in three runs, once with a column in each, and once whole in
// the newest. The page cache is emptied before.
func TestAGetReadsOlderRunsBesideTheNewest(t *testing.T) {
	const rows = 300
	for name, whole := range map[string]bool{"columns": false, "whole rows": true} {
		t.Run(name, func(t *testing.T) {
			dir, disk := t.TempDir(), startedReads{vfs.OS(), new(atomic.Int64)}
			open := func(readOnly bool) *Store { // nothing is merged for reads then
				opts := Options{Sync: SyncNone, CacheSize: 16 << 10, Compression: CompressionNone, ReadOnly: readOnly}
				opts.Seams.FS, opts.Seams.Clock = disk, slowDevice{clock.System(), new(atomic.Int64)}
				opts.Seams.Levels.L0Trigger, opts.Seams.Levels.IdleDepth = 100, 100
				s, err := Open(dir, opts)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open(false)
			table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeInteger}}})
			if err != nil {
				t.Fatal(err)
			}
			columns := []string{"a", "b", "c"}
			value := func(i int, column string) row.Value {
				return row.String(strings.Repeat(column, 300+i))
			}
			for _, column := range columns {
				for i := range rows {
					err := table.Update(ctx(), Key(i), func(_ context.Context, tx *RowTx) error {
						if whole {
							tx.PutRow()
						}
						tx.Put(column, Now, value(i, column))
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Flush(ctx()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			direct := uncacheTables(t, dir)
			s = open(true)
			defer s.Close()
			if table, err = s.Table("t"); err != nil {
				t.Fatal(err)
			}
			for n := range rows {
				i := n * 7 % rows
				r, err := table.Get(ctx(), Key(i), ReadOptions{})
				if err != nil || r == nil {
					t.Fatalf("row %d: %v, %v", i, r, err)
				}
				for _, column := range columns {
					v, found := r.Value(column)
					if want := !whole || column == "c"; found != want || found && !v.Equal(value(i, column)) {
						t.Errorf("row %d: column %s: found %v, %.20q", i, column, found, v.Text())
					}
				}
			}
			// Reads come into the page cache soon, one in four by itself, others by the chunk.
			if started := disk.started.Load(); direct && !whole && started == 0 || whole && started > 0 {
				t.Errorf("%d reads were begun before they were needed", started)
			}
		})
	}
}

// uncacheTables takes table files out of the page cache. It returns false where that does not work, or reads cannot be
// started.
func uncacheTables(t *testing.T, dir string) (direct bool) {
	t.Helper()
	async := vfs.NewAsyncReads()
	defer async.Close()
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".sst" {
			return err
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
			return err
		}
		sparing, err := vfs.OS().Open(name, vfs.OpenOptions{Random: true, Sparing: true, Async: async})
		if err != nil {
			return err
		}
		defer sparing.Close()
		if starter, ok := sparing.(vfs.Starter); ok {
			if read, ok := starter.StartRead(vfs.AlignedBuffer(4096), 0); ok {
				direct = read.Wait()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return direct
}
