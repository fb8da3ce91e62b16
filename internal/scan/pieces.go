package scan

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
)

// Pieces are parts of a table that several goroutines walk side by side.
type Pieces struct {
	Sizes    []int64                 // about how many bytes each has
	Workers  int                     // the most goroutines
	Progress func(done, total int64) // is told the bytes of all pieces that are done, one call at a time; may be nil
}

// Run calls walk for every piece. Each worker takes the next piece that no other one has taken, so it
// walks its pieces in their order. The first error ends the context of all other calls, and is returned.
func (p *Pieces) Run(ctx context.Context, walk func(ctx context.Context, worker, piece int) error) error {
	var total int64
	for _, size := range p.Sizes {
		total += size
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex // of what follows
		left  = len(p.Sizes)
		done  int64
		first error
	)
	for worker := range min(p.Workers, len(p.Sizes)) {
		group.Go(func() {
			for ctx.Err() == nil {
				piece := int(next.Add(1) - 1)
				if piece >= len(p.Sizes) {
					return
				}
				err := walk(ctx, worker, piece)
				mu.Lock()
				if err != nil {
					first = cmp.Or(first, err)
					cancel()
				} else if done, left = done+p.Sizes[piece], left-1; p.Progress != nil && first == nil {
					p.Progress(done, total)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if left == 0 {
		return nil // the caller's context may have ended since
	}
	return cmp.Or(first, ctx.Err())
}
