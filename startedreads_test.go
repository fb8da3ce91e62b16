package flagstone

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// startedReads is a machine with little memory that counts the reads which are begun before their bytes are needed. Each is
// begun: where the system would leave it to a call, Wait makes that.
type startedReads struct {
	vfs.FS
	started *atomic.Int64
}

func (startedReads) Memory() int64 { return 64 << 10 }

func (s startedReads) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	f, err := s.FS.Open(name, opts)
	if err != nil || !opts.Sparing {
		return f, err
	}
	return countedStarts{f, s.started}, nil
}

type countedStarts struct {
	vfs.File
	started *atomic.Int64
}

func (c countedStarts) StartRead(p []byte, off int64) (vfs.Started, bool) {
	c.started.Add(1)
	if starter, ok := c.File.(vfs.Starter); ok {
		if started, ok := starter.StartRead(p, off); ok {
			return started, true
		}
	}
	return lateRead{c.File, p, off}, true
}

// lateRead reads when it is waited for.
type lateRead struct {
	file vfs.File
	p    []byte
	off  int64
}

func (r lateRead) Wait() bool {
	_, err := r.file.ReadAt(r.p, r.off)
	return err == nil || errors.Is(err, io.EOF)
}

// slowDevice is a clock on which each access to a file takes long.
type slowDevice struct {
	clock.Clock
	elapsed *atomic.Int64
}

func (s slowDevice) Elapsed() time.Duration { return time.Duration(s.elapsed.Add(1e6)) }

// TestAGetReadsOlderRunsBesideTheNewest gets rows that lie in three runs, once with a column in each, and once whole in
// the newest.
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
			for n, column := range columns {
				for i := range rows - n { // the last rows are in the oldest runs alone
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
			s = open(true)
			defer s.Close()
			if table, err = s.Table("t"); err != nil {
				t.Fatal(err)
			}
			for n := range rows {
				i := rows - 1 - n*7%rows // the last first: it opens the oldest run
				r, err := table.Get(ctx(), Key(i), ReadOptions{})
				if err != nil || r == nil {
					t.Fatalf("row %d: %v, %v", i, r, err)
				}
				newest := min(2, rows-1-i)
				for n, column := range columns {
					v, found := r.Value(column)
					if want := n == newest || n < newest && !whole; found != want || found && !v.Equal(value(i, column)) {
						t.Errorf("row %d: column %s: found %v, %.20q", i, column, found, v.Text())
					}
				}
			}
			if started := disk.started.Load(); whole != (started == 0) {
				t.Errorf("%d reads were begun before they were needed", started)
			}
		})
	}
}
