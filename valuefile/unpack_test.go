package valuefile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/assist/assisttest"
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

// helpedValues are unpacked with help, except for the last.
func helpedValues(random *rand.Rand) [][]byte {
	return [][]byte{
		records(random, shortestHelped+1), records(random, 4*blockPiece+7),
		append(records(random, 2*blockPiece), make([]byte, 3*runPiece)...),
		append(records(random, blockPiece), make([]byte, 2*blockPiece)...),
	}
}

// TestValuesAreTheSameWithHelp, however the pieces are divided.
func TestValuesAreTheSameWithHelp(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	values := helpedValues(random)
	s := write(t, vfs.OS(), filepath.Join(t.TempDir(), "f"), false, true, values...)
	asked := 0
	manual := assisttest.NewManual(func() bool { asked++; return random.IntN(2) == 0 })
	defer manual.Close()
	others := assist.New(2)
	defer others.Close()
	for _, s.mapped = range []bool{false, true} {
		r, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		read := func(random *rand.Rand, helpers *assist.Helpers) {
			var buffer, packed []byte
			for range 30 {
				i := random.IntN(len(values))
				got, err := r.Value(&buffer, s.refs[i])
				if err == nil && bytes.Equal(got, values[i]) {
					p, _ := pack(&packed, values[i])
					clear(buffer)
					got, err = Unpack(&buffer, p, helpers)
				}
				if err != nil || !bytes.Equal(got, values[i]) {
					t.Errorf("value %d: %d bytes, %v", i, len(got), err)
				}
			}
		}
		r.helpers = manual
		read(random, manual)
		r.helpers = others
		var readers sync.WaitGroup
		for n := range uint64(3) {
			readers.Go(func() { read(rand.New(rand.NewPCG(15, n)), others) })
		}
		readers.Wait()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if asked == 0 {
		t.Error("nobody was asked")
	}
}

// TestWhatAHelperFindsWrongIsAnErrorOfTheRead: damage, and pages that cannot be read.
func TestWhatAHelperFindsWrongIsAnErrorOfTheRead(t *testing.T) {
	shares = sync.Pool{New: shares.New} // nothing was learned yet
	random := rand.New(rand.NewPCG(16, 17))
	value := records(random, 3*blockPiece)
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	s := write(t, fault, testName, false, true, value)
	good := s.content(t)
	all := assisttest.NewManual(func() bool { return true }) // the helper goes first
	defer all.Close()
	var buffer []byte
	for _, s.mapped = range []bool{false, true} {
		r, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		r.helpers = all
		if s.mapped {
			if _, err := r.Value(&buffer, s.refs[0]); err != nil { // from now on its verification is trusted
				t.Fatal(err)
			}
			fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: 2, Action: vfs.FailWith(syscall.EIO)})
			_, err := r.Value(&buffer, s.refs[0])
			if !errors.Is(err, vfs.ErrFault) {
				t.Errorf("a fault of the helper: %v", err)
			}
			fault.Clear()
		}
		damaged := bytes.Clone(good)
		damaged[len(damaged)-footerSize-5] ^= 1
		s.replace(t, damaged)
		if r, err = s.open(); err != nil {
			t.Fatal(err)
		}
		r.helpers = all
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
	for _, help := range []bool{false, true} {
		b.Run(fmt.Sprintf("help=%t", help), func(b *testing.B) {
			s := write(b, vfs.OS(), filepath.Join(b.TempDir(), "f"), false, true, value, value, value, value)
			began := time.Now()
			s.mapped, s.elapsed = true, func() time.Duration { return time.Since(began) }
			r, err := s.open()
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			if help {
				r.helpers = assist.New(1)
				defer r.helpers.Close()
			}
			var buffer []byte
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Value(&buffer, s.refs[i%len(s.refs)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAnEndBeyondTheLargestIntIsDamage: where int has 32 bits, an end may be negative. Of the two
// unpackers, the second takes the next piece.
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
	shares = sync.Pool{New: shares.New} // nothing was learned yet
	all := assisttest.NewManual(func() bool { return true })
	defer all.Close()
	for _, helpers := range []*assist.Helpers{nil, all} {
		if _, err := Unpack(&out, packed, helpers); !errors.Is(err, ErrCorrupt) {
			t.Errorf("unpacked: %v", err)
		}
	}
}
