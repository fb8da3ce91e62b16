package valuefile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// shapes are values made of text, noise and runs, with lengths around those at which pieces end.
func shapes(random *rand.Rand) [][]byte {
	text := func(n int) []byte { return bytes.Repeat([]byte("some text that repeats, "), n/24+1)[:n] }
	values := [][]byte{
		text(1000), text(blockPiece), text(blockPiece + 1), text(3*blockPiece - 5),
		append(noise(random, 100_000), make([]byte, 100_000)...),
		append(make([]byte, 100_000), noise(random, 3)...),
		bytes.Repeat([]byte{7}, 2*runPiece+3), make([]byte, shortestRun), make([]byte, shortestRun-1),
		append(text(shortestRun/2-1), make([]byte, shortestRun)...),
	}
	for range 30 {
		var v []byte
		for range 1 + random.IntN(6) {
			n := random.IntN(3 * shortestRun)
			switch random.IntN(4) {
			case 0:
				v = append(v, noise(random, n)...)
			case 1:
				v = append(v, bytes.Repeat([]byte{byte(random.IntN(3))}, n)...)
			case 2:
				v = append(v, make([]byte, n+random.IntN(2*runPiece))...)
			default:
				v = append(v, text(n)...)
			}
		}
		values = append(values, v)
	}
	return values
}

// packBlock returns the old packed form, from before pieces.
func packBlock(value []byte) []byte {
	return s2.Encode(nil, append(bytes.Clone(value), guard...))
}

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var buffer, other []byte
	packed, blocks := 0, 0
	for i, value := range shapes(random) {
		p, ok := pack(&buffer, value)
		if save := len(value)/8 - (len(value) - len(p)); ok != (save < 0) {
			t.Errorf("value %d of %d bytes: packed to %d: %t", i, len(value), len(p), ok)
		}
		if !ok {
			continue
		}
		packed++
		if got, err := Unpack(&other, p); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("value %d: unpacked to %d of %d bytes, %v", i, len(got), len(value), err)
		}
		if block := packBlock(value); len(block) < len(value) {
			blocks++
			if got, err := Unpack(&other, block); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("value %d, as a block: unpacked to %d of %d bytes, %v", i, len(got), len(value), err)
			}
		}
	}
	if packed < 20 || blocks < 20 {
		t.Errorf("only %d values were packed, %d as blocks", packed, blocks)
	}
}

// TestRunsArePiecesOfTheirOwn tries runs at many places.
func TestRunsArePiecesOfTheirOwn(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var buffer []byte
	for _, before := range []int{0, 1, 5000, shortestRun / 2, 30_001} {
		for _, length := range []int{shortestRun, shortestRun + 1, 2*runPiece + 1} {
			for _, after := range []int{0, 1, 15, 16, 17, 40_000} {
				value := append(append(noise(random, before), bytes.Repeat([]byte{9}, length)...), noise(random, after)...)
				if before > 0 {
					value[before-1] = 1
				}
				if after > 0 {
					value[before+length] = 1
				}
				plan := cut(nil, value)
				runs, at := 0, 0
				for _, c := range plan {
					if c.from != at || c.to <= c.from || c.to-c.from > blockPiece {
						t.Fatalf("piece from %d to %d behind %d", c.from, c.to, at)
					}
					if at = c.to; c.run {
						runs += c.to - c.from
					}
				}
				// A few bytes more or less at its ends do not matter.
				if at != len(value) || runs != length {
					t.Errorf("run of %d behind %d and before %d: %d bytes of runs, %d of %d", length, before, after, runs, at, len(value))
				}
				packed, _ := pack(&buffer, value)
				var out []byte
				if len(packed) >= len(value) {
					continue
				}
				if got, err := Unpack(&out, packed); err != nil || !bytes.Equal(got, value) {
					t.Fatalf("run of %d behind %d and before %d: %v", length, before, after, err)
				}
			}
		}
	}
}

// TestAPackedValueIsStoredAsItIs: AddPacked of a packed value writes the record that Add would
// write.
func TestAPackedValueIsStoredAsItIs(t *testing.T) {
	value := bytes.Repeat([]byte("packed once "), 1000)
	var buffer []byte
	packed, ok := pack(&buffer, value)
	if !ok {
		t.Fatal("a repetition does not pack")
	}
	fs := vfs.NewSim(vfs.SimOptions{})
	var sums []uint64
	for _, add := range []func(*Writer) (row.Reference, error){
		func(w *Writer) (row.Reference, error) { return w.Add(value) },
		func(w *Writer) (row.Reference, error) { return w.AddPacked(packed) },
	} {
		f, err := fs.Create("values", vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(f, WriterOptions{Number: 1, UniqueID: [16]byte{1}, Compress: true})
		if _, err := add(w); err != nil {
			t.Fatal(err)
		}
		info, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, info.Checksum)
	}
	if sums[0] != sums[1] {
		t.Errorf("files %x", sums)
	}
	random := rand.New(rand.NewPCG(1, 2))
	if _, ok := pack(&buffer, noise(random, 1000)); ok {
		t.Error("noise packs")
	}
}

