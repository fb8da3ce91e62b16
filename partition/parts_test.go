package partition

// Tests of flushes that are divided by keys.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// fillMemtable puts rows until the memtable is full.
func fillMemtable(r *rig, generation int) (rows int) {
	value := strings.Repeat("v", 200)
	for ; ; rows++ {
		if mutable, _ := r.tree.MemoryBytes(); mutable >= r.env.MemtableSize {
			return rows
		}
		r.putRow(key("p", rows), "c", 1, fmt.Sprintf("%s %d %d", value, generation, rows))
	}
}

// spareGoroutines is an executor with goroutines for all parts, and counts them by class.
type spareGoroutines struct {
	executor.Executor
	helpers sync.WaitGroup
	asked   map[executor.Class]int
}

func (s *spareGoroutines) Spare(class executor.Class, _ string, part func()) bool {
	if s.asked == nil {
		s.asked = map[executor.Class]int{}
	}
	s.asked[class]++
	s.helpers.Go(part)
	return true
}

func TestAFlushIsDividedByKeysAmongGoroutinesThatAreFree(t *testing.T) {
	r := newRig(t)
	r.env.MemtableSize = 64 << 10
	r.env.Compaction.TableFileSize = 1 << 20
	spare := &spareGoroutines{}
	r.env.Executor = spare
	rows := 0
	for generation := range 2 {
		rows = fillMemtable(r, generation)
		r.flush()
		spare.helpers.Wait()
	}
	if spare.asked[executor.Flush] == 0 || len(spare.asked) != 1 {
		t.Errorf("asked for goroutines by class: %v", spare.asked)
	}
	s := r.tree.pin()
	defer s.unref()
	runs := s.version.runs
	if len(runs) != 2 || len(runs[0]) < 2 || len(runs[0]) > maxFlushParts {
		t.Fatalf("%d runs, the newest of %d files; want two of some files beside each other", len(runs), len(runs[0]))
	}
	for i := range rows {
		got, err := get(r.tree, key("p", i), r.seq)
		must(t, err)
		if want := fmt.Sprintf("row c@1=%s 1 %d", strings.Repeat("v", 200), i); got != want {
			t.Fatalf("row %d is %q, want %q", i, got, want)
		}
	}
}

func TestAFlushOfWhichAPartFailsLeavesNothingBehind(t *testing.T) {
	r := newRig(t)
	r.env.MemtableSize = 64 << 10
	rows := fillMemtable(r, 0)
	r.rotate(r.tree)
	broken := errors.New("broken")
	// The first part is complete by now.
	r.fault.Add(vfs.Rule{Ops: vfs.OpCreate, Glob: "000002.sst", Action: vfs.FailWith(broken)})
	if _, err := r.tree.Flush(row.MaxSequence, settled); !errors.Is(err, broken) {
		t.Fatalf("flush: %v, want that a file could not be created", err)
	}
	if names, err := r.disk.List(testDir + "/sst/00"); err != nil || len(names) > 0 {
		t.Errorf("files %v are left, %v", names, err)
	}
	freed, err := r.tree.Flush(row.MaxSequence, settled)
	must(t, err)
	if freed == 0 {
		t.Error("the memtable did not wait for another flush")
	}
	if got, err := get(r.tree, key("p", rows-1), r.seq); err != nil || got == "absent" {
		t.Errorf("the last row is %q, %v", got, err)
	}
}

func TestAMergeIsDividedUnlessItIsMadeForReads(t *testing.T) {
	r := newRig(t)
	r.env.Compaction.TableFileSize = 16 << 10
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		for i := range 1000 { // of values that do not compress, so the files have many blocks
			value := make([]byte, 200)
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			r.putRow(key("p", i), "c", 1, string(value))
		}
		r.flush()
	}
	s := r.tree.pin()
	defer s.unref()
	for reason, divided := range map[compaction.Reason]bool{compaction.ReasonL0: true, compaction.ReasonReads: false} {
		c := &compaction.Candidate{OutputLevel: 1, Reason: reason}
		for _, run := range s.version.runs {
			for _, f := range run {
				c.Upper = append(c.Upper, f.Meta)
			}
		}
		c.Inputs[0] = c.Upper
		ends, err := r.tree.partEnds(s.version, c)
		must(t, err)
		if got := len(ends) > 0; got != divided {
			t.Errorf("a merge for %v is divided at %d keys", reason, len(ends))
		}
	}
}

func TestWhatReadersHadMergedStaysInThePageCache(t *testing.T) {
	for _, c := range []struct {
		candidate compaction.Candidate
		bypasses  bool
	}{
		{compaction.Candidate{OutputLevel: 1, Reason: compaction.ReasonL0}, false},
		{compaction.Candidate{OutputLevel: bottomLevel, Reason: compaction.ReasonL0}, true},
		{compaction.Candidate{OutputLevel: bottomLevel, Reason: compaction.ReasonReads}, false},
	} {
		if got := bypassesPageCache(&c.candidate); got != c.bypasses {
			t.Errorf("a merge for %v into level %d bypasses the page cache: %t", c.candidate.Reason, c.candidate.OutputLevel, got)
		}
	}
}
