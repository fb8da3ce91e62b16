package memtable_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

const (
	writers      = 4
	readers      = 3
	perWriter    = 1500
	writerRows   = 120
	testColumns  = 6
	testVersions = 50
)

// historyMutation is mutation i of a writer; a check can make it again. Each writer has its own
// rows, which lie between those of the others.
func historyMutation(writer, i int) (uint64, *row.Mutation) {
	random := rand.New(rand.NewPCG(uint64(writer), uint64(i)))
	seq := uint64(i*writers + writer + 1)
	mut := &row.Mutation{
		Key:       fmt.Appendf(nil, "row %04d of %d", random.IntN(writerRows)*7919%writerRows, writer),
		DeleteRow: random.IntN(10) == 0,
	}
	for c := range testColumns {
		if random.IntN(2) == 0 || c == testColumns-1 {
			mut.Cells = append(mut.Cells, row.Cell{
				Column: fmt.Appendf(nil, "column %d", c), Version: random.Int64N(testVersions),
				Kind: row.KindPut, Type: row.TypeBinary,
			})
			cell := &mut.Cells[len(mut.Cells)-1]
			cell.Value = testValue(mut.Key, cell.Column, cell.Version, seq)
		}
	}
	return seq, mut
}

// testValue depends on the cell's place, so that a mixed-up cell shows.
func testValue(key, column []byte, version int64, seq uint64) []byte {
	b := bytes.Clone(key)
	b = append(b, column...)
	b = binary.AppendVarint(b, version)
	b = binary.AppendUvarint(b, seq)
	sum := xxhash.Sum64(b)
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, sum), 1+int(sum%5))
}

// checkCurrentRow checks the order and the content of the cells of a row.
func checkCurrentRow(t *testing.T, it *memtable.Iterator, ok bool) (cells int) {
	var last row.Cell
	for ; ok; ok = it.NextCell() {
		c := it.Cell()
		if cells > 0 && row.CompareCells(&last, c) >= 0 {
			t.Errorf("row %q: %v before %v", it.RowKey(), &last, c)
		}
		if c.Kind == row.KindPut && !bytes.Equal(c.Value, testValue(it.RowKey(), c.Column, c.Version, c.Seq)) {
			t.Errorf("row %q: %v with a foreign value", it.RowKey(), c)
		}
		last = *c // not a clone: the memory must stay as it is
		cells++
	}
	return cells
}

// checkAcknowledged checks that an applied mutation is there.
func checkAcknowledged(t *testing.T, it *memtable.Iterator, writer, i int) {
	seq, mut := historyMutation(writer, i)
	if !it.SeekRowExact(mut.Key) {
		t.Errorf("row %q of mutation %d is not found", mut.Key, seq)
		return
	}
	if !it.SeekRow(mut.Key) || !bytes.Equal(it.RowKey(), mut.Key) {
		t.Errorf("row %q of mutation %d is not in the list", mut.Key, seq)
		return
	}
	for _, c := range mut.Cells {
		c.Seq = seq
		ok := it.SeekCell(c.Column, c.Version)
		for ok && row.CompareCells(it.Cell(), &c) < 0 {
			ok = it.NextCell()
		}
		if !ok || row.CompareCells(it.Cell(), &c) != 0 {
			t.Errorf("row %q: %v is not found", mut.Key, &c)
		}
	}
}

// read does one round of everything a reader can do.
func read(t *testing.T, it *memtable.Iterator, random *rand.Rand) {
	var last []byte
	step := func(ok, forward bool) {
		if order := bytes.Compare(last, it.RowKey()); last != nil && (order >= 0) == forward {
			t.Errorf("row %q after %q", it.RowKey(), last)
		}
		last = it.RowKey()
		if checkCurrentRow(t, it, it.FirstCell()) == 0 {
			t.Errorf("row %q has no cells", last)
		}
		column, version := fmt.Appendf(nil, "column %d", random.IntN(testColumns)), random.Int64N(testVersions)
		if it.SeekCell(column, version) {
			if order := bytes.Compare(it.Cell().Column, column); order < 0 || order == 0 && it.Cell().Version > version {
				t.Errorf("SeekCell(%q, %d) = %v", column, version, it.Cell())
			}
		}
	}
	for ok := it.First(); ok; ok = it.NextRow() {
		step(ok, true)
	}
	last = nil
	for ok := it.Last(); ok; ok = it.PrevRow() {
		step(ok, false)
	}
	key := fmt.Appendf(nil, "row %04d", random.IntN(writerRows))
	if it.SeekRow(key) && bytes.Compare(it.RowKey(), key) < 0 {
		t.Errorf("SeekRow(%q) = %q", key, it.RowKey())
	}
	if it.SeekRowBefore(key) && bytes.Compare(it.RowKey(), key) >= 0 {
		t.Errorf("SeekRowBefore(%q) = %q", key, it.RowKey())
	}
}

