package engines_test

// This file runs random histories on every engine and encoding and compares all
// that can be read with a model. An adapter that is timed has passed it.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/engines"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/model"
)

// everywhere runs a test on each engine, tuning and encoding.
func everywhere(t *testing.T, test func(t *testing.T, e rowstore.Engine, encoding rowstore.Encoding)) {
	for _, e := range engines.All() {
		for _, tuning := range append([]rowstore.Tuning{{Name: ""}}, e.Tunings...) {
			tuned := e
			tuned.Open = func(cfg rowstore.Config) (rowstore.Store, error) {
				cfg.Tuning = tuning.Name
				return e.Open(cfg)
			}
			for _, encoding := range e.Encodings {
				t.Run(e.Name+"/"+tuning.Name+"/"+string(encoding), func(t *testing.T) {
					t.Parallel()
					test(t, tuned, encoding)
				})
			}
		}
	}
}

// small are settings under which little data reaches several table files.
func small(dir string, encoding rowstore.Encoding) rowstore.Config {
	return rowstore.Config{
		Dir: dir, Encoding: encoding, Memtable: 512 << 10, Cache: 1 << 20, Workers: 2, FilterBits: 10, BlockSize: 1 << 10, MaxVersions: 1,
		KeyBytes: len("row"),
	}
}

// start is the first reading of the tests' clock: a day in 2026.
const start = 1_790_000_000_000

// history is a random history: the store, the model, and what both are used with.
type history struct {
	t       *testing.T
	rng     *rand.Rand
	engine  rowstore.Engine
	cfg     rowstore.Config
	now     atomic.Int64 // engines read it in the background
	store   rowstore.Store
	session rowstore.Session
	model   *model.Store
	row     rowstore.Row
}

func TestEveryAdapterAnswersLikeTheModel(t *testing.T) {
	everywhere(t, func(t *testing.T, e rowstore.Engine, encoding rowstore.Encoding) {
		for seed := range uint64(2) {
			h := &history{t: t, engine: e, rng: rand.New(rand.NewPCG(seed, 1))}
			h.now.Store(start)
			h.cfg = small(t.TempDir(), encoding)
			h.cfg.NowMillis = h.now.Load
			if encoding != rowstore.Plain {
				h.cfg.MaxVersions = 1 + h.rng.IntN(3)
				h.cfg.TTL = []time.Duration{0, 100 * time.Second}[seed%2]
			}
			h.model = model.New(h.cfg)
			t.Logf("seed %d, %d versions, TTL %v", seed, h.cfg.MaxVersions, h.cfg.TTL)
			h.open()
			for range 700 {
				h.step()
			}
			h.reopen()
			h.compare()
			h.close()
			if t.Failed() {
				return
			}
		}
	})
}

func (h *history) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) open() {
	h.t.Helper()
	var err error
	h.store, err = h.engine.Open(h.cfg)
	h.check(err)
	h.session, err = h.store.Session()
	h.check(err)
}

func (h *history) close() {
	h.t.Helper()
	h.check(h.session.Close())
	h.check(h.store.Close())
}

func (h *history) reopen() {
	h.close()
	h.check(rowstore.DropPageCache(h.cfg.Dir))
	h.open()
}

// key returns one of few keys; some begin with others, some hold zero bytes.
func (h *history) key() []byte {
	n := h.rng.IntN(60)
	key := fmt.Appendf(nil, "row%02d", n/3)
	return append(key, [][]byte{nil, {0}, {0, 1}}[n%3]...)
}

func (h *history) column() []byte {
	if h.cfg.Encoding == rowstore.Plain {
		return []byte(rowstore.PlainColumn)
	}
	n := h.rng.IntN(12)
	return append([]byte{'c', byte('0' + n/3)}, [][]byte{nil, {0}, {0xFF}}[n%3]...)
}

func (h *history) value() []byte {
	length := h.rng.IntN(200)
	if h.rng.IntN(100) == 0 {
		length = 40_000 // a large value, which some engines keep elsewhere
	}
	value := make([]byte, length)
	for i := range value {
		value[i] = byte(h.rng.Uint32N(16))
	}
	return value
}