// TestValuesOfTheTimeBeforePiecesAreStoredAndCopied: logs and files of older versions contain
// such values.
func TestValuesOfTheTimeBeforePiecesAreStoredAndCopied(t *testing.T) {
	value := bytes.Repeat([]byte("packed once "), 1000)
	fs := vfs.NewSim(vfs.SimOptions{})
	create := func(name string, add func(*Writer) (row.Reference, error)) *stored {
		f, err := fs.Create(name, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(f, WriterOptions{Number: 1, UniqueID: testID, Compress: true})
		ref, err := add(w)
		if err != nil {
			t.Fatal(err)
		}
		s := &stored{fs: fs, name: name, values: [][]byte{value}, refs: []row.Reference{ref}}
		if s.info, err = w.Finish(); err != nil {
			t.Fatal(err)
		}
		for _, s.mapped = range []bool{false, true} {
			if err := s.readAll(t); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return s
	}
	block := packBlock(value)
	s := create("/first", func(w *Writer) (row.Reference, error) { return w.AddPacked(block) })
	if s.refs[0].Stored != uint32(headSize+len(block)) || s.content(t)[8] != kindBlock {
		t.Error("it was not stored as it is")
	}
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var buffer []byte
	create("/second", func(w *Writer) (row.Reference, error) {
		record, err := r.ReadRecord(&buffer, s.refs[0])
		if err != nil {
			return row.Reference{}, err
		}
		return w.Copy(record)
	})
}

// TestADamagedPackedValueIsAnError for damage at any place: Unpack never returns another length,
// and never panics.
func TestADamagedPackedValueIsAnError(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	value := bytes.Repeat([]byte("abcdefgh"), 20)
	long := append(append(bytes.Repeat([]byte("abcdefgh"), 300), make([]byte, 2*shortestRun)...), noise(random, 300)...)
	var buffer, other []byte
	for _, value := range [][]byte{value, long} {
		pieces, _ := pack(&buffer, value)
		for form, packed := range map[string][]byte{"pieces": bytes.Clone(pieces), "block": packBlock(value)} {
			for n := range packed {
				if got, err := Unpack(&other, packed[:n]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: %d of %d bytes: %d bytes, %v", form, n, len(packed), len(got), err)
				}
			}
			for i := range len(packed) * 8 {
				bad := bytes.Clone(packed)
				bad[i/8] ^= 1 << (i % 8)
				if got, err := Unpack(&other, bad); err == nil && len(got) != len(value) || err != nil && !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: bit %d: %d bytes, %v", form, i, len(got), err)
				}
			}
		}
	}
}

// TestADamagedPieceIsFound by its checksum, in each way of reading.
func TestADamagedPieceIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	value := append(append(noise(random, blockPiece+1000), make([]byte, 2*runPiece)...), bytes.Repeat([]byte("text "), 1000)...)
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, value)
	good := s.content(t)
	p, _, bad := parsePieces(good[headSize : len(good)-footerSize])
	if bad != "" || p.len() < 4 {
		t.Fatalf("%d pieces, %s", p.len(), bad)
	}
	at := headSize + directoryHead + len(p.entries)
	var all []piece
	p.walk(func(_ int, c piece) string { all = append(all, c); return "" })
	for i, c := range all {
		for _, in := range []int{0, random.IntN(len(c.content)), len(c.content) - 1} {
			damaged := bytes.Clone(good)
			damaged[at+in] ^= 1 << random.IntN(8)
			s.replace(t, damaged)
			for _, s.mapped = range []bool{false, true} {
				r, err := s.open()
				if err != nil {
					t.Fatal(err)
				}
				var buffer []byte
				_, err1 := r.Value(&buffer, s.refs[0])
				_, err2 := r.ReadRecord(&buffer, s.refs[0])
				_, err3 := r.Verify(goOn)
				for _, err := range []error{err1, err2, err3} {
					if !errors.Is(err, ErrCorrupt) {
						t.Errorf("piece %d at %d: %v", i, in, err)
					}
				}
				r.Close()
			}
		}
		at += len(c.content)
	}
}

// FuzzUnpack unpacks any bytes. Unpacking from memory checks no checksums.
func FuzzUnpack(f *testing.F) {
	var buffer []byte
	for _, value := range [][]byte{bytes.Repeat([]byte("abc"), 30), make([]byte, shortestRun), append(make([]byte, shortestRun), "end"...)} {
		packed, _ := pack(&buffer, value)
		f.Add(bytes.Clone(packed))
		f.Add(packBlock(value))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		if _, raw, bad := parsePacked(packed); bad == "" && raw > 1<<20 {
			return // too slow
		}
		var buffer []byte
		got, err := Unpack(&buffer, packed)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if err == nil && len(got) <= len(packed) {
			t.Fatalf("%d bytes were packed as %d", len(got), len(packed))
		}
	})
}

// FuzzPack packs any bytes, repeated so that they compress.
func FuzzPack(f *testing.F) {
	f.Add([]byte("abc"), uint16(30), byte(0), uint32(0))
	f.Add([]byte("abc"), uint16(3), byte(0), uint32(3*shortestRun))
	f.Fuzz(func(t *testing.T, part []byte, times uint16, c byte, run uint32) {
		if len(part)*int(times) > 1<<20 || run > 1<<20 {
			return
		}
		value := append(bytes.Repeat(part, int(times)), bytes.Repeat([]byte{c}, int(run))...)
		value = append(value, part...)
		var buffer, other []byte
		packed, ok := pack(&buffer, value)
		if !ok {
			return
		}
		if got, err := Unpack(&other, packed); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d of %d bytes, %v", len(got), len(value), err)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{16 << 10, 64 << 10, 1 << 20} {
		random := noise(random, size)
		half, mixed := bytes.Clone(random), bytes.Clone(random)
		clear(half[size/2:])
		for i := range mixed {
			if i%128 >= 64 {
				mixed[i] = mixed[i-64]
			}
		}
		for name, value := range map[string][]byte{"noise": random, "half zero": half, "half repeated": mixed} {
			b.Run(fmt.Sprintf("value=%dKiB/%s", size>>10, name), func(b *testing.B) {
				var buffer []byte
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					pack(&buffer, value)
				}
			})
		}
	}
}