func TestReadersSeeAllAcknowledgedMutationsWhileOthersWrite(t *testing.T) {
	mt := memtable.New(memtable.Options{SlabSize: 4 << 10})
	var applied [writers]atomic.Int64
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range perWriter {
				seq, mut := historyMutation(w, i)
				mt.OrderGroup()
				mt.Apply(seq, memtable.ChangeOf(mut))
				applied[w].Store(int64(i + 1))
			}
		})
	}
	var done atomic.Bool
	for r := range readers {
		reading.Go(func() {
			random := rand.New(rand.NewPCG(99, uint64(r)))
			it := mt.NewIterator()
			for rounds := 0; !done.Load() || rounds < 2; rounds++ {
				for range 100 {
					w := random.IntN(writers)
					if n := applied[w].Load(); n > 0 {
						checkAcknowledged(t, it, w, int(random.Int64N(n)))
						checkAcknowledged(t, it, w, int(n-1))
					}
				}
				if rounds%4 == r {
					read(t, it, random)
				}
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()

	m := newModel()
	for w := range writers {
		for i := range perWriter {
			m.apply(historyMutation(w, i))
		}
	}
	m.check(t, mt, rand.New(rand.NewPCG(1, 2)))
}

func TestRowsInsertedAtOnePlaceByManyWritersAreAllThere(t *testing.T) {
	// Neighbouring keys at the same time: lost CAS, back links overtaken.
	for round := range 20 {
		mt := memtable.New(memtable.Options{})
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 200 {
					mut := row.Mutation{Key: fmt.Appendf(nil, "%06d", i*8+w), PutRow: true}
					mt.Apply(uint64(round*10_000+i*8+w+1), memtable.ChangeOf(&mut))
					mt.OrderGroup()
				}
			})
		}
		wg.Wait()
		it := mt.NewIterator()
		n := 0
		for ok := it.First(); ok; ok = it.NextRow() {
			if want := fmt.Sprintf("%06d", n); string(it.RowKey()) != want {
				t.Fatalf("forward: row %d is %q", n, it.RowKey())
			}
			n++
		}
		for ok := it.Last(); ok; ok = it.PrevRow() {
			n--
			if want := fmt.Sprintf("%06d", n); string(it.RowKey()) != want {
				t.Fatalf("backward: row %d is %q", n, it.RowKey())
			}
		}
		if n != 0 || mt.Rows() != 1600 {
			t.Fatalf("%d rows lost", n)
		}
	}
}

// Writers of one row run one after the other under a lock, as under the row's latch: each
// continues with the index of the writer before, while readers read.
func TestAWideRowIsReadWhileItsWritersTakeTurns(t *testing.T) {
	const mutations, columns = 4000, 700
	mt := memtable.New(memtable.Options{SlabSize: 4 << 10, Seed: 3})
	key := []byte("the row")
	var latch sync.Mutex
	var applied atomic.Uint64
	want := 0 // cells, without row markers
	put := func(random *rand.Rand) (more bool) {
		latch.Lock()
		defer latch.Unlock()
		seq := applied.Load() + 1
		mut := &row.Mutation{Key: key, DeleteRow: seq%1000 == 0}
		for from := random.IntN(columns); from < columns && len(mut.Cells) < 8; from += 1 + random.IntN(40) {
			c := row.Cell{Column: fmt.Appendf(nil, "column%06d", from), Version: int64(seq), Kind: row.KindPut, Type: row.TypeBinary}
			c.Value = testValue(key, c.Column, c.Version, seq)
			mut.Cells = append(mut.Cells, c)
		}
		mt.Apply(seq, memtable.ChangeOf(mut))
		if want += len(mut.Cells); mut.DeleteRow {
			want++
		}
		applied.Store(seq)
		return seq < mutations
	}
	put(rand.New(rand.NewPCG(1, 1)))
	var writing, reading sync.WaitGroup
	for w := range 3 {
		writing.Go(func() {
			for random := rand.New(rand.NewPCG(7, uint64(w))); put(random); {
			}
		})
	}
	var done atomic.Bool
	for range 2 {
		reading.Go(func() {
			it := mt.NewIterator()
			for least, last := 0, false; !last; {
				last = done.Load()
				if !it.SeekRowExact(key) {
					t.Error("the row is not found")
					return
				}
				n := checkCurrentRow(t, it, it.FirstCell())
				if n < least {
					t.Errorf("%d cells after %d", n, least)
				}
				least = n
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
	it := mt.NewIterator()
	if !it.SeekRowExact(key) {
		t.Fatal("the row is not found")
	}
	n := checkCurrentRow(t, it, it.FirstCell())
	for ok := it.FirstCell(); ok; ok = it.NextCell() {
		if it.Cell().Kind == row.KindRowMarker {
			n--
		}
	}
	if n != want {
		t.Errorf("%d cells, want %d", n, want)
	}
}
