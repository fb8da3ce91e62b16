package ots

// This file bounds the memory of answers. The size of an answer is known only after the read,
// so a read first takes memory for a small row, as most are. If the row is larger, it takes
// more and reads again.

import (
	"context"
	"errors"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// Room is the memory budget of requests for their answers. Its methods are safe for concurrent
// use, and count bytes. The maker of the room gives back the rest when the answer is gone.
type Room interface {
	// Take takes n bytes and may wait for them. The error is for the client.
	Take(ctx context.Context, n int64) error
	// TryTake takes n bytes, or returns false at once.
	TryTake(n int64) bool
	// Give gives back n of the bytes taken.
	Give(n int64)
}

type roomKey struct{}

// WithRoom returns a context for one request, whose answer takes its memory from room. Without
// a room there is no bound.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// RoomOf returns the room of a request, or one without bounds.
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

// answerCopies is the number of copies of a row in memory while an answer is made: as read, as
// encoded, and in the message.
const answerCopies = 3

// cellsMemory is the memory of cells, as flagstone.ReadOptions.MaxBytes counts it.
func cellsMemory(cells []row.Cell) (size int64) {
	for i := range cells {
		size += cells[i].Memory()
	}
	return size
}

func rowTooLarge() *Error {
	return &Error{Code: CodeOutOfRowSizeLimit, Message: "The total data size of columns in one row exceeded the limit."}
}

// get reads a row within the room of the request, and keeps the row's memory taken. It refuses
// a row above Limits.ReadRowBytes, or of more than rowSteps cells to look at.
func (p *projection) get(ctx context.Context, limits *Limits, key *Row) (*flagstone.Row, error) {
	room, opts := RoomOf(ctx), p.options
	for i, most := range [...]struct {
		bytes int64
		cells int
	}{
		{64 * kilobyte, latchedSteps}, {4 * megabyte, rowSteps / 8}, {limits.ReadRowBytes, rowSteps},
	} {
		opts.MaxBytes, opts.MaxCells = min(most.bytes, limits.ReadRowBytes), most.cells
		if i > 0 {
			if err := turnOf(ctx).Take(ctx); err != nil {
				return nil, err
			}
		}
		if err := room.Take(ctx, answerCopies*opts.MaxBytes); err != nil {
			return nil, err
		}
		found, err := p.session.source(p.table).Get(ctx, keyTuple(key.Key), opts)
		if err == nil && found.Exists() {
			room.Give(answerCopies * (opts.MaxBytes - cellsMemory(found.Cells())))
			return found, nil
		}
		room.Give(answerCopies * opts.MaxBytes)
		if !errors.Is(err, flagstone.ErrRowTooLarge) {
			return nil, err
		}
	}
	return nil, rowTooLarge()
}

// pageRoom is the room that a page of a range has taken and not used. At the start it is enough
// for any single row.
type pageRoom struct {
	Room
	left int64
}

// has takes room for the cells of one more row, and reports whether that was possible without waiting.
func (r *pageRoom) has(cells []row.Cell) bool {
	const step = 1 * megabyte // the least to take at a time
	need := answerCopies * cellsMemory(cells)
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
