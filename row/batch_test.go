package row

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func describeMutation(m *Mutation) string {
	return fmt.Sprintf("table %d key %x delete %v put %v: %s", m.Table, m.Key, m.DeleteRow, m.PutRow, describeCells(m.Cells))
}

// readBatch decodes a whole batch.
func readBatch(data []byte) (time int64, mutations []string, err error) {
	r, err := NewBatchReader(data)
	if err != nil {
		return 0, nil, err
	}
	var c Change
	var m Mutation
	for {
		ok, err := r.Next(&c)
		if !ok || err != nil {
			return r.Time(), mutations, err
		}
		if err := c.Mutation(&m); err != nil {
			return 0, nil, err
		}
		mutations = append(mutations, describeMutation(&m))
	}
}

// add normalizes a mutation and adds it to a batch.
func add(b *Batch, m *Mutation) error {
	c := new(Change)
	if err := c.Set(m); err != nil {
		return err
	}
	return b.Add(c)
}

func bytesOf(b *Batch) []byte { return bytes.Join(b.Pieces(), nil) }

func TestABatchReadsBackAsItWasMade(t *testing.T) {
	var b Batch
	rapid.Check(t, func(t *rapid.T) {
		b.Reset()
		time := rapid.Int64().Draw(t, "time")
		var want []string
		for range rapid.IntRange(1, 5).Draw(t, "mutations") {
			m := drawMutation(t)
			if err := add(&b, &m); err != nil {
				t.Fatal(err)
			}
			want = append(want, describeMutation(&m))
		}
		b.SetTime(time)
		if b.Len() != len(want) || b.Empty() {
			t.Fatalf("length %d, empty %v after %d mutations", b.Len(), b.Empty(), len(want))
		}
		gotTime, got, err := readBatch(bytesOf(&b))
		if err != nil || gotTime != time || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("time %d, mutations %q, error %v\nwant %d, %q", gotTime, got, err, time, want)
		}
	})
}

func TestAnEmptyBatchHasNoBytes(t *testing.T) {
	var b Batch
	for range 2 {
		b.SetTime(7)
		if !b.Empty() || b.Len() != 0 || len(bytesOf(&b)) != 0 {
			t.Errorf("empty %v, length %d, %d bytes", b.Empty(), b.Len(), len(bytesOf(&b)))
		}
		if err := add(&b, &Mutation{Key: []byte{1}, PutRow: true}); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
}

func TestARefusedMutationLeavesTheBatchAsItWas(t *testing.T) {
	var b Batch
	if err := add(&b, &Mutation{Key: []byte{1}, PutRow: true}); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(bytesOf(&b))
	if err := add(&b, &Mutation{Cells: []Cell{put("a", 1, Integer(1))}}); !errors.Is(err, ErrBadMutation) {
		t.Errorf("error %v", err)
	}
	if !bytes.Equal(bytesOf(&b), before) {
		t.Errorf("batch %x, was %x", bytesOf(&b), before)
	}
}

func TestAShortenedBatchIsRefusedAtEveryLength(t *testing.T) {
	whole := goldenBatch(t)
	for n := range whole {
		if _, got, err := readBatch(whole[:n]); !errors.Is(err, ErrBadMutation) {
			t.Errorf("%d of %d bytes: mutations %q, error %v", n, len(whole), got, err)
		}
	}
}

func TestDamagedBatchesAreRefused(t *testing.T) {
	// encode writes cells as given, without the checks of Batch.Add.
	encode := func(flags byte, cells ...Cell) []byte {
		b := make([]byte, batchHeaderSize)
		b[0] = batchFormat
		binary.LittleEndian.PutUint32(b[9:], 1)
		b = append(b, 1, flags, 1, 'k', byte(len(cells)))
		var list CellList
		for i := range cells {
			appendCell(&list, &cells[i])
		}
		return append(b, list.Bytes()...)
	}
	edit := func(b []byte, at int, v byte) []byte {
		b[at] = v
		return b
	}
	good := put("a", 1, Integer(1))
	if _, _, err := readBatch(encode(0, good)); err != nil {
		t.Fatalf("the undamaged batch: %v", err)
	}
	typed := trim("a", 1)
	typed.Type = TypeInteger
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"a newer format", edit(encode(0, good), 0, batchFormat+1)},
		{"a packed value in an older format", edit(encode(0, packedPut("a")), 0, plainFormat)},
		{"a packed integer", encode(0, Cell{Column: []byte("a"), Kind: KindPut, Type: TypeInteger, Packed: true, Value: make([]byte, 8)})},
		{"a count too large", edit(encode(0, good), 9, 2)},
		{"a count too small", edit(encode(0, good), 9, 0)},
		{"bytes at the end", append(encode(0, good), 0)},
		{"unknown flag", encode(4, good)},
		{"no key", edit(encode(0, good), batchHeaderSize+2, 0)},
		{"many cells in few bytes", edit(encode(0, good), batchHeaderSize+4, 0x7F)},
		{"no column name", encode(0, put("", 1, Integer(1)))},
		{"negative version", encode(0, put("a", -1, Integer(1)))},
		{"put at the reserved version", encode(0, put("a", MaxVersion, Integer(1)))},
		{"row-level kind", encode(0, Cell{Column: []byte("a"), Kind: KindDeleteRow})},
		{"unknown kind", encode(0, Cell{Column: []byte("a"), Kind: 7})},
		{"tombstone with a type", encode(0, typed)},
		{"short integer", encode(0, Cell{Column: []byte("a"), Kind: KindPut, Type: TypeInteger, Value: []byte{1}})},
		{"columns out of order", encode(0, put("b", 1, Integer(1)), good)},
		{"versions out of order", encode(0, good, put("a", 2, Integer(1)))},
		{"one version twice", encode(0, good, good)},
		{"a version deleted and put", encode(0, deleteVersion("a", 1), good)},
		{"a put before the trim of its version", encode(0, good, trim("a", 1))},
	} {
		if _, got, err := readBatch(c.data); !errors.Is(err, ErrBadMutation) {
			t.Errorf("%s: mutations %q, error %v", c.name, got, err)
		}
	}
}

