package ycsb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// model is a table in memory, each of whose operations takes a while. Time stands still but for that: the tests run
// with the clock of synctest.
type model struct {
	takes func(operation int) time.Duration

	mu         sync.Mutex
	rows       map[string][]string
	operations int
	gets       map[string]int // by key
	scans      []int          // their limits
	loses      string         // a key that is not found
}

func newModel(takes time.Duration) *model {
	return &model{takes: func(int) time.Duration { return takes }, rows: map[string][]string{}, gets: map[string]int{}}
}

func (m *model) do(f func()) error {
	m.mu.Lock()
	n := m.operations
	m.operations++
	f()
	m.mu.Unlock()
	time.Sleep(m.takes(n))
	return nil
}

func (m *model) Put(_ context.Context, rows []Row) error {
	return m.do(func() {
		for _, r := range rows {
			var values []string
			for _, v := range r.Values {
				values = append(values, string(v))
			}
			m.rows[r.Key] = values
		}
	})
}

func (m *model) Update(_ context.Context, key string, column int, value []byte) error {
	return m.do(func() { m.rows[key][column] = string(value) })
}

func (m *model) Get(_ context.Context, key string) (found bool, err error) {
	err = m.do(func() {
		_, found = m.rows[key]
		found = found && key != m.loses
		m.gets[key]++
	})
	return found, err
}

func (m *model) Scan(_ context.Context, key string, limit int) (rows int, err error) {
	err = m.do(func() {
		m.scans = append(m.scans, limit)
		for other := range m.rows {
			if other >= key && rows < limit {
				rows++
			}
		}
	})
	return rows, err
}

var small = Options{Rows: 500, Columns: 3, ValueSize: 12, Workers: 4, Duration: time.Second}

// loaded is a bench whose rows are loaded.
func loaded(t *testing.T, m *model, o Options) *Bench {
	t.Helper()
	b := New(m, o)
	took, err := b.Load(t.Context())
	if err != nil || len(m.rows) != int(o.Rows) || took < 0 {
		t.Fatalf("%d rows, %v, %v", len(m.rows), took, err)
	}
	m.operations = 0
	return b
}

// TestEveryWorkloadOnAModel runs all workloads one after the other: four workers do 1,500 operations of a millisecond
// each in the time.
func TestEveryWorkloadOnAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(time.Millisecond)
		o := small
		o.Duration = 1500 * time.Millisecond
		reported := map[string]int64{}
		o.Progress = func(what string, done int64) { reported[what] = done }
		b := loaded(t, m, o)
		for key, values := range m.rows {
			if !strings.HasPrefix(key, "user") || len(values) != 3 || len(values[0]) != 12 || values[0] == values[1] {
				t.Fatalf("row %s: %q", key, values)
			}
		}
		for _, load := range Workloads {
			total := 0
			for _, percent := range load.percent {
				total += percent
			}
			if found, ok := Find(load.Name); total != 100 || !ok || found.About != load.About {
				t.Errorf("%s: %d percent, found %v", load.Name, total, ok)
			}
			before := len(m.rows)
			m.operations, m.scans = 0, nil
			r, err := b.Run(t.Context(), load)
			if err != nil {
				t.Errorf("%s: %v", load.Name, err)
				continue
			}
			var counted, charted, inserted int64
			for _, k := range r.Kinds {
				counted += k.Count
				takes := 1000.0
				if k.Kind == "modify" {
					takes = 2000
				}
				if k.Kind == "insert" {
					inserted = k.Count
				}
				if k.P50 < 0.98*takes || k.P50 > 1.02*takes || k.Max < k.P9999 || k.P90 < k.P50 {
					t.Errorf("%s: %s: %+v", load.Name, k.Kind, k)
				}
				index := slices.IndexFunc([]Kind{Get, Put, Update, Insert, Scan, Modify}, func(of Kind) bool { return of.String() == k.Kind })
				if share := 100 * float64(k.Count) / float64(r.Operations); share < float64(load.percent[index])-5 || share > float64(load.percent[index])+5 {
					t.Errorf("%s: %.1f%% are of kind %s", load.Name, share, k.Kind)
				}
			}
			for _, n := range r.Timeline {
				charted += n
			}
			if counted != r.Operations || charted != r.Operations || r.Stopped || r.Timers != nil || r.Unserved != 0 {
				t.Errorf("%s: %d counted, %d charted: %+v", load.Name, counted, charted, r)
			}
			if r.Seconds < 1.5 || r.Seconds > 1.51 || m.operations < 5990 || m.operations > 6010 {
				t.Errorf("%s: %d operations in %v s", load.Name, m.operations, r.Seconds)
			}
			if got := int64(len(m.rows) - before); got != inserted {
				t.Errorf("%s: %d new rows; %d were inserted", load.Name, got, inserted)
			}
			if len(m.scans) > 0 && (slices.Min(m.scans) != load.shortest || slices.Max(m.scans) != load.longest) {
				t.Errorf("%s: scans of %d to %d rows", load.Name, slices.Min(m.scans), slices.Max(m.scans))
			}
		}
		if reported["load"] != 0 || reported["c"] < 3000 {
			t.Errorf("reported: %v", reported)
		}
	})
}

