package valuefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const testName = "/000007.val"

var testID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// stored is a written file and its expected content.
type stored struct {
	fs     vfs.FS
	name   string
	values [][]byte
	refs   []row.Reference
	info   Info

	// How the file is opened.
	mapped  bool
	elapsed func() time.Duration // nil: time stands still
}

// believed is the verification interval of mapped values in these tests.
const believed = time.Minute

func write(t testing.TB, fs vfs.FS, name string, direct, compress bool, values ...[]byte) *stored {
	t.Helper()
	f, err := fs.Create(name, vfs.OpenOptions{Direct: direct})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(f, WriterOptions{Number: 7, UniqueID: testID, Compress: compress})
	s := &stored{fs: fs, name: name, values: values}
	for _, v := range values {
		ref, err := w.Add(v)
		if err != nil {
			t.Fatal(err)
		}
		s.refs = append(s.refs, ref)
	}
	size := w.Size()
	if s.info, err = w.Finish(); err != nil {
		t.Fatal(err)
	}
	if s.info.Size != size {
		t.Fatalf("finished with %d bytes, expected %d", s.info.Size, size)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stored) open() (*Reader, error) {
	f, err := s.fs.Open(s.name, vfs.OpenOptions{})
	if err != nil {
		return nil, err
	}
	elapsed := s.elapsed
	if elapsed == nil {
		elapsed = func() time.Duration { return 0 }
	}
	r, err := Open(f, ReaderOptions{FileName: s.name, Want: s.info, Mapped: s.mapped, VerifyInterval: believed, Elapsed: elapsed})
	if err != nil {
		f.Close()
	}
	return r, err
}

// readAll reads everything back, values twice. It returns the first error, and fails the test for
// a wrong value.
func (s *stored) readAll(t testing.TB) error {
	t.Helper()
	r, err := s.open()
	if err != nil {
		return err
	}
	defer r.Close()
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	_, err = r.Verify(goOn)
	note(err)
	var buffer []byte
	for i, ref := range s.refs {
		note(r.CheckReference(ref))
		for range 2 { // the second time through the mapping
			got, err := r.Value(&buffer, ref)
			note(err)
			if err == nil && !bytes.Equal(got, s.values[i]) {
				t.Fatalf("value %d came back as another one", i)
			}
		}
	}
	return first
}

func noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// testValues are compressible and not, empty, small, and larger than a chunk.
func testValues() [][]byte {
	const chunk = 512 << 10 // of package outfile
	random := rand.New(rand.NewPCG(1, 2))
	var values [][]byte
	for _, n := range []int{0, 1, 19, 20, 100, 4096, 70_000, chunk/2 - 1, chunk / 2, chunk, 3*chunk + 7} {
		values = append(values, noise(random, n), bytes.Repeat([]byte("abcd"), n/4))
	}
	return values
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, direct := range []bool{false, true} {
		for _, compress := range []bool{false, true} {
			for name, fs := range map[string]vfs.FS{"sim": vfs.NewSim(vfs.SimOptions{}), "os": vfs.OS()} {
				file := testName
				if name == "os" {
					file = filepath.Join(t.TempDir(), "f")
				}
				s := write(t, fs, file, direct, compress, testValues()...)
				for _, s.mapped = range []bool{false, true} {
					if err := s.readAll(t); err != nil {
						t.Errorf("%s, direct %t, compress %t, mapped %t: %v", name, direct, compress, s.mapped, err)
					}
				}
			}
		}
	}
	if s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true); s.info.Size != footerSize || s.readAll(t) != nil {
		t.Error("a file without values cannot be read")
	}
}

func TestCompressionSavesSpaceAndNoiseIsStoredRaw(t *testing.T) {
	values := testValues()
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, values...)
	for i, ref := range s.refs {
		compressible := i%2 == 1 && len(values[i]) >= 100
		if small := ref.Stored < ref.Raw; small != compressible {
			t.Errorf("value %d of %d bytes takes %d", i, ref.Raw, ref.Stored)
		}
	}
}

func TestARecordIsCopiedAsItIs(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{})
	s := write(t, fs, testName, false, true, testValues()...)
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := fs.Create("/copy", vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(f, WriterOptions{Number: 8, UniqueID: [16]byte{9}})
	c := &stored{fs: fs, name: "/copy", values: s.values}
	var buffer []byte
	for _, ref := range s.refs {
		record, err := r.ReadRecord(&buffer, ref)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := w.Copy(record)
		if err != nil {
			t.Fatal(err)
		}
		if copied.Stored != ref.Stored || copied.Raw != ref.Raw || copied.Checksum == ref.Checksum || copied.File != 8 {
			t.Fatalf("%+v was copied as %+v", ref, copied)
		}
		c.refs = append(c.refs, copied)
	}
	if c.info, err = w.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := c.readAll(t); err != nil {
		t.Fatal(err)
	}
}

// smallValues make a file of a few hundred bytes, for damage at every place.
func smallValues() [][]byte {
	return [][]byte{[]byte("first value"), {}, bytes.Repeat([]byte("second"), 20), []byte("third value")}
}

// content returns the bytes of the file.
func (s *stored) content(t testing.TB) []byte {
	t.Helper()
	f, err := s.fs.Open(s.name, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *stored) replace(t testing.TB, content []byte) {
	t.Helper()
	f, err := s.fs.Create(s.name, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, true, smallValues()...)
	good := s.content(t)
	for i := range good {
		for bit := range 8 {
			s.mapped = bit%2 == 0
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			s.replace(t, bad)
			err := s.readAll(t)
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errVersion) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			if !strings.Contains(err.Error(), testName) || errors.Is(err, ErrCorrupt) && !strings.Contains(err.Error(), "offset ") {
				t.Fatalf("byte %d: the error does not name file and offset: %v", i, err)
			}
		}
	}
	for n := range good {
		s.replace(t, good[:n])
		if err := s.readAll(t); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	s.replace(t, append(bytes.Clone(good), 0))
	if err := s.readAll(t); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a byte too many: %v", err)
	}
}

