package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// goldenLog writes the log of testdata/v2 and of docs/format-wal.md: a first segment with a group
// of two records, another of one, and a trailer, and a second segment that was not closed.
func goldenLog(t testing.TB) *vfs.Sim {
	sim := newSim()
	opts := testOptions(sim)
	w, _ := mustOpen(t, opts, 0, &oracle{})
	for i, payload := range []string{"hello", "write-ahead log", "is durable"} {
		lsn, err := w.Append(0, uint64(i*i+1), []byte(payload))
		if err == nil && i > 0 {
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

// stored are the logs of testdata. Its files hold only bytes that are not zero: lines of offset
// and hexadecimal bytes.
var stored = []struct {
	name    string
	size    int // of a segment
	last    uint64
	records []string
	end     int64 // of the last segment
	group   int64 // where its last group begins
}{
	{"v1", 4 * blockSize, 2, []string{"0 1 hello", "0 2 write-ahead log", "7 100 another stream"}, 2 * blockSize, blockSize},
	{"v1-pieces", 128 * blockSize, 1, []string{"0 10 small", "0 11 " + strings.Repeat("\x00", 262122), "0 12 after it", "0 13 unsynced"},
		68 * blockSize, 67 * blockSize},
	{"v2", 4 * blockSize, 2, []string{"0 1 hello", "0 2 write-ahead log", "0 5 is durable", "7 100 another stream"}, 2 * blockSize, blockSize},
}

// storedSegment reads a segment of testdata.
func storedSegment(t *testing.T, name string, number uint64, size int) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, segmentName(number)+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return undump(t, string(text), size)
}

// updateGolden writes a segment of testdata, with -update.
func updateGolden(t *testing.T, name string, number uint64, content []byte) {
	t.Helper()
	if !*update {
		return
	}
	golden := filepath.Join("testdata", name, segmentName(number)+".hex")
	if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, []byte(dump(content, 0, len(content))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// storedLog is a disk with the segments of testdata up to last.
func storedLog(t *testing.T, name string, last uint64, size int) *vfs.Sim {
	t.Helper()
	sim := newSim()
	if err := vfs.MakeDir(sim, "", "wal"); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= last; n++ {
		f, err := sim.Create(logFile(n), vfs.OpenOptions{})
		if err == nil {
			_, err = f.WriteAt(storedSegment(t, name, n, size), 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), sim.SyncDir("wal"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sim
}

// texts recovers a log and describes its records.
func texts(opts Options) (out []string, res RecoverResult, err error) {
	res, err = Recover(opts, 0, func(r Record) error {
		out = append(out, fmt.Sprintf("%d %d %s", r.Stream, r.Position, r.Payload))
		return nil
	})
	return out, res, err
}

// P22: logs of every format version read as they did when the version was made, damage in them is
// told from a torn tail, and a writer can continue them.
func TestP22_StoredLogsOfAllVersions(t *testing.T) {
	for _, c := range stored {
		sim := storedLog(t, c.name, c.last, c.size)
		opts := testOptions(sim)
		got, res, err := texts(opts)
		if err != nil || !slices.Equal(got, c.records) {
			t.Errorf("%s: %.100q, %v", c.name, got, err)
		}
		if res.Torn == "" || res.NextSegment-1 != c.last || res.end.Offset != c.end {
			t.Errorf("%s: torn %q in segment %d at %d", c.name, res.Torn, res.NextSegment-1, res.end.Offset)
		}
		content := storedSegment(t, c.name, c.last, c.size)
		for at := int64(blockSize); at < c.end; at++ {
			if content[at] == 0 && at%509 != 0 {
				continue
			}
			if err := sim.FlipByte(logFile(c.last), at, 0x10); err != nil {
				t.Fatal(err)
			}
			got, _, err := texts(opts)
			if n := len(c.records) - 1; at < c.group && !errors.Is(err, ErrCorrupt) ||
				at >= c.group && (err != nil || !slices.Equal(got, c.records[:n]) && !slices.Equal(got, c.records)) {
				t.Errorf("%s: byte %d flipped: %d records, %v", c.name, at, len(got), err)
			}
			if err := sim.FlipByte(logFile(c.last), at, 0x10); err != nil {
				t.Fatal(err)
			}
		}
		w, err := NewWriter(opts, res)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		mustAppend(t, w, &oracle{records: []entry{{stream: 0, position: 50}, {stream: 0, position: 51}}}, 0, 10)
		opts.FS = sim.Crash(vfs.CrashLoseAll, 0)
		again, _, err := texts(opts)
		if err != nil || len(again) != len(c.records)+1 || !slices.Equal(again[:len(c.records)], c.records) {
			t.Errorf("%s, continued: %d records, %v", c.name, len(again), err)
		}
	}
}

// P22: a log that is not compressed is written byte for byte like the stored one of its version.
func TestP22_LogIsWrittenAsStored(t *testing.T) {
	sim := goldenLog(t)
	for n := uint64(1); n <= 2; n++ {
		content, err := sim.ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("v%d", bundleVersion)
		updateGolden(t, name, n, content)
		if !bytes.Equal(content, storedSegment(t, name, n, len(content))) {
			t.Errorf("segment %d is not written as in testdata/%s", n, name)
		}
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
	block := vfs.AlignedBuffer(blockSize)
	for _, h := range []header{
		{Version: 1, Number: 1, Size: blockSize},
		{Version: formatVersion, Store: storeID, Number: 1 << 60, Previous: 1<<60 - 1, Size: 1 << 40, Sealed: seal{1 << 30, 77, 1<<64 - 1}},
	} {
		seed := h.encode(block)
		got, gotSeed, err := decodeHeader(block)
		if got != h || gotSeed != seed || err != nil {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
		for n := range headerSize {
			var why bad
			if _, _, err := decodeHeader(block[:n]); !errors.As(err, &why) {
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
	sum := putFrameHeader(b, 21, frame{kind: frameFull, stream: 3, position: 9, durable: blockSize}, seed, offset)
	f, err := decodeFrame(b, seed, offset)
	if err != nil || f.kind != frameFull || f.stream != 3 || f.position != 9 || f.durable != blockSize ||
		string(f.payload) != "twenty-one bytes long" || f.checksum != sum || f.size != int64(len(b)) {
		t.Fatalf("%+v, %v", f, err)
	}
	if binary.LittleEndian.Uint64(b) != sum {
		t.Error("decoding changed the bytes")
	}
	for _, other := range []struct{ seed, offset uint64 }{{seed + 1, offset}, {seed, offset + 8}, {seed, 0}, {0, offset}} {
		if _, err := decodeFrame(b, other.seed, int64(other.offset)); err == nil {
			t.Errorf("the frame passes at %+v", other)
		}
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if size, err := frameSize(b); err == nil && size == len(b) {
				if _, err := decodeFrame(b, seed, offset); err == nil {
					t.Errorf("byte %d bit %d", i, bit)
				}
			}
			b[i] ^= 1 << bit
		}
	}
}

// FuzzRecover uses any bytes as the groups of one segment behind a good header, or as a whole
// file. Recovering must not panic, and must deliver the same records again, also after a writer
// has taken over. The input is in the form of unpadBlocks: an input of whole blocks is mostly
// zeros, and the fuzzer, which shrinks interesting inputs byte by byte, ran ten of them in half a
// minute. Inputs longer than mostPacked are skipped for the same reason.
func FuzzRecover(f *testing.F) {
	sim := goldenLog(f)
	for n := uint64(1); n <= 2; n++ {
		content, err := sim.ReadFile(logFile(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(unpadBlocks(content), false)
		f.Add(unpadBlocks(content[blockSize:]), true)
		f.Add(unpadBlocks(content[blockSize:blockSize+100]), true)
	}
	compressed, _ := compressedLog(f)
	content, err := compressed.ReadFile(logFile(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unpadBlocks(content[:7*blockSize]), false)
	f.Add(unpadBlocks(framesOf(frameFirst, frameMiddle, frameLast, framePadding)), true)
	f.Add(unpadBlocks(framesOf(frameBundle, frameFull, framePadding, frameBundle)), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, packed []byte, framed bool) {
		if len(packed) > mostPacked {
			return
		}
		content := padBlocks(packed)
		sim := newSim()
		opts := testOptions(sim)
		w, _ := mustOpen(t, opts, 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			if !framed {
				return content
			}
			b = append(b[:blockSize], content...)
			resign(b, w.cur.seed)
			return append(b, make([]byte, max(0, 4*blockSize-len(b)))...)
		}); err != nil {
			t.Fatal(err)
		}
		sim = sim.Kill()
		opts.FS = sim
		first, res, err := recovered(opts, 0)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewerFormat) && !errors.Is(err, errWrongStore) {
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

// framesOf makes frames of the given kinds, whose padding ends a block; resign makes the
// checksums.
func framesOf(kinds ...frameType) (content []byte) {
	payload := []byte{1, 2, 'a', 'b', 3, 1, 'c', 0} // of a bundle: two records
	for i, kind := range kinds {
		of := frame{kind: kind, stream: 1, position: uint64(i + 1), durable: blockSize}
		n := len(payload)
		switch {
		case kind == framePadding:
			of.stream, of.position, n = 0, 0, blockSize-len(content)-frameHeaderSize
		case kind == frameMiddle || kind == frameLast:
			of.position = 1
		}
		b := make([]byte, paddedSize(n))
		if kind != framePadding {
			copy(b[frameHeaderSize:], payload)
		}
		putFrameHeader(b, n, of, 0, 0)
		content = append(content, b...)
	}
	return content
}

// mostPacked is the length of the longest seed, and a little.
const mostPacked = 384

// lastBlock marks the length of a block that is not padded, and ends the file.
const lastBlock = 1 << 15

// unpadBlocks gives each block as its length without the zeros at its end, in two bytes little
// endian, and that many bytes.
func unpadBlocks(content []byte) (packed []byte) {
	for len(content) >= blockSize {
		block := bytes.TrimRight(content[:blockSize], "\x00")
		packed = binary.LittleEndian.AppendUint16(packed, uint16(len(block)))
		packed = append(packed, block...)
		content = content[blockSize:]
	}
	if len(content) > 0 {
		packed = binary.LittleEndian.AppendUint16(packed, uint16(len(content))|lastBlock)
		packed = append(packed, content...)
	}
	return packed
}

// padBlocks is the inverse of unpadBlocks. It takes any bytes.
func padBlocks(packed []byte) (content []byte) {
	for len(packed) >= 2 {
		length := binary.LittleEndian.Uint16(packed)
		packed = packed[2:]
		n := min(int(length&^lastBlock)%(blockSize+1), len(packed))
		content = append(content, packed[:n]...)
		if length&lastBlock != 0 {
			break
		}
		content = append(content, make([]byte, blockSize-n)...)
		packed = packed[n:]
	}
	return content
}

func TestBlocksAreTheSameAfterUnpadding(t *testing.T) {
	sim := goldenLog(t)
	for n := uint64(1); n <= 2; n++ {
		content, err := sim.ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{len(content), blockSize + 100, blockSize, 100, 0} {
			packed := unpadBlocks(content[:size])
			if got := padBlocks(packed); !bytes.Equal(got, content[:size]) || len(packed) > mostPacked {
				t.Errorf("segment %d: %d bytes became %d bytes, and these %d", n, size, len(packed), len(got))
			}
		}
	}
}

// resign corrects the checksums of anything that looks like a frame, so that the fuzzer gets past
// them.
func resign(b []byte, seed uint64) {
	for off := blockSize; off+frameHeaderSize <= len(b); {
		size, err := frameSize(b[off:])
		if err != nil || size > len(b)-off {
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
