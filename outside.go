package flagstone

// Updates whose function takes long. While the function runs under the latch of its row, other
// writers of the row wait, and so do writers of a thousandth of all other rows. So the latch
// allows only bounded reads. A function that reads more, or says that it takes long
// (RowTx.Unlatch), runs again without the latch, on what every reader sees. Its changes are
// written if the row's newest sequence number shows that no write of the row was ordered since;
// otherwise it runs again.

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/table"
)

const (
	// latchedCells and latchedBytes bound what reads under a latch look at, and what they take in
	// memory (ReadOptions), if each row of the update is read once. Examining a cell
	// costs about 0.1 µs, copying or unpacking a byte 1 ns: 2 ms together.
	latchedCells = 8 << 10
	latchedBytes = 1 << 20
	// outsideAttempts is how often a function runs without the latch before the update is refused
	// because other writers changed its rows each time.
	outsideAttempts = 5
)

// errLong says that the function of an update must run again, without latches.
var errLong = errors.New("flagstone: the function of an update takes long, and is to be run again; return this error")

// Unlatch is for the function of an update to call before work that takes more than about a
// millisecond. The function must return the error of Unlatch: it then runs again from its
// beginning without holding up other writers. If they change the row meanwhile, it runs once
// more; if they do so each time, the update fails with ErrConflict. In a transaction the function
// holds up no other writer anyway.
func (tx *RowTx) Unlatch() error {
	if tx.latched == 0 {
		return nil
	}
	tx.long = true
	return errLong
}

// cellsEach is how many cells of each row an update may look at under the latches of so many.
func cellsEach(rows int) int { return max(latchedCells/max(rows, 1), 64) }

// findTrims looks for the trims that the changes need: at most cells of each row, 0 for all. It
// returns errLong if a row has more.
func (u *update) findTrims(most int) error {
	for _, tx := range u.rows {
		switch err := tx.of.FindTrims(most); {
		case errors.Is(err, table.ErrManyCells):
			return errLong
		case err != nil:
			return err
		}
	}
	return nil
}

// getLatched is Get under the row's latch.
func (tx *RowTx) getLatched(opts ReadOptions) (*Row, error) {
	bytes, cells := opts.MaxBytes, opts.MaxCells
	mostBytes, mostCells := max(latchedBytes/int64(tx.latched), 8<<10), cellsEach(tx.latched)
	opts.MaxBytes, opts.MaxCells = min(cmp.Or(bytes, mostBytes), mostBytes), min(cmp.Or(cells, mostCells), mostCells)
	found, err := tx.table.getEncoded(tx.of.Key(), &opts, nil, true)
	if errors.Is(err, ErrRowTooLarge) && (opts.MaxBytes != bytes || opts.MaxCells != cells) {
		return nil, tx.Unlatch()
	}
	return found, err
}

// again says how an update goes on after an attempt that ended with err: with another attempt if it
// returns nil.
func (u *update) again(t *Table, err error) error {
	switch {
	case errors.Is(err, table.ErrAltered):
		return nil
	case !errors.Is(err, errLong):
		return t.store.describe(err)
	}
	if u.outside++; u.outside > outsideAttempts {
		return fmt.Errorf("%w: rows of table %q change while they are read", ErrConflict, t.core.Name)
	}
	return nil
}

// call runs the function of the update. It returns errLong if the function must run without
// latches. REQUIRES: the latches are held, unless outside is above 0.
func (u *update) call(fn func() error) error {
	latched := len(u.rows)
	if u.outside > 0 {
		latched = 0
	}
	for _, tx := range u.rows {
		tx.latched, tx.of.Unlatched, tx.long = latched, u.outside > 0, false
	}
	shareNow(u.rows)
	err := fn()
	for _, tx := range u.rows {
		if tx.long { // even if the function returned another error, or none
			return errLong
		}
	}
	return err
}

// unchanged returns nil if what the function has seen of the rows is still the newest state.
// REQUIRES: their latches are held, and no transaction holds them.
func (u *update) unchanged() error {
	for _, tx := range u.rows {
		if !tx.table.core.Find(tx.of.Key()).Unchanged(tx.of.Key(), u.seen) {
			return errLong
		}
	}
	return nil
}
