package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// goldenLog writes the log of testdata and of docs/format-wal.md: a first
// segment with two records, synced one by one, and a trailer, and a second one
// that was not closed.
func goldenLog(t testing.TB) *vfs.Sim {
	sim := newSim()
	opts := testOptions(sim)
	w, _ := mustOpen(t, opts, 0, &oracle{})
	for i, payload := range []string{"hello", "write-ahead log"} {
		lsn, err := w.Append(0, uint64(i+1), []byte(payload))
		if err == nil {
			err = w.Sync(lsn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	lsn, err := w.Append(7, 100, []byte("another stream"))
	if err == nil {
		err = w.Sync(lsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

var goldenRecords = []string{"0 1 hello", "0 2 write-ahead log", "7 100 another stream"}

// P22: a log of format version 1 reads as it did when the version was made, and
// is still written byte by byte like that. Files hold only what is not zero:
// lines of offset and hexadecimal bytes.
func TestP22_GoldenLogOfVersion1(t *testing.T) {
	sim := goldenLog(t)
	stored := newSim()
	if err := stored.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 2; n++ {
		content, err := sim.ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "v1", segmentName(n)+".hex")
		if *update {
			if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(dump(content, 0, len(content))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		want := undump(t, string(text), len(content))
		if !bytes.Equal(content, want) {
			t.Errorf("segment %d is not written as in %s", n, golden)
		}
		f, err := stored.Create(logFile(n), vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	res, err := Recover(testOptions(stored), 0, func(r Record) error {
		got = append(got, fmt.Sprintf("%d %d %s", r.Stream, r.Position, r.Payload))
		return nil
	})
	if err != nil || strings.Join(got, "\n") != strings.Join(goldenRecords, "\n") {
		t.Errorf("%q, %v", got, err)
	}
	if res.Torn == nil || res.Torn.Segment != 2 || res.Torn.Offset != 2*BlockSize {
		t.Errorf("torn %+v", res.Torn)
	}
}

// dump writes the lines of 16 bytes between from and to that are not zero.
func dump(b []byte, from, to int) string {
	var out strings.Builder
	for at := from; at < to; at += 16 {
		if line := b[at : at+16]; !bytes.Equal(line, make([]byte, 16)) {
			fmt.Fprintf(&out, "%06x  % x\n", at, line)
		}
	}
	return out.String()
}

func undump(t *testing.T, text string, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	for line := range strings.Lines(text) {
		var at int
		rest, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line[8:]), " ", ""))
		if _, serr := fmt.Sscanf(line, "%x", &at); serr != nil || err != nil || at+len(rest) > size {
			t.Fatalf("line %q: %v %v", line, serr, err)
		}
		copy(b[at:], rest)
	}
	return b
}

// The worked example of docs/format-wal.md is what the code writes.
func TestFormatDocumentShowsWhatIsWritten(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "format-wal.md"))
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 2; n++ {
		content, err := goldenLog(t).ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		if part := dump(content, 0, len(content)); !strings.Contains(string(doc), part) {
			t.Errorf("docs/format-wal.md does not show segment %d:\n%s", n, part)
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	block := vfs.AlignedBuffer(BlockSize)
	for _, h := range []header{
		{number: 1, size: BlockSize},
		{store: storeID, number: 1 << 60, previous: 1<<60 - 1, size: 1 << 40, sealed: seal{1 << 30, 77, 1<<64 - 1}},
	} {
		seed := h.encode(block)
		got, gotSeed, reason, err := decodeHeader(block)
		if got != h || gotSeed != seed || reason != "" || err != nil {
			t.Errorf("%+v became %+v, %q, %v", h, got, reason, err)
		}
		for n := range headerSize {
			if _, _, reason, err := decodeHeader(block[:n]); reason == "" || err != nil {
				t.Errorf("%d bytes pass for a header: %v", n, err)
			}
		}
	}
}

// P4: a frame is bound to its segment, its place and all its bytes.
func TestP04_FrameIsBoundToItsPlace(t *testing.T) {
	const seed, offset = 0x1234567890abcdef, 8192
	b := make([]byte, paddedSize(21))
	copy(b[frameHeaderSize:], "twenty-one bytes long")
	sum := putFrameHeader(b, 21, frame{kind: frameFull, stream: 3, position: 9, durable: BlockSize}, seed, offset)
	f, reason := decodeFrame(b, seed, offset)
	if reason != "" || f.kind != frameFull || f.stream != 3 || f.position != 9 || f.durable != BlockSize ||
		string(f.payload) != "twenty-one bytes long" || f.checksum != sum || f.size != int64(len(b)) {
		t.Fatalf("%+v, %q", f, reason)
	}
	if binary.LittleEndian.Uint64(b) != sum {
		t.Error("decoding changed the bytes")
	}
	for _, other := range []struct{ seed, offset uint64 }{{seed + 1, offset}, {seed, offset + 8}, {seed, 0}, {0, offset}} {
		if _, reason := decodeFrame(b, other.seed, int64(other.offset)); reason == "" {
			t.Errorf("the frame passes at %+v", other)
		}
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if size, why := frameSize(b); why == "" && size == len(b) {
				if _, reason := decodeFrame(b, seed, offset); reason == "" {
					t.Errorf("byte %d bit %d", i, bit)
				}
			}
			b[i] ^= 1 << bit
		}
	}
}

// FuzzRecover gives any bytes as the groups of one segment behind a good
// header, or as a whole file. Recovering must not panic; what it delivers it
// delivers again, also after a writer has taken over.
func FuzzRecover(f *testing.F) {
	sim := goldenLog(f)
	for n := uint64(1); n <= 2; n++ {
		content, err := sim.ReadFile(logFile(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, false)
		f.Add(content[BlockSize:], true)
		f.Add(content[BlockSize:BlockSize+100], true)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, content []byte, framed bool) {
		sim := newSim()
		opts := testOptions(sim)
		w, _ := mustOpen(t, opts, 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			if !framed {
				return content
			}
			b = append(b[:BlockSize], content...)
			resign(b, w.cur.seed)
			return append(b, make([]byte, max(0, 4*BlockSize-len(b)))...)
		}); err != nil {
			t.Fatal(err)
		}
		sim = sim.Kill()
		opts.FS = sim
		first, res, err := recovered(opts, 0)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) && !errors.Is(err, ErrWrongStore) {
				t.Fatalf("unclassified error %v", err)
			}
			return
		}
		o := oracle{records: first, acked: len(first)}
		w, err = NewWriter(opts, res)
		if err != nil {
			t.Fatalf("a log that was recovered cannot be continued: %v", err)
		}
		if lsn, err := w.Append(1<<20, 1<<63, []byte("more")); err == nil {
			if err := w.Sync(lsn); err != nil {
				t.Fatal(err)
			}
			o.records = append(o.records, entry{1 << 20, 1 << 63, []byte("more")})
			o.acked++
		}
		opts.FS = sim.Crash(vfs.CrashLoseAll, 0)
		again, _, err := recovered(opts, 0)
		if err == nil {
			err = o.check(again)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// resign makes the checksums of what looks like frames right, so that the
// fuzzer gets behind them.
func resign(b []byte, seed uint64) {
	for off := BlockSize; off+frameHeaderSize <= len(b); {
		size, reason := frameSize(b[off:])
		if reason != "" || size > len(b)-off {
			return
		}
		f, _ := decodeFrame(b[off:off+size], 0, 0)
		word := binary.LittleEndian.Uint32(b[off+8:])
		f.kind, f.stream = frameType(word>>24), binary.LittleEndian.Uint32(b[off+12:])
		f.position = binary.LittleEndian.Uint64(b[off+16:])
		f.durable = int64(binary.LittleEndian.Uint64(b[off+24:]))
		putFrameHeader(b[off:off+size], int(word&0xffffff), f, seed, int64(off))
		off += size
	}
}
