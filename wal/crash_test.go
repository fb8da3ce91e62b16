package wal

// Crash tests: a crash of the machine or the process at every call that changes something, under
// every policy of the simulated disk, and crashes while recovering from those. The oracle is the
// list of records as appended and how many of them were acknowledged.

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

var errDead = errors.New("the process died before this call")

// changes are the calls before which a crash is tried: between two of them the disk does not
// change.
var changes = map[string]bool{
	"create": true, "write": true, "sync": true, "syncdata": true, "rename": true, "remove": true,
	"syncdir": true, "truncate": true, "preallocate": true, "mkdir": true,
}

// crashRun is a workload on one disk and its history.
type crashRun struct {
	oracle
	segments   []uint64 // of each record of the oracle
	min        uint64   // what the owner has recorded
	newest     uint64   // the same, of a lazy log
	generation int
	rng        *rand.Rand
	w          *Writer
}

func (r *crashRun) clone() *crashRun {
	c := *r
	c.records = append([]entry(nil), r.records...)
	c.segments = append([]uint64(nil), r.segments...)
	c.w = nil
	c.generation++
	return &c
}

// check judges recovered records: they must be a run of the appended ones without a hole. It must
// begin no later than the first record that the owner still needs, and end no earlier than the
// last acknowledged one.
func (r *crashRun) check(got []entry) error {
	needed := 0
	for needed < len(r.records) && r.segments[needed] < r.min {
		needed++
	}
	if len(got) == 0 {
		if r.acked > needed {
			return fmt.Errorf("nothing recovered; records %d to %d were needed and acknowledged", needed, r.acked)
		}
		return nil
	}
	start := 0
	for start < len(r.records) && (r.records[start].stream != got[0].stream || r.records[start].position != got[0].position) {
		start++
	}
	if start > needed || start+len(got) < r.acked || start+len(got) > len(r.records) {
		return fmt.Errorf("recovered records %d to %d of %d; needed from %d, acknowledged to %d",
			start, start+len(got), len(r.records), needed, r.acked)
	}
	for i, e := range got {
		if want := r.records[start+i]; e.stream != want.stream || e.position != want.position || !bytes.Equal(e.payload, want.payload) {
			return fmt.Errorf("record %d is not what was appended", start+i)
		}
	}
	return nil
}

