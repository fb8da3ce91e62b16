package txn

import (
	"context"
	"errors"
	"testing"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/row"
)

func TestARangeIsHeldByOne(t *testing.T) {
	set := NewSet(Parts{Latches: new(commit.Latches), Memory: share.NewPool(100)})
	at := func(n int64) []byte { return key(t, row.Integer(n)) }
	hold := func(id uint64, low, end []byte) (func(), error) {
		return set.HoldRange(context.Background(), &table.Table{ID: id}, low, end)
	}
	release, err := hold(1, at(10), at(20))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		table  uint64
		n      int64
		admits bool
	}{{1, 9, true}, {1, 10, false}, {1, 19, false}, {1, 20, true}, {2, 15, true}} {
		if admits(t, set, c.table, row.Integer(c.n)) != c.admits {
			t.Errorf("row %d of table %d: admitted %t", c.n, c.table, !c.admits)
		}
		tx := holding(set, c.table, at(c.n))
		tx.prefix, tx.end = at(c.n), at(c.n+1)
		err := tx.take(1)
		if (err == nil) != c.admits || err != nil && !errors.Is(err, ErrConflict) {
			t.Errorf("a transaction of %d in table %d: %v", c.n, c.table, err)
		}
		if err == nil {
			if again, err := hold(c.table, at(0), nil); !errors.Is(err, ErrConflict) {
				t.Errorf("a range with the key of a transaction is held: %v", err)
				again()
			}
			tx.release()
		}
	}
	for _, r := range [][2]int64{{0, 11}, {19, 30}, {12, 13}, {0, 100}} {
		if _, err := hold(1, at(r[0]), at(r[1])); !errors.Is(err, ErrConflict) {
			t.Errorf("a range from %d to %d: %v", r[0], r[1], err)
		}
	}
	if _, err := hold(1, at(0), nil); !errors.Is(err, ErrConflict) {
		t.Errorf("a range without end: %v", err)
	}
	release()
	if !admits(t, set, 1, row.Integer(15)) || set.open.Load() != 0 {
		t.Errorf("after the release, %d are open", set.open.Load())
	}
	if release, err = hold(1, nil, nil); err != nil {
		t.Fatal(err)
	}
	release()
}
