package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/row"
)

// evenTable makes rows as puts of whole rows leave them, and a few others.
func evenTable(rng *rand.Rand, rows int) modelTable {
	model := randomTable(rng, rows, 31)
	columns, permanent, deleted := 1+rng.IntN(12), rng.IntN(2) == 0, rng.IntN(2) == 0
	all, reference, several := rng.IntN(2) == 0, rng.IntN(3) == 0, !deleted && rng.IntN(2) == 0
	for i := range model {
		if rng.IntN(60) == 0 {
			continue
		}
		seq, version := 1+rng.Uint64N(1000), 1_000_000+rng.Int64N(1<<rng.IntN(50))
		var cells []row.Cell
		if deleted {
			cells = append(cells, row.Cell{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: seq})
		}
		marker := row.Cell{Kind: row.KindRowMarker, Version: version, Seq: seq}
		if permanent {
			marker.Version = row.MaxVersion
		}
		cells = append(cells, marker)
		for c := range columns {
			if !all && rng.IntN(3) == 0 {
				continue
			}
			cell := row.Cell{
				Column: fmt.Appendf(nil, "c%02d", c), Version: version, Seq: seq, Kind: row.KindPut,
				Type: row.TypeBinary, Value: bytes.Repeat([]byte{byte(i + c)}, rng.IntN(20)),
			}
			if reference && rng.IntN(4) == 0 {
				ref := row.Reference{File: 1, Offset: rng.Uint64N(1 << 40), Stored: 1 + rng.Uint32N(6<<20)}
				cell.Separate, cell.Value = true, ref.Append(nil)
			}
			cells = append(cells, cell)
			for several && rng.IntN(3) == 0 { // more versions
				cell.Version -= 1 + rng.Int64N(1000)
				cell.Seq = 1 + rng.Uint64N(1000)
				cells = append(cells, cell)
			}
		}
		model[i].cells = cells
	}
	return model
}

// checkChunkRow compares a row of a chunk with that of the model.
func checkChunkRow(dst *row.Chunk, i int, want *modelRow, p *row.Projection) error {
	key, cells := dst.Row(i)
	if !bytes.Equal(key, want.key) {
		return fmt.Errorf("key %q, want %q", key, want.key)
	}
	versions := 0
	for j := range want.cells {
		c := &want.cells[j]
		if versions++; j > 0 && !bytes.Equal(c.Column, want.cells[j-1].Column) {
			versions = 1
		}
		if c.Kind.IsRowLevel() || p == nil || !p.Wants(c.Column) || p.Cuts(versions) {
			continue
		}
		if len(cells) == 0 || !sameCell(&cells[0], c) {
			return fmt.Errorf("row %q: cells %v at %s", key, cells, c)
		}
		cells = cells[1:]
	}
	if len(cells) > 0 {
		return fmt.Errorf("row %q: %d cells too many", key, len(cells))
	}
	return nil
}

func TestRowsOfAChunkAreThoseOfTheTable(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	together, rows := 0, 0
	var all, projection row.Projection
	var dst row.Chunk
	for range 60 {
		model := evenTable(rng, 150)
		f := &memFile{}
		model.write(t, f, WriterOptions{BlockSize: 64 << rng.IntN(7), Compression: Compression(rng.IntN(3))})
		r := openShifted(t, f, NewBlockCache(cache.Options{Capacity: 1 << 20}), model.shift(rng))
		it := r.NewIterator(IterOptions{})
		for _, p := range []*row.Projection{&all, nil, &projection, &projection} {
			if p == &projection {
				randomProjection(rng, p, 14)
			}
			at := 0
			for ok := it.First(); ok; ok = it.NextRow() {
				var limit []byte
				if rng.IntN(3) == 0 && at+1 < len(model) {
					limit = model[at+1+rng.IntN(min(40, len(model)-at-1))].key
				}
				var s row.Extent
				if _, ok := it.Extent(row.Ask{Rows: true, Limit: limit}, &s); ok && s.Rows > 0 {
					for i := range s.Rows {
						for _, c := range model[at+i].cells {
							if c.Kind == row.KindPut && (c.Seq < s.MinSeq || c.Seq > s.MaxSeq) {
								t.Fatalf("row %d: sequence number %d, the extent says %d to %d", at+i, c.Seq, s.MinSeq, s.MaxSeq)
							}
						}
					}
					dst.Budget = rng.IntN(1 << rng.IntN(15))
					most := 1 + rng.IntN(s.Rows)
					n := it.CollectRows(&dst, most, p)
					if n < 1 || n > most || dst.Len() < n {
						t.Fatalf("%d rows of %d, the chunk has %d", n, most, dst.Len())
					}
					for i := range n {
						if err := checkChunkRow(&dst, dst.Len()-n+i, &model[at+i], p); err != nil {
							t.Fatalf("row %d of %d: %v", i, n, err)
						}
					}
					at += n - 1
					if n > 1 {
						together += n
					}
				}
				if !bytes.Equal(it.RowKey(), model[at].key) {
					t.Fatalf("at row %q, want %q", it.RowKey(), model[at].key)
				}
				if rng.IntN(4) == 0 {
					if err := checkCells(it, it.FirstCell(), model[at].cells); err != nil {
						t.Fatal(err)
					}
				}
				if rng.IntN(3) == 0 {
					dst.Reset()
				}
				at++
				rows++
			}
			if err := it.Error(); err != nil || at != len(model) {
				t.Fatalf("ended after %d of %d rows: %v", at, len(model), err)
			}
		}
		it.Close()
		r.Close()
	}
	if together < 3_000 {
		t.Errorf("of %d rows %d were read together: the test tests little", rows, together)
	}
}

