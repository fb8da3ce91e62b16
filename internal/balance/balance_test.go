package balance

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/load"
)

// busy are settings under which 250 operations per second are a high load.
var busy = Settings{SplitUnits: 400}

const (
	perSecond = 250
	seeds     = 2
)

// each runs a test for several seeds, with meters that are divided and with meters that forget.
func each(t *testing.T, s Settings, test func(m *model)) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed, s)
			m.forgets = seed%2 == 1
			test(m)
		})
	}
}

func TestAWorkloadOnFivePercentOfTheKeysSpreadsOverPartitions(t *testing.T) {
	for name, pick := range map[string]func(m *model) func() int{
		"neighbours":     func(m *model) func() int { return m.fiveOf95(7000, 1) },
		"at the start":   func(m *model) func() int { return m.fiveOf95(0, 1) },
		"at the end":     func(m *model) func() int { return m.fiveOf95(keys-keys/20, 1) },
		"far apart":      func(m *model) func() int { return m.fiveOf95(3, 20) },
		"in some places": func(m *model) func() int { return m.fiveOf95(5, 1009) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, busy, func(m *model) {
				use := pick(m)
				m.run(15*time.Minute, perSecond, use)
				n, ratio := m.hot(30, perSecond, use, 0.9)
				m.t.Logf("%d splits, the last one after %v; %d of %d partitions carry 90%% of the load, the busiest %.2f times the last",
					m.splits, m.acted, n, len(m.parts), ratio)
				if n < 4 || ratio > 2 || m.merges > 0 || len(m.reports) > 0 {
					m.t.Errorf("%d merges, reports %v: %s", m.merges, m.reports, m)
				}
				m.still(time.Hour, perSecond, use)
			})
		})
	}
}

func TestAnEvenOrSkewedLoadSpreadsAndThenNothingHappens(t *testing.T) {
	for name, pick := range map[string]func(m *model) func() int{
		"uniform":          func(m *model) func() int { return m.uniform },
		"zipf, neighbours": func(m *model) func() int { return m.zipf(1.1, false) },
		"zipf, spread":     func(m *model) func() int { return m.zipf(1.3, true) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, busy, func(m *model) {
				use := pick(m)
				m.run(20*time.Minute, perSecond, use)
				n, ratio := m.hot(10, perSecond, use, 0.8)
				m.t.Logf("%d splits, the last one after %v; %d of %d partitions carry 80%%, ratio %.2f", m.splits, m.acted, n, len(m.parts), ratio)
				if n < 4 || len(m.parts) > 2*spread/busyTimes+4 || m.merges > 0 {
					m.t.Errorf("%d merges: %s", m.merges, m)
				}
				m.still(time.Hour, perSecond, use)
			})
		})
	}
}

func TestASingleHotKeyIsReportedAndNothingIsSplit(t *testing.T) {
	for name, hot := range map[string]struct{ key, percent int }{
		"alone": {500, 100}, "in the middle": {10_000, 95}, "the first": {0, 90}, "the last": {keys - 1, 90},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, busy, func(m *model) {
				m.run(time.Hour, perSecond, m.one(hot.key, hot.percent))
				if m.splits != 0 || len(m.reports) != 1 {
					m.t.Fatalf("%d splits, reports %+v", m.splits, m.reports)
				}
				r := m.reports[0]
				want := float64(hot.percent) / 100 * perSecond * opUnits
				if r.Kind != BusyKey || !bytes.Equal(r.Key, m.encoded[hot.key]) || r.Partition != 1 || r.Units < 0.8*want || r.Units > 1.2*want {
					m.t.Errorf("reported %+v, want key %x with %.0f units", r, m.encoded[hot.key], want)
				}
				if len(m.plan.Reports) != 1 || m.plan.Reports[0].New {
					m.t.Errorf("the last plan has the reports %+v, want the same one, not new", m.plan.Reports)
				}
				m.run(5*time.Minute, perSecond, m.one(hot.key, hot.percent))
				if len(m.reports) != 2 {
					m.t.Errorf("%d reports after more than an hour", len(m.reports))
				}
			})
		})
	}
}

// TestAHotKeyBesideOtherLoadStandsAlone has a key with a part of the load that a split can set apart.
func TestAHotKeyBesideOtherLoadStandsAlone(t *testing.T) {
	each(t, busy, func(m *model) {
		use := m.one(10_000, 40)
		m.run(20*time.Minute, perSecond, use)
		m.still(40*time.Minute, perSecond, use)
		if n, _ := m.hot(10, perSecond, use, 0.9); n < 4 || len(m.reports) != 1 || m.reports[0].Kind != BusyKey {
			m.t.Errorf("%d partitions, reports %+v: %s", n, m.reports, m)
		}
	})
}

