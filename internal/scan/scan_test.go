package scan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/internal/scan"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// rig is a table in memory, of partitions that begin at some keys.
type rig struct {
	table.Table
	closed atomic.Bool
	seq    uint64
}

func newRig(t fataler, starts ...int64) *rig {
	env := &partition.Env{
		Settings: partition.Settings{MemtableSize: 1 << 30}, Random: func() [16]byte { return [16]byte{1} },
	}
	r := new(rig)
	meta := &manifest.Table{
		ID: 1, Name: "t", Key: []manifest.KeyColumn{{Name: "n", Type: row.TypeInteger}}, Watermark: manifest.NoWatermark,
		Options: manifest.TableOptions{MaxVersions: 1, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 1},
	}
	parts := []*manifest.Partition{{ID: 10}}
	for i, start := range starts {
		at := key(t, start)
		parts[i].End = at
		parts = append(parts, &manifest.Partition{ID: uint64(11 + i), Start: at})
	}
	var trees []*partition.Tree
	for _, p := range parts {
		trees = append(trees, partition.NewTree(env, 1, p))
	}
	state := &manifest.State{Tables: []*manifest.Table{meta}}
	r.Init(&table.Env{State: func() *manifest.State { return state }, Clock: clocktest.NewManual(1), Closed: &r.closed}, meta, trees)
	return r
}