func TestARecordOfAnotherPlaceOrFileIsRefused(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{})
	s := write(t, fs, testName, false, false, []byte("one value"), []byte("two value"))
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var buffer []byte
	refuse := func(what string, ref row.Reference) {
		t.Helper()
		if _, err := r.Value(&buffer, ref); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.CheckReference(ref); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, by its head: %v", what, err)
		}
	}
	mixed := s.refs[0]
	mixed.Offset = s.refs[1].Offset
	refuse("the place of another record", mixed)
	shorter := s.refs[0]
	shorter.Raw--
	refuse("another length", shorter)
	beyond := s.refs[1]
	beyond.Offset = 1 << 63
	refuse("beyond the file", beyond)
	huge := s.refs[1]
	huge.Stored = 1<<32 - 1
	refuse("a length beyond the file", huge)

	// Two records change places: each is sound, but neither is at its own place.
	content := s.content(t)
	swapped := append(append(bytes.Clone(content[29:58]), content[:29]...), content[58:]...)
	s.replace(t, swapped)
	if err := s.readAll(t); !errors.Is(err, ErrCorrupt) {
		t.Errorf("swapped records: %v", err)
	}

	// A file of the same size with the same content and another identity.
	other := s.info
	other.UniqueID[0]++
	f, err := fs.Open(testName, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Open(f, ReaderOptions{FileName: testName, Want: other}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another file: %v", err)
	}
}

func TestANewerVersionIsRefused(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, false, []byte("value"))
	content := s.content(t)
	end := content[len(content)-footerSize:]
	end[48]++
	binary.LittleEndian.PutUint64(end[56:], xxhash.Sum64(end[:56]))
	s.replace(t, content)
	if _, err := s.open(); !errors.Is(err, errVersion) || !strings.Contains(err.Error(), testName) {
		t.Fatal(err)
	}
}

func TestAFailedWriteEndsTheFile(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	fault := vfs.NewFault(sim, 1)
	f, err := fault.Create(testName, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(f, WriterOptions{Number: 7, UniqueID: testID})
	if _, err := w.Add(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = w.Add(make([]byte, 512<<10))
	if err == nil {
		t.Fatal("written to a closed file")
	}
	if _, again := w.Add(nil); again == nil {
		t.Fatal("the writer goes on after an error")
	}
	if _, again := w.Finish(); again == nil {
		t.Fatal("the file is finished after an error")
	}
	if _, err := write(t, sim, "/ok", false, false).open(); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyStopsWhenAsked(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, false, smallValues()...)
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stop := errors.New("stop")
	if _, err := r.Verify(func() error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

func FuzzReader(f *testing.F) {
	for _, compress := range []bool{false, true} {
		s := write(f, vfs.NewSim(vfs.SimOptions{}), testName, false, compress, smallValues()...)
		f.Add(s.content(f), uint64(0), uint32(31), uint32(11))
	}
	f.Fuzz(func(t *testing.T, data []byte, offset uint64, length, raw uint32) {
		fs := vfs.NewSim(vfs.SimOptions{})
		s := &stored{fs: fs, name: testName}
		s.replace(t, data)
		file, err := fs.Open(testName, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		r := reseal(data, file)
		if r == nil {
			return
		}
		_, _ = r.Verify(goOn)
		var buffer []byte
		ref := row.Reference{File: 1, Offset: offset, Stored: length, Raw: raw}
		if offset < uint64(len(data)) && len(data)-int(offset) >= headSize {
			h, _ := parseHead(data[offset:])
			ref.Checksum = h.checksum // so that the fuzzer gets past it
		}
		if v, err := r.Value(&buffer, ref); err == nil && len(v) != int(raw) {
			t.Fatalf("%d bytes, want %d", len(v), raw)
		} else if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// reseal corrects the checksums of the footer and the first records and opens the file, so that
// the fuzzer gets past them.
func reseal(data []byte, file vfs.File) *Reader {
	if len(data) < footerSize {
		return nil
	}
	end := data[len(data)-footerSize:]
	copy(end[64:], magic)
	binary.LittleEndian.PutUint64(end[32:], uint64(len(data)))
	binary.LittleEndian.PutUint64(end[56:], xxhash.Sum64(end[:56]))
	foot, err := parseFooter(end, "f", int64(len(data)))
	if err != nil {
		return nil
	}
	return &Reader{file: file, name: "f", footer: foot}
}

func BenchmarkRead(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{64 << 10, 1 << 20} {
		for i := range 4 {
			compress, mapped := i%2 == 1, i >= 2
			value := noise(random, size)
			if compress {
				clear(value[size/2:])
			}
			b.Run(fmt.Sprintf("value=%dKiB/compress=%t/mapped=%t", size>>10, compress, mapped), func(b *testing.B) {
				s := write(b, vfs.OS(), filepath.Join(b.TempDir(), "f"), false, compress, value, value, value, value)
				began := time.Now()
				s.mapped, s.elapsed = mapped, func() time.Duration { return time.Since(began) }
				r, err := s.open()
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				var buffer []byte
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := r.Value(&buffer, s.refs[i%len(s.refs)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// goOn never ends Verify.
func goOn() error { return nil }
