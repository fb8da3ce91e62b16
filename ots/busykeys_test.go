package ots

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/row"
)

// TestBusyKeysAreFoundAmongMany sends a fifth of the requests to one key, a tenth to another,
// and the rest to a hundred thousand others.
func TestBusyKeysAreFoundAmongMany(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var b busyKeys
	const all = 200_000
	real := map[int64]int64{}
	for range all {
		key := 1000 + rng.Int64N(100_000)
		switch n := rng.IntN(10); {
		case n < 2:
			key = 1
		case n == 2:
			key = 2
		}
		real[key]++
		b.add(time.Minute, uint64(key)*0x9E3779B97F4A7C15, row.Integer(key), 1)
	}
	if b.total != float64(all) || len(b.list) != busyCounters || len(b.place) != busyCounters {
		t.Fatalf("%v units, %d counters, %d places", b.total, len(b.list), len(b.place))
	}
	found := map[int64]bool{}
	for _, k := range b.list {
		n := k.key.Int64()
		found[n] = true
		if low, high := int64(k.units-k.taken), int64(k.units); real[n] < low || real[n] > high {
			t.Errorf("key %d was counted %d to %d times; it came %d times", n, low, high, real[n])
		}
		if n <= 2 && k.units-k.taken < float64(real[n])*0.9 {
			t.Errorf("key %d came %d times, of which %.0f are known", n, real[n], k.units-k.taken)
		}
	}
	if !found[1] || !found[2] {
		t.Error("a busy key is missing")
	}
}

// TestBusyKeysAreThoseOfLately has a key that is busy for an hour, then another that has a hundredth of that load, for
// so long that weights are made small again.
func TestBusyKeysAreThoseOfLately(t *testing.T) {
	var b busyKeys
	now := 5 * time.Hour
	load := func(key, perMinute int64, minutes int) {
		for range minutes {
			b.add(now, uint64(key), row.Integer(key), float64(perMinute))
			now += time.Minute
		}
	}
	rates := func() map[int64]float64 {
		found := map[int64]float64{}
		for _, k := range b.list {
			found[k.key.Int64()] = (k.units - k.taken) * b.age(now) / b.over(now).Minutes()
		}
		return found
	}
	near := func(got, want float64) bool { return got > 0.9*want && got < 1.1*want }
	load(1, 10_000, 3)
	if r := rates(); !near(r[1], 10_000) {
		t.Errorf("after 3 minutes: %v per minute", r)
	}
	load(1, 10_000, 57)
	if r := rates(); !near(r[1], 10_000) {
		t.Errorf("after an hour: %v per minute", r)
	}
	load(2, 100, 10)
	if r := rates(); !near(r[1], 5000) || !near(r[2], 50) {
		t.Errorf("a half-life later: %v per minute", r)
	}
	load(2, 100, 12*60)
	if r := rates(); r[1] > 1e-9 || !near(r[2], 100) || !near(b.total*b.age(now)/b.over(now).Minutes(), 100) {
		t.Errorf("a day later: %v per minute, all %v", r, b.total)
	}
	for key := range int64(2 * busyCounters) { // some take over the counters of others
		load(1000+key, 1, 1)
	}
	now += 1000 * time.Hour // what was counted is too small for a float64
	load(3, 100, 30)
	late := rates()
	if late[3] < 80 || late[3] > 90 || len(late) != busyCounters {
		t.Errorf("much later: %v per minute", late)
	}
	delete(late, 3)
	for key, rate := range late {
		if rate != 0 {
			t.Errorf("much later: key %d, %v per minute", key, rate)
		}
	}
}

