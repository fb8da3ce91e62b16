package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// checkIndex compares the index of a row, and its place tree, with the cells that were inserted.
func checkIndex(t *testing.T, m *Memtable, n *rowNode, want []row.Cell) {
	t.Helper()
	slices.SortFunc(want, func(a, b row.Cell) int { return row.CompareCells(&a, &b) })
	head := m.cell(link(n.index.Load()))
	var lists [maxHeight][]link
	for level := range int(head.height) {
		for l := link(head.next(level).Load()); l != 0; l = link(m.cell(l).next(level).Load()) {
			lists[level] = append(lists[level], l)
		}
	}
	if len(lists[0]) != len(want) {
		t.Fatalf("the list has %d cells, want %d", len(lists[0]), len(want))
	}
	above := lists
	for i, l := range lists[0] {
		var c row.Cell
		m.cell(l).read(&c)
		if row.CompareCells(&c, &want[i]) != 0 || !bytes.Equal(c.Value, want[i].Value) {
			t.Fatalf("cell %d of the list is %v, want %v", i, c, want[i])
		}
		for level := range int(m.cell(l).height) {
			if len(above[level]) == 0 || above[level][0] != l {
				t.Fatalf("level %d lacks cell %d of the list, or has another one before it", level, i)
			}
			above[level] = above[level][1:]
		}
	}
	if head.places() == 0 {
		return
	}
	var cells []link
	var walk func(at link, level int)
	walk = func(at link, level int) {
		p := m.placeNode(at)
		for i := range int(p.count) {
			if level > 0 {
				walk(p.inner().children[i], level-1)
				continue
			}
			cells = append(cells, p.cells[i])
			if height := p.heights[i]; height != m.cell(p.cells[i]).height {
				t.Errorf("the tree takes a tower of %d for one of %d", m.cell(p.cells[i]).height, height)
			}
		}
	}
	walk(head.places(), int(head.columnLen)-1)
	if !slices.Equal(cells, lists[0]) {
		t.Fatalf("the tree has %d cells, not the %d of the list in their order", len(cells), len(lists[0]))
	}
}

// indexOf makes a memtable with a row without cells.
func indexOf(seed uint64) (*Memtable, *rowNode) {
	m := New(Options{Seed: seed})
	m.Apply(1, ChangeOf(&row.Mutation{Key: []byte("k"), PutRow: true}))
	_, n := m.findRow(m.hash.of([]byte("k")), []byte("k"))
	return m, n
}

func TestCellsOfAWideRowFindTheirPlaces(t *testing.T) {
	const mutations = 6000
	name := func(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }
	shapes := map[string]func(random *rand.Rand, i int) []byte{
		"at random":            func(random *rand.Rand, _ int) []byte { return name("column%07d", random.IntN(100_000)) },
		"rising":               func(_ *rand.Rand, i int) []byte { return name("column%07d", i) },
		"falling":              func(_ *rand.Rand, i int) []byte { return name("column%07d", mutations-i) },
		"one column":           func(*rand.Rand, int) []byte { return name("hot") },
		"few columns":          func(random *rand.Rand, _ int) []byte { return name("column%d", random.IntN(5)) },
		"rising, then random":  func(random *rand.Rand, i int) []byte { return name("column%07d", min(i, mutations/2)+i*random.IntN(9)) },
		"zeros and no columns": func(random *rand.Rand, _ int) []byte { return make([]byte, random.IntN(40)) },
		"any bytes": func(random *rand.Rand, _ int) []byte {
			column := make([]byte, random.IntN(24))
			for i := range column {
				column[i] = "\x00\x01ab\xff"[random.IntN(5)]
			}
			return column
		},
		"long beginnings": func(random *rand.Rand, _ int) []byte {
			group := random.IntN(20)
			return append(bytes.Repeat([]byte{'a' + byte(group)}, group*7), name("%d", random.IntN(500))...)
		},
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for shape, column := range shapes {
		for _, together := range []int{1, 50} {
			t.Run(fmt.Sprintf("%s, %d at once", shape, together), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, uint64(together)))
				m, n := indexOf(seed | 1)
				var all []row.Cell
				for i := 0; i < mutations; {
					w := indexWriter{random: random.Uint64()}
					seq := uint64(i + 2)
					w.init(m, n, seq)
					var cells []row.Cell
					for range 1 + random.IntN(together) {
						c := row.Cell{Column: column(random, i), Version: random.Int64N(4), Seq: seq, Kind: row.KindPut, Type: row.TypeBinary, Value: name("%d", i)}
						if random.IntN(2) == 0 {
							c.Version = int64(i)
						}
						cells = append(cells, c)
						i++
					}
					slices.SortFunc(cells, func(a, b row.Cell) int { return row.CompareCells(&a, &b) })
					cells = slices.CompactFunc(cells, func(a, b row.Cell) bool { return row.CompareCells(&a, &b) == 0 })
					for i := range cells {
						w.insert(&cells[i])
					}
					all = append(all, cells...)
				}
				if m.cell(link(n.index.Load())).places() == 0 {
					t.Fatal("there is no tree")
				}
				checkIndex(t, m, n, all)
			})
		}
	}
}

// Newer versions go before older ones, so those of the column at the end of one node, or at the
// start of the next, all come to the same place.
func TestVersionsOfAColumnAnywhereInAWideRowFillTheirNodes(t *testing.T) {
	const columns, updates, most = 3200, 2000, 2 * placeBytes
	for hot := range columns {
		if hot > 70 && hot < columns-3 {
			continue
		}
		m, n := indexOf(42)
		seq := uint64(1)
		put := func(column int) int64 {
			seq++
			w := indexWriter{random: mix64(seq)}
			w.init(m, n, seq)
			w.insert(&row.Cell{Column: fmt.Appendf(nil, "column%07d", column), Version: int64(seq), Seq: seq, Kind: row.KindPut})
			return w.used
		}
		for i := range columns {
			put(i)
		}
		before, reckoned := m.data.used(), int64(0)
		for range updates {
			reckoned += put(hot)
		}
		if more := (m.data.used() - before - reckoned) / updates; more > most-placeBytes {
			t.Errorf("%d bytes of nodes for each version of column %d, want at most %d", more+placeBytes, hot, most)
		}
	}
}

// The cells of the lower levels of a skiplist are cache misses. The place tree decides mostly
// from its own keys.
func TestTheOneCellOfAnUpdateOfAWideRowIsComparedWithFewOthers(t *testing.T) {
	const cells = 50_000
	m, n := indexOf(42)
	compared := 0
	for i := range cells {
		w := indexWriter{random: mix64(uint64(i))}
		w.init(m, n, uint64(i+2))
		w.insert(&row.Cell{Column: fmt.Appendf(nil, "column%07d", mix64(uint64(i))%200_000), Version: int64(i), Seq: uint64(i + 2), Kind: row.KindPut})
		compared += w.compared
	}
	if mean := float64(compared) / cells; mean > 10 {
		t.Errorf("%.1f comparisons for each cell, want at most 10", mean)
	} else {
		t.Logf("%.1f comparisons for each cell", mean)
	}
}