func TestAKeyAboveTheLimitOfTableStoreIsReportedEvenIfTheTableCanBeSplit(t *testing.T) {
	m := newModel(t, 1, Settings{})
	m.run(20*time.Minute, 2000, m.one(10_000, 40)) // 32,000 units per second
	if len(m.reports) != 1 || m.reports[0].Limit != 10_000 || m.reports[0].Kind != BusyKey || m.splits == 0 {
		t.Errorf("%d splits, reports %+v", m.splits, m.reports)
	}
}

// TestAppendedRowsAreNotSplitForLoad writes at the end of the table, where a split would move no
// load: the policy reports the load and splits by size only.
func TestAppendedRowsAreNotSplitForLoad(t *testing.T) {
	for _, growth := range []int64{0, 1 << 20} {
		each(t, Settings{SplitUnits: 400, SplitBytes: 2 << 30}, func(m *model) {
			next := 0
			use := func() int {
				if m.rng.IntN(100) == 0 && next < keys-1 {
					next++
				}
				m.bytes[next] += growth / 100
				return next
			}
			m.run(time.Hour, perSecond, use)
			var total int64
			for _, b := range m.bytes {
				total += b
			}
			if len(m.reports) != 1 || m.reports[0].Kind != MovingLoad || m.reports[0].Key != nil || m.merges != 0 {
				m.t.Errorf("%d merges, reports %+v", m.merges, m.reports)
			}
			if most := int(total / (1 << 30)); m.splits > most || growth > 0 && m.splits < most/3 {
				m.t.Errorf("%d splits of %d bytes: %s", m.splits, total, m)
			}
		})
	}
}

// TestAppendsBesideOtherReadsSetTheEndApart has half of the load at the end and half everywhere.
func TestAppendsBesideOtherReadsSetTheEndApart(t *testing.T) {
	each(t, busy, func(m *model) {
		next := keys / 2
		use := func() int {
			if m.rng.IntN(200) == 0 && next < keys-1 {
				next++
			}
			if m.rng.IntN(2) == 0 {
				return m.rng.IntN(keys / 2)
			}
			return next
		}
		m.run(time.Hour, perSecond, use)
		if m.splits < 2 || m.splits > 10 || m.merges > 0 {
			m.t.Errorf("%d splits, %d merges: %s", m.splits, m.merges, m)
		}
	})
}

// TestAMovingHotSpotIsFollowedSlowlyOrNotAtAll bounds the splits and merges for a spot of 1 % of
// the keys that moves to another place.
func TestAMovingHotSpotIsFollowedSlowlyOrNotAtAll(t *testing.T) {
	for every, most := range map[time.Duration]int{ // splits in four hours
		30 * time.Second: 4, time.Minute: splitsAtOnce + 4*20, 5 * time.Minute: splitsAtOnce + 4*20, time.Hour: 4 * 10,
	} {
		t.Run(every.String(), func(t *testing.T) {
			each(t, busy, func(m *model) {
				for range int(4 * time.Hour / every) {
					first := m.rng.IntN(keys - keys/100)
					m.run(every, perSecond, func() int { return first + m.rng.IntN(keys/100) })
				}
				m.t.Logf("%d splits, %d merges, %d partitions, %d reports", m.splits, m.merges, len(m.parts), len(m.reports))
				if m.splits > most || len(m.parts) > 40 || most == 4 && len(m.reports) < 1 {
					m.t.Errorf("%d splits and %d merges: %s", m.splits, m.merges, m)
				}
			})
		})
	}
}

func TestALoadThatComesAndGoesKeepsItsPartitions(t *testing.T) {
	each(t, busy, func(m *model) {
		cycle := func() {
			m.run(5*time.Minute, perSecond, m.uniform)
			m.run(5*time.Minute, 0, nil)
		}
		for range 4 {
			cycle()
		}
		splits := m.splits
		for range 20 {
			cycle()
		}
		if splits < 4 || m.splits != splits || m.merges != 0 {
			m.t.Errorf("%d splits, then %d, and %d merges", splits, m.splits, m.merges)
		}
	})
}

func TestALoadOfTheDayIsSplitByDayAndMergedByNight(t *testing.T) {
	m := newModel(t, 1, busy)
	for day := 1; day <= 3; day++ {
		m.run(4*time.Hour, perSecond, m.uniform)
		if n := len(m.parts); n < 5 || n > 12 {
			t.Errorf("day %d: %s", day, m)
		}
		m.run(4*time.Hour, 1, m.uniform)
		if len(m.parts) != 1 {
			t.Errorf("night %d: %s", day, m)
		}
		if m.splits > 11*day || m.merges != m.splits {
			t.Errorf("day %d: %d splits, %d merges", day, m.splits, m.merges)
		}
	}
}

