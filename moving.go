package flagstone

// Partitions that move to another store: see docs/moving.md.

import (
	"context"
	"io"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/transfer"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// Freeze refuses all later writes to a partition, whatever way they come: they fail with ErrFrozen, which
// names the table, the range and the reason. Reads go on; the partition is not split or merged. It stays frozen
// when the store is opened again, until Unfreeze. What was written before is durable and visible when Freeze
// returns. reason is at most 512 bytes. Errors match ErrInvalid if the table has no such partition, and
// ErrDetached.
func (t *Table) Freeze(ctx context.Context, partition uint64, reason string) error {
	return t.store.describe(t.store.rebalancer.Freeze(ctx, t.core, partition, reason))
}

// Unfreeze lets a frozen partition take writes again. Errors are those of Freeze.
func (t *Table) Unfreeze(ctx context.Context, partition uint64) error {
	return t.store.describe(t.store.rebalancer.Unfreeze(ctx, t.core, partition))
}

// Detach removes the rows of a frozen partition by one edit, because another store has them. Afterwards every
// read and write of its range, and every scan that reaches it, fails with ErrDetached, also through earlier
// snapshots. Scans that have begun to read the partition go on; transactions of its rows end. The range gets a
// partition with another id. Errors match ErrInvalid if the table has no such partition or it is not frozen.
func (t *Table) Detach(ctx context.Context, partition uint64, reason string) error {
	return t.store.describe(t.store.rebalancer.Detach(ctx, t.core, partition, reason))
}

// ExportOptions say what of a table is exported.
type ExportOptions struct {
	// Values of the first key column: Start is included, End excluded; the zero Value is unbounded.
	Start, End row.Value
	// Base is the fragment of an earlier export, whose files the receiver has: they are not listed again.
	Base []byte
	// As is the name of the table at the receiver, the same as here if empty.
	As string
}

// Export is the files of a key range at one moment.
type Export struct {
	Dir string
	// Fragment describes the range and its files to Store.Ingest. The file FRAGMENT in Dir has the same bytes.
	Fragment []byte
	Files    []ExportFile

	fs vfs.FS
}

// ExportFile is a table or value file.
type ExportFile struct {
	Name     string // in Dir, and for Store.StageFile
	Size     int64  // in bytes
	Checksum uint64 // xxhash64 of all bytes
	// Smallest and Largest are the first and the last primary key in a table file, which may lie outside of
	// the range: only rows inside count. They are nil for a value file, which has values of table files.
	Smallest, Largest []row.Value
}

// Export flushes the store, and makes dir an export of a key range: the files that hold everything that was
// written to it before one moment, and a fragment that describes them. dir must be empty or not exist, outside
// of the store. Files
// are linked, or copied if the file system cannot link, and stay until Release, also across DropTable and
// Close. Writes go on meanwhile. Errors match ErrInvalid, also if no store would take so many files or partitions
// at once, and ErrDetached.
func (t *Table) Export(ctx context.Context, dir string, opts ExportOptions) (*Export, error) {
	s := t.store
	if err := s.mayChange(ctx); err != nil {
		return nil, err
	}
	fragment, files, err := s.mover.Export(ctx, t.core, dir, transfer.Exported{Start: opts.Start, End: opts.End, Base: opts.Base, As: opts.As})
	if err != nil {
		return nil, s.describe(err)
	}
	x := &Export{Dir: dir, Fragment: fragment, fs: s.fs}
	for _, f := range files {
		x.Files = append(x.Files, ExportFile(f))
	}
	return x, nil
}

// Open opens the file at a place in Files. The store may be closed meanwhile.
func (x *Export) Open(file int) (io.ReadCloser, error) {
	return transfer.Open(x.fs, filepath.Join(x.Dir, x.Files[file].Name))
}

// Release deletes Dir with the files. The store may be closed.
func (x *Export) Release() error { return transfer.Release(x.fs, x.Dir) }

// StageFile receives a file of an export for Ingest, with the figures of its ExportFile. When it returns nil the
// file is durable. What is not ingested is deleted by DiscardStaged, and when the store is opened again. Errors
// match ErrInvalid if the file is not what it was said to be. Close waits for StageFile: let content fail if its
// sender stalls.
func (s *Store) StageFile(name string, size int64, checksum uint64, content io.Reader) error {
	return s.work(func() error { return s.mover.Stage(name, size, checksum, content) })
}

// DiscardStaged deletes all staged files. REQUIRES: no StageFile or Ingest runs.
func (s *Store) DiscardStaged() error { return s.work(s.mover.Clear) }

// Ingest makes the rows of an export the store's, by one edit: after a crash all are there or none. All files
// that the fragment names must have been staged; they are verified, block by block. The table must not be
// there, or have the range detached and the same key columns and options. A new table gets the options of the
// fragment, and is detached outside of the range. Rows keep their versions; later writes are newer. Snapshots
// from before do not read the range (ErrDetached), and no stream has records of the rows. Errors match
// ErrInvalid if the fragment, the files and the table do not fit together, ErrNotStaged too if a file is not
// there, and ErrCorrupt if the fragment is damaged; then nothing has changed. After ErrPoisoned the rows may be
// there or not: Table.Partitions says so once the store was opened again.
func (s *Store) Ingest(ctx context.Context, fragment []byte) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	f, err := manifest.DecodeFragment(fragment)
	if err == nil {
		err = s.mover.Timely(f, s.opts.Seams.Clock.NowMillis())
	}
	switch {
	case err != nil:
	case s.external == nil:
		err = s.mover.Ingest(ctx, f, s.changeMillis(), s.trusted.Look().Millis)
	default: // what is in the log must not fail
		if err = s.mover.Verify(ctx, f, s.issued.Millis()); err == nil {
			err = s.external.Ingest(ctx, fragment)
		}
	}
	return s.describe(err)
}

// moverEnv implements transfer.Env.
type moverEnv struct{ rebalanceEnv }

func (e moverEnv) Flushed(ctx context.Context) (*manifest.State, func(), error) {
	return e.pinFlushed(ctx)
}

func (e moverEnv) State() *manifest.State { return e.state() }

func (e moverEnv) Find(name string) (*table.Table, error) {
	if t := e.tables.current.Load().byName[name]; t != nil {
		return t.core, nil
	}
	return nil, checkName(name)
}

func (e moverEnv) Create(edit *manifest.Edit, since uint64) error {
	_, err := e.addTable(edit, since)
	return err
}
