package instances

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/keydesign"
)

// MaxSample bounds the number of sampled rows of a report.
const MaxSample = 100_000

// KeyReport judges the primary key of a table by a sample of about the given number of rows,
// and by the cost of requests lately. Errors match ErrNotFound or
// ErrInvalid, or are those of the store.
func (h *Home) KeyReport(ctx context.Context, instance, table string, rows int) (*keydesign.Report, error) {
	if rows < 1 || rows > MaxSample {
		return nil, fmt.Errorf("%w: a sample of %d rows, want 1 to %d", ErrInvalid, rows, MaxSample)
	}
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	st, err := engine.KeyStatistics(ctx, name, table, rows)
	if err != nil {
		return nil, missing(err, instance, table)
	}
	return keydesign.Advise(st), nil
}

// Sample returns about n rows of a table, spread evenly over its bytes. Errors match ErrNotFound, or are those of the
// store.
func (h *Home) Sample(ctx context.Context, instance, table string, n int) ([]flagstone.SampledRow, error) {
	t, err := h.table(instance, table)
	if err != nil {
		return nil, err
	}
	return t.Sample(ctx, n)
}
