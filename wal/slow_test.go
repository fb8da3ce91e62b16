package wal

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// meteredFS calls wrote for each write to a file, with its bytes.
type meteredFS struct {
	vfs.FS
	wrote func(n int)
}

type meteredFile struct {
	vfs.File
	wrote func(n int)
}

func (m meteredFS) OpenReadWrite(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := m.FS.OpenReadWrite(name, o)
	return meteredFile{f, m.wrote}, err
}

func (m meteredFile) WriteAt(p []byte, off int64) (int, error) {
	m.wrote(len(p))
	return m.File.WriteAt(p, off)
}

// The clock moves with appends, and with each block that callers who wait for room write to the device.
func TestTheLogIsCompressedWhileTheDeviceIsSlow(t *testing.T) {
	const (
		work = 2 * time.Millisecond // for each append
		slow = 2 * time.Millisecond // for each block
		fast = slow / 50
		// A phase of try bytes is 8 segments.
		segment = 16 * blockSize
		try     = 458_000
	)
	text := []byte(strings.Repeat("some text ", 1000))
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
	for _, c := range []struct {
		name    string
		device  func(segment uint64) time.Duration // for a block, while a segment is the current one
		packing time.Duration                      // for an append to a compressed segment
		random  bool                               // what is appended
		sync    bool
		want    string // the segments: c is compressed
	}{
		{"slow", always(slow), 0, false, false, plain(8) + compressed(4+8+64) + plain(8) + "c"},
		{"slow, with synced groups", always(slow), 0, false, true, plain(20)},
		{"fast", always(fast), 0, false, false, plain(100)},
		{"slow, as the processors are", always(slow), 10 * work, false, false,
			plain(8) + compressed(4+3) + plain(8) + compressed(4+3) + plain(16) + compressed(4+3) + "-"},
		{"slow, and nothing to compress", always(slow), 0, true, false,
			plain(8) + compressed(4+7) + plain(8) + compressed(4+8) + "--"},
		{"slow, then fast", from(20, slow, fast), 0, false, false, plain(8) + compressed(4+8+64) + plain(24)},
		{"fast, then slow", from(9, fast, slow), 0, false, false, plain(16) + compressed(4+8+64) + "-"},
		{"slow but for a hang in a try", func(n uint64) time.Duration {
			if n == 16 {
				return 50 * slow
			}
			return slow
		}, 0, false, false, plain(8) + compressed(4+4) + plain(8) + compressed(4+8+64) + "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now time.Duration
			var w *Writer
			sim := newSim()
			opts := testOptions(meteredFS{sim, func(n int) {
				if w != nil {
					now += c.device(w.number.Load()) * time.Duration(n/blockSize)
				}
			}})
			opts.Sync, opts.Compress, opts.SegmentSize = c.sync, CompressSlow, segment
			opts.Elapsed = func() time.Duration { return now }
			opts.Gathered = func() {} // so that MakeRoom writes
			var o oracle
			w, _ = mustOpen(t, opts, 0, &o)
			w.slow = slowDevice{try: try, size: try}
			for w.Segment() <= uint64(len(c.want)) {
				now += work
				if w.cur.compress {
					now += c.packing
				}
				e := entry{0, uint64(len(o.records) + 1), text}
				if c.random {
					e.payload = testPayload(2*e.position+1, len(text))
				}
				o.records = append(o.records, e)
				lsn, err := w.Append(0, e.position, e.payload)
				if err == nil && c.sync {
					err = w.Sync(lsn)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if saved := w.Stats().Saved; (saved > 0) != (strings.Contains(c.want, "c") && !c.random) {
				t.Errorf("%d bytes are saved", saved)
			}
			o.acked = len(o.records)
			opts.FS = sim.Kill()
			_ = w.Close() // its disk is gone
			var got strings.Builder
			for n := range uint64(len(c.want)) {
				b, err := sim.ReadFile(logFile(n + 1))
				if err != nil {
					t.Fatal(err)
				}
				h, _, err := decodeHeader(b[:blockSize])
				if err != nil {
					t.Fatal(err)
				}
				got.WriteByte("-c"[h.Version-bundleVersion])
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
func TestTimeInWhichCallersWaitForRoom(t *testing.T) {
	const ms = time.Millisecond
	var d slowDevice
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

// A caller counts while it waits, with a context that can end, too, and no longer when it has failed.
func TestEachCallOfMakeRoomCountsUntilItReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		var now time.Duration
		var fail error
		opts := testOptions(hookFS{newSim(), func(op, _ string) error {
			if op == "write" {
				now += time.Second
				return fail
			}
			return nil
		}})
		opts.Sync = false
		opts.Elapsed = func() time.Duration { return now }
		opts.Gathered = func() {}
		w, _ := mustOpen(t, opts, 0, &oracle{})
		payload := make([]byte, blockSize)
		for position := uint64(1); w.Segment() < 4 && fail == nil; position++ {
			_, err := w.AppendNow(0, position, payload)
			for ; err == ErrRoom; _, err = w.AppendNow(0, position, payload) {
				if err := w.MakeRoom(ctx, payload); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if w.slow.waiting != 0 || w.slow.waited < time.Second {
			t.Errorf("%d callers wait, after %v", w.slow.waiting, w.slow.waited)
		}
		fail = syscall.EIO
		var err error
		for err == nil {
			err = w.MakeRoom(ctx, make([]byte, 3*blockSize))
			if err == nil {
				_, err = w.AppendNow(0, 1000+uint64(w.last), payload)
			}
			if errors.Is(err, ErrRoom) {
				err = nil
			}
		}
		if !errors.Is(err, ErrFailed) || w.slow.waiting != 0 {
			t.Errorf("%d callers wait after %v", w.slow.waiting, err)
		}
		_ = w.Close()
	}
}
