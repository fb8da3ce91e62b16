package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// checkIndex compares the index of a row with the cells that were inserted.
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
				checkIndex(t, m, n, all)
			})
		}
	}
}
