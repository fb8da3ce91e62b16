package mvcc_test

// Random histories of one row. Each is laid out in runs as the engine would do it,
// pruned and merged at random, and compared with the oracle after every step.

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

const offsetSeconds = 3 // Max Version Offset of the histories

type snapshot struct {
	view   mvcc.View
	answer string // what the engine showed when the view was opened
}

// history is the life of one row. Times are small so that everything collides.
type history struct {
	t   testing.TB
	rng *rand.Rand
	log []string

	// changing lets the options change. While the limit only falls, the oracle
	// determines the answers; once it was raised, the oracle only bounds them.
	changing, raising bool

	all       []row.Cell   // all cells ever written
	memtable  []row.Cell   // newest run, not pruned yet
	runs      [][]row.Cell // oldest first
	snapshots []snapshot
	written   []int64 // written[s-1] is the clock at which sequence s was assigned
	limits    []int   // limits[s-1] is the limit at which it was made
	now       int64   // milliseconds; it never steps back, but the clocks of readers do
	limit     int
	ttl       int64
	watermark int64
}

func newHistory(t testing.TB, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{t: t, rng: rng, now: 10_000, limit: 1 + rng.IntN(3), ttl: -1, watermark: mvcc.NoExpiry}
	if rng.IntN(2) == 0 {
		h.ttl = int64(1 + rng.IntN(8))
	}
	h.changing = rng.IntN(2) == 0
	h.raising = h.changing && rng.IntN(2) == 0
	if h.changing && !h.raising {
		h.limit += rng.IntN(3)
	}
	return h
}

func (h *history) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) seq() uint64 { return uint64(len(h.written)) }

func (h *history) view() mvcc.View { return h.viewAt(h.now) }

func (h *history) viewAt(now int64) mvcc.View {
	return mvcc.View{
		Seq: row.MaxSequence, MaxVersions: h.limit,
		Cutoff: max(h.watermark, mvcc.CutoffAt(now, h.ttl)),
	}
}

// read is what the engine shows.
func (h *history) read(v mvcc.View, sel mvcc.Selection) answer {
	var sources []mvcc.Iterator
	runs := append(slices.Clone(h.runs), h.memtable)
	slices.Reverse(runs)
	for _, cells := range runs {
		if len(cells) > 0 {
			it := mvcctest.Run{{Key: []byte("k"), Cells: cells}}.NewIterator()
			it.First()
			sources = append(sources, it)
		}
	}
	if len(sources) == 0 {
		return answer{}
	}
	return readBoth(h.t, mvcctest.NewRowMerge(sources), v, sel)
}