func TestMutationsOfABatchShareItsMemory(t *testing.T) {
	data := goldenBatch(t)
	r, err := NewBatchReader(data)
	if err != nil {
		t.Fatal(err)
	}
	var c Change
	var m Mutation
	if ok, err := r.Next(&c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := c.Mutation(&m); err != nil {
		t.Fatal(err)
	}
	// An append to a slice of the batch must not overwrite the bytes behind it.
	for _, s := range [][]byte{m.Key, m.Cells[0].Column} {
		if cap(s) != len(s) {
			t.Errorf("%q has capacity %d", s, cap(s))
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(goldenBatch(f))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewBatchReader(data)
		var b Batch
		var c Change
		var m Mutation
		var want []string
		for more := err == nil; more; {
			more, err = r.Next(&c)
			if more {
				if err := c.Mutation(&m); err != nil {
					t.Fatal(err)
				}
				before := describeMutation(&m)
				if addErr := add(&b, &m); addErr != nil {
					t.Fatalf("read %s, which is refused: %v", before, addErr)
				}
				if after := describeMutation(&m); after != before {
					t.Fatalf("read %s, which normalizes to %s", before, after)
				}
				want = append(want, before)
			}
		}
		if err != nil {
			if !errors.Is(err, ErrBadMutation) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if b.Empty() {
			return
		}
		b.SetTime(r.Time())
		time, got, err := readBatch(bytesOf(&b))
		if err != nil || time != r.Time() || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("read %q, wrote %q: %v", want, got, err)
		}
	})
}

func benchmarkMutation() *Mutation {
	m := &Mutation{Table: 1, Key: []byte("\x20user-0123456789abcdef"), DeleteRow: true, PutRow: true}
	for i := range 10 {
		m.Cells = append(m.Cells, put(fmt.Sprintf("column%d", i), 1700000000000, String("sixteen bytes...")))
	}
	return m
}

// fill makes c the change of benchmarkMutation, as a writer does.
func fill(t testing.TB, c *Change, m *Mutation, values []Value, columns []string) {
	c.Reset()
	c.Table, c.Key = 1, append(c.Key, m.Key...)
	c.DeleteRow, c.PutRow = true, true
	for i, column := range columns {
		if err := c.Put(column, 1700000000000, values[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func benchmarkValues() (values []Value, columns []string) {
	for i := range 10 {
		values = append(values, String("sixteen bytes..."))
		columns = append(columns, fmt.Sprintf("column%d", i))
	}
	return values, columns
}

// BenchmarkBatchAdd makes a change of ten cells and a batch of it.
func BenchmarkBatchAdd(b *testing.B) {
	var batch Batch
	var c Change
	m := benchmarkMutation()
	values, columns := benchmarkValues()
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		fill(b, &c, m, values, columns)
		if err := batch.Add(&c); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(bytesOf(&batch))))
}

func BenchmarkBatchRead(b *testing.B) {
	var batch Batch
	if err := add(&batch, benchmarkMutation()); err != nil {
		b.Fatal(err)
	}
	var c Change
	data := bytesOf(&batch)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := NewBatchReader(data)
		if err != nil {
			b.Fatal(err)
		}
		if ok, err := r.Next(&c); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func TestAddingAndReadingAllocateNothingOnceWarm(t *testing.T) {
	var batch Batch
	m := benchmarkMutation()
	values, columns := benchmarkValues()
	var c, read Change
	if err := add(&batch, m); err != nil {
		t.Fatal(err)
	}
	data := bytesOf(&batch)
	allocs := testing.AllocsPerRun(100, func() {
		batch.Reset()
		fill(t, &c, m, values, columns)
		if err := batch.Add(&c); err != nil {
			t.Fatal(err)
		}
		batch.Pieces()
		r, err := NewBatchReader(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(&read); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%g allocations", allocs)
	}
}

// Empty reports whether no mutation was added.
func (b *Batch) Empty() bool { return len(b.data) <= batchHeaderSize }