// BenchmarkCollectRows measures per row of one column of 100 bytes, all in the CPU's caches.
func BenchmarkCollectRows(b *testing.B) {
	var model modelTable
	for i := range 2_000 {
		seq := uint64(i + 1)
		model = append(model, modelRow{fmt.Appendf(nil, "\x20%016x", i*7919), []row.Cell{
			{Kind: row.KindRowMarker, Version: 1_700_000_000_000, Seq: seq},
			{Column: []byte("v"), Kind: row.KindPut, Type: row.TypeBinary, Version: 1_700_000_000_000, Seq: seq, Value: make([]byte, 100)},
		}})
	}
	f := &memFile{}
	model.write(b, f, WriterOptions{})
	r := openFile(b, f, NewBlockCache(cache.Options{Capacity: 1 << 20}))
	defer r.Close()
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	var s row.Extent
	var p row.Projection
	chunk := row.Chunk{Budget: 16 << 10}
	it.First()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n > 0 {
			n--
			continue
		}
		if !it.NextRow() {
			it.First()
		}
		chunk.Reset()
		if _, ok := it.Extent(row.Ask{Rows: true}, &s); ok && s.Rows > 0 {
			n = it.CollectRows(&chunk, s.Rows, &p) - 1
		}
	}
}

// Some columns of rows that lie in several segments. Their values stay in place though the memory of a
// segment serves the next one.
func TestSomeColumnsOfSeveralSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	model := make(modelTable, 100)
	for i := range model {
		model[i].key = fmt.Appendf(nil, "key%05d", i)
		cells := []row.Cell{{Kind: row.KindRowMarker, Version: row.MaxVersion, Seq: uint64(i + 1)}}
		for c := range 5 {
			value := make([]byte, rng.IntN(600))
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			cells = append(cells, row.Cell{
				Column: fmt.Appendf(nil, "c%02d", c), Version: int64(1000 + i), Seq: uint64(i + 1), Kind: row.KindPut, Type: row.TypeBinary, Value: value,
			})
		}
		model[i].cells = cells
	}
	f := &memFile{}
	model.write(t, f, WriterOptions{Compression: CompressS2})
	it := openShifted(t, f, nil, 0).NewIterator(IterOptions{})
	defer it.Close()
	var p row.Projection
	for range 40 {
		randomProjection(rng, &p, 6)
		at := 0
		for ok := it.First(); ok; ok = it.NextRow() {
			var e row.Extent
			if _, ok := it.Extent(row.Ask{Rows: true}, &e); !ok || e.Rows == 0 {
				t.Fatalf("row %d: %v", at, it.Error())
			}
			dst := row.Chunk{Budget: rng.IntN(64 << 10)}
			n := it.CollectRows(&dst, e.Rows, &p)
			for i := range n {
				if err := checkChunkRow(&dst, i, &model[at+i], &p); err != nil {
					t.Fatalf("row %d of %d: %v", i, n, err)
				}
			}
			at += n
		}
		if err := it.Error(); err != nil || at != len(model) {
			t.Fatalf("%d rows: %v", at, err)
		}
	}
}
