package flagstone

// Histories of the wall clock: wrong ahead, wrong behind, more than once, across restarts and
// crashes, with writes meanwhile. They must not destroy anything that is unexpired by the right
// clock, unless a wrong reading ahead stands for a whole probation.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

const historyTTL = 7 * 24 * time.Hour

// history is a store with a wall clock that the test sets wrong.
type history struct {
	*rig
	random *rand.Rand
	table  *Table
	right  int64         // what the wall clock should show
	off    time.Duration // by how much it is off
	wrong  time.Duration // running time since the store last saw it not ahead
	rows   map[int]int64 // version of each row, by its key
	next   int
	done   []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{rig: newRig(t, Options{}), random: rand.New(rand.NewPCG(seed, 0)), right: startMillis, rows: map[int]int64{}}
	h.table = h.rig.table("t", TableOptions{TTLSeconds: int64(historyTTL / time.Second), MaxVersionOffsetSeconds: 1 << 40})
	return h
}

func (h *history) note(format string, args ...any) {
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

func (h *history) setOff(off time.Duration) {
	h.note("off by %v", off)
	h.off = off
	h.clock.SetWall(h.right + off.Milliseconds())
}

// run lets the store run.
func (h *history) run(d time.Duration) {
	h.note("run %v", d)
	h.clock.Advance(d)
	h.right += d.Milliseconds()
	h.exec.RunAll()
	switch {
	case h.off > 0:
		h.wrong += d
	case d >= storeclock.LookPeriod: // the clock was read, and the reading was saved
		h.wrong = 0
	}
}

// between lets time pass while the store is closed.
func (h *history) between(d time.Duration) {
	h.note("closed for %v", d)
	h.right += d.Milliseconds()
	h.clock.SetWall(h.right + h.off.Milliseconds())
}

func (h *history) restart(kill bool, closedFor time.Duration) {
	if kill {
		h.note("killed")
		old := h.store
		h.fs = h.fs.Crash(vfs.CrashLoseAll, h.random.Uint64())
		old.Close()
	} else if err := h.store.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.between(closedFor)
	h.open()
	h.table = h.rig.table("t", TableOptions{})
}

func (h *history) write() {
	h.rows[h.next] = h.right
	put(h.t, h.table, "p", h.next, "c", h.right, "v")
	h.next++
}

func (h *history) compact() {
	h.note("compact")
	if err := h.store.Compact(ctx()); err != nil {
		h.t.Fatal(err)
	}
	h.exec.RunAll()
}

// step does something at random.
func (h *history) step() {
	const left = storeclock.Probation - 2*storeclock.LookPeriod
	switch h.random.IntN(12) {
	case 0, 1:
		jumps := []time.Duration{time.Minute, 40 * time.Minute, 26 * time.Hour, 400 * 24 * time.Hour, tenYears * time.Millisecond}
		h.setOff(jumps[h.random.IntN(len(jumps))] + time.Duration(h.random.Int64N(int64(time.Hour))))
	case 2:
		h.setOff(-time.Duration(h.random.Int64N(int64(1000 * time.Hour))))
	case 3:
		h.setOff(0)
	case 4, 5:
		h.compact()
	case 6:
		h.restart(h.random.IntN(2) == 0, time.Duration(h.random.Int64N(int64(30*time.Hour))))
	case 7:
		if err := h.store.Flush(ctx()); err != nil {
			h.t.Fatal(err)
		}
	case 8, 9:
		h.write()
	default:
		d := time.Duration(h.random.Int64N(int64(30 * time.Minute)))
		if h.off > 0 && h.wrong+d > left {
			h.setOff(0)
			d = storeclock.LookPeriod
		}
		h.run(d)
	}
}

// check reads everything by the right clock.
func (h *history) check() {
	h.t.Helper()
	off := h.off
	h.clock.SetWall(h.right)
	defer h.clock.SetWall(h.right + off.Milliseconds())
	for n, version := range h.rows {
		if version/1000+int64(historyTTL/time.Second) < h.right/1000 {
			delete(h.rows, n)
		} else if got := show(h.t, h.table, "p", n); got == "absent" {
			h.t.Fatalf("row %d of version %d is gone, now is %d: %v", n, version, h.right, h.done)
		}
	}
	if limit := h.right/1000 - int64(historyTTL/time.Second); h.table.Info().ExpiryWatermark > limit {
		h.t.Fatalf("the watermark is %d, the right cutoff %d: %v", h.table.Info().ExpiryWatermark, limit, h.done)
	}
}

func TestP16_NoHistoryOfAWrongClockDestroysAnythingUnexpired(t *testing.T) {
	seed, runs := rand.Uint64(), shorter(60)
	t.Logf("seed %d", seed)
	for run := range runs {
		h := newHistory(t, seed+uint64(run))
		for range 5 {
			h.write()
		}
		for range 120 {
			h.step()
			h.check()
		}
		// At the end the clock is right, and expired data is dropped.
		h.setOff(0)
		for range 2*storeclock.Probation/(3*time.Minute) + 4 {
			h.run(3*time.Minute + time.Second)
			h.restart(h.random.IntN(2) == 0, time.Hour)
			h.check()
		}
		h.between(historyTTL)
		h.run(2*storeclock.Probation + 2*storeclock.LookPeriod)
		h.compact()
		if files := tableFiles(h.fs); len(files) > 0 {
			t.Fatalf("seed %d: expired rows stay: %v: %v", seed+uint64(run), files, h.done)
		}
		h.store.Close()
	}
}

// filled is a history with 20 rows in a table file.
func filled(t *testing.T) *history {
	h := newHistory(t, 1)
	for range 20 {
		h.write()
	}
	if err := h.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	h.run(storeclock.Probation + storeclock.LookPeriod) // the clock is believed
	return h
}

func TestP16_AWrongClockAndARestartDestroyNothing(t *testing.T) {
	h := filled(t)
	h.setOff(tenYears * time.Millisecond)
	put(t, h.table, "later", 1, "c", h.right, "x")
	if err := h.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	h.restart(false, time.Minute)
	h.compact()
	h.setOff(0)
	h.check()
}

func TestP16_SmallJumpsDoNotAddUp(t *testing.T) {
	h := filled(t)
	for day := range 10 { // ten days in a few hours, 50 minutes at a time
		for range 24 * 60 / 50 {
			h.setOff(h.off + 50*time.Minute)
			h.run(2 * time.Minute)
		}
		h.compact()
		// The store believes the least that the wall clock was ahead throughout each probation.
		if ahead := h.store.trusted.Look().Millis - h.right; time.Duration(ahead)*time.Millisecond > h.off-24*50*time.Minute {
			t.Fatalf("day %d: the trusted time is %v ahead, the wall %v", day, time.Duration(ahead)*time.Millisecond, h.off)
		}
	}
	// A quarter of an hour is not enough for any of it.
	h = filled(t)
	for range 20 {
		h.setOff(h.off + 50*time.Minute)
		h.run(30 * time.Second)
	}
	if ahead := h.store.trusted.Look().Millis - h.right; ahead > 0 {
		t.Errorf("the trusted time is %d ms ahead", ahead)
	}
}

func TestP16_AStoreThatIsOpenForMinutesADayPurges(t *testing.T) {
	for _, kill := range []bool{false, true} {
		h := filled(t)
		days := 0
		for ; len(tableFiles(h.fs)) > 0; days++ {
			h.restart(kill, 24*time.Hour-4*time.Minute)
			h.run(4 * time.Minute)
			h.compact()
			h.check()
			if days > 60 {
				t.Fatalf("killed %v: nothing is purged after %d days", kill, days)
			}
		}
		t.Logf("killed %v: purged after %d days", kill, days)
	}
}

func TestP16_AProbationGoesOnAcrossRestartsAndJumpsWithinIt(t *testing.T) {
	h := filled(t)
	for i := range 6 { // twenty minutes each: the third one believes it
		h.setOff(tenYears*time.Millisecond + time.Duration(i)*time.Hour)
		h.run(20 * time.Minute)
		h.compact()
		if believed := h.table.Info().ExpiryWatermark > h.right/1000; believed != (i >= 3) {
			t.Errorf("after %d times 20 minutes: believed %v", i+1, believed)
		}
		h.restart(true, 0)
	}
}

// A manifest of an earlier version has no trusted time, and its issued time may be wrong.
func TestP16_AManifestWithoutATrustedTimeIsNotBelieved(t *testing.T) {
	h := filled(t)
	h.store.issued.Raise(h.right + tenYears)
	if err := h.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	log, _, err := manifest.Open(h.fs, "/store", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var e manifest.Edit
	e.Clock = &manifest.TrustedClock{}
	if _, err := log.Commit(&e); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	h.setOff(tenYears * time.Millisecond)
	h.restart(false, time.Minute)
	h.compact()
	h.check()
}