func TestALowOrShortLoadSplitsNothing(t *testing.T) {
	for name, s := range map[string]struct {
		settings  Settings
		perSecond int
		duration  time.Duration
	}{
		"low for ever":            {Settings{SplitUnits: 4400}, perSecond, 3 * time.Hour},
		"twice the limit, 40 s":   {Settings{SplitUnits: 2000}, perSecond, 40 * time.Second},
		"ten times the limit,10s": {Settings{SplitUnits: 400}, perSecond, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, s.settings, func(m *model) {
				m.run(s.duration, s.perSecond, m.uniform)
				m.run(5*time.Minute, 0, nil)
				if m.splits != 0 || len(m.reports) != 0 {
					m.t.Errorf("%d splits, reports %+v", m.splits, m.reports)
				}
			})
		})
	}
}

func TestATableThatGrowsIsSplitAndOneThatShrinksIsMerged(t *testing.T) {
	const splitBytes = 1 << 30
	each(t, Settings{SplitBytes: splitBytes}, func(m *model) {
		for range 400 {
			for range 200 { // 40 GiB in all, skewed
				m.bytes[m.rng.IntN(keys)*m.rng.IntN(keys)/keys] += splitBytes / 2000
			}
			m.round(1, m.uniform)
		}
		m.run(time.Minute, 1, m.uniform)
		for _, p := range m.parts {
			if size := m.size(p); size > splitBytes || size < splitBytes/5 {
				m.t.Errorf("a partition of %d bytes: %s", size, m)
			}
		}
		if len(m.parts) < 40 || len(m.parts) > 110 || m.merges != 0 || len(m.reports) != 0 {
			m.t.Errorf("%d partitions, %d merges, reports %v", len(m.parts), m.merges, m.reports)
		}
		m.still(time.Hour, 1, m.uniform)
		for k := range m.bytes {
			m.bytes[k] /= 100
		}
		m.run(3*time.Hour, 1, m.uniform)
		if len(m.parts) > 5 {
			m.t.Errorf("shrunk: %s", m)
		}
		m.still(2*time.Hour, 1, m.uniform)
	})
}

func TestALargePartitionKeyIsReportedAndNeverSplit(t *testing.T) {
	m := newModel(t, 1, Settings{})
	const gib = 1 << 30
	for k := range m.bytes {
		m.bytes[k] = 3 * gib / keys
	}
	large := func(size int64) { m.bytes[12_345] = size }
	large(gib * 9 / 10)
	m.still(time.Hour, 1, m.uniform)
	large(gib * 6 / 5)
	m.run(15*time.Minute, 1, m.uniform)
	if len(m.reports) != 1 || m.reports[0].Kind != LargeKey || m.reports[0].Limit != gib || !bytes.Equal(m.reports[0].Key, m.encoded[12_345]) {
		t.Fatalf("reports %+v", m.reports)
	}
	if b := m.reports[0].Bytes; b < gib*11/10 || b > gib*6/5 {
		t.Errorf("the key has %d bytes, reported %d", int64(gib)*6/5, b)
	}
	m.reports = nil
	large(gib * 8) // the partition has 11
	m.run(time.Minute, 1, m.uniform)
	if m.splits != 1 || m.merges != 0 || len(m.reports) != 0 {
		t.Errorf("%d splits, reports %+v: %s", m.splits, m.reports, m)
	}
	large(gib * 15)
	m.run(2*time.Hour, 1, m.uniform)
	if m.splits > 2 {
		t.Errorf("%d splits: %s", m.splits, m)
	}
	whole := 0
	for _, r := range m.reports {
		if r.Limit == 10*gib && r.Kind == LargeKey && bytes.Equal(r.Key, m.encoded[12_345]) && r.Bytes > 14*gib {
			whole++
		}
	}
	if whole < 1 || whole > 2 || whole != len(m.reports) {
		t.Errorf("reports in two hours: %+v", m.reports)
	}
}