// open recovers, checks, and starts a writer; then all recovered records count as acknowledged.
func (r *crashRun) open(opts Options) error {
	var got []entry
	var segments []uint64
	res, err := Recover(opts, r.min, func(rec Record) error {
		got = append(got, entry{rec.Stream, rec.Position, bytes.Clone(rec.Payload)})
		segments = append(segments, rec.Segment)
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.check(got); err != nil {
		return err
	}
	if r.w, err = NewWriter(opts, res); err != nil {
		return err
	}
	end := 0
	if len(got) > 0 {
		for r.records[end].stream != got[0].stream || r.records[end].position != got[0].position {
			end++
		}
		r.records = append(r.records[:end], got...)
		r.segments = append(r.segments[:end], segments...)
	} else {
		for end < len(r.segments) && r.segments[end] < r.min {
			end++
		}
		r.records, r.segments = r.records[:end], r.segments[:end]
	}
	r.acked = len(r.records)
	r.min = max(r.min, 1)
	return nil
}

// work does random things to the log, and returns the first error.
func (r *crashRun) work(steps int) error {
	var lsn LSN
	for range steps {
		size := r.rng.IntN(900)
		switch r.rng.IntN(60) {
		case 0, 2, 3:
			size = 3*blockSize + r.rng.IntN(blockSize)
		case 1:
			size = maxPayload - 100 + r.rng.IntN(200) // one frame or two
		}
		var err error
		r.segments = append(r.segments, r.w.Segment()+1) // until Segment tells
		lsn, err = r.append(r.w, r.generation, size)
		if err == nil {
			r.segments[len(r.segments)-1] = r.w.Segment()
			switch r.rng.IntN(12) {
			case 0, 1, 2, 3:
				err = r.sync(r.w, lsn)
			case 4:
				err = r.w.Flush()
			case 5:
				if _, err = r.w.Rotate(); err == nil {
					r.acked = len(r.records)
				}
			case 6:
				err = r.w.PrepareNext()
			case 7:
				if all := r.w.Segments(); len(all) > 2 {
					r.min = all[r.rng.IntN(len(all))]
					err = r.w.Release(r.min)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if r.rng.IntN(3) == 0 {
		return r.w.Close()
	}
	return r.sync(r.w, lsn)
}

// crashTest counts the cases tried.
type crashTest struct {
	*testing.T
	cases    int
	nested   int
	distinct map[uint64]bool
}

func crashOptions(fsys vfs.FS, m mode) Options {
	opts := testOptions(fsys)
	m.set(&opts)
	opts.SegmentSize = 6 * blockSize
	return opts
}

// recoverFrom opens the log on the disk of a crashed machine or process, works on, and tries
// power cuts at its calls, up to the given depth.
func (t *crashTest) recoverFrom(sim *vfs.Sim, r *crashRun, m mode, what string, depth int) {
	t.cases++
	t.distinct[sim.Digest()] = true
	if r.generation > 1 {
		t.nested++
	}
	deeper := func(op, name string) {
		policy := vfs.CrashPolicies()[r.rng.IntN(len(vfs.CrashPolicies()))]
		s := r.rng.Uint64()
		t.recoverFrom(sim.Image(policy, s), r.clone(), m,
			fmt.Sprintf("%s; then %v (%d) before %s %s", what, policy, s, op, name), depth-1)
	}
	opts := crashOptions(hookFS{sim, func(op, name string) error {
		if depth > 0 && changes[op] && r.rng.IntN(scale(14, 2)*depth) == 0 {
			deeper(op, name)
		}
		return nil
	}}, m)
	m.remember(&opts, &r.newest)
	if err := r.run(opts, 1+r.rng.IntN(3)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	opts = crashOptions(sim, m)
	m.remember(&opts, &r.newest)
	got, _, err := recovered(opts, r.min)
	if err == nil {
		err = r.check(got)
	}
	if err != nil {
		t.Fatalf("%s; worked on and read again: %v", what, err)
	}
}

// P1, P3, P4, P14: a power cut before each call of a workload, under each policy, and again
// during each recovery, loses no acknowledged record and leaves no hole.
func TestP01_P03_P04_P14_PowerCutAtEveryCall(t *testing.T) {
	c := &crashTest{T: t, distinct: map[uint64]bool{}}
	for _, m := range modes {
		for s := range scale(1, 100) {
			t.Logf("seed %d, %v", *seed+uint64(s), m)
			sim := newSim()
			r := &crashRun{rng: rand.New(rand.NewPCG(*seed+uint64(s), 0))}
			crashes := rand.New(rand.NewPCG(*seed+uint64(s), 1))
			call := 0
			opts := crashOptions(hookFS{sim, func(op, name string) error {
				if !changes[op] {
					return nil
				}
				call++
				for _, policy := range vfs.CrashPolicies() {
					cs := crashes.Uint64()
					run := r.clone()
					run.rng = rand.New(rand.NewPCG(cs, 2))
					c.recoverFrom(sim.Image(policy, cs), run, m,
						fmt.Sprintf("seed %d, %v: %v (%d) before call %d, %s %s",
							*seed+uint64(s), m, policy, cs, call, op, name), run.rng.IntN(3))
				}
				return nil
			}}, m)
			m.remember(&opts, &r.newest)
			if err := r.run(opts, 40); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d crashes, %d of them nested, %d distinct disks", c.cases, c.nested, len(c.distinct))
}

// P1, P3, P4, P14: the process dies before each call of a workload. The next process sees what
// was written but not synced, and meets power cuts at its calls. Records that it delivered may be
// lost again, but only until NewWriter has returned.
func TestP01_P03_P04_P14_ProcessDeathAtEveryCallThenPowerCuts(t *testing.T) {
	c := &crashTest{T: t, distinct: map[uint64]bool{}}
	for _, m := range modes {
		for s := range scale(2, 50) {
			base := *seed + uint64(s)
			t.Logf("seed %d, %v", base, m)
			for death, alive := 1, true; alive; death++ {
				sim := newSim()
				r := &crashRun{rng: rand.New(rand.NewPCG(base, 0))}
				call := 0
				opts := crashOptions(hookFS{sim, func(op, _ string) error {
					if changes[op] {
						call++
					}
					if call >= death {
						return errDead
					}
					return nil
				}}, m)
				m.remember(&opts, &r.newest)
				err := r.run(opts, 25)
				if alive = errors.Is(err, errDead); err != nil && !alive {
					t.Fatal(err)
				}
				run := r.clone()
				run.rng = rand.New(rand.NewPCG(base, uint64(death)))
				c.recoverFrom(sim.Kill(), run, m,
					fmt.Sprintf("seed %d, %v: process died before call %d", base, m, death), 1+run.rng.IntN(2))
			}
		}
	}
	t.Logf("%d crashes, %d of them nested, %d distinct disks", c.cases, c.nested, len(c.distinct))
}

// run opens the log and works on it until a call fails.
func (r *crashRun) run(opts Options, steps int) error {
	if err := r.open(opts); err != nil {
		return err
	}
	return r.work(steps)
}

// P14: dying repeatedly right after the start, with records that were never synced, loses no
// delivered record, and each time takes no more space than a header and those records.
func TestP14_CrashLoopLosesNothingAndLeaksNoSpace(t *testing.T) {
	sim := newSim()
	opts := crashOptions(sim, mode{})
	opts.SegmentSize = 1 << 20
	r := &crashRun{rng: rand.New(rand.NewPCG(*seed, 0))}
	if err := r.open(opts); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r.segments = append(r.segments, 1)
		if _, err := r.append(r.w, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.w.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if i%2 == 0 {
			sim = sim.Kill()
		} else {
			sim = sim.Crash(vfs.CrashLoseAll, 0)
		}
		opts.FS = sim
		r = r.clone()
		if err := r.open(opts); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		if len(r.records) != 20 {
			t.Fatalf("start %d delivers %d records", i, len(r.records))
		}
	}
	used, err := sim.Usage("wal")
	if err != nil {
		t.Fatal(err)
	}
	if bytes := used.Total - used.Available; bytes > uint64(2*opts.SegmentSize+50*blockSize) {
		t.Errorf("%d bytes in use after 50 starts", bytes)
	}
	if err := r.w.Release(r.w.Segment()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.w.Segments()); n != 1 {
		t.Errorf("%d segments after release", n)
	}
}

// scale is how many cases to try.
func scale(quick, all int) int {
	if long {
		return all
	}
	return quick
}
