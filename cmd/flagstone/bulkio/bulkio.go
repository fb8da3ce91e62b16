// Package bulkio imports rows from files: it reads them, gives them to a target at a bounded rate, keeps what is refused,
// says how far it is, and remembers that in a file, so that an import which was killed goes on. It knows files and targets
// by small interfaces. Export uses its progress.
//
//	bulkio.go    the loop of an import
//	state.go     the file that remembers how far an import is
//	rejects.go   lines that cannot be imported
//	progress.go  what is shown meanwhile
package bulkio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
)

// Place is where a row stands in the input.
type Place struct {
	File int // in Import.Inputs
	Line int64
}

// Target takes the rows of an import. One goroutine uses it. A row that the target refuses for itself is told to RefuseRow
// of the import's Rejects, at any time before the next Flush returns. Any other error ends the import.
type Target interface {
	// Put writes a row in place of what its key had before. It copies the row. Rows of one key are written in the order
	// in which they are given.
	Put(r *rowfile.Row, at Place) error
	// Flush returns when all rows that were given are durable or refused.
	Flush() error
	// Finish is the last call. With an error before it, it is called as well, and drops what it can.
	Finish(ctx context.Context, failed error) error
}

// Input is a file of an import.
type Input struct {
	Identity
	Open func(at rowfile.Position) (rowfile.Reader, error)
}

// Import says what is imported.
type Import struct {
	Inputs   []Input
	Target   Target
	Rejects  *Rejects
	Limiter  *rate.Limiter // of rows; nil: no limit
	Progress *Progress
	State    *State
	Spread   int // parts that are read in turns; 1: one after the other
	// Save is how often the state is written; 0: never. Then the target is flushed at the end alone.
	Save time.Duration

	saved time.Time
	next  int // the first part that was not opened
}

// rowsAtATime is how many rows of a part are read before those of the next one. After them the import looks at the clock and
// at its context.
const rowsAtATime = 256

// sharer is a reader that has no size, and tells about how much of its input lies before its position.
type sharer interface{ Share() float64 }

// openPart is a part that is being read.
type openPart struct {
	*Part
	rowfile.Reader
}

// Run imports. It returns the first error: of a line beyond those that may be rejected, of an input, or of the target.
// The state remembers what was written until then.
func (im *Import) Run(ctx context.Context) (err error) {
	im.saved = time.Now()
	im.Progress.Begin(im.State.Rows, im.State.fraction())
	err = im.parts(ctx)
	if err == nil {
		err = im.save()
	}
	finish := im.Target.Finish(ctx, err)
	im.State.Rows -= im.Rejects.TakeRows()
	if errors.Is(finish, err) { // it ended with what has failed before
		err, finish = finish, nil
	}
	if err == nil && finish == nil {
		im.Progress.End(im.State.Rows)
		return nil
	}
	im.Progress.Clear()
	return errors.Join(err, finish)
}

// parts imports what is left of the parts.
func (im *Import) parts(ctx context.Context) (err error) {
	var open []*openPart
	defer func() {
		for _, p := range open {
			err = cmp.Or(err, p.Close())
		}
	}()
	for {
		for len(open) < max(im.Spread, 1) {
			p, err := im.open()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			open = append(open, p)
		}
		if len(open) == 0 {
			return nil
		}
		for _, p := range open {
			if err := im.someRows(ctx, p); err != nil {
				return err
			}
			if err := im.report(ctx); err != nil {
				return err
			}
		}
		open = slices.DeleteFunc(open, func(p *openPart) bool {
			if p.Done {
				err = cmp.Or(err, p.Close())
			}
			return p.Done
		})
		if err != nil {
			return err
		}
	}
}

// open opens the next part that is not done; nil if there is none.
func (im *Import) open() (*openPart, error) {
	s := im.State
	for im.next < len(s.Parts) {
		p := &s.Parts[im.next]
		im.next++
		if p.Done {
			continue
		}
		reader, err := im.Inputs[p.File].Open(p.At)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", im.Inputs[p.File].Name, err)
		}
		if p.End == 0 {
			p.End = reader.Size()
		}
		return &openPart{p, reader}, nil
	}
	return nil, nil
}

// someRows imports the next rows of a part.
func (im *Import) someRows(ctx context.Context, p *openPart) error {
	var r rowfile.Row
	for range rowsAtATime {
		if p.End > 0 && p.At.Offset >= p.End {
			p.Done = true
			return nil
		}
		err := p.Next(&r)
		if err == io.EOF {
			if at := p.Position().Offset; at < p.End {
				return fmt.Errorf("%s ends at %d, and went to %d when the import began: it was cut meanwhile", im.Inputs[p.File].Name, at, p.End)
			}
			p.Done = true
			return nil
		}
		if bad, ok := errors.AsType[*rowfile.BadRow](err); ok {
			err = im.Rejects.Refuse(Place{p.File, bad.Line}, bad.Err, bad.Text)
		} else if err != nil {
			return fmt.Errorf("%s: %w", im.Inputs[p.File].Name, err)
		} else {
			err = im.put(ctx, &r, p.File)
		}
		if err != nil {
			return err
		}
		p.At = p.Position()
		if r, ok := p.Reader.(sharer); ok {
			p.Share = r.Share()
		}
	}
	return nil
}

// put gives a row to the target.
func (im *Import) put(ctx context.Context, r *rowfile.Row, file int) error {
	if im.Limiter != nil {
		if err := im.Limiter.Wait(ctx); err != nil {
			return err
		}
		if err := im.report(ctx); err != nil { // so many rows may take long
			return err
		}
	}
	for i := range r.Cells {
		if r.Cells[i].Version == rowfile.NoVersion {
			r.Cells[i].Version = im.State.Version
		}
	}
	im.State.Rows++ // before a refusal takes it off
	return im.Target.Put(r, Place{file, r.Line})
}

// report shows the progress and saves the state, when it is time.
func (im *Import) report(ctx context.Context) error {
	im.Progress.Show(im.State.Rows, im.State.fraction())
	if im.Save > 0 && time.Since(im.saved) >= im.Save {
		if err := im.save(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// save flushes the target and writes the state.
func (im *Import) save() error {
	if im.Save == 0 {
		return nil
	}
	if err := im.Target.Flush(); err != nil {
		return err
	}
	im.State.Rows -= im.Rejects.TakeRows()
	var err error
	if im.State.Rejected, im.State.RejectedBytes, err = im.Rejects.Sync(); err != nil {
		return err
	}
	im.saved = time.Now()
	return im.State.Write()
}
