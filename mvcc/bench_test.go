package mvcc_test

import (
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// tenColumns is a row put at a sequence number: delete-row, marker, ten cells.
func tenColumns(seq uint64) []row.Cell {
	cells := []row.Cell{deleteRow(seq), marker(int64(seq), seq)}
	for i := range 10 {
		cells = append(cells, put(fmt.Sprintf("column%d", i), int64(seq), seq))
	}
	return cells
}

func BenchmarkReadRowOfTenColumns(b *testing.B) {
	it := positioned(tenColumns(5))
	r := mvcctest.NewReader(it, newest, mvcc.Selection{})
	b.ReportAllocs()
	for b.Loop() {
		r.StartRow()
		n := 0
		for r.NextCell() {
			n++
		}
		if n != 10 {
			b.Fatal(n)
		}
	}
}

func BenchmarkReadOneOfTenColumnsFromThreeRuns(b *testing.B) {
	var sources []mvcc.Iterator
	for seq := uint64(1); seq <= 3; seq++ {
		sources = append(sources, positioned(tenColumns(seq)))
	}
	merge := mvcctest.NewRowMerge(nil)
	sel := mvcc.Selection{Columns: [][]byte{[]byte("column7")}}
	r := mvcctest.NewReader(merge, newest, sel)
	b.ReportAllocs()
	for b.Loop() {
		merge.Reset(sources)
		r.Reset(merge, newest, sel)
		r.StartRow()
		if !r.NextCell() || r.Cell().Seq != 3 {
			b.Fatal("not found")
		}
	}
}

func BenchmarkMergeOfFourRuns(b *testing.B) {
	var runs []mvcctest.Run
	for i := range 4 {
		var run mvcctest.Run
		for k := range 1000 {
			if k%4 == i || k%10 == 0 {
				run = append(run, mvcctest.Row{Key: fmt.Appendf(nil, "row%06d", k), Cells: tenColumns(uint64(i + 1))})
			}
		}
		runs = append(runs, run)
	}
	it := mvcc.NewMergeIterator(iterators(runs))
	cells := 0
	b.ReportAllocs()
	for b.Loop() {
		cells = 0
		for ok := it.First(); ok; ok = it.NextRow() {
			for ok := it.FirstCell(); ok; ok = it.NextCell() {
				cells++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cells), "ns/cell")
}

func BenchmarkPrune(b *testing.B) {
	for _, snapshots := range []int{0, 3} {
		b.Run(fmt.Sprintf("snapshots=%d", snapshots), func(b *testing.B) {
			var cells []row.Cell
			for seq := uint64(1); seq <= 4; seq++ {
				cells = append(cells, tenColumns(seq)[1:]...)
			}
			sortCells(cells)
			policy := mvcc.Policy{ExpiryCutoff: mvcc.NoExpiry, MaxVersions: 1}
			for i := range snapshots {
				policy.Views = append(policy.Views, mvcc.View{Seq: uint64(i + 1), MaxVersions: 1, Cutoff: mvcc.NoExpiry})
			}
			policy.Views = append(policy.Views, newest)
			p := mvcc.NewPruner(policy)
			b.ReportAllocs()
			for b.Loop() {
				p.StartRow(mvcc.BelowAnything)
				for i := range cells {
					p.Add(&cells[i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(cells)), "ns/cell")
		})
	}
}
