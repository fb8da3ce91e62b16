package change

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/wal"
)

// Write is a set of changes on its way through the pipeline, and the memory for the next one.
type Write struct {
	Changes []*Change
	Out     commit.Write
}

// Add adds a change to the write.
func (w *Write) Add(c *Change) { w.Changes = append(w.Changes, c) }

// Reset empties the write, so that its memory holds nothing alive.
func (w *Write) Reset() {
	clear(w.Changes)
	w.Changes = w.Changes[:0]
	w.Out.Reset()
}

// Do prepares, orders and applies the changes at micros, in microseconds. If there are none, the
// commit waits for what the function has seen that refused to change anything. REQUIRES: the changes
// are of different rows, and the caller holds the latches of these.
func (w *Write) Do(ctx context.Context, pipeline *commit.Pipeline, micros int64, refusal error) error {
	if len(w.Changes) == 0 {
		w.Out.Refused(pipeline.Refuse(refusal))
		return nil
	}
	before := 0
	for _, c := range w.Changes {
		c.home.ExpectApply()
		p, err := c.Prepare(micros / 1000)
		if err != nil {
			return err
		}
		// The log would refuse it too, but only with all of it in memory.
		if before += len(p.Before); before > wal.MaxRecordSize {
			return fmt.Errorf("%w: table %q: what columns held before the changes exceeds %d bytes",
				commit.ErrInvalid, c.Table.Name, wal.MaxRecordSize)
		}
		if err := p.AddTo(&w.Out); err != nil {
			return err
		}
	}
	if err := pipeline.Write(ctx, &w.Out, micros); err != nil {
		return err
	}
	for _, c := range w.Changes {
		c.keepStamp()
	}
	return nil
}
