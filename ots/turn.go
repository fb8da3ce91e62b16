package ots

// This file limits how many expensive requests compute at the same time, so that processors are
// soon free for others. Cheap requests, which are most, do not wait for expensive ones.

import (
	"context"
	"slices"
)

// Turn is one request's permission to compute. Its methods are safe for concurrent use.
type Turn interface {
	// Take waits for the turn, unless the request has it. The error is for the client.
	Take(ctx context.Context) error
	// Leave gives the turn back, and reports whether the request had it.
	Leave() bool
}

type turnKey struct{}

// WithTurn returns a context for one request, which takes its turn before an expensive
// computation. Without a turn there is no bound. The maker of the turn takes it back when the
// request is done.
func WithTurn(ctx context.Context, turn Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// turnOf returns the turn of a request.
func turnOf(ctx context.Context) Turn {
	if turn, ok := ctx.Value(turnKey{}).(Turn); ok {
		return turn
	}
	return always{}
}

type always struct{}

func (always) Take(context.Context) error { return nil }
func (always) Leave() bool                { return false }

// fewRows is the number of rows that are still cheap: half a millisecond, at 50 µs per row.
const fewRows = 10

// takeTurn takes the turn if reading or writing that many rows, judged by p (may be nil), is
// expensive. REQUIRES: no latch is held.
func takeTurn(ctx context.Context, rows int, p *predicate) error {
	if rows <= fewRows && !p.costly() {
		return nil
	}
	return turnOf(ctx).Take(ctx)
}

// takeTurnToWrite is takeTurn for a change that is one of so many rows. For the delete of a single
// version the engine looks at all versions of the column.
func takeTurnToWrite(ctx context.Context, rows int, c *RowChange) error {
	if slices.ContainsFunc(c.Row.Cells, func(cell Cell) bool { return cell.Op == OpDeleteOneVersion }) {
		rows = fewRows + 1
	}
	return takeTurn(ctx, rows, c.condition)
}
