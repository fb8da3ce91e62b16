package ots

// This file bounds the memory that answers take. What an answer will be is known
// only when it has been read, so memory is taken first: little for a row that is
// small, as most are, and more, for another attempt, if it turns out to be larger.

import (
	"context"
	"errors"

	flagstone "github.com/flagstone-db/flagstone"
)

// Room is where requests get memory for their answers from. Its methods are safe
// for concurrent use, and count bytes. The maker of the room gives back what is left
// in it when the answer is gone.
type Room interface {
	// Take takes n and may wait for it. The error is for the client.
	Take(ctx context.Context, n int64) error
	// TryTake takes n, or returns false at once.
	TryTake(n int64) bool
	// Give gives back n of what was taken.
	Give(n int64)
}

type roomKey struct{}

// WithRoom returns a context for one request, whose answer takes its memory from
// the room. Without one there is no bound.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// RoomOf returns the room of a request; one without bounds if it has none.
func RoomOf(ctx context.Context) Room {
	if room, ok := ctx.Value(roomKey{}).(Room); ok {
		return room
	}
	return boundless{}
}

type boundless struct{}

func (boundless) Take(context.Context, int64) error { return nil }
func (boundless) TryTake(int64) bool                { return true }
func (boundless) Give(int64)                        {}

// answerCopies is how often a row is in memory while an answer is made: as it was
// read, as it is encoded, and in the message.
const answerCopies = 3

// cellsMemory is what the cells of a row take, which is what
// flagstone.ReadOptions.MaxBytes bounds.
func cellsMemory(r *flagstone.Row) (size int64) {
	for i := range r.Cells {
		size += r.Cells[i].Memory()
	}
	return size
}

func rowTooLarge() *Error {
	return &Error{CodeOutOfRowSizeLimit, "The total data size of columns in one row exceeded the limit."}
}

// get reads a row within the room of the request, in which it leaves taken what the
// row takes. A row above Limits.ReadRowBytes is refused.
func (p *projection) get(ctx context.Context, limits *Limits, key *Row) (*flagstone.Row, error) {
	const small, medium = 64 * kilobyte, 4 * megabyte
	room, opts := RoomOf(ctx), p.options
	for _, most := range [...]int64{small, medium, limits.ReadRowBytes} {
		opts.MaxBytes = min(most, limits.ReadRowBytes)
		if most > small {
			if err := turnOf(ctx).Take(ctx); err != nil {
				return nil, err
			}
		}
		if err := room.Take(ctx, answerCopies*opts.MaxBytes); err != nil {
			return nil, err
		}
		found, err := p.session.source(p.table).Get(ctx, keyTuple(key.Key), opts)
		if err == nil && found != nil {
			room.Give(answerCopies * (opts.MaxBytes - cellsMemory(found)))
			return found, nil
		}
		room.Give(answerCopies * opts.MaxBytes)
		if !errors.Is(err, flagstone.ErrRowTooLarge) {
			return nil, err
		}
	}
	return nil, rowTooLarge()
}

// pageRoom is the room that a page of a range has taken and not used. To begin with
// there is enough for any one row.
type pageRoom struct {
	Room
	left int64
}

// has reports whether there is room for one more row, with what can be had at once.
func (r *pageRoom) has(row *flagstone.Row) bool {
	const step = 1 * megabyte // what more is taken at a time, at least
	need := answerCopies * cellsMemory(row)
	if need > r.left {
		more := max(need-r.left, step)
		if !r.TryTake(more) {
			return false
		}
		r.left += more
	}
	r.left -= need
	return true
}