// cells returns up to n cells, in order; versions around now, some of them equal
// to earlier ones.
func (h *history) cells(n int) []rowstore.Cell {
	var cells []rowstore.Cell
	if h.cfg.Encoding == rowstore.Plain {
		// Versions rise.
		return []rowstore.Cell{{Column: h.column(), Version: h.now.Add(1), Value: h.value()}}
	}
	for range 1 + h.rng.IntN(n) {
		cells = append(cells, rowstore.Cell{
			Column: h.column(), Version: h.now.Load()/1000*1000 + int64(h.rng.IntN(4))*1000 - 2000, Value: h.value(),
		})
	}
	same := func(a, b rowstore.Cell) int {
		if c := bytes.Compare(a.Column, b.Column); c != 0 {
			return c
		}
		return int(b.Version - a.Version)
	}
	slices.SortStableFunc(cells, same)
	return slices.CompactFunc(cells, func(a, b rowstore.Cell) bool { return same(a, b) == 0 })
}

// step does one thing to store and model.
func (h *history) step() {
	h.now.Add(int64(h.rng.IntN(500)))
	switch n := h.rng.IntN(1000); {
	case n < 250:
		key, cells := h.key(), h.cells(12)
		h.check(h.session.Put(key, cells))
		h.model.Put(key, cells)
	case n < 600:
		key, cells := h.key(), h.cells(3)
		h.check(h.session.Update(key, cells))
		h.model.Update(key, cells)
	case n < 650:
		key := h.key()
		h.check(h.session.Delete(key))
		h.model.Delete(key)
	case n < 700:
		h.batch()
	case n < 940:
		h.get(h.key())
		h.page(h.key())
		h.scan()
	case n < 970:
		h.now.Add(20_000)
	case n < 985:
		_, err := h.store.Settle()
		h.check(err)
	case n < 990:
		h.reopen()
	case n < 992:
		h.check(h.store.Compact())
	case n < 995:
		h.check(h.store.Reclaim())
	default:
		h.compare()
	}
}

func (h *history) batch() {
	rows := map[string]rowstore.Row{}
	for range 1 + h.rng.IntN(20) {
		key := h.key()
		rows[string(key)] = rowstore.Row{Key: key, Cells: h.cells(6)}
	}
	var batch []rowstore.Row
	for _, r := range rows {
		batch = append(batch, r)
		h.model.Put(r.Key, r.Cells)
	}
	h.check(h.session.PutBatch(batch))
}

func (h *history) query() rowstore.Query {
	q := rowstore.Query{MaxVersions: h.rng.IntN(4)}
	if h.cfg.Encoding != rowstore.Plain && h.rng.IntN(2) == 0 {
		for range 1 + h.rng.IntN(3) {
			q.Columns = append(q.Columns, h.column())
		}
		slices.SortFunc(q.Columns, bytes.Compare)
		q.Columns = slices.CompactFunc(q.Columns, bytes.Equal)
	}
	return q
}

func (h *history) get(key []byte) {
	h.t.Helper()
	q := h.query()
	found, err := h.session.Get(key, q, &h.row)
	h.check(err)
	want := h.model.Get(key, q)
	if found != (len(want.Cells) > 0) {
		h.t.Fatalf("get %q %q: found is %v", key, q.Columns, found)
	}
	h.same(fmt.Sprintf("get %q %+v", key, q), &h.row, &want)
}

func (h *history) page(key []byte) {
	h.t.Helper()
	from, limit := h.column(), 1+h.rng.IntN(6)
	h.check(h.session.GetPage(key, from, limit, &h.row))
	want := h.model.GetPage(key, from, limit)
	h.same(fmt.Sprintf("page of %d of %q from %q", limit, key, from), &h.row, &want)
}

func (h *history) scan() {
	h.t.Helper()
	var from, to []byte
	if h.rng.IntN(4) > 0 {
		from = h.key()
	}
	if h.rng.IntN(2) > 0 {
		to = h.key()
	}
	if from != nil && to != nil && bytes.Compare(from, to) > 0 {
		from, to = to, from
	}
	h.scanBetween(from, to, h.query(), h.rng.IntN(10))
}

