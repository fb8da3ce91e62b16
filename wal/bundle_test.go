package wal

// Bundles: several small records in one frame.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A small record of an unsynced log costs its own bytes and three: it shares its frame with
// others, and writes are whole blocks, except for the rest of a block that the next record does
// not fit into.
func TestSmallRecordsAreWrittenWithLittleAround(t *testing.T) {
	opts := testOptions(newSim())
	opts.SegmentSize, opts.Sync = 16<<20, false
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	const n, size = 20000, 150
	for i := range uint64(n) {
		e := entry{position: i, payload: testPayload(i, size)}
		if _, err := w.Append(e.stream, e.position, e.payload); err != nil {
			t.Fatal(err)
		}
		o.records = append(o.records, e)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.Bytes > n*(size+3)*1006/1000 || s.Records != n || s.Groups == 0 || s.Groups > n/10 || s.Syncs.Count() != 0 {
		t.Errorf("%d records of %d bytes made %d written ones; %d records in %d groups, %d syncs", n, size, s.Bytes, s.Records, s.Groups, s.Syncs.Count())
	}
	mustClose(t, w)
	if got, _, err := recovered(opts, 0); err != nil || len(got) != n || o.check(got) != nil {
		t.Errorf("%d records, %v, %v", len(got), err, o.check(got))
	}
}

// Records share a frame only if they are of one stream and their positions are close. All records
// come back.
func TestStreamsAndDistantPositionsShareNoFrame(t *testing.T) {
	opts := testOptions(newSim())
	opts.SegmentSize = 1 << 20
	w, _ := mustOpen(t, opts, 0, &oracle{})
	var want []string
	var lsn LSN
	for _, r := range []struct {
		stream   uint32
		position uint64
	}{{0, 0}, {0, 1}, {0, maxStep}, {0, 2 * maxStep}, {1, 7}, {1, 8}, {0, 1<<64 - 2}, {1, 9}, {0, 1<<64 - 1}, {1, 10}} {
		var err error
		if lsn, err = w.Append(r.stream, r.position, []byte("x")); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%d %d x", r.stream, r.position))
	}
	if err := w.Sync(lsn); err != nil {
		t.Fatal(err)
	}
	if got, _, err := texts(opts); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	mustClose(t, w)
}

// A bundle that no writer makes is damage although its checksum is good, and so is any bundle in
// a segment of version 1.
func TestImpossibleBundlesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		version  byte
		position uint64
		payload  string
		refused  bool
	}{
		"good":                        {2, 1, "\x01\x01a\x02\x00\x03\x01c", false},
		"of version 1":                {1, 1, "\x01\x01a", true},
		"no record":                   {2, 1, "", true},
		"first step not 1":            {2, 1, "\x02\x01a", true},
		"position repeated":           {2, 1, "\x01\x01a\x01\x01b", true},
		"step 0 in two bytes":         {2, 1, "\x01\x01a\x80\x00\x01b", true},
		"position beyond the largest": {2, 1<<64 - 1, "\x01\x01a\x02\x01b", true},
		"length beyond the end":       {2, 1, "\x01\x40a", true},
		"length beyond all":           {2, 1, "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", true},
		"no length":                   {2, 1, "\x01\x05abcde\x02", true},
		"bytes behind zeros":          {2, 1, "\x01\x01a\x00b", true},
	} {
		sim := newSim()
		mustOpen(t, testOptions(sim), 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			b = patchHeader(b, func(b []byte) { b[8] = c.version })
			copy(b[blockSize+frameHeaderSize:], c.payload)
			size := (len(c.payload) + 7) &^ 7
			f := frame{kind: frameBundle, position: c.position, durable: blockSize}
			putFrameHeader(b[blockSize:blockSize+paddedSize(size)], size, f, binary.LittleEndian.Uint64(b[88:]), blockSize)
			return b
		}); err != nil {
			t.Fatal(err)
		}
		got, _, err := recovered(testOptions(sim), 0)
		if c.refused && !errors.Is(err, ErrCorrupt) || !c.refused && (err != nil || len(got) != 3) {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
}
