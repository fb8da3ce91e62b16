package memtable_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

func put(column string, version int64, value string) row.Cell {
	return row.Cell{Column: []byte(column), Version: version, Kind: row.KindPut, Type: row.TypeString, Value: []byte(value)}
}

// cellsOf returns the cells of a row as strings.
func cellsOf(mt *memtable.Memtable, key string) []string {
	it := mt.NewIterator()
	if !it.SeekRowExact([]byte(key)) {
		return nil
	}
	var cells []string
	for ok := it.FirstCell(); ok; ok = it.NextCell() {
		cells = append(cells, it.Cell().String())
	}
	return cells
}

func TestARowMarkerIsStoredOnlyIfItTellsSomethingNew(t *testing.T) {
	var (
		putAt   = func(v int64) row.Mutation { return row.Mutation{Cells: []row.Cell{put("c", v, "x")}} }
		replace = func(v int64) row.Mutation {
			return row.Mutation{DeleteRow: true, Cells: []row.Cell{put("c", v, "x")}}
		}
		forever   = row.Mutation{PutRow: true}
		deleteRow = row.Mutation{DeleteRow: true}
		deleteCol = row.Mutation{Cells: []row.Cell{{Column: []byte("c"), Version: row.MaxVersion, Kind: row.KindTrim}}}
	)
	tests := []struct {
		name      string
		mutations []row.Mutation // at sequence numbers 1, 2, ...
		want      []string       // row-level cells
	}{
		{"first put", []row.Mutation{putAt(5000)}, []string{"@5000#1:row-marker"}},
		{"later in the same second", []row.Mutation{putAt(5000), putAt(5999)}, []string{"@5000#1:row-marker"}},
		{"earlier", []row.Mutation{putAt(5000), putAt(1)}, []string{"@5000#1:row-marker"}},
		{"next second", []row.Mutation{putAt(5999), putAt(6000)}, []string{"@6000#2:row-marker", "@5999#1:row-marker"}},
		{"the best counts, not the last", []row.Mutation{putAt(1000), putAt(9000), putAt(1), putAt(8000)},
			[]string{"@9000#2:row-marker", "@1000#1:row-marker"}},
		{"for ever beats all", []row.Mutation{forever, putAt(9000), putAt(row.MaxVersion - 1), forever}, []string{"@max#1:row-marker"}},
		{"for ever after the largest version", []row.Mutation{putAt(row.MaxVersion - 1), forever},
			[]string{"@max#2:row-marker", "@9223372036854775806#1:row-marker"}},
		{"hidden by a delete-row", []row.Mutation{putAt(9000), deleteRow, putAt(5000)},
			[]string{"@max#2:delete-row", "@9000#1:row-marker", "@5000#3:row-marker"}},
		{"of the mutation that deletes", []row.Mutation{putAt(9000), replace(5000), putAt(5001)},
			[]string{"@max#2:delete-row", "@9000#1:row-marker", "@5000#2:row-marker"}},
		{"packed with a delete-row", []row.Mutation{replace(5000), putAt(5001), replace(5002)},
			[]string{"@max#3:delete-row", "@max#1:delete-row", "@5002#3:row-marker", "@5000#1:row-marker"}},
		{"none by deletes", []row.Mutation{deleteCol, deleteCol}, nil},
		{"after deletes alone", []row.Mutation{deleteCol, putAt(0)}, []string{"@0#2:row-marker"}},
		{"after a packed delete-row alone", []row.Mutation{deleteRow, putAt(0), putAt(999)},
			[]string{"@max#1:delete-row", "@0#2:row-marker"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			mt := memtable.New(memtable.Options{})
			for i, mut := range test.mutations {
				mut.Key = []byte("k")
				mt.Apply(uint64(i+1), memtable.ChangeOf(&mut))
			}
			got := cellsOf(mt, "k")
			if n := slices.IndexFunc(got, func(s string) bool { return s[0] == 'c' }); n >= 0 {
				got = got[:n]
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("row-level cells %v, want %v", got, test.want)
			}
		})
	}
}

func TestAMutationThatLeavesNoCellAddsNoRow(t *testing.T) {
	mt := memtable.New(memtable.Options{})
	mt.Apply(4, memtable.ChangeOf(&row.Mutation{Key: []byte("k")}))
	if !mt.Empty() || mt.Rows() != 0 || mt.NewIterator().First() {
		t.Errorf("a row without cells was added")
	}
}