// TestRowsAreChosenAsTheWorkloadSays counts how often the most frequent rows are asked for, and which they are.
func TestRowsAreChosenAsTheWorkloadSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			load        string
			least, most float64 // share of the most frequent tenth of the rows
		}{{"get", 0.1, 0.25}, {"c", 0.5, 0.8}, {"d", 0.12, 0.85}} {
			m := newModel(time.Millisecond)
			b := loaded(t, m, small)
			load, _ := Find(c.load)
			r, err := b.Run(t.Context(), load)
			if err != nil {
				t.Fatal(err)
			}
			counts := slices.Sorted(maps.Values(m.gets))
			often, all := 0, 0
			for i, n := range counts {
				if all += n; i >= len(counts)-int(small.Rows/10) {
					often += n
				}
			}
			if share := float64(often) / float64(all); share < c.least || share > c.most {
				t.Errorf("%s: the most frequent tenth has %.2f of %d gets", c.load, share, all)
			}
			if c.load == "d" {
				newest := 0
				for i := range r.Kinds[1].Count + int64(small.Workers) {
					newest += m.gets[keyOf(small.Rows+i)]
				}
				if share := float64(newest) / float64(all); share < 0.4 || r.Kinds[1].Kind != "insert" {
					t.Errorf("d: %.2f of the gets are of rows that it inserted; %+v", share, r.Kinds)
				}
			}
		}
	})
}

// TestAnOpenLoopCountsWaiting stalls a table for 300 ms where a row is due each millisecond: the operations that were due
// meanwhile count as slow, and a closed loop sees one.
func TestAnOpenLoopCountsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			rate float64
			p90  float64 // us
		}{{1000, 200_000}, {0, 500}} {
			m := newModel(0)
			o := small
			o.Workers, o.Rate = 1, c.rate
			b := loaded(t, m, o)
			m.takes = func(n int) time.Duration {
				switch {
				case n == 100:
					return 300 * time.Millisecond
				case c.rate == 0:
					return 500 * time.Microsecond
				}
				return 0
			}
			load, _ := Find("get")
			r, err := b.Run(t.Context(), load)
			if err != nil {
				t.Fatal(err)
			}
			k := r.Kinds[0]
			if k.P90 < 0.98*c.p90 || k.P90 > 1.02*c.p90 || k.Max < 299_000 || k.Max > 303_000 {
				t.Errorf("rate %v: %+v", c.rate, k)
			}
			if c.rate > 0 && (r.Operations != 1000 || r.Unserved != 0 || r.Timers == nil || r.Timers.Max > 1) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestATableThatIsTooSlowForTheRate does 100 operations where 1,000 are asked for.
func TestATableThatIsTooSlowForTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small
		o.Workers, o.Rate = 1, 1000
		b := loaded(t, newModel(10*time.Millisecond), o)
		load, _ := Find("update")
		r, err := b.Run(t.Context(), load)
		if err != nil || r.Operations != 100 || r.Unserved != 900 || r.Asked != 1000 || r.Kinds[0].Max < 800_000 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestAMissingRowEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(time.Millisecond)
		b := loaded(t, m, small)
		m.loses = keyOf(7)
		load, _ := Find("get")
		if _, err := b.Run(t.Context(), load); err == nil || !strings.Contains(err.Error(), "row 7, whose key is "+m.loses) {
			t.Error(err)
		}
	})
}

func TestAnInterruptedRunKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 100} {
			o := small
			o.Rate, o.Duration = rate, time.Hour
			b := loaded(t, newModel(time.Millisecond), o)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			load, _ := Find("a")
			r, err := b.Run(ctx, load)
			cancel()
			if err != nil || !r.Stopped || r.Operations < 290 || r.Seconds > 3.1 || r.Unserved > 1 {
				t.Errorf("rate %v: %+v, %v", rate, r, err)
			}
		}
	})
}

func TestALoadEndsWithItsContextAndWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := New(newModel(time.Second), small).Load(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		full := errors.New("no room")
		if _, err := New(broken{newModel(0), full}, small).Load(t.Context()); !errors.Is(err, full) {
			t.Error(err)
		}
	})
}

type broken struct {
	*model
	err error
}

func (b broken) Put(context.Context, []Row) error { return b.err }

func TestKeysAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for i := range int64(100_000) {
		seen[keyOf(i)] = true
	}
	if len(seen) != 100_000 || fmt.Sprint(len(keyOf(0))) != "20" {
		t.Errorf("%d keys such as %s", len(seen), keyOf(0))
	}
}