func key(t fataler, n int64) []byte {
	b, err := row.AppendKey(nil, 1, row.Integer(n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write puts columns into a row, or deletes it.
func (r *rig) write(t fataler, n int64, columns int) {
	c := new(row.Change)
	c.Reset()
	c.Table, c.Key, c.DeleteRow = 1, key(t, n), columns == 0
	for i := range columns {
		if err := c.Put(fmt.Sprintf("c%02d", i), 1, row.Integer(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Normalize(); err != nil {
		t.Fatal(err)
	}
	r.seq++
	slot := r.Find(c.Key).Reserve(1<<16, 1, 1)
	slot.Apply(r.seq, c)
	slot.Done()
}

// walk begins a walk over all that is written.
func (r *rig) walk(w *scan.Walk) *scan.Walk {
	w.Ctx, w.Table, w.View = context.Background(), &r.Table, mvcc.View{Seq: r.seq, MaxVersions: 1, Cutoff: mvcc.NoExpiry}
	return w
}

// TestAWalkFindsTheRowsWithinItsBounds compares walks over any partitions, rows and bounds with a
// model. A walk that pauses is followed by another one.
func TestAWalkFindsTheRowsWithinItsBounds(t *testing.T) {
	w := new(scan.Walk) // one for all, since its memory is used again
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.Int64Range(0, 40)
		starts := rapid.SliceOfNDistinct(keys, 0, 3, rapid.ID).Draw(t, "starts")
		slices.Sort(starts)
		r := newRig(t, starts...)
		model := map[int64]int{} // columns of each row
		for range rapid.IntRange(0, 60).Draw(t, "writes") {
			n, columns := keys.Draw(t, "row"), rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "columns")
			r.write(t, n, 0) // what was there before
			r.write(t, n, columns)
			if model[n] = columns; columns == 0 {
				delete(model, n)
			}
		}
		low, high := keys.Draw(t, "low"), keys.Draw(t, "high")
		bound := [][]row.Value{{row.Integer(low)}, {row.Integer(high)}}
		reverse, most := rapid.Bool().Draw(t, "reverse"), rapid.IntRange(0, 2).Draw(t, "columns of a row")
		patience := rapid.SampledFrom([]int64{0, 1, 5}).Draw(t, "patience")
		var want, got []string
		for n := low; n != high; {
			if columns, exists := model[n]; exists {
				if most > 0 {
					columns = min(columns, most)
				}
				want = append(want, fmt.Sprint(n, columns))
			}
			switch {
			case reverse && n > high:
				n--
			case !reverse && n < high:
				n++
			default: // the bounds lie the wrong way round
				r.walk(w).Reverse = reverse
				if err := w.Bound(bound[0], bound[1]); !errors.Is(err, commit.ErrInvalid) {
					t.Fatalf("from %d to %d, reverse %t: %v", low, high, reverse, err)
				}
				return
			}
		}
		for again := true; again; {
			r.walk(w)
			w.Reverse, w.Patience, w.MaxColumns = reverse, patience, most
			if err := w.Bound(bound[0], bound[1]); err != nil {
				t.Fatal(err)
			}
			w.Visit()
			for w.Next() {
				values, err := row.DecodeKey(w.Key, 1)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprint(values[0].Int64(), len(w.Cells)))
			}
			if again = w.PausedAt != nil; again {
				at, err := row.DecodeKey(w.PausedAt, 1)
				if err != nil {
					t.Fatal(err)
				}
				bound[0] = at
			}
			if err := w.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}

// TestAPausedWalkHasExaminedSomething: otherwise pages over deleted rows would never end.
func TestAPausedWalkHasExaminedSomething(t *testing.T) {
	r := newRig(t)
	for n := range int64(100) {
		r.write(t, n, 1)
		r.write(t, n, 0)
	}
	w := r.walk(new(scan.Walk))
	w.Patience = 10
	w.Visit()
	if w.Next() || w.Err != nil || w.PausedAt == nil {
		t.Fatalf("a row %x, error %v, paused at %x", w.Key, w.Err, w.PausedAt)
	}
	if n := w.Examined(); n < 10 || n > 30 || bytes.Equal(w.PausedAt, key(t, 0)) {
		t.Errorf("paused at %x after %d cells", w.PausedAt, n)
	}
	if w.Next() {
		t.Error("it goes on after a pause")
	}
}

func TestAWalkEndsWithTheReason(t *testing.T) {
	over := errors.New("over")
	for name, c := range map[string]struct {
		spoil func(r *rig, w *scan.Walk)
		want  error
	}{
		"the context ends":     {func(_ *rig, w *scan.Walk) { w.Ctx = cancelled() }, context.Canceled},
		"the store is closed":  {func(r *rig, _ *scan.Walk) { r.closed.Store(true) }, table.ErrClosed},
		"the table is dropped": {func(r *rig, _ *scan.Walk) { r.Dropped.Store(true) }, table.ErrNotFound},
		"it is over":           {func(_ *rig, w *scan.Walk) { w.Over = func() error { return over } }, over},
	} {
		r := newRig(t)
		r.write(t, 1, 1)
		w := r.walk(new(scan.Walk))
		w.Visit()
		c.spoil(r, w)
		if w.Next() || !errors.Is(w.Err, c.want) || w.Next() {
			t.Errorf("%s: %v, want %v", name, w.Err, c.want)
		}
		if err := w.Release(); !errors.Is(err, c.want) {
			t.Errorf("%s: in the end %v", name, err)
		}
	}
}

// TestAWalkThatReadsNothingIsNoLoad ends walks before their first row.
func TestAWalkThatReadsNothingIsNoLoad(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, w *scan.Walk) bool{
		"it is released":       func(*rig, *scan.Walk) bool { return true },
		"the context ends":     func(_ *rig, w *scan.Walk) bool { w.Ctx = cancelled(); return !w.Next() },
		"the table is dropped": func(r *rig, w *scan.Walk) bool { r.Dropped.Store(true); return !w.Next() },
		"a row is read":        func(_ *rig, w *scan.Walk) bool { return w.Next() },
	} {
		for _, pins := range []bool{false, true} {
			r := newRig(t)
			r.write(t, 1, 1)
			meter := load.New(1, 0)
			r.Find(nil).Measure(meter)
			w := r.walk(new(scan.Walk))
			if !pins {
				w.Visit()
			} else if pinned, err := w.Pin(nil, true); !pinned || err != nil {
				t.Fatal(pinned, err)
			}
			if !spoil(r, w) {
				t.Errorf("%s, pinned %v: the walk goes on", name, pins)
			}
			_ = w.Release()
			if units := meter.Look(time.Second).Read.Units; units > 0 != (name == "a row is read") {
				t.Errorf("%s, pinned %v: %v units per second", name, pins, units)
			}
		}
	}
}

// TestRowsThatAWalkPassesCountUnlessItIsAtASnapshot: such a walk passes rows that were written later.
func TestRowsThatAWalkPassesCountUnlessItIsAtASnapshot(t *testing.T) {
	for _, at := range []bool{false, true} {
		r := newRig(t)
		meter := load.New(1, 0)
		r.Find(nil).Measure(meter)
		w := r.walk(new(scan.Walk))
		w.AtSnapshot = at
		w.Visit()
		r.write(t, 1, 1)
		if w.Next() {
			t.Error("the walk shows a later row")
		}
		if err := w.Release(); err != nil {
			t.Error(err)
		}
		if load := meter.Look(time.Second); load.Passed > 0 == at || load.Read.Units == 0 {
			t.Errorf("at a snapshot %v: %+v", at, load)
		}
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestAPinnedWalkSeesOneMoment begins a walk of one partition, without a snapshot, and then writes.
func TestAPinnedWalkSeesOneMoment(t *testing.T) {
	r := newRig(t)
	r.write(t, 1, 1)
	w := r.walk(new(scan.Walk))
	if _, err := w.Pin(nil, true); err != nil {
		t.Fatal(err)
	}
	r.Dropped.Store(true)
	if w.Next() || !errors.Is(w.Err, table.ErrNotFound) {
		t.Errorf("a table that was dropped before the first row: %v", w.Err)
	}
	if r.Dropped.Store(false); w.Release() == nil {
		t.Error("the error is lost")
	}
	r.walk(w)
	if _, err := w.Pin(nil, true); err != nil || !w.Next() || w.Next() || w.Err != nil {
		t.Errorf("%v, %v", err, w.Err)
	}
}