// TestASampleLeavesOutWhatIsHidden: with a limit of versions, a row has the size of what is visible, and of what hides
// the rest.
func TestASampleLeavesOutWhatIsHidden(t *testing.T) {
	const large = 1000
	puts := func(versions ...int64) (m row.Mutation) {
		for _, v := range versions {
			m.Cells = append(m.Cells, put("c", v, strings.Repeat("x", large)))
		}
		return m
	}
	deleteRow := row.Mutation{DeleteRow: true}
	trim := func(version int64) row.Mutation {
		return row.Mutation{Cells: []row.Cell{{Column: []byte("c"), Version: version, Kind: row.KindTrim}}}
	}
	replace := puts(4)
	replace.DeleteRow = true
	for _, c := range []struct {
		name             string
		mutations        []row.Mutation // at sequence numbers 1, 2, ...
		all, one, atMost int            // large values that count: of all versions, of one, of three
	}{
		{"overwritten", []row.Mutation{puts(5, 4), puts(6), puts(7)}, 4, 1, 3},
		{"deleted", []row.Mutation{puts(5), puts(6), deleteRow}, 2, 0, 0},
		{"put again after the delete", []row.Mutation{puts(5), deleteRow, puts(3)}, 2, 1, 1},
		{"replaced", []row.Mutation{puts(5), replace}, 2, 1, 1},
		{"a column deleted", []row.Mutation{puts(5), trim(row.MaxVersion), puts(6)}, 2, 1, 1},
		{"trimmed", []row.Mutation{puts(5), puts(6), trim(5)}, 2, 1, 1},
		{"another column trimmed", []row.Mutation{puts(5), {Cells: []row.Cell{{Column: []byte("b"), Version: 9, Kind: row.KindTrim}}}}, 1, 1, 1},
	} {
		mt := memtable.New(memtable.Options{})
		for i, m := range c.mutations {
			m.Key = []byte("k")
			mt.Apply(uint64(i+1), memtable.ChangeOf(&m))
		}
		for versions, want := range map[int]int{0: c.all, 1: c.one, 3: c.atMost} {
			got := 0
			mt.Sample(0, versions, func(_ []byte, size int64) { got += int(size) / large })
			if got != want {
				t.Errorf("%s, %d versions: %d large values, want %d", c.name, versions, got, want)
			}
		}
	}
}

func TestAnEmptyMemtableHasNothing(t *testing.T) {
	mt := memtable.New(memtable.Options{})
	it := mt.NewIterator()
	for name, ok := range map[string]bool{
		"First": it.First(), "Last": it.Last(), "SeekRow": it.SeekRow(nil), "SeekRow(k)": it.SeekRow([]byte("k")),
		"SeekRowBefore": it.SeekRowBefore([]byte("k")), "SeekRowExact": it.SeekRowExact([]byte("k")),
		"FirstCell": it.FirstCell(), "SeekCell": it.SeekCell(nil, 0), "NextCell": it.NextCell(),
	} {
		if ok {
			t.Errorf("%s found something", name)
		}
	}
	if mt.Size() > 128<<10 {
		t.Errorf("an empty memtable reserves %d bytes", mt.Size())
	}
}

func TestRowLevelCellsAreReachedBySeek(t *testing.T) {
	mt := memtable.New(memtable.Options{})
	for seq := uint64(1); seq <= 3; seq++ {
		mt.Apply(seq, memtable.ChangeOf(&row.Mutation{Key: []byte("k"), DeleteRow: true, Cells: []row.Cell{put("c", int64(seq)*1000, "x")}}))
	}
	it := mt.NewIterator()
	it.SeekRow([]byte("k"))
	tests := []struct {
		column  string
		version int64
		want    string
	}{
		{"", row.MaxVersion, "@max#3:delete-row"},
		{"", row.MaxVersion - 1, "@3000#3:row-marker"},
		{"", 2999, "@2000#2:row-marker"},
		{"", 1000, "@1000#1:row-marker"},
		{"", 999, `c@3000#3:put="x"`},
		{"c", 2500, `c@2000#2:put="x"`},
		{"c", 1000, `c@1000#1:put="x"`},
		{"", row.MaxVersion, "@max#3:delete-row"},
	}
	for _, test := range tests {
		for _, column := range [][]byte{[]byte(test.column), append([]byte(nil), test.column...)} {
			if !it.SeekCell(column, test.version) || it.Cell().String() != test.want {
				t.Errorf("SeekCell(%q, %d) = %v, want %s", column, test.version, it.Cell(), test.want)
			}
		}
	}
	if it.SeekCell([]byte("c"), 999) || it.SeekCell([]byte("d"), row.MaxVersion) {
		t.Errorf("found %v behind the last cell", it.Cell())
	}
}