func readAll(t testing.TB, r *mvcc.RowReader) answer {
	var a answer
	r.StartRow()
	a.exists = r.Exists()
	for r.NextCell() {
		a.cells = append(a.cells, r.Cell().Clone())
	}
	if err := r.Error(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (h *history) write() {
	rng := h.rng
	var m row.Mutation
	m.Key = []byte("k")
	m.DeleteRow = rng.IntN(8) == 0
	m.PutRow = rng.IntN(6) == 0
	columns := []string{"a", "a", "a", "b"}
	for range rng.IntN(4) {
		c := row.Cell{Column: []byte(columns[rng.IntN(len(columns))]), Version: h.anyVersion()}
		if slices.ContainsFunc(m.Cells, func(o row.Cell) bool {
			return o.Version == c.Version && bytes.Equal(o.Column, c.Column)
		}) {
			continue // a mutation has one cell per version
		}
		switch p := rng.IntN(20); {
		case p < 12:
			c.Kind = row.KindPut
			c.Type, c.Value = row.TypeInteger, row.Integer(int64(h.seq()+1)).AppendPayload(nil)
		case p < 18:
			c.Kind = row.KindDeleteVersion
			h.addTrim(&m, c)
		default:
			c.Kind, c.Version = row.KindTrim, row.MaxVersion
		}
		m.Cells = append(m.Cells, c)
	}
	if err := m.Normalize(); err != nil {
		h.t.Fatal(err)
	}
	h.written = append(h.written, h.now)
	h.limits = append(h.limits, h.limit)
	seq := h.seq()
	var cells []row.Cell
	if m.DeleteRow {
		cells = append(cells, row.Cell{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow})
	}
	if v, ok := mvcctest.Marker(&m); ok {
		cells = append(cells, row.Cell{Version: v, Seq: seq, Kind: row.KindRowMarker})
	}
	for _, c := range m.Cells {
		c.Seq = seq
		cells = append(cells, c)
	}
	h.logf("write %v", describe(cells))
	h.all = append(h.all, cells...)
	h.memtable = append(h.memtable, cells...)
	sortCells(h.memtable)
}

// anyVersion is within Max Version Offset of the clock, mostly in whole seconds, and
// never expired, as the front end requires.
func (h *history) anyVersion() int64 {
	first := max(0, h.now/1000-offsetSeconds, mvcc.CutoffAt(h.now, h.ttl), h.watermark)
	v := (first + h.rng.Int64N(h.now/1000+offsetSeconds-first)) * 1000
	if h.rng.IntN(8) == 0 {
		v += 500
	}
	return v
}

// addTrim adds the trim of rule 6 when a version is deleted, as the engine must.
func (h *history) addTrim(m *row.Mutation, del row.Cell) {
	v := h.view()
	v.Cutoff = h.watermark
	var versions []int64
	for _, c := range h.read(v, mvcc.Selection{Columns: [][]byte{del.Column}}).cells {
		versions = append(versions, c.Version)
	}
	if threshold, ok := mvcc.TrimForDelete(versions, del.Version, h.limit); ok {
		m.Cells = append(m.Cells, row.Cell{Column: del.Column, Version: threshold, Kind: row.KindTrim})
	}
}

func (h *history) openSnapshot() {
	v := h.view()
	v.Seq = h.seq()
	h.snapshots = append(h.snapshots, snapshot{v, h.read(v, mvcc.Selection{}).String()})
	h.logf("snapshot %+v", v)
}

func (h *history) closeSnapshot() {
	if n := len(h.snapshots); n > 0 {
		i := h.rng.IntN(n)
		h.logf("close snapshot %d", i)
		h.snapshots = append(h.snapshots[:i:i], h.snapshots[i+1:]...)
	}
}

// policy is what the engine would give to a compaction now. It raises the watermark.
func (h *history) policy(input []row.Cell) mvcc.Policy {
	p := mvcc.Policy{ExpiryCutoff: h.watermark, MaxVersions: h.limit}
	var largest uint64
	for _, c := range input {
		largest = max(largest, c.Seq)
	}
	for _, limit := range h.limits[largest:] {
		p.MaxVersions = max(p.MaxVersions, limit)
	}
	if h.rng.IntN(2) == 0 {
		p.ExpiryCutoff = max(h.watermark, mvcc.CutoffAt(h.now, h.ttl))
	}
	if h.rng.IntN(2) == 0 {
		for _, s := range h.snapshots {
			p.ExpiryCutoff = min(p.ExpiryCutoff, s.view.Cutoff)
		}
	}
	h.watermark = max(h.watermark, p.ExpiryCutoff)
	for s, w := range h.written {
		if p.ExpiryCutoff != mvcc.NoExpiry && w/1000+offsetSeconds <= p.ExpiryCutoff && h.rng.IntN(4) > 0 {
			p.TombstoneHorizon = uint64(s + 1)
		}
	}
	for _, s := range h.snapshots {
		p.Views = append(p.Views, s.view)
	}
	p.Views = append(p.Views, h.view())
	return p
}

func (h *history) flush() {
	if len(h.memtable) == 0 {
		return
	}
	h.runs = append(h.runs, h.memtable)
	h.memtable = nil
	h.merge(len(h.runs)-1, len(h.runs))
}

// merge replaces runs[from:to] by their pruned merge.
func (h *history) merge(from, to int) {
	below := mvcc.BelowNothing
	for _, run := range h.runs[:from] {
		if below == mvcc.BelowNothing && len(run) > 0 {
			below = mvcc.BelowExpiring
		}
		for _, c := range run {
			if c.Kind == row.KindRowMarker && c.Version == row.MaxVersion {
				below = mvcc.BelowAnything
			}
		}
	}
	if h.rng.IntN(4) == 0 {
		below = mvcc.BelowAnything
	}
	var input []row.Cell
	for _, run := range h.runs[from:to] {
		input = append(input, run...)
	}
	sortCells(input)
	policy := h.policy(input)
	output := prune(h.t, policy, below, input)
	h.logf("merge %d..%d below=%d %+v:\n    in  %v\n    out %v", from, to, below, policy, describe(input), describe(output))
	var runs [][]row.Cell
	runs = append(runs, h.runs[:from]...)
	if len(output) > 0 {
		runs = append(runs, output)
	}
	h.runs = append(runs, h.runs[to:]...)
}

func prune(t testing.TB, policy mvcc.Policy, below mvcc.Below, input []row.Cell) (output []row.Cell) {
	p := mvcc.NewPruner(policy)
	p.StartRow(below)
	add := func(c *row.Cell) {
		if n := len(output); n > 0 && row.CompareCells(&output[n-1], c) >= 0 {
			t.Errorf("output out of order: %s before %s", output[n-1].String(), c.String())
		}
		output = append(output, c.Clone())
	}
	for i := range input {
		trim, keep := p.Add(&input[i])
		if trim != nil {
			add(trim)
		}
		if keep {
			add(&input[i])
		}
	}
	return output
}

func (h *history) step() {
	switch p := h.rng.IntN(21); {
	case p < 9:
		h.write()
	case p < 11:
		h.flush()
	case p < 14:
		if n := len(h.runs); n > 0 {
			from := h.rng.IntN(n)
			h.merge(from, from+1+h.rng.IntN(n-from))
		}
	case p < 16:
		if len(h.snapshots) < 4 {
			h.openSnapshot()
		}
	case p < 17:
		h.closeSnapshot()
	case p < 20:
		h.now += h.rng.Int64N([]int64{2500, 2500, 15_000}[h.rng.IntN(3)])
		h.logf("clock %d", h.now)
	default:
		if h.changing {
			h.changeOptions()
		}
	}
}

func (h *history) changeOptions() {
	if h.raising {
		h.limit = 1 + h.rng.IntN(4)
	} else {
		h.limit = 1 + h.rng.IntN(h.limit)
	}
	h.ttl = -1
	if h.rng.IntN(3) > 0 {
		h.ttl = int64(1 + h.rng.IntN(12))
	}
	h.logf("options: limit %d, ttl %d", h.limit, h.ttl)
}

func (h *history) check() {
	for i, s := range h.snapshots {
		if got := h.read(s.view, mvcc.Selection{}).String(); got != s.answer {
			h.failf("snapshot %d %+v changed:\n got  %s\n want %s", i, s.view, got, s.answer)
		}
	}
	views := []mvcc.View{h.view(), h.viewAt(h.now - h.rng.Int64N(8000)), h.viewAt(h.now + h.rng.Int64N(8000))}
	if h.raising {
		h.checkNothingReturns(views[h.rng.IntN(3)])
		return
	}
	for _, v := range views {
		want := oracle(h.all, v)
		if got := h.read(v, mvcc.Selection{}); got.String() != want.String() {
			h.failf("view %+v:\n got  %s\n want %s", v, got, want)
		}
		sel := h.anySelection()
		if got, want := h.read(v, sel), selected(want, sel); got.String() != want.String() {
			h.failf("view %+v, selection %+v:\n got  %s\n want %s", v, sel, got, want)
		}
	}
	// If the options were raised now, surplus cells may show, but nothing else.
	raised := h.view()
	raised.MaxVersions += h.rng.IntN(4)
	if h.rng.IntN(2) == 0 {
		raised.Cutoff = h.watermark
	}
	h.checkNothingReturns(raised)
}

// checkNothingReturns checks that all cells that show were never hidden.
func (h *history) checkNothingReturns(v mvcc.View) {
	got := h.read(v, mvcc.Selection{})
	v.MaxVersions = 0
	want := oracle(h.all, v)
	if got.exists != want.exists {
		h.failf("view %+v: exists %t, want %t", v, got.exists, want.exists)
	}
	for _, c := range got.cells {
		found := false
		for _, w := range want.cells {
			found = found || reflect.DeepEqual(c, w)
		}
		if !found {
			h.failf("view %+v: %s returned\n got     %s\n allowed %s", v, c.String(), got, want)
		}
	}
}

func (h *history) anySelection() mvcc.Selection {
	rng := h.rng
	var sel mvcc.Selection
	name := func() []byte { return []byte([]string{"", "a", "aa", "b", "c"}[rng.IntN(5)]) }
	if rng.IntN(3) == 0 {
		for _, n := range []string{"", "a", "aa", "b", "c"} {
			if n != "" && rng.IntN(2) == 0 {
				sel.Columns = append(sel.Columns, []byte(n))
			}
		}
	}
	if rng.IntN(3) == 0 {
		sel.Start = name()
	}
	if rng.IntN(3) == 0 {
		sel.End = name()
	}
	sel.MaxVersions = rng.IntN(3)
	if rng.IntN(3) == 0 {
		sel.MinVersion = h.now - 3000 + rng.Int64N(6000)
		sel.MaxVersionExcl = sel.MinVersion + 1 + rng.Int64N(4000)
	}
	sel.NoCells = rng.IntN(12) == 0
	return sel
}

func (h *history) failf(format string, args ...any) {
	for _, l := range h.log {
		h.t.Log(l)
	}
	h.t.Logf("runs, oldest first: %v", h.runs)
	h.t.Fatalf(format, args...)
}

func describe(cells []row.Cell) []string {
	s := make([]string, len(cells))
	for i := range cells {
		s[i] = cells[i].String()
	}
	return s
}

// envUint reads a number from the environment.
func envUint(t testing.TB, name string, def uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestPruningChangesNoAnswer runs random histories. FLAGSTONE_SEED is the seed of the
// first history, FLAGSTONE_HISTORIES their number. History i has seed first+i, so that
// a failing one can be run alone.
func TestPruningChangesNoAnswer(t *testing.T) {
	first := envUint(t, "FLAGSTONE_SEED", rand.Uint64()%math.MaxUint32)
	count := envUint(t, "FLAGSTONE_HISTORIES", 3000)
	t.Logf("FLAGSTONE_SEED=%d FLAGSTONE_HISTORIES=%d", first, count)
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		h := newHistory(t, seed)
		h.logf("FLAGSTONE_SEED=%d FLAGSTONE_HISTORIES=1, limit %d, ttl %d, changing %t, raising %t", seed, h.limit, h.ttl, h.changing, h.raising)
		for range 10 + h.rng.IntN(40) {
			h.step()
			h.check()
		}
	}
}
