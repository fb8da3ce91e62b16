package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// compressedLog makes a log of one segment that is compressed: a compressed group of three blocks with records 1 and 2, and
// one of records 3 and 4.
func compressedLog(t testing.TB) (*vfs.Sim, Options) {
	t.Helper()
	sim := newSim()
	opts := testOptions(sim)
	opts.Compress, opts.SegmentSize = CompressAlways, 16*blockSize
	w, _ := mustOpen(t, opts, 0, &oracle{})
	for position := uint64(1); position <= 4; position++ {
		_, err := w.Append(0, position, []byte(fmt.Sprint("record ", position, " ")), []byte(strings.Repeat("again ", 900)))
		if err == nil && position%2 == 0 {
			err = w.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sim = sim.Kill()
	opts.FS = sim
	return sim, opts
}

func TestGroupsAreCompressedWhereThatSavesBlocks(t *testing.T) {
	text := []byte(strings.Repeat("text ", 2000))
	for _, c := range []struct {
		name     string
		records  [][]byte
		compress bool
		sync     bool
		want     frameType
	}{
		{"text", [][]byte{text}, true, false, frameCompressed},
		{"text that is synced", [][]byte{text}, true, true, frameCompressed},
		{"text in a log that is not compressed", [][]byte{text}, false, false, frameBundle},
		{"random bytes", [][]byte{testPayload(1, 10_000)}, true, false, frameBundle},
		{"one that would take as many blocks", [][]byte{testPayload(1, 8500), make([]byte, 1000)}, true, false, frameBundle},
		{"random bytes and zeros", [][]byte{testPayload(1, 7000), make([]byte, 3000)}, true, false, frameCompressed},
	} {
		sim := newSim()
		opts := testOptions(sim)
		opts.Sync, opts.Compress, opts.SegmentSize = c.sync, compression(c.compress), 16*blockSize
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		before := w.Stats().Bytes
		for i, payload := range c.records {
			e := entry{0, uint64(i + 1), payload}
			o.records = append(o.records, e)
			if _, err := w.Append(0, e.position, payload); err != nil {
				t.Fatal(err)
			}
		}
		end := w.Flush
		if c.sync {
			end = func() error { return w.Sync(LSN(len(c.records))) }
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		sim = sim.Kill()
		if b, err := sim.ReadFile(logFile(1)); err != nil || frameType(b[blockSize+11]) != c.want {
			t.Errorf("%s: a frame of type %d, expected %d, %v", c.name, b[blockSize+11], c.want, err)
		}
		if wrote := w.Stats().Bytes - before; (c.want == frameCompressed) != (wrote < 3*blockSize) {
			t.Errorf("%s: wrote %d bytes", c.name, wrote)
		}
		opts.FS = sim
		if _, err := Recover(opts, 0, func(r Record) error {
			if r.Compressed != (c.want == frameCompressed) {
				t.Errorf("%s: record %d is compressed: %t", c.name, r.Position, r.Compressed)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		again, _ := mustOpen(t, opts, 0, &o)
		if len(o.records) != len(c.records) {
			t.Errorf("%s: %d records came back", c.name, len(o.records))
		}
		mustClose(t, again)
	}
}

// The place of a compressed group keeps what it held, so the device has less to write.
func TestThePlaceOfACompressedGroupIsNotFilled(t *testing.T) {
	sim, _ := compressedLog(t)
	b, err := sim.ReadFile(logFile(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{2, 3, 5, 6} {
		if block := b[at*blockSize : (at+1)*blockSize]; len(strings.Trim(string(block), "\x00")) > 0 {
			t.Errorf("block %d was written", at)
		}
	}
}

// P22: a compressed log reads as it did when version 3 was made. The bytes that are written depend on the compressor.
func TestP22_ACompressedLogReadsAsStored(t *testing.T) {
	sim, opts := compressedLog(t)
	content, err := sim.ReadFile(logFile(1))
	if err != nil {
		t.Fatal(err)
	}
	updateGolden(t, "v3-compressed", 1, content)
	want, _, err := texts(opts)
	if err != nil || len(want) != 4 {
		t.Fatal(want, err)
	}
	opts.FS = storedLog(t, "v3-compressed", 1, 16*blockSize)
	got, res, err := texts(opts)
	if err != nil || !slices.Equal(got, want) || res.end.Offset != 7*blockSize {
		t.Errorf("%.200q up to %d, %v", got, res.end.Offset, err)
	}
}

// A damaged compressed group ends the log, unless a later group says that it was durable.
func TestDamageInACompressedGroup(t *testing.T) {
	sim, opts := compressedLog(t)
	b, err := sim.ReadFile(logFile(1))
	if err != nil {
		t.Fatal(err)
	}
	size, err := frameSize(b[blockSize:])
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(blockSize); off < int64(blockSize+size); off++ {
		if err := sim.FlipByte(logFile(1), off, 0x40); err != nil {
			t.Fatal(err)
		}
		opts.FS = sim
		if got, _, err := recovered(opts, 0); err != nil || len(got) > 0 {
			t.Errorf("byte %d: %d records, %v", off, len(got), err)
		}
		if positions, losses, err := salvageRecords(opts, uncancelled); err != nil || len(positions) > 0 || len(losses) > 0 {
			t.Errorf("byte %d: salvaged %v, losses %v, %v", off, positions, losses, err)
		}
		if err := sim.FlipByte(logFile(1), off, 0x40); err != nil {
			t.Fatal(err)
		}
	}

	var o oracle
	opts.FS = newSim()
	w, _ := mustOpen(t, opts, 0, &o)
	text := strings.Repeat("text ", 2000)
	for position := uint64(1); position <= 3; position++ { // the second one is synced
		lsn, err := w.Append(0, position, []byte(text))
		if err == nil && position != 2 {
			err = w.Flush()
		} else if err == nil {
			err = w.Sync(lsn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sim = opts.FS.(*vfs.Sim).Kill()
	opts.FS = sim
	if err := sim.FlipByte(logFile(1), blockSize+50, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := recovered(opts, 0); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "at offset 4096") {
		t.Errorf("a compressed group that a later compressed one says is durable: %v", err)
	}
	positions, losses, err := salvageRecords(opts, uncancelled)
	if err != nil || !slices.Equal(positions, []uint64{2, 3}) || len(losses) != 1 || losses[0].From != blockSize || losses[0].To != 4*blockSize {
		t.Errorf("salvaged %v, losses %v, %v", positions, losses, err)
	}
}

// A compressed group with a good checksum that breaks a rule is damage.
func TestImpossibleCompressedGroupsAreRefused(t *testing.T) {
	const group = 2 * blockSize
	frames := func(seed uint64, of ...frame) []byte { // to the end of the group
		var b []byte
		for i, f := range of {
			n := 64
			if i == len(of)-1 {
				n = group - len(b) - frameHeaderSize
			}
			b = append(b, make([]byte, paddedSize(n))...)
			last := b[len(b)-paddedSize(n):]
			copy(last[frameHeaderSize:], "\x01\x03abc")
			putFrameHeader(last, n, f, seed, int64(blockSize+len(b)-len(last)))
		}
		return b
	}
	part := func(raw []byte) []byte {
		encoded := s2.Encode(nil, raw)
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)
	}
	good := frame{kind: frameBundle, position: 1, durable: blockSize}
	last := frame{kind: frameBundle, position: 2, durable: blockSize}
	for _, c := range []struct {
		name    string
		payload func(seed uint64) []byte
		want    string
	}{
		{"a good one", func(seed uint64) []byte { return part(frames(seed, good, last)) }, ""},
		{"a good one in parts", func(seed uint64) []byte {
			b := frames(seed, good, last)
			return slices.Concat(part(b[:40]), part(b[40:41]), part(b[41:]))
		}, ""},
		{"a durable offset inside it", func(seed uint64) []byte {
			first := frames(seed, good)[:blockSize]
			putFrameHeader(first, blockSize-frameHeaderSize, good, seed, blockSize)
			second := make([]byte, blockSize)
			copy(second[frameHeaderSize:], "\x01\x03abc")
			inside := frame{kind: frameBundle, position: 2, durable: 2 * blockSize}
			putFrameHeader(second, blockSize-frameHeaderSize, inside, seed, 2*blockSize)
			return part(append(first, second...))
		}, "not where a group begins"},
		{"a record that goes on behind it", func(seed uint64) []byte {
			return part(frames(seed, good, frame{kind: frameFirst, position: 2, durable: blockSize}))
		}, "not whole at the end"},
		{"no frames", func(uint64) []byte { return nil }, "shorter than it says"},
		{"too few bytes", func(seed uint64) []byte { return part(frames(seed, good, last)[:group-8]) }, "shorter than it says"},
		{"too many bytes", func(seed uint64) []byte { return part(append(frames(seed, good, last), 0)) }, "impossible length"},
		{"a part without a length", func(seed uint64) []byte { return append(part(frames(seed, good, last)), 1, 2) }, "no length"},
		{"a part that is cut", func(seed uint64) []byte { b := part(frames(seed, good, last)); return b[:len(b)-1] }, "longer than the frame"},
		{"a part that is not S2", func(uint64) []byte { return []byte{4, 0, 0, 0, 8, 0xff, 0xff, 0xff} }, "decompressed"},
		{"a frame of another place", func(seed uint64) []byte { return part(frames(seed+1, good, last)) }, "checksum"},
		{"a frame that was changed", func(seed uint64) []byte {
			b := frames(seed, good, last)
			b[group-1] = 1
			return part(b)
		}, "checksum"},
		{"no frame behind a good one", func(seed uint64) []byte {
			return part(append(frames(seed, good, last)[:96], make([]byte, group-96)...))
		}, "no frame header"},
		{"a trailer", func(seed uint64) []byte {
			return part(frames(seed, good, frame{kind: frameTrailer, durable: blockSize}))
		}, "never compressed"},
	} {
		sim := newSim()
		opts := testOptions(sim)
		opts.Compress = CompressAlways
		w, _ := mustOpen(t, opts, 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			seed := w.cur.seed
			payload := c.payload(seed)
			at := b[blockSize : blockSize+paddedSize(len(payload))]
			copy(at[frameHeaderSize:], payload)
			putFrameHeader(at, len(payload), frame{kind: frameCompressed, position: group, durable: blockSize}, seed, blockSize)
			return b
		}); err != nil {
			t.Fatal(err)
		}
		got, _, err := recovered(opts, 0)
		switch {
		case c.want == "" && (err != nil || len(got) != 2):
			t.Errorf("%s: %d records, %v", c.name, len(got), err)
		case c.want != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A group of a size that cannot be is no frame: a reader must go on behind it.
func TestCompressedGroupsOfImpossibleSizesAreNoFrames(t *testing.T) {
	b := make([]byte, 2*blockSize)
	for _, c := range []struct {
		size   uint64
		offset int64
		ok     bool
	}{
		{2 * blockSize, blockSize, true}, {maxCompressed, blockSize, true},
		{0, blockSize, false}, {blockSize, blockSize, false}, {2*blockSize + 8, blockSize, false}, {maxCompressed + blockSize, blockSize, false},
		{1 << 63, blockSize, false}, {2 * blockSize, blockSize + 8, false},
	} {
		putFrameHeader(b, len(b)-frameHeaderSize, frame{kind: frameCompressed, position: c.size, durable: blockSize}, 1, c.offset)
		r := segmentReader{header: header{Version: compressedVersion}}
		if err := r.checkGroup(b, len(b), c.offset); (err == nil) != c.ok {
			t.Errorf("%d bytes at %d: %v", c.size, c.offset, err)
		}
		r.header.Version = bundleVersion
		if err := r.checkGroup(b, len(b), c.offset); err == nil {
			t.Errorf("%d bytes at %d are a group in version 2", c.size, c.offset)
		}
	}
}

// Whatever the groups hold, a reader finds it, behind and between groups of either kind.
func TestCompressedAndPlainGroupsFollowEachOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 3))
	t.Logf("seed %d", *seed)
	for range 20 {
		sim := newSim()
		opts := testOptions(sim)
		opts.Sync, opts.Compress, opts.SegmentSize = rng.IntN(2) == 0, CompressAlways, 1<<20
		opts.Memory = offheaptest.New(t)
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		for range 60 {
			size := rng.IntN(20_000)
			if rng.IntN(20) == 0 {
				size = rng.IntN(2 * maxFrameSize)
			}
			lsn, err := o.append(w, 0, size)
			switch rng.IntN(6) {
			case 0:
				err = errors.Join(err, w.Flush())
			case 1:
				if err == nil {
					err = o.sync(w, lsn)
				}
			case 2:
				_, rotated := w.Rotate()
				err = errors.Join(err, rotated)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		want := len(o.records)
		opts.FS = sim.Kill()
		_ = w.Close() // its disk is gone: this gives the memory back
		w, _ = mustOpen(t, opts, 0, &o)
		if len(o.records) != want {
			t.Fatalf("%d of %d records", len(o.records), want)
		}
		var salvaged int
		if err := Salvage(opts, 0, uncancelled, func(Record) error { salvaged++; return nil }, func(l Loss) { t.Error(l) }); err != nil || salvaged != want {
			t.Errorf("salvaged %d of %d records, %v", salvaged, want, err)
		}
		mustClose(t, w)
	}
}