func (h *history) scanBetween(from, to []byte, q rowstore.Query, limit int) {
	h.t.Helper()
	want := h.model.Scan(from, to, q, limit)
	what := fmt.Sprintf("scan from %q to %q, %d rows, %+v", from, to, limit, q)
	n := 0
	h.check(h.session.Scan(from, to, q, limit, func(r *rowstore.Row) bool {
		if n == len(want) {
			h.t.Fatalf("%s: row %q too many", what, r.Key)
		}
		h.same(fmt.Sprintf("%s: row %d", what, n), r, &want[n])
		n++
		return true
	}))
	if n != len(want) {
		h.t.Fatalf("%s: %d rows; want %d", what, n, len(want))
	}
}

// compare compares everything.
func (h *history) compare() {
	h.t.Helper()
	h.scanBetween(nil, nil, rowstore.Query{}, 0)
}

// same compares a row that was read with that of the model. Plain rows have no
// versions.
func (h *history) same(what string, got, want *rowstore.Row) {
	h.t.Helper()
	if !bytes.Equal(got.Key, want.Key) || len(got.Cells) != len(want.Cells) {
		h.t.Fatalf("%s: row %q, %d cells\n%s; want %q, %d\n%s",
			what, got.Key, len(got.Cells), format(got), want.Key, len(want.Cells), format(want))
	}
	for i := range got.Cells {
		g, w := &got.Cells[i], &want.Cells[i]
		version := g.Version == w.Version || h.cfg.Encoding == rowstore.Plain
		if !bytes.Equal(g.Column, w.Column) || !version || !bytes.Equal(g.Value, w.Value) {
			h.t.Fatalf("%s: cell %d is\n%s; want\n%s", what, i, format(got), format(want))
		}
	}
}

func format(r *rowstore.Row) string {
	var out []byte
	for _, c := range r.Cells {
		out = fmt.Appendf(out, "  %q@%d %.8x (%d)\n", c.Column, c.Version, c.Value, len(c.Value))
	}
	return string(out)
}

// Updates of one row by several goroutines must all be there afterwards.
func TestConcurrentUpdatesOfARowAllCount(t *testing.T) {
	everywhere(t, func(t *testing.T, e rowstore.Engine, encoding rowstore.Encoding) {
		if encoding == rowstore.Plain {
			return // one column, nothing to lose
		}
		cfg := small(t.TempDir(), encoding)
		cfg.Writers = 4
		store, err := e.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		const each = 30
		var wg sync.WaitGroup
		for w := range cfg.Writers {
			wg.Go(func() {
				session, err := store.Session()
				if err != nil {
					t.Error(err)
					return
				}
				for i := range each {
					column := fmt.Appendf(nil, "column%d-%d", w, i)
					cell := rowstore.Cell{Column: column, Version: time.Now().UnixMilli(), Value: column}
					if err := session.Update([]byte("row"), []rowstore.Cell{cell}); err != nil {
						t.Error(err)
					}
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		session, err := store.Session()
		if err != nil {
			t.Fatal(err)
		}
		var row rowstore.Row
		if _, err := session.Get([]byte("row"), rowstore.Query{}, &row); err != nil || len(row.Cells) != cfg.Writers*each {
			t.Errorf("%d cells, %v; want %d", len(row.Cells), err, cfg.Writers*each)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Split points must divide a store into pieces of about the size asked for.
func TestSplitPointsDivideEvenly(t *testing.T) {
	everywhere(t, func(t *testing.T, e rowstore.Engine, encoding rowstore.Encoding) {
		store, err := e.Open(small(t.TempDir(), encoding))
		if err != nil {
			t.Fatal(err)
		}
		session, err := store.Session()
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		const rows = 4000
		value := make([]byte, 1000)
		for i := range rows {
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			cell := rowstore.Cell{Column: []byte(rowstore.PlainColumn), Version: start, Value: value}
			if err := session.Put(fmt.Appendf(nil, "%08d", i*7919%rows), []rowstore.Cell{cell}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := store.Settle(); err != nil {
			t.Fatal(err)
		}
		points, err := store.SplitPoints(500_000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d points, %q", len(points), points)
		if len(points) < 2 || len(points) > 12 {
			t.Errorf("%d points divide 4 MB into pieces of 0.5 MB", len(points))
		}
		for i, p := range points {
			if len(p) == 0 || i > 0 && bytes.Compare(points[i-1], p) >= 0 {
				t.Errorf("point %q after %q", p, points[max(i-1, 0)])
			}
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