func TestKeyStatisticsOfATable(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "p", row.TypeString, "n", row.TypeInteger))
	ctx := context.Background()
	for i := range 4000 {
		p := "busy"
		if i%4 == 3 {
			p = "calm"
		}
		change := RowChange{Type: ChangePut, Row: Row{Key: keyOf("p", p, "n", i)}}
		if _, err := f.WriteRow(ctx, testInstance, &WriteRowRequest{Table: "t", Change: change}); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.Advance(time.Second)
	st, err := f.KeyStatistics(ctx, testInstance, "t", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Columns) != 2 || st.Columns[1].Name != "n" || len(st.Sample) < 500 || st.Bytes == 0 {
		t.Errorf("%d columns, %d rows, %d bytes", len(st.Columns), len(st.Sample), st.Bytes)
	}
	// An eighth of 4000 requests is counted, within 21 in two of three runs.
	if st.LoadUnits < 2500 || st.LoadUnits > 5500 || len(st.Load) != 2 || st.RowBytes < 10 || st.RowBytes > 50 {
		t.Errorf("%d units of %d keys, rows of %.0f bytes", st.LoadUnits, len(st.Load), st.RowBytes)
	}
	if own := st.Load[0].Rows; len(own) < ownRows || own[0].Key[0].Text() != "busy" || own[len(own)-1].Key[0].Text() != "busy" ||
		own[0].Key[1].Int64() != 0 || own[len(own)-1].Key[1].Int64() < 3990 {
		t.Errorf("%d rows of the busiest key, from %v to %v", len(own), own[0].Key, own[len(own)-1].Key)
	}
	f.clock.Advance(busyHalfLife)
	half, err := f.KeyStatistics(ctx, testInstance, "t", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if half.LoadUnits != st.LoadUnits/2 || half.LoadOver < 7*time.Minute || half.LoadOver > 8*time.Minute {
		t.Errorf("%d units over %v; a half-life ago there were %d units", half.LoadUnits, half.LoadOver, st.LoadUnits)
	}
	f.clock.Advance(10 * busyHalfLife) // there is too little load for the rows to matter
	late, err := f.KeyStatistics(ctx, testInstance, "t", 1000)
	if err != nil || len(late.Load) != 2 || late.Load[0].Rows != nil {
		t.Errorf("%d units: %d rows of the busiest key, %v", late.LoadUnits, len(late.Load[0].Rows), err)
	}
	_, err = f.KeyStatistics(ctx, testInstance, "nothing", 1000)
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
}

// TestRangesAreLoadOfTheKeysThatTheyReturn reads two keys of a hundred, as ranges over several keys.
func TestRangesAreLoadOfTheKeysThatTheyReturn(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "p", row.TypeString, "n", row.TypeInteger))
	f.fillKeys(t)
	f.clock.Advance(24 * time.Hour) // the writes are no load any more
	request := GetRangeRequest{
		Start: Row{Key: keyOf("p", "key-40", "n", row.Min())}, End: Row{Key: keyOf("p", "key-42", "n", row.Min())}, Selection: all(),
	}
	for range 4000 {
		if resp, err := f.rangeOf(request); err != nil || len(resp.Rows) != 40 || resp.Consumed.Read != 1 {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	f.clock.Advance(time.Second)
	st := f.keyStatistics(t)
	if st.LoadUnits < 2500 || st.LoadUnits > 5500 || len(st.Load) < 2 {
		t.Fatalf("%d units of %d keys", st.LoadUnits, len(st.Load))
	}
	for _, l := range st.Load[:2] {
		if key := l.Key.Text(); key != "key-40" && key != "key-41" || l.Units < st.LoadUnits*4/10 {
			t.Errorf("%s has %d of %d units", key, l.Units, st.LoadUnits)
		}
	}
	request.Start, request.End = Row{Key: keyOf("p", "key-50+", "n", row.Min())}, Row{Key: keyOf("p", "key-51", "n", row.Min())}
	for range 4000 { // nothing is there
		if _, err := f.rangeOf(request); err != nil {
			t.Fatal(err)
		}
	}
	if st = f.keyStatistics(t); st.Load[0].Key.Text() != "key-50+" {
		t.Errorf("the busiest key is %s with %d of %d units", st.Load[0].Key, st.Load[0].Units, st.LoadUnits)
	}
}

// TestALargePageIsLoadOfManyKeys: its cost is not that of one key.
func TestALargePageIsLoadOfManyKeys(t *testing.T) {
	var k pageKeys
	for n := range int64(1000) {
		k.add(row.Integer(n))
	}
	if len(k.keys) > 0 {
		t.Error("a page that is not counted has keys")
	}
	k.counts = true
	high := 0
	for range 100 {
		k.rows, k.keys = 0, nil
		for n := range int64(1000) {
			k.add(row.Integer(n))
		}
		if len(k.keys) != busySpread {
			t.Fatalf("%d keys", len(k.keys))
		}
		for _, key := range k.keys {
			if key.Int64() >= 500 {
				high++
			}
		}
	}
	if high < 600 || high > 1000 { // ten standard deviations
		t.Errorf("%d of %d keys are in the upper half", high, 100*busySpread)
	}
}

// TestANewLoadIsNotAveragedAway has a quiet hour before it.
func TestANewLoadIsNotAveragedAway(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "p", row.TypeString, "n", row.TypeInteger))
	f.fillKeys(t)
	read := func(seconds, requests int) {
		for range seconds {
			for range requests {
				get := GetRangeRequest{Start: Row{Key: keyOf("p", "key-40", "n", row.Min())}, End: Row{Key: keyOf("p", "key-40", "n", row.Max())}, Selection: all()}
				if _, err := f.rangeOf(get); err != nil {
					t.Fatal(err)
				}
			}
			f.clock.Advance(time.Second)
		}
	}
	rate := func() float64 {
		st := f.keyStatistics(t)
		return float64(st.LoadUnits) / st.LoadOver.Seconds()
	}
	f.clock.Advance(time.Hour)
	read(120, 100)
	if got := rate(); got < 75 || got > 135 {
		t.Errorf("a new load of 100 units per second is shown as %.0f", got)
	}
	f.clock.Advance(20 * time.Minute)
	if st := f.keyStatistics(t); st.LoadOver < 7*time.Minute {
		t.Errorf("a load that has ended is the average of %v", st.LoadOver)
	}
}

// fillKeys puts 20 rows into each of a hundred partition keys.
func (f *fixture) fillKeys(t *testing.T) {
	for n := range 2000 {
		change := RowChange{Type: ChangePut, Row: Row{Key: keyOf("p", fmt.Sprintf("key-%02d", n/20), "n", n)}}
		if _, err := f.WriteRow(context.Background(), testInstance, &WriteRowRequest{Table: "t", Change: change}); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) keyStatistics(t *testing.T) *keydesign.Statistics {
	st, err := f.KeyStatistics(context.Background(), testInstance, "t", 1000)
	if err != nil {
		t.Fatal(err)
	}
	return st
}
