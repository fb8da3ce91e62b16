package memtable_test

// The model of the tests: a map of rows, each a sorted slice of cells, that does by brute force
// what a memtable does.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

type model struct {
	rows map[string][]row.Cell // in cell order
}

func newModel() *model { return &model{rows: map[string][]row.Cell{}} }

// apply follows the text of the marker rule, looking at all cells of the row.
func (m *model) apply(seq uint64, mut *row.Mutation) {
	cells := m.rows[string(mut.Key)]
	var added []row.Cell
	newestDelete := uint64(0)
	for _, c := range cells {
		if c.Kind == row.KindDeleteRow {
			newestDelete = max(newestDelete, c.Seq)
		}
	}
	if mut.DeleteRow {
		newestDelete = seq
		added = append(added, row.Cell{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow})
	}
	if v, ok := mvcctest.Marker(mut); ok {
		redundant := false
		for _, c := range cells {
			if c.Kind == row.KindRowMarker && c.Seq >= newestDelete {
				redundant = redundant || c.Version == row.MaxVersion ||
					v != row.MaxVersion && c.Version/1000 >= v/1000
			}
		}
		if !redundant {
			added = append(added, row.Cell{Version: v, Seq: seq, Kind: row.KindRowMarker})
		}
	}
	for _, c := range mut.Cells {
		c = c.Clone()
		c.Seq = seq
		added = append(added, c)
	}
	if len(added) == 0 {
		return
	}
	cells = append(slices.Clone(cells), added...)
	slices.SortFunc(cells, func(a, b row.Cell) int { return row.CompareCells(&a, &b) })
	m.rows[string(mut.Key)] = cells
}

