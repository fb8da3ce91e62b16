package flagstone

// Updates whose function takes long. As long as the function runs under the latch
// of its row, other writers of the row wait, and those of a thousandth of all other
// rows. So what it may read there is bounded; and when it reads more, or says
// that it takes long (RowTx.Unlatch), it is run again without the latch, on what
// every reader sees. Its changes are written if no write of the row was ordered
// since, which the row's newest sequence number tells; otherwise it runs again.

import (
	"context"
	"errors"
	"fmt"
)

const (
	// latchedCells and latchedBytes bound what reads under a latch look at, and take
	// in memory (ReadOptions.MaxBytes), one of each row of the update. A cell that is
	// looked at costs about 0.1 µs, a byte that is copied or unpacked 1 ns: 2 ms
	// together.
	latchedCells = 8 << 10
	latchedBytes = 1 << 20
	// outsideAttempts is how often a function runs without the latch, while others
	// write to its rows each time, before the update is refused.
	outsideAttempts = 5
)

// errLong says that the function of an update is to be run again, without latches.
var errLong = errors.New("flagstone: the function of an update takes long, and is to be run again; return this error")

// Unlatch is to be called before the function of an update does what takes more
// than about a millisecond. An error is for the function to return: it is then run
// again, from its beginning, and does not hold up other writers, which may change the
// row meanwhile. If they do, it runs once more; if they do each time, the update
// fails with ErrConflict. In a transaction the function holds up no other writer anyway.
func (tx *RowTx) Unlatch() error {
	if tx.latched == 0 {
		return nil
	}
	tx.long = true
	return errLong
}

// getLatched is Get under the row's latch.
func (tx *RowTx) getLatched(opts ReadOptions) (*Row, error) {
	theirs, most := opts.MaxBytes, max(latchedBytes/int64(tx.latched), 8<<10)
	opts.maxExamined = max(latchedCells/tx.latched, 64)
	if theirs == 0 || theirs > most {
		opts.MaxBytes = most
	}
	found, err := tx.table.getEncoded(tx.change.Key, &opts, nil, true)
	if errors.Is(err, ErrRowTooLarge) && (theirs == 0 || theirs > most) {
		return nil, tx.Unlatch()
	}
	return found, err
}

// tries counts how often an update was tried.
type tries struct {
	outside int    // the function is run without latches for so many times now
	seen    uint64 // a sequence number up to which it sees everything
}

// again reports whether an update that ended with err is to be tried again. If not,
// the error is for the caller.
func (r *tries) again(t *Table, err error) (bool, error) {
	switch {
	case err == nil || errors.Is(err, errAltered):
		return err != nil, nil
	case !errors.Is(err, errLong):
		return false, err
	}
	if r.outside++; r.outside > outsideAttempts {
		return false, fmt.Errorf("%w: rows of table %q change while they are read", ErrConflict, t.name)
	}
	return true, nil
}

// observe has what is read without latches from now on be all that was applied.
func (r *tries) observe(ctx context.Context, s *Store) error {
	all := s.refuse(nil)
	if err := all.Wait(ctx); err != nil {
		return err
	}
	r.seen = s.pipeline.queue.Visible()
	return nil
}

// run runs the function of an update of these rows, errLong if it is to be run
// outside. REQUIRES: their latches are held, unless it is run outside already.
func (r *tries) run(rows []*RowTx, fn func() error) error {
	latched := len(rows)
	if r.outside > 0 {
		latched = 0
	}
	for _, tx := range rows {
		tx.latched, tx.outside, tx.long = latched, r.outside > 0, false
	}
	err := fn()
	for _, tx := range rows {
		if tx.long { // whatever the function made of it
			return errLong
		}
	}
	return err
}

// unchanged returns nil if what the function has seen of the rows is the newest
// state still. REQUIRES: their latches are held, and no transaction holds them.
func (r *tries) unchanged(rows []*RowTx) error {
	for _, tx := range rows {
		if !tx.table.partitions().Find(tx.change.Key).Unchanged(tx.change.Key, r.seen) {
			return errLong
		}
	}
	return nil
}
