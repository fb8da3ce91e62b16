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
	"context"
	"errors"
	"fmt"
	"io"
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
	Open  func(at rowfile.Position) (rowfile.Reader, error)
	units int64 // its length in the unit of rowfile.Position.Offset; 0 until it is open
}

// Import says what is imported.
type Import struct {
	Inputs   []Input
	Target   Target
	Rejects  *Rejects
	Limiter  *rate.Limiter // of rows; nil: no limit
	Progress *Progress
	State    *State
	// Save is how often the state is written; 0: never. Then the target is flushed at the end alone.
	Save time.Duration

	saved time.Time
	begun bool
}

// lookEvery is after how many rows the import looks at the clock and at its context.
const lookEvery = 256

// Run imports. It returns the first error: of a line beyond those that may be rejected, of an input, or of the target.
// The state remembers what was written until then.
func (im *Import) Run(ctx context.Context) (err error) {
	s := im.State
	im.saved = time.Now()
	for s.File < len(im.Inputs) && err == nil {
		if err = im.file(ctx); err != nil {
			break
		}
		s.File, s.At = s.File+1, rowfile.Position{}
		err = im.save()
	}
	err = im.explain(ctx, errors.Join(err, im.Target.Finish(ctx, err)))
	s.Rows -= im.Rejects.TakeRows()
	im.Progress.End(s.Rows)
	return err
}

// explain puts the end of the context in front of what it has caused.
func (im *Import) explain(ctx context.Context, err error) error {
	if refused := im.Rejects.Err(); refused != nil {
		return refused // and not what the target made of it
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// file imports a file from the position of the state on.
func (im *Import) file(ctx context.Context) (err error) {
	s, in := im.State, &im.Inputs[im.State.File]
	reader, err := in.Open(s.At)
	if err != nil {
		return fmt.Errorf("%s: %w", in.Name, err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	in.units = reader.Size()
	if !im.begun {
		im.begun = true
		im.Progress.Begin(s.Rows, im.fraction(s.At))
	}
	var r rowfile.Row
	for n := 1; ; n++ {
		err := reader.Next(&r)
		if err == io.EOF {
			return nil
		}
		if bad, ok := errors.AsType[*rowfile.BadRow](err); ok {
			err = im.Rejects.Refuse(Place{s.File, bad.Line}, bad.Err, bad.Text)
		} else if err != nil {
			return fmt.Errorf("%s: %w", in.Name, err)
		} else {
			err = im.put(ctx, &r)
		}
		if err != nil {
			return err
		}
		s.At = reader.Position()
		if n%lookEvery == 0 || im.Limiter != nil {
			if err := im.look(ctx); err != nil {
				return err
			}
		}
	}
}

// put gives a row to the target.
func (im *Import) put(ctx context.Context, r *rowfile.Row) error {
	if im.Limiter != nil {
		if err := im.Limiter.Wait(ctx); err != nil {
			return err
		}
	}
	for i := range r.Cells {
		if r.Cells[i].Version == rowfile.NoVersion {
			r.Cells[i].Version = im.State.Version
		}
	}
	if err := im.Target.Put(r, Place{im.State.File, r.Line}); err != nil {
		return err
	}
	im.State.Rows++
	return nil
}

// look shows the progress and saves the state, when it is time.
func (im *Import) look(ctx context.Context) error {
	im.Progress.Show(im.State.Rows, im.fraction(im.State.At))
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

// fraction is the part of the input, by its bytes, that lies before a position of the present file; 0 if it is unknown.
func (im *Import) fraction(at rowfile.Position) float64 {
	var before, all float64
	for i := range im.Inputs {
		in := &im.Inputs[i]
		if in.Size <= 0 {
			return 0
		}
		all += float64(in.Size)
		switch {
		case i < im.State.File:
			before += float64(in.Size)
		case i == im.State.File && in.units > 0:
			before += float64(in.Size) * float64(at.Offset) / float64(in.units)
		}
	}
	return before / all
}