func (m *model) keys() []string {
	keys := make([]string, 0, len(m.rows))
	for k := range m.rows {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func sameCell(a, b *row.Cell) bool {
	return row.CompareCells(a, b) == 0 && a.Type == b.Type && bytes.Equal(a.Value, b.Value)
}

// fataler is what the checks need of *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkCells compares the cells of the current row from the current cell on.
func checkCells(t fataler, it *memtable.Iterator, ok bool, want []row.Cell, what string) {
	t.Helper()
	for i := range want {
		if !ok {
			t.Fatalf("%s, row %q: ended before cell %d, %v", what, it.RowKey(), i, &want[i])
		}
		if got := it.Cell(); !sameCell(got, &want[i]) {
			t.Fatalf("%s, row %q: cell %d is %v, want %v", what, it.RowKey(), i, got, &want[i])
		}
		ok = it.NextCell()
	}
	if ok {
		t.Fatalf("%s, row %q: extra cell %v", what, it.RowKey(), it.Cell())
	}
	if it.NextCell() {
		t.Fatalf("%s, row %q: a cell after the end", what, it.RowKey())
	}
}

// check compares every result of a memtable with the model.
func (m *model) check(t fataler, mt *memtable.Memtable, random *rand.Rand) {
	t.Helper()
	keys := m.keys()
	it := mt.NewIterator()
	i := 0
	for ok := it.First(); ok; ok = it.NextRow() {
		if i == len(keys) || string(it.RowKey()) != keys[i] {
			t.Fatalf("forward: row %d is %q, want one of %q", i, it.RowKey(), keys)
		}
		if it.NextCell() {
			t.Fatalf("NextCell moved from an unset cell cursor")
		}
		checkCells(t, it, it.FirstCell(), m.rows[keys[i]], "forward")
		m.checkCellSeeks(t, it, random)
		checkWhole(t, it, m.rows[keys[i]], random)
		i++
	}
	if i != len(keys) {
		t.Fatalf("forward: %d rows, want %d", i, len(keys))
	}
	for ok := it.Last(); ok; ok = it.PrevRow() {
		i--
		if i < 0 || string(it.RowKey()) != keys[i] {
			t.Fatalf("backward: row %d is %q", i, it.RowKey())
		}
		checkCells(t, it, it.FirstCell(), m.rows[keys[i]], "backward")
	}
	if i != 0 {
		t.Fatalf("backward: ended %d rows early", i)
	}
	m.checkRowSeeks(t, it, keys, random)
	if mt.Rows() != len(keys) || mt.Empty() != (len(keys) == 0) {
		t.Fatalf("counts: %d rows, empty %v; want %d", mt.Rows(), mt.Empty(), len(keys))
	}
	if it.Error() != nil || it.Close() != nil {
		t.Fatalf("an error")
	}
}

func (m *model) checkCellSeeks(t fataler, it *memtable.Iterator, random *rand.Rand) {
	t.Helper()
	cells := m.rows[string(it.RowKey())]
	for range 8 {
		target := cells[random.IntN(len(cells))]
		column, version := bytes.Clone(target.Column), target.Version
		switch random.IntN(6) {
		case 0:
			version--
		case 1:
			version = row.MaxVersion
		case 2:
			column, version = append(column, 0), row.MaxVersion
		case 3:
			version = int64(random.IntN(10))
		case 4:
			column, version = nil, row.MaxVersion-1
		}
		from := sort.Search(len(cells), func(i int) bool {
			order := bytes.Compare(cells[i].Column, column)
			return order > 0 || order == 0 && cells[i].Version <= version
		})
		// A few cells only, so that the next seek begins anywhere.
		ok := it.SeekCell(column, version)
		if random.IntN(4) == 0 {
			checkCells(t, it, ok, cells[from:], fmt.Sprintf("after SeekCell(%q, %d)", column, version))
			continue
		}
		if ok != (from < len(cells)) || ok && !sameCell(it.Cell(), &cells[from]) {
			t.Fatalf("row %q: SeekCell(%q, %d) = %v, want cell %d of %v", it.RowKey(), column, version, ok, from, cells)
		}
		for range random.IntN(3) {
			if from++; it.NextCell() != (from < len(cells)) {
				t.Fatalf("row %q: NextCell after SeekCell(%q, %d)", it.RowKey(), column, version)
			} else if from >= len(cells) {
				break
			}
			if !sameCell(it.Cell(), &cells[from]) {
				t.Fatalf("row %q: NextCell after SeekCell(%q, %d) = %v", it.RowKey(), column, version, it.Cell())
			}
		}
	}
}

func (m *model) checkRowSeeks(t fataler, it *memtable.Iterator, keys []string, random *rand.Rand) {
	t.Helper()
	at := func(i int) string {
		if i < 0 || i >= len(keys) {
			return ""
		}
		return keys[i]
	}
	expect := func(what string, ok bool, want string) {
		t.Helper()
		if ok != (want != "") || ok && string(it.RowKey()) != want {
			t.Fatalf("%s = %v, want %q", what, ok, want)
		}
		if !ok && (it.FirstCell() || it.SeekCell(nil, 0) || it.NextCell()) {
			t.Fatalf("%s: a cell without a row", what)
		}
	}
	for range 16 {
		key := string(randomKey(random))
		if len(keys) > 0 && random.IntN(2) == 0 {
			key = keys[random.IntN(len(keys))]
		}
		i := sort.SearchStrings(keys, key)
		expect(fmt.Sprintf("SeekRow(%q)", key), it.SeekRow([]byte(key)), at(i))
		if i < len(keys) {
			expect("NextRow", it.NextRow(), at(i+1))
		}
		expect(fmt.Sprintf("SeekRowBefore(%q)", key), it.SeekRowBefore([]byte(key)), at(i-1))
		if i > 0 {
			expect("PrevRow", it.PrevRow(), at(i-2))
		}
		exact := ""
		if at(i) == key {
			exact = key
		}
		expect(fmt.Sprintf("SeekRowExact(%q)", key), it.SeekRowExact([]byte(key)), exact)
	}
}

func randomKey(random *rand.Rand) []byte {
	key := []byte(fmt.Sprintf("%03d", random.IntN(200)))
	if random.IntN(8) == 0 {
		key = append(key, bytes.Repeat([]byte{'x'}, random.IntN(3000))...)
	}
	return key
}

// randomMutation makes a normalized mutation of the row key, with a preference
// for collisions of column and version.
func randomMutation(random *rand.Rand, key []byte) *row.Mutation {
	mut := &row.Mutation{Key: key, DeleteRow: random.IntN(4) == 0, PutRow: random.IntN(8) == 0}
	cells := random.IntN(4)
	switch random.IntN(40) {
	case 0:
		cells = 100
	case 1:
		cells = 16 + random.IntN(3)
	}
	for range cells {
		c := row.Cell{Column: []byte(fmt.Sprintf("c%d", random.IntN(max(5, cells)))), Version: int64(random.IntN(6)) * 700, Kind: row.KindPut}
		switch random.IntN(8) {
		case 0:
			c.Kind = row.KindDeleteVersion
		case 1:
			c.Kind = row.KindTrim
		case 2:
			c.Kind, c.Version = row.KindTrim, row.MaxVersion
		default:
			c.Type, c.Value = row.TypeBinary, bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(40))
			if random.IntN(50) == 0 {
				c.Value = bytes.Repeat(c.Value, 1000)
			}
		}
		mut.Cells = append(mut.Cells, c)
	}
	if err := mut.Normalize(); err != nil {
		panic(err)
	}
	return mut
}

func TestMemtableAnswersLikeASortedMap(t *testing.T) {
	// Slabs contain the data of earlier memtables.
	memory := offheaptest.New(t)
	defer func() {
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		random := rand.New(rand.NewPCG(seed, 1))
		keys := rapid.IntRange(1, 200).Draw(t, "keys")
		mutations := rapid.IntRange(0, 300).Draw(t, "mutations")
		mt := memtable.New(memtable.Options{SlabSize: 4 << 10, Seed: seed, Memory: memory})
		defer mt.Free()
		m := newModel()
		pool := make([][]byte, keys)
		for i := range pool {
			pool[i] = randomKey(random)
		}
		slices.SortFunc(pool, bytes.Compare)
		for i := range mutations {
			at := random.IntN(keys)
			if i%40 < 20 { // some in order, some more than once
				at = i % keys
			}
			mut := randomMutation(random, pool[at])
			seq := uint64(i*3 + 7)
			mt.Apply(seq, memtable.ChangeOf(mut))
			m.apply(seq, mut)
			if random.IntN(100) == 0 {
				mt.NewIterator().SeekRow(mut.Key)
			} else if random.IntN(4) > 0 {
				mt.OrderGroup()
			}
		}
		m.check(t, mt, random)
	})
}

// TestAWriteMayExpectAMemtableThatIsGone: the writer holds nothing when it prefetches.
func TestAWriteMayExpectAMemtableThatIsGone(t *testing.T) {
	memory := offheaptest.New(t)
	mt := memtable.New(memtable.Options{Memory: memory})
	mt.Apply(1, memtable.ChangeOf(randomMutation(rand.New(rand.NewPCG(1, 1)), []byte("key"))))
	mt.Free()
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
	mt.Expect()
}
