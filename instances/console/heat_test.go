package console

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

func loaded(key string, reads, writes float64) flagstone.LoadedKey {
	return flagstone.LoadedKey{Key: row.String(key), Reads: reads, Writes: writes}
}

// TestAHotKeyHasARowOfItsOwn has a busy key among many, over some time.
func TestAHotKeyHasARowOfItsOwn(t *testing.T) {
	h := heat{tables: map[string][]slice{}}
	rng := rand.New(rand.NewPCG(1, 2))
	for at := range int64(20) {
		keys := []flagstone.LoadedKey{loaded("key-500", 0, 300)}
		for range 100 {
			keys = append(keys, loaded(fmt.Sprintf("key-%03d", rng.IntN(1000)), 5, 1))
		}
		slices.SortFunc(keys, func(a, b flagstone.LoadedKey) int { return strings.Compare(a.Key.Text(), b.Key.Text()) })
		h.record(at, map[string][]flagstone.LoadedKey{"i/t": keys})
	}
	p := h.picture("i/t")
	if len(p.Times) != 20 || len(p.Rows) < heatRows/2 || len(p.Rows) > 2*heatRows+1 {
		t.Fatalf("%d columns, %d rows", len(p.Times), len(p.Rows))
	}
	if !slices.IsSortedFunc(p.Rows, func(a, b HeatRow) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("the rows are not in key order")
	}
	hot := slices.IndexFunc(p.Rows, func(r HeatRow) bool { return r.Key == "key-500" })
	if hot < 0 || p.Rows[hot].Many {
		t.Fatalf("no row for the hot key: %+v", p.Rows)
	}
	for column := range p.Times {
		var reads, writes float64
		for r := range p.Rows {
			reads, writes = reads+float64(p.Reads[column][r]), writes+float64(p.Writes[column][r])
			if r != hot && p.Writes[column][r] > 100 {
				t.Errorf("%d: %f writes at %+v", column, p.Writes[column][r], p.Rows[r])
			}
		}
		if math.Abs(reads-500) > 0.1 || math.Abs(writes-400) > 0.1 || p.Writes[column][hot] < 300 {
			t.Errorf("%d: %f reads, %f writes, %f of the hot key", column, reads, writes, p.Writes[column][hot])
		}
	}
}

// TestEvenLoadIsEven has each of 300 keys sampled at times, as a uniform load has.
func TestEvenLoadIsEven(t *testing.T) {
	h := heat{tables: map[string][]slice{}}
	rng := rand.New(rand.NewPCG(5, 6))
	for at := range int64(30) {
		var keys []flagstone.LoadedKey
		for k := range 300 {
			if rng.IntN(3) == 0 {
				keys = append(keys, loaded(fmt.Sprintf("key-%03d", k), 3, 0))
			}
		}
		h.record(at, map[string][]flagstone.LoadedKey{"i/t": keys})
	}
	p := h.picture("i/t")
	empty := 0
	for _, column := range p.Reads {
		for r, reads := range column {
			if reads == 0 && p.Rows[r].Many {
				empty++
			}
		}
	}
	if cells := len(p.Times) * len(p.Rows); empty > cells/20 {
		t.Errorf("%d of %d cells are empty", empty, cells)
	}
}

func TestHeatIsForgottenAndBounded(t *testing.T) {
	h := heat{tables: map[string][]slice{}}
	many := map[string][]flagstone.LoadedKey{}
	for i := range 3 * heatTables {
		many[fmt.Sprint("t", i)] = []flagstone.LoadedKey{loaded(strings.Repeat("k", 1000), float64(1+i), 0)}
	}
	h.record(0, many)
	if len(h.tables) != heatTables || h.tables["t0"] != nil || h.tables[fmt.Sprint("t", 3*heatTables-1)] == nil {
		t.Errorf("%d tables; the least busy one has %v", len(h.tables), h.tables["t0"])
	}
	if p := h.picture(fmt.Sprint("t", 3*heatTables-1)); len(p.Rows) != 1 || len(p.Rows[0].Key) != 64 || !p.Rows[0].Many {
		t.Errorf("rows %+v", p.Rows)
	}
	if p := h.picture("none"); len(p.Rows) != 0 || len(p.Times) != 1 {
		t.Errorf("an unknown table: %+v", p)
	}
	for at := range int64(heatSlices) {
		h.record(1+at, map[string][]flagstone.LoadedKey{"later": {loaded("", 1, 1)}})
	}
	h.record(5, map[string][]flagstone.LoadedKey{"later": {loaded("", 1, 1)}}) // the clock was set back
	if p := h.picture("later"); len(p.Times) != heatSlices || p.Times[heatSlices-1] != 5 || len(p.Reads[heatSlices-1]) != 1 {
		t.Errorf("after a step back: %+v", p)
	}
	if len(h.times) != heatSlices || len(h.tables) != 1 || len(h.tables["later"]) != heatSlices {
		t.Errorf("%d slices, %d tables, %d of the last", len(h.times), len(h.tables), len(h.tables["later"]))
	}
}

func TestGatheringKeepsTheLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var points []point
		var total float32
		for i := range rng.IntN(300) {
			p := point{key: row.Integer(int64(i - i%(1+rng.IntN(3)))), reads: float32(rng.IntN(10)), writes: float32(math.Exp(8 * rng.Float64()))}
			points, total = append(points, p), total+p.load()
		}
		slices.SortFunc(points, func(a, b point) int { return int(a.key.Int64() - b.key.Int64()) })
		n := 1 + rng.IntN(40)
		got := gather(points, n)
		var sum float32
		for i := range got {
			sum += got[i].load()
			if i > 0 && got[i].key.Int64() <= got[i-1].key.Int64() {
				t.Fatalf("%d points of %d: key %s after %s", len(got), len(points), got[i].key, got[i-1].key)
			}
		}
		if len(got) > 2*n+1 || math.Abs(float64(sum-total)) > 1e-3*float64(total) {
			t.Fatalf("%d points, at most %d; load %f of %f", len(got), 2*n+1, sum, total)
		}
	}
}
