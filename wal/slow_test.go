package wal

import (
	"strings"
	"testing"
	"time"
)

// The clock moves with appends, and with each call to the device, which is made by callers that wait for room.
func TestTheLogIsCompressedWhileTheDeviceIsSlow(t *testing.T) {
	const (
		work = 2 * time.Millisecond // for each append
		slow = 2 * time.Millisecond
		fast = slow / 50
	)
	always := func(d time.Duration) func(uint64) time.Duration { return func(uint64) time.Duration { return d } }
	from := func(n uint64, before, then time.Duration) func(uint64) time.Duration {
		return func(segment uint64) time.Duration {
			if segment < n {
				return before
			}
			return then
		}
	}
	plain := func(n int) string { return strings.Repeat("-", n) }
	compressed := func(n int) string { return strings.Repeat("c", n) }
	const tried = 2 * trySegments
	for _, c := range []struct {
		name string
		// device is how long a call takes while a segment is the current one, packing how long an append takes if it is
		// compressed, and want the segments: c is compressed.
		device  func(segment uint64) time.Duration
		packing time.Duration
		want    string
	}{
		{"slow", always(slow), -work, plain(trySegments) + compressed(trySegments+keepSegments) + plain(trySegments) + "c"},
		{"fast", always(fast), -work, plain(100)},
		{"slow, as the processors are", always(slow), 10 * work,
			plain(trySegments) + compressed(trySegments) + plain(waitSegments) + compressed(trySegments) + "-"},
		{"slow, then fast", from(tried+10, slow, fast), -work,
			plain(trySegments) + compressed(trySegments+keepSegments) + plain(2*trySegments)},
		{"fast, then slow", from(trySegments+1, fast, slow), -work,
			plain(2*trySegments) + compressed(trySegments+keepSegments) + "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now time.Duration
			var w *Writer
			sim := newSim()
			opts := testOptions(hookFS{sim, func(op, _ string) error {
				if w != nil {
					now += c.device(w.number.Load())
				}
				return nil
			}})
			opts.Sync, opts.Compress, opts.SegmentSize = false, CompressSlow, 16*blockSize
			opts.Elapsed = func() time.Duration { return now }
			opts.Gathered = func() {} // so that MakeRoom writes
			var o oracle
			w, _ = mustOpen(t, opts, 0, &o)
			for w.Segment() <= uint64(len(c.want)) {
				now += work
				if w.cur.compress {
					now += c.packing
				}
				mustAppendOnly(t, w, &o, 10_000)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			o.acked = len(o.records)
			opts.FS = sim.Kill()
			_ = w.Close() // its disk is gone
			var got strings.Builder
			for n := uint64(1); n <= uint64(len(c.want)); n++ {
				b, err := sim.ReadFile(logFile(n))
				if err != nil {
					t.Fatal(err)
				}
				h, _, err := decodeHeader(b[:blockSize])
				switch {
				case err != nil:
					t.Fatal(err)
				case h.Version == compressedVersion:
					got.WriteByte('c')
				default:
					got.WriteByte('-')
				}
			}
			if got.String() != c.want {
				t.Errorf("compressed are\n%s, not\n%s", got.String(), c.want)
			}
			again, _ := mustOpen(t, opts, 0, &o)
			mustClose(t, again)
		})
	}
}

// Callers that wait at the same time count once, and one that waits still counts up to now.
func TestTimeInWhichSomebodyWaitsForRoom(t *testing.T) {
	const ms = time.Millisecond
	var d slowDevice
	d.next(0)
	for _, step := range []struct {
		at       time.Duration
		callers  int
		expected time.Duration
	}{
		{10 * ms, 1, 0}, {12 * ms, 1, 2 * ms}, {15 * ms, -1, 5 * ms}, {16 * ms, -1, 6 * ms}, {30 * ms, 1, 6 * ms}, {31 * ms, 0, 7 * ms},
	} {
		if d.wait(step.callers, step.at); d.waited != step.expected {
			t.Errorf("at %v %v is waited, expected %v", step.at, d.waited, step.expected)
		}
	}
}
