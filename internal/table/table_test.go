package table

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// newTable makes a table without partitions in a store that the test closes and alters.
func newTable() (t *Table, meta *manifest.Table, closed *atomic.Bool) {
	meta = &manifest.Table{
		ID: 3, Name: "t", Key: []manifest.KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		Options: manifest.TableOptions{MaxVersions: 2, TTLSeconds: 10, MaxVersionOffsetSeconds: 1}, Watermark: 5,
	}
	state := &manifest.State{Tables: []*manifest.Table{meta}}
	t, closed = new(Table), new(atomic.Bool)
	t.Init(&Env{
		State: func() *manifest.State { return state }, Pipeline: new(commit.Pipeline), Clock: clocktest.NewManual(100_000), Closed: closed,
	}, meta, nil)
	return t, meta, closed
}

func TestAKeyFitsItsTable(t *testing.T) {
	of, _, _ := newTable()
	for name, test := range map[string]struct {
		key            []row.Value
		asKey, asBound string // parts of the errors; empty for none
	}{
		"a key":          {[]row.Value{row.String("p"), row.Integer(1)}, "", ""},
		"a prefix":       {[]row.Value{row.String("p")}, "1 key values", ""},
		"a type":         {[]row.Value{row.String("p"), row.String("1")}, `"n" is`, `"n" is`},
		"a bound":        {[]row.Value{row.String("p"), row.Min()}, `"n" is`, ""},
		"too many":       {[]row.Value{row.String("p"), row.Integer(1), row.Integer(2)}, "3 key values", `table "t"`},
		"none of a type": {[]row.Value{row.Double(1), row.Integer(1)}, `"pk" is`, `table "t"`},
	} {
		check := func(got error, want string) {
			if want == "" && got == nil {
				return
			}
			if want == "" || got == nil || !strings.Contains(got.Error(), want) || !errors.Is(got, commit.ErrInvalid) {
				t.Errorf("%s: %v, want %q", name, got, want)
			}
		}
		_, asKey := of.EncodeKey(nil, test.key)
		_, asBound := of.EncodeBound(nil, test.key)
		check(asKey, test.asKey)
		check(asBound, test.asBound)
	}
}

func TestATableSaysWhyItIsGone(t *testing.T) {
	of, _, closed := newTable()
	if err := of.Gone(); err != nil {
		t.Error(err)
	}
	of.Dropped.Store(true)
	if err := of.Gone(); !errors.Is(err, ErrNotFound) {
		t.Errorf("dropped: %v", err)
	}
	closed.Store(true)
	if err := of.Gone(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestAViewIsOfNowOrOfASnapshot(t *testing.T) {
	of, meta, _ := newTable()
	if v, err := of.View(nil, true); err != nil || v != (mvcc.View{Seq: views.Latest, MaxVersions: 2, Cutoff: 90}) {
		t.Errorf("now: %+v, %v", v, err)
	}
	at := &views.Moment{Seq: 7, Millis: 12_000, State: of.State()}
	if v, err := of.View(at, false); err != nil || v != (mvcc.View{Seq: 7, MaxVersions: 2, Cutoff: 5}) {
		t.Errorf("of a snapshot: %+v, %v", v, err)
	}
	at.State = &manifest.State{}
	if _, err := of.View(at, false); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a snapshot before the table: %v", err)
	}
	*meta = manifest.Table{}
	if _, err := of.View(nil, true); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a table that is not in the manifest: %v", err)
	}
}

// TestAWriteWaitsForTheNextEra begins a write between two eras.
func TestAWriteWaitsForTheNextEra(t *testing.T) {
	of, meta, _ := newTable()
	first, err := of.Present(t.Context())
	if err != nil || first != of.Era.Load() {
		t.Fatalf("%v, %v", first, err)
	}
	begin := of.EndEra()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := of.Present(over); !errors.Is(err, context.Canceled) {
		t.Errorf("between two eras: %v", err)
	}
	next := make(chan *Era)
	go func() {
		e, _ := of.Present(context.Background())
		next <- e
	}()
	meta.Options.MaxVersions = 9
	begin()
	if e := <-next; e == first || e.Options.MaxVersions != 9 {
		t.Errorf("the next era has %+v", e.Options)
	}
}
