package ots

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

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
		b.add(uint64(key)*0x9E3779B97F4A7C15, row.Integer(key), 1)
	}
	if b.total != all || len(b.list) != busyCounters || len(b.place) != busyCounters {
		t.Fatalf("%d units, %d counters, %d places", b.total, len(b.list), len(b.place))
	}
	found := map[int64]bool{}
	for _, k := range b.list {
		n := k.key.Int64()
		found[n] = true
		if low, high := k.units-k.taken, k.units; real[n] < low || real[n] > high {
			t.Errorf("key %d was counted %d to %d times; it came %d times", n, low, high, real[n])
		}
		if n <= 2 && k.units-k.taken < real[n]*9/10 {
			t.Errorf("key %d came %d times, of which %d are known", n, real[n], k.units-k.taken)
		}
	}
	if !found[1] || !found[2] {
		t.Error("a busy key is missing")
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
	st, err := f.KeyStatistics(ctx, testInstance, "t", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Columns) != 2 || st.Columns[1].Name != "n" || len(st.Sample) < 500 || st.Bytes == 0 || st.LoadSince.UnixMilli() != startMillis {
		t.Errorf("%d columns, %d rows, %d bytes, since %v", len(st.Columns), len(st.Sample), st.Bytes, st.LoadSince)
	}
	// An eighth of 4000 requests is counted, within 21 in two of three runs.
	if st.LoadUnits < 2500 || st.LoadUnits > 5500 || len(st.Load) != 2 {
		t.Errorf("%d units of %d keys", st.LoadUnits, len(st.Load))
	}
	_, err = f.KeyStatistics(ctx, testInstance, "nothing", 1000)
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
}