func TestPlansKeepTheirLimits(t *testing.T) {
	m := newModel(t, 1, Settings{SplitBytes: 1 << 20, MaxPartitions: 50, MaxActions: 3, Quiet: time.Minute})
	for k := range m.bytes {
		m.bytes[k] = 1 << 10 * 8
	}
	for len(m.parts) < 50 {
		before := len(m.parts)
		m.round(1, m.uniform)
		if len(m.parts) == before {
			t.Fatalf("stopped at %d partitions", before)
		}
	}
	m.still(time.Hour, 1, m.uniform)
	clear(m.bytes)
	for i := range m.parts {
		m.parts[i].fixed = i == 20
	}
	m.run(time.Hour, 1, m.uniform)
	if len(m.parts) != 3 {
		t.Errorf("merged around one that is kept: %s", m)
	}
	for i := range m.parts {
		m.parts[i].fixed = true
	}
	for k := range m.bytes {
		m.bytes[k] = 1 << 20
	}
	m.still(time.Hour, 1, m.uniform)
}

// TestTablesAreJudgedAlone has two tables with very different load: each is judged by its own mean.
func TestTablesAreJudgedAlone(t *testing.T) {
	a, b := newModel(t, 1, busy), newModel(t, 2, busy)
	shared := New(Settings{SplitUnits: 400, MaxActions: 1})
	for range 90 {
		a.balancer, b.balancer = New(busy), New(busy) // play only
		for _, m := range []struct {
			*model
			perSecond int
		}{{a, 2000}, {b, 100}} {
			m.round(m.perSecond, m.uniform)
		}
		ta, tb := a.table(), b.table()
		tb.ID = 2
		a.plan = shared.Plan(a.now, []Table{ta, tb})
		b.plan = Plan{}
		for i, s := range a.plan.Splits {
			if s.Table == 2 {
				a.plan, b.plan = Plan{}, Plan{Splits: a.plan.Splits[i : i+1]}
			}
		}
		a.carryOut()
		b.carryOut()
	}
	if len(a.parts) < 5 || len(b.parts) < 3 {
		t.Errorf("%d and %d partitions", len(a.parts), len(b.parts))
	}
}

// TestReportsOfATableAreBounded has a new hot key every other minute.
func TestReportsOfATableAreBounded(t *testing.T) {
	b := New(busy)
	r := round{Balancer: b, now: time.Minute}
	for i := range 1000 {
		r.report(Report{Table: uint64(i % 2), Kind: BusyKey, Key: []byte{byte(i), byte(i >> 8)}})
	}
	r.report(Report{Table: 7, Kind: LargeKey})
	count := 0
	for _, report := range r.reports {
		if report.New {
			count++
		}
	}
	if count != 2*maxReports+1 || len(r.reports) != 1001 {
		t.Errorf("%d of %d reports are new", count, len(r.reports))
	}
	b.Plan(time.Minute+reportAgain, nil)
	if len(b.reported) != 0 || len(b.counted) != 0 {
		t.Errorf("%d reports remembered, of %d tables", len(b.reported), len(b.counted))
	}
}

// TestWhatIsGoneIsForgotten looks at what a balancer remembers of partitions that are replaced.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	m := newModel(t, 1, busy)
	m.run(30*time.Minute, perSecond, m.uniform)
	if len(m.balancer.notes) != len(m.table().Partitions) && m.acted < m.now {
		t.Errorf("%d notes of %d partitions", len(m.balancer.notes), len(m.parts))
	}
	table := m.table()
	table.Partitions[0].Epoch++ // replaced by one with the same id
	m.balancer.Plan(m.now+Interval, []Table{table})
	if n := m.balancer.notes[place{1, m.parts[0].id, 1}]; n == nil || n.quiet.from != m.now+Interval && n.busy.from != m.now+Interval {
		t.Errorf("a partition with another epoch has the note %+v", n)
	}
	m.balancer.Plan(m.now+2*Interval, nil)
	if len(m.balancer.notes) != 0 {
		t.Errorf("%d notes of no partitions", len(m.balancer.notes))
	}
	if (load.Figures{}).Units() != 0 {
		t.Error("no load is some load")
	}
}

// BenchmarkPlan has a thousand partitions of 20 tables, which are used a little.
func BenchmarkPlan(b *testing.B) {
	tables := make([]Table, 20)
	for i := range tables {
		tables[i] = Table{ID: uint64(i), Columns: 1}
		for j := range 50 {
			m := load.New(1, 0)
			m.Write(0, []byte{0x20, byte(j)}, 100)
			p := Partition{ID: uint64(50*i + j), End: []byte{0x20, byte(j + 1)}, Bytes: 1 << 29, Load: m}
			if j > 0 {
				p.Start = []byte{0x20, byte(j)}
			}
			tables[i].Partitions = append(tables[i].Partitions, p)
		}
	}
	planner := New(Settings{})
	b.ReportAllocs()
	for i := range b.N {
		planner.Plan(time.Duration(i)*Interval, tables)
	}
}
