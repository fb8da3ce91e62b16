package valuefile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// records returns n bytes that are slow to decode.
func records(random *rand.Rand, n int) []byte {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, "{\"id\": %d, \"name\": \"n%d\"}\n", i, random.Uint32())
	}
	return b[:n]
}

// TestLongValuesAreTheSame, whether they are read through the mapping or by calls.
func TestLongValuesAreTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	values := [][]byte{
		records(random, blockPiece+1), records(random, 4*blockPiece+7),
		append(records(random, 2*blockPiece), make([]byte, 3*runPiece)...),
		append(records(random, blockPiece), make([]byte, 2*blockPiece)...),
	}
	s := write(t, vfs.OS(), filepath.Join(t.TempDir(), "f"), false, true, values...)
	var buffer, packed []byte
	for _, s.mapped = range []bool{false, true} {
		if err := s.readAll(t); err != nil {
			t.Fatal(err)
		}
	}
	for i, value := range values {
		p, _ := pack(&packed, value)
		clear(buffer)
		if got, err := Unpack(&buffer, p); err != nil || !bytes.Equal(got, value) {
			t.Errorf("value %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// TestWhatIsWrongWithAPieceIsAnErrorOfTheRead: damage, and pages that cannot be read.
func TestWhatIsWrongWithAPieceIsAnErrorOfTheRead(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 17))
	value := records(random, 3*blockPiece)
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	s := write(t, fault, testName, false, true, value)
	good := s.content(t)
	var buffer []byte
	for _, s.mapped = range []bool{false, true} {
		r, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		if s.mapped {
			if _, err := r.Value(&buffer, s.refs[0]); err != nil { // from now on its verification is trusted
				t.Fatal(err)
			}
			fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: 1, Action: vfs.FailWith(syscall.EIO)})
			_, err := r.Value(&buffer, s.refs[0])
			if !errors.Is(err, vfs.ErrFault) {
				t.Errorf("a fault of the mapping: %v", err)
			}
			fault.Clear()
		}
		damaged := bytes.Clone(good)
		damaged[len(damaged)-footerSize-5] ^= 1
		s.replace(t, damaged)
		if r, err = s.open(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Value(&buffer, s.refs[0]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damage: %v", err)
		}
		s.replace(t, good)
		if got, err := r.Value(&buffer, s.refs[0]); err != nil || !bytes.Equal(got, value) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

func BenchmarkReadDocument(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	value := records(random, 1<<20)
	s := write(b, vfs.OS(), filepath.Join(b.TempDir(), "f"), false, true, value, value, value, value)
	began := time.Now()
	s.mapped, s.elapsed = true, func() time.Duration { return time.Since(began) }
	r, err := s.open()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	var buffer []byte
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := r.Value(&buffer, s.refs[i%len(s.refs)]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAnEndBeyondTheLargestIntIsDamage: where int has 32 bits, an end may be negative.
func TestAnEndBeyondTheLargestIntIsDamage(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 19))
	value := append(records(random, 3*blockPiece), make([]byte, 3*runPiece)...)
	var buffer, out []byte
	packed, _ := pack(&buffer, value)
	p, _, bad := parsePieces(packed)
	if bad != "" || p.len() < 4 {
		t.Fatalf("%d pieces, %s", p.len(), bad)
	}
	packed[directoryHead+(p.len()-2)*entrySize+3] = 0xff
	if _, err := Unpack(&out, packed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("unpacked: %v", err)
	}
}
