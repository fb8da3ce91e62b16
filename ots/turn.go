package ots

// This file says which requests compute much. Only so many of these run at once that
// the processors are free for others within moments; those that take little, as most
// do, wait for none of them.

import "context"

// Turn is one request's part of the processors. Its methods are safe for concurrent
// use.
type Turn interface {
	// Take waits for it, unless the request has it. The error is for the client.
	Take(ctx context.Context) error
	// Yield lets others that wait for it have it, if the request has it, and then waits
	// for it again. It is called now and then while the request computes.
	Yield(ctx context.Context) error
	// Leave gives it back, if the request has it, and reports that.
	Leave() bool
}

type turnKey struct{}

// WithTurn returns a context for one request, which is to take its turn before it
// computes much. Without one there is no bound. The maker of the turn takes it back
// when the request is done.
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

func (always) Take(context.Context) error  { return nil }
func (always) Yield(context.Context) error { return nil }
func (always) Leave() bool                 { return false }

// fewRows are so few that to read or to write them is little. With 50 µs for a row,
// it is half a millisecond.
const fewRows = 10

// takeTurn takes the turn of a request for so many rows, judged by a predicate, which
// may be nil, if that is much. REQUIRES: no latch is held.
func takeTurn(ctx context.Context, rows int, p *predicate) error {
	if rows <= fewRows && (p == nil || p.instructions() == 0) {
		return nil
	}
	return turnOf(ctx).Take(ctx)
}
