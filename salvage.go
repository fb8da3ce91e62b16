package flagstone

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/salvage"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// SalvageReport is what Salvage did.
type SalvageReport struct {
	Copied    int // table and value files that were intact, and were copied
	Rewritten int // table files of which a part came back
	Lost      int // table files of which nothing came back
	Records   int // of the log, all of which were copied
	// Leftover are table and value files to which nothing refers: a flush or compaction that was interrupted left them
	// behind, or Close came before they were deleted. They are not copied, and are no loss.
	Leftover []string
	// Losses are what did not come back; empty if the store was intact.
	Losses []SalvageLoss
}

// SalvageLoss is a part of a store that did not come back.
type SalvageLoss struct {
	File   string
	Offset int64 // in bytes; -1: the whole file, or parts of it in several places
	// Table is the name of the table that the part belonged to; "" for the log, for a part of the manifest and, if its end
	// may be lost, for files that it does not name, which may belong to any. Stream says that the part was one of its stream's records.
	Table      string
	Stream     bool
	Partitions []uint64
	Level      int // of the tree
	// From and To, both included, bound the encoded keys of the rows that may miss cells; they may be
	// cut short. Both are nil if Table is "".
	From, To   []byte
	KeyColumns int
	// Rows is how many rows of a block lost their values, 0 if all of the block is lost. Cells is how many cells are lost,
	// 0 if that is not known.
	Rows, Cells uint64
	// Older says that the rows of these keys, or of any key if Table is "", may now be older than they
	// were, or deleted ones may be back: the part may have held the newer cells or the deletes.
	Older bool
	// Err says what is wrong, and where.
	Err error
}

// Salvage makes a new store in target, which must be empty or not exist, of what is intact in the damaged
// store in dir. The store must not be open, and nothing in it is changed. The report lists what did not
// come back. An error says that no store was made: the store is open (ErrLocked), neither its manifest nor
// the copy of that can be read, which alone say to which table a file belongs, a file has a newer format or
// cannot be opened, or target cannot be written. Then delete target.
// progress, if not nil, is called before each file, with how many bytes of the table files, the value files and the log
// are done. opts are as for Open; ReadOnly is implied.
func Salvage(ctx context.Context, dir, target string, opts Options, progress func(file string, done, all int64)) (SalvageReport, error) {
	opts.ReadOnly = true
	opts, err := opts.withDefaults()
	if err != nil {
		return SalvageReport{}, err
	}
	if vfs.Within(dir, target) {
		return SalvageReport{}, fmt.Errorf("%w: %s lies in the damaged store, %s", ErrInvalid, target, dir)
	}
	s := &Store{dir: dir, opts: opts, fs: opts.Seams.FS}
	lock, err := s.fs.Lock(filepath.Join(dir, manifest.LockName), vfs.LockToRead)
	if err != nil {
		return SalvageReport{}, s.describe(err)
	}
	defer lock.Close()
	state, lost, complete, err := manifest.LoadDamaged(s.fs, dir)
	if err != nil {
		return SalvageReport{}, s.describe(err)
	}
	r, err := salvage.Run(ctx, salvage.Store{FS: s.fs, Dir: dir, State: state, Lost: lost, Complete: complete, Table: sstable.WriterOptions{
		Compression: opts.Compression.table(), BlockSize: int(opts.BlockSize), FilterBitsPerKey: filterBits,
	}}, target, progress)
	report := SalvageReport{Copied: r.Copied, Rewritten: r.Rewritten, Lost: r.Lost, Records: r.Records, Leftover: r.Leftover}
	for _, l := range r.Losses {
		l.Err = s.describe(l.Err)
		report.Losses = append(report.Losses, SalvageLoss(l))
	}
	return report, s.describe(err)
}
