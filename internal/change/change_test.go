package change

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

const now = 2_000_000_000_000 // in milliseconds

// newTable makes a table in memory, and a change log that wants to know what the column c held.
func newTable(t *testing.T, options manifest.TableOptions) *table.Table {
	t.Helper()
	env := &partition.Env{
		Settings: partition.Settings{MemtableSize: 1 << 20}, Random: func() [16]byte { return [16]byte{1} },
	}
	meta := &manifest.Table{
		ID: 1, Name: "t", Key: []manifest.KeyColumn{{Name: "n", Type: row.TypeInteger}}, Watermark: manifest.NoWatermark, Options: options,
	}
	state := &manifest.State{Tables: []*manifest.Table{meta}}
	c := clocktest.NewManual(now)
	shared := &table.Env{
		State: func() *manifest.State { return state }, Clock: c, Issued: storeclock.NewIssued(c), Closed: new(atomic.Bool), PackFrom: 1 << 20,
	}
	made, log := new(table.Table), new(table.Table)
	made.Init(shared, meta, []*partition.Tree{partition.NewTree(env, 1, &manifest.Partition{ID: 7})})
	log.Init(shared, &manifest.Table{ID: 2, Log: &manifest.ChangeLog{Of: 1, Before: []string{"c", "c"}}}, nil)
	made.Log.Store(log)
	return made
}

var forever = manifest.TableOptions{MaxVersions: 2, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 1}

func begin(t *testing.T, of *table.Table) *Change {
	t.Helper()
	c := new(Change)
	if c.Init(of, []row.Value{row.Integer(1)}); c.Err != nil {
		t.Fatal(c.Err)
	}
	c.Era = of.Era.Load()
	return c
}

// apply prepares a change and applies it as the mutation seq.
func apply(t *testing.T, c *Change, seq uint64) {
	t.Helper()
	p, err := c.Prepare(now)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := (*placed)(c).Tree()
	if err != nil {
		t.Fatal(err)
	}
	slot := tree.Reserve(p.Size, 1, 1)
	slot.Apply(seq, p.Change)
	slot.Done()
}

// cells shows what a change writes.
func cells(t *testing.T, c *row.Change) string {
	t.Helper()
	var m row.Mutation
	if err := c.Mutation(&m); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range m.Cells {
		fmt.Fprintf(&b, "%s ", m.Cells[i].String())
	}
	return b.String()
}

func TestTheFirstMistakeThatNothingUndoesIsReported(t *testing.T) {
	of := newTable(t, forever)
	for name, test := range map[string]struct {
		change func(c *Change)
		want   string // part of the error; empty if there is none
	}{
		"two mistakes":                  {func(c *Change) { c.Put("a", -2, row.Integer(1)); c.Put("b", -3, row.Integer(1)) }, "-2"},
		"the first one undone":          {func(c *Change) { c.Put("a", -2, row.Integer(1)); c.Put("b", -3, row.Integer(1)); c.DeleteColumn("a") }, "-3"},
		"the row deleted":               {func(c *Change) { c.Put("a", -2, row.Integer(1)); c.DeleteRow() }, ""},
		"a value that is none":          {func(c *Change) { c.Put("a", 1, row.Value{}); c.DeleteRow() }, "no attribute value"},
		"a version too far ahead":       {func(c *Change) { c.Put("a", now+1000, row.Integer(1)) }, "the offset 1 s"},
		"the highest version there is":  {func(c *Change) { c.Put("a", now+999, row.Integer(1)) }, ""},
		"a column deleted, then put to": {func(c *Change) { c.Put("a", -2, row.Integer(1)); c.DeleteColumn("a"); c.Put("a", 1, row.Integer(1)) }, ""},
	} {
		c := begin(t, of)
		test.change(c)
		switch _, err := c.Prepare(now); {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err != nil && !errors.Is(err, commit.ErrInvalid) && !errors.Is(err, ErrVersionOutOfRange):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecondsAreNotTakenForMilliseconds(t *testing.T) {
	day := forever
	day.TTLSeconds = 24 * 3600
	for version, want := range map[int64]error{now / 1000: ErrVersionOutOfRange, now: nil, 5: nil} {
		c := begin(t, newTable(t, day))
		c.Put("a", version, row.Integer(1))
		if _, err := c.Prepare(now); !errors.Is(err, want) {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
}

// TestAnAttemptThatFailsKeepsNoTime prepares a put at the time of the write twice, as a batch does that
// is applied again after an error.
func TestAnAttemptThatFailsKeepsNoTime(t *testing.T) {
	c := begin(t, newTable(t, forever))
	c.Unlatched = true
	c.Put("a", row.Unstamped, row.Integer(1))
	for attempt, at := range []int64{now, now + 5, now + 9} {
		p, err := c.Prepare(at)
		if err != nil {
			t.Fatal(err)
		}
		want := at
		if attempt == 2 {
			want = now + 5 // the second attempt was written
		}
		if got := p.Change.Newest(); got != want {
			t.Errorf("attempt %d has the version %d, want %d", attempt, got, want)
		}
		if attempt == 1 {
			c.keepStamp()
		}
	}
}

func TestAChangeIsCompletedFromTheNewestState(t *testing.T) {
	of := newTable(t, forever)
	for v := range int64(3) {
		c := begin(t, of)
		c.Put("c", v+1, row.Integer(v))
		apply(t, c, uint64(v+1))
	}
	c := begin(t, of)
	c.DeleteVersion("c", 3)
	p, err := c.Prepare(now)
	if err != nil {
		t.Fatal(err)
	}
	// Two versions were visible: the third, older one must stay hidden.
	if got := cells(t, p.Change); !strings.Contains(got, "trim") || cells(t, &c.row) == got {
		t.Errorf("without a trim: %s", got)
	}
	if len(p.Before) == 0 || p.BeforeFor != of.Log.Load() {
		t.Errorf("what the column held is not recorded: %x", p.Before)
	}
	next := begin(t, of)
	next.Put("d", 1, row.Integer(1))
	of.Era.Store(&table.Era{Options: forever})
	if _, err := (*placed)(next).Tree(); !errors.Is(err, table.ErrAltered) {
		t.Errorf("a change of an earlier era: %v", err)
	}
}
