package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/flagstone-db/flagstone/internal/scan"
	"github.com/flagstone-db/flagstone/row"
)

// ParallelScan says what Table.ScanParallel reads, and how.
type ParallelScan struct {
	Start, End []row.Value // as for Table.Scan; empty is unbounded
	Workers    int         // goroutines; 0 is one for each processor
	PieceBytes int64       // about how much a worker reads before it takes the next piece, at least 4 KiB; 0 is a good choice
	// Options are those of the scan. Reverse and MaxExamined are refused.
	Options ScanOptions
	// Progress, if not nil, is told after each piece how many of the scan's bytes are done: estimates of
	// bytes on disk, as in Table.SplitPoints. done never falls, and is total at the end. One call runs at
	// a time, on one of the workers.
	Progress func(done, total int64)
}

const (
	// piecesEach is how many pieces there are for each worker, so that none is idle for long at the end.
	piecesEach = 16
	// minPiece and maxPiece bound what a piece has: one that is smaller costs more to begin than to read, one
	// that is larger is slow to show progress.
	minPiece, maxPiece = 64 << 10, 64 << 20
	// leastPiece is the least of what may be asked for: each piece is a scan of its own.
	leastPiece = 4 << 10
)

// ScanParallel calls each for every row of a range, from several goroutines. All of them see one moment, that of
// Options.Snapshot or the present one, so each row is given exactly once, also when partitions are split and
// merged meanwhile. A worker, a number from 0 to Workers-1, makes one call at a time, and gets its rows in key
// order; rows with the same partition key, the first key column, go to the same worker. A row is valid until each
// returns: Row.Clone makes a copy that stays.
//
// The first error, of each or of a read, ends the scan and is returned; ScanParallel returns when all workers have
// ended. Errors match ErrInvalid if s is not possible.
func (t *Table) ScanParallel(ctx context.Context, s ParallelScan, each func(worker int, r *Row) error) error {
	opts := s.Options
	if s.Workers < 0 || s.PieceBytes < 0 || opts.Reverse || opts.MaxExamined != 0 {
		return fmt.Errorf("%w: a parallel scan by %d workers, pieces of %d bytes, reverse %t, at most %d cells examined",
			ErrInvalid, s.Workers, s.PieceBytes, opts.Reverse, opts.MaxExamined)
	}
	if opts.Snapshot == nil {
		now, err := t.store.Snapshot()
		if err != nil {
			return err
		}
		defer now.Close()
		opts.Snapshot = now
	}
	workers := cmp.Or(s.Workers, runtime.GOMAXPROCS(0))
	bounds, sizes, err := t.pieces(ctx, &s, workers)
	if err != nil {
		return err
	}
	p := scan.Pieces{Sizes: sizes, Workers: workers, Progress: s.Progress}
	return p.Run(ctx, func(ctx context.Context, worker, piece int) error {
		for r, err := range t.Scan(ctx, bounds[piece], bounds[piece+1], opts).All() {
			if err == nil {
				err = each(worker, r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// pieces divides the range of a parallel scan: each piece lies between two bounds, and has about so many bytes.
func (t *Table) pieces(ctx context.Context, s *ParallelScan, workers int) (bounds [][]row.Value, sizes []int64, err error) {
	low, err := t.core.EncodeBound(nil, s.Start)
	if err != nil {
		return nil, nil, err
	}
	high, err := t.core.EncodeBound(nil, s.End)
	if err != nil {
		return nil, nil, err
	}
	if len(high) == 0 {
		high = nil
	}
	size := max(s.PieceBytes, leastPiece)
	if s.PieceBytes == 0 {
		whole, err := t.cut(ctx, low, high, max(t.ApproximateSize(), minPiece), math.MaxInt)
		if err != nil {
			return nil, nil, err
		}
		size = 0
		for _, n := range whole.Sizes() {
			size += n
		}
		size = min(max(size/int64(workers)/piecesEach, minPiece), maxPiece)
	}
	cutter, err := t.cut(ctx, low, high, size, math.MaxInt)
	if err != nil {
		return nil, nil, err
	}
	bounds = append(bounds, s.Start)
	for _, point := range cutter.Points() {
		bounds = append(bounds, []row.Value{point})
	}
	return append(bounds, s.End), cutter.Sizes(), nil
}
