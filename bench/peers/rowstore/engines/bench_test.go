package engines_test

// This file is for a look at the adapters with a profiler: few rows, short runs.
// The comparison itself is the program in bench/peers.

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/engines"
)

const (
	benchRows    = 100_000
	benchColumns = 10
)

// bench is a store with rows of ten columns of 100 bytes.
type bench struct {
	store   rowstore.Store
	session rowstore.Session
	cells   []rowstore.Cell
	key     [16]byte
	version int64
}

func openBench(b *testing.B, e rowstore.Engine, encoding rowstore.Encoding) *bench {
	cfg := rowstore.Defaults(b.TempDir(), encoding)
	f := &bench{version: start}
	var err error
	if f.store, err = e.Open(cfg); err != nil {
		b.Fatal(err)
	}
	if f.session, err = f.store.Session(); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range benchColumns {
		value := make([]byte, 100)
		for j := range 50 {
			value[j] = byte(rng.Uint32())
		}
		f.cells = append(f.cells, rowstore.Cell{Column: fmt.Appendf(nil, "column%02d", i), Value: value})
	}
	if encoding == rowstore.Plain {
		f.cells = f.cells[:1]
		f.cells[0].Column = []byte(rowstore.PlainColumn)
	}
	return f
}

func (f *bench) close(b *testing.B) {
	if err := f.session.Close(); err != nil {
		b.Error(err)
	}
	if err := f.store.Close(); err != nil {
		b.Error(err)
	}
}

func (f *bench) at(i uint64) []byte {
	binary.BigEndian.PutUint64(f.key[:], i*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(f.key[8:], i)
	return f.key[:]
}

func (f *bench) put(b *testing.B, i uint64) {
	f.version++
	for c := range f.cells {
		f.cells[c].Version = f.version
		binary.LittleEndian.PutUint64(f.cells[c].Value, i*uint64(c+1))
	}
	if err := f.session.Put(f.at(i), f.cells); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAdapters(b *testing.B) {
	for _, e := range engines.All() {
		for _, encoding := range e.Encodings {
			b.Run(e.Name+"/"+string(encoding), func(b *testing.B) {
				f := openBench(b, e, encoding)
				defer f.close(b)
				f.run(b)
			})
		}
	}
}

func (f *bench) run(b *testing.B) {
	loaded := uint64(0)
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.put(b, loaded)
			loaded++
		}
	})
	for ; loaded < benchRows; loaded++ {
		f.put(b, loaded)
	}
	if _, err := f.store.Settle(); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var row rowstore.Row
	get := func(name string, q rowstore.Query, from uint64) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.session.Get(f.at(from+rng.Uint64N(loaded)), q, &row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	get("get", rowstore.Query{}, 0)
	if len(f.cells) > 1 {
		get("get1", rowstore.Query{Columns: [][]byte{f.cells[4].Column}}, 0)
	}
	get("missing", rowstore.Query{}, loaded)
	b.Run("range100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err := f.session.Scan(f.at(rng.Uint64N(loaded)), nil, rowstore.Query{}, 100, func(*rowstore.Row) bool { return true })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("split", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.store.SplitPoints(8 << 20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.version++
			cell := f.cells[:1]
			cell[0].Version = f.version
			if err := f.session.Update(f.at(rng.Uint64N(loaded)), cell); err != nil {
				b.Fatal(err)
			}
		}
	})
}
