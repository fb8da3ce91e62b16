package modeltest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the heap is small
	debug.SetMemoryLimit(600 << 20)
	goleak.VerifyTestMain(m)
}

// episode is the number of requests per store.
const episode = 20_000

// setting reads a number from the environment.
func setting(t *testing.T, name string, unset uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func TestTheEndpointAnswersAsTheModelDoes(t *testing.T) {
	unset := uint64(60_000)
	if testing.Short() {
		unset = 10_000
	}
	total := setting(t, "FLAGSTONE_OTS_MODEL_OPS", unset)
	seed := setting(t, "FLAGSTONE_OTS_MODEL_SEED", uint64(time.Now().UnixNano()))
	workers := setting(t, "FLAGSTONE_OTS_MODEL_WORKERS", 1)
	t.Logf("FLAGSTONE_OTS_MODEL_SEED=%d FLAGSTONE_OTS_MODEL_OPS=%d", seed, total)
	var done, next atomic.Uint64
	start := time.Now()
	t.Run("episodes", func(t *testing.T) {
		for range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for done.Load() < total && !t.Failed() {
					n := seed + next.Add(1) - 1
					m := newMachine(t, n)
					func() {
						defer m.stop()
						defer func() {
							if t.Failed() {
								t.Logf("episode with FLAGSTONE_OTS_MODEL_SEED=%d", n)
							}
						}()
						for m.requests < int(min(episode, total)) {
							m.step()
						}
						m.compareAll()
					}()
					at := done.Add(uint64(m.requests))
					if n%25 == 0 || at >= total {
						t.Logf("%d requests in %v; of the last episode: %v", at, time.Since(start).Round(time.Second), m.counts)
					}
				}
			})
		}
	})
}

// liar is a service that sometimes gives a wrong answer.
type liar struct {
	ots.Service
	lie   func(r *ots.Row) bool // returns false if it cannot falsify the row
	lied  bool
	after int // number of correct rows before the lie
}

func (l *liar) GetRow(ctx context.Context, instance string, req *ots.GetRowRequest) (*ots.ReadResult, error) {
	r, err := l.Service.GetRow(ctx, instance, req)
	if err == nil && r.Row != nil && !l.lied {
		if l.after--; l.after < 0 {
			l.lied = l.lie(r.Row)
		}
	}
	return r, err
}

// witness is a test that may fail.
type witness struct {
	testing.TB
	said string
}

func (w *witness) Fatalf(format string, args ...any) {
	w.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (w *witness) Helper() {}

// TestTheModelNoticesWrongAnswers checks that the comparison finds each of these wrong answers.
func TestTheModelNoticesWrongAnswers(t *testing.T) {
	for what, lie := range map[string]func(r *ots.Row) bool{
		"a cell is missing": func(r *ots.Row) bool {
			if len(r.Cells) == 0 {
				return false
			}
			r.Cells = r.Cells[1:]
			return true
		},
		"a value is another": func(r *ots.Row) bool {
			if len(r.Cells) == 0 {
				return false
			}
			r.Cells[0].Value = row.Integer(12345)
			return true
		},
		"a version is another": func(r *ots.Row) bool {
			if len(r.Cells) == 0 {
				return false
			}
			r.Cells[0].Version++
			return true
		},
		"a row has another key": func(r *ots.Row) bool { r.Key[1].Value = row.Integer(99); return true },
	} {
		w := &witness{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			m := newMachine(w, 1)
			defer m.stop()
			l := &liar{lie: lie, after: 100}
			for m.requests < episode {
				if _, ok := m.Service.(*liar); !ok { // the store was reopened
					l.Service = m.Service
					m.Service = l
				}
				m.step()
			}
		}()
		<-done
		if w.said == "" {
			t.Errorf("%s: not noticed", what)
		}
	}
}

// TestTheModelIsWhatTheRulesSay checks a few rules by hand.
func TestTheModelIsWhatTheRulesSay(t *testing.T) {
	s := &settings{versions: 2, ttl: -1, offset: 10, now: startMillis}
	rows := lines{}
	key := id{"a", 1}
	put := func(version int64, value int) ots.RowChange {
		return ots.RowChange{Type: ots.ChangeUpdate, Row: ots.Row{Cells: []ots.Cell{
			{Name: "c", Value: row.Integer(int64(value)), Version: version, HasVersion: true}}}}
	}
	apply := func(c ots.RowChange) {
		if code := rows.errorOf(s, key, &c); code != "" {
			t.Fatal(code)
		}
		rows.apply(s, key, &c)
	}
	sel := everything()
	want := func(what, answer string) {
		t.Helper()
		if got := rows.answer(s, key, &sel); got != answer {
			t.Errorf("%s: the model says %s; want %s", what, got, answer)
		}
	}
	const base = int64(startMillis)
	apply(put(base-1000, 1))
	apply(put(base-2000, 2))
	apply(put(base-3000, 3))
	want("two versions are kept", "(a 1) c@1699999999000=1 c@1699999998000=2")
	remove := ots.RowChange{Type: ots.ChangeUpdate, Row: ots.Row{Cells: []ots.Cell{
		{Name: "c", Op: ots.OpDeleteOneVersion, Version: base - 1000, HasVersion: true}}}}
	apply(remove)
	want("the third does not come back", "(a 1) c@1699999998000=2")
	s.ttl, s.now = 5, base+3999
	want("what has not expired is there", "(a 1) c@1699999998000=2")
	s.now = base + 4000
	want("what has is gone", "(a 1)")
	s.now = base + 5000
	want("and the row with the newest that it had", "none")
	later := put(base-2000, 9)
	if code := rows.errorOf(s, key, &later); code != ots.CodeParameterInvalid {
		t.Errorf("a version that has expired: %q", code)
	}
	condition := put(base, 1)
	condition.ColumnCondition = &ots.Filter{
		Type: ots.FilterSingleColumn, Column: "c", Comparator: ots.CompareGreater, Value: row.Integer(2), FilterIfMissing: true,
	}
	if code := rows.errorOf(s, key, &condition); code != ots.CodeConditionCheckFail {
		t.Errorf("a condition that does not hold: %q", code)
	}
}