func TestLargeValuesAndWideRowsReadBack(t *testing.T) {
	mt := memtable.New(memtable.Options{SlabSize: 4 << 10})
	m := newModel()
	random := rand.New(rand.NewPCG(3, 3))
	seq := uint64(0)
	apply := func(mut *row.Mutation) {
		seq++
		if err := mut.Normalize(); err != nil {
			t.Fatal(err)
		}
		mt.Apply(seq, memtable.ChangeOf(mut))
		m.apply(seq, mut)
	}
	for _, size := range []int{0, 1, 500, 511, 512, 513, 4 << 10, 70 << 10, 1<<20 - 1, 1 << 20, 3<<20 + 5} {
		value := bytes.Repeat([]byte{byte(size)}, size)
		cell := row.Cell{Column: []byte("c"), Version: 1, Kind: row.KindPut, Type: row.TypeBinary, Value: value}
		key := fmt.Appendf(nil, "value %d", size)
		apply(&row.Mutation{Key: key, Cells: []row.Cell{cell}})
		cell.Version = 2
		apply(&row.Mutation{Key: key, Cells: []row.Cell{cell}}) // packed, then indexed
	}
	for range 2 {
		wide := &row.Mutation{Key: []byte("wide")}
		for c := range 1024 {
			wide.Cells = append(wide.Cells, row.Cell{Column: fmt.Appendf(nil, "column %d", c), Version: 5, Kind: row.KindPut, Type: row.TypeBinary, Value: make([]byte, 2000)})
		}
		apply(wide)
	}
	apply(&row.Mutation{Key: bytes.Repeat([]byte("k"), row.MaxKeyBytes), PutRow: true})
	m.check(t, mt, random)
}

func TestEstimateSizeBoundsWhatApplyUses(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	mt := memtable.New(memtable.Options{SlabSize: 1 << 20, Seed: 5})
	total, empty := int64(0), mt.Used()
	inSlabs := int64(1 << 20 / 8) // not near the end of a slab, where some space is wasted
	for seq := uint64(1); mt.Used() < inSlabs; seq++ {
		mut := randomMutation(random, randomKey(random))
		before, bound := mt.Used(), memtable.EstimateSize(memtable.ChangeOf(mut))
		said := mt.Apply(seq, memtable.ChangeOf(mut))
		if said > bound {
			t.Errorf("mutation %d says that it took %d bytes, estimate %d", seq, said, bound)
		}
		if total += said; seq > 100 && total < mt.Used()-empty {
			t.Fatalf("%d bytes used after %d mutations, which say %d", mt.Used(), seq, total)
		}
		if used := mt.Used() - before; used > bound {
			t.Fatalf("mutation %d, %d cells, took %d bytes, estimate %d", seq, len(mut.Cells), used, bound)
		}
	}
}

func TestCellsOfAWideRowAreReckonedWithTheirTree(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	mt := memtable.New(memtable.Options{SlabSize: 1 << 20, Seed: 5})
	value := make([]byte, 20)
	total, empty := int64(0), mt.Used()
	for seq := range uint64(50_000) {
		change := memtable.ChangeOf(&row.Mutation{Key: []byte("k"), Cells: []row.Cell{
			{Column: fmt.Appendf(nil, "%07d", random.IntN(1e6)), Version: 1, Kind: row.KindPut, Type: row.TypeBinary, Value: value}}})
		said := mt.Apply(seq+1, change)
		if bound := memtable.EstimateSize(change); said > bound {
			t.Fatalf("mutation %d says that it took %d bytes, estimate %d", seq, said, bound)
		}
		total += said
	}
	if used := mt.Used() - empty; total < used || total > used*5/4 {
		t.Errorf("%d bytes used by mutations that say %d", used, total)
	}
}

func TestSizeFollowsWhatIsUsed(t *testing.T) {
	mt := memtable.New(memtable.Options{Seed: 9})
	mut := benchMutation()
	for i := range 20_000 {
		mut.Key = benchKey(mut.Key, uint64(i))
		mt.Apply(uint64(i+1), mut)
		if used, size := mt.Used(), mt.Size(); size < used || size > 3*used+100<<10 {
			t.Fatalf("after %d rows: %d bytes used, %d reserved", i+1, used, size)
		}
	}
}

func TestOneSeedAndHistoryGiveOneSize(t *testing.T) {
	build := func() int64 {
		random := rand.New(rand.NewPCG(6, 6))
		mt := memtable.New(memtable.Options{SlabSize: 4 << 10, Seed: 77})
		for seq := range uint64(500) {
			mt.Apply(seq+1, memtable.ChangeOf(randomMutation(random, randomKey(random))))
		}
		return mt.Used()
	}
	if a, b := build(), build(); a != b {
		t.Errorf("two runs used %d and %d bytes", a, b)
	}
}

func TestApplyAndReadsDoNotAllocate(t *testing.T) {
	// Allocations by slabs and hash tables average out to less than one.
	mt := memtable.New(memtable.Options{})
	mut := benchMutation()
	seq, key := uint64(0), make([]byte, 0, 64)
	apply := func() {
		seq++
		mut.Key = benchKey(key, seq)
		for range 2 { // an insert and an overwrite
			mt.Apply(seq, mut)
			mt.OrderGroup()
			seq++
		}
	}
	if n := testing.AllocsPerRun(1000, apply); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
	var it memtable.Iterator
	column := []byte("field5")
	read := func() {
		apply() // something is pending
		it.Init(mt)
		for ok := it.SeekRowExact(mut.Key) && it.FirstCell(); ok; ok = it.NextCell() {
		}
		it.SeekCell(column, row.MaxVersion)
		it.SeekRow(mut.Key)
		it.PrevRow()
	}
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("a read allocates %v times", n)
	}
}
