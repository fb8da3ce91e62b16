package flagstone

// Replicas whose process is killed, whose disk is full, and that follow a busy leader.

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// childVariable names the directory in which a follower runs until it is killed.
const childVariable = "FLAGSTONE_FOLLOW_AND_DIE"

// recordedLog is the file that the process reads.
type recordedLog struct {
	Entries []Entry
	Answers map[uint64]answer
}

// TestAFollowerThatIsKilledEqualsTheLeader kills a process that follows a log, at random moments. The process compares
// itself with the leader as it goes.
func TestAFollowerThatIsKilledEqualsTheLeader(t *testing.T) {
	if dir := os.Getenv(childVariable); dir != "" {
		followAndDie(t, dir)
		return
	}
	kills := 10
	if testing.Short() {
		kills = 3
	}
	h := recorded(t, rand.Uint64(), 100+30*kills)
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		err = errors.Join(gob.NewEncoder(file).Encode(recordedLog{h.log.entries, h.answers}), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	killed, compared := 0, 0
	for ended := false; !ended; {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		due := -1 // the line after which it is killed
		if killed < kills {
			due = h.rng.IntN(len(h.log.entries) / kills)
			killed++
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said = append(said, lines.Text())
			if strings.HasPrefix(lines.Text(), "equal") {
				compared++
			}
			if len(said)-1 == due {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		err, ended = child.Wait(), slices.Contains(said, "end")
		if due < 0 && err != nil || slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, "--- FAIL") }) {
			t.Fatalf("%v: %s", err, strings.Join(said, "\n"))
		}
	}
	t.Logf("%d kills, %d comparisons", killed, compared)
	if killed < kills || compared < 3*kills {
		t.Errorf("%d kills, %d comparisons", killed, compared)
	}
}

// followAndDie is the process that is killed.
func followAndDie(t *testing.T, dir string) {
	var l recordedLog
	file, err := os.Open(filepath.Join(dir, "log"))
	if err == nil {
		err = errors.Join(gob.NewDecoder(file).Decode(&l), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	opts := smallStores()
	opts.External = &External{FirstAvailable: 1}
	clock := clocktest.NewManual(startMillis)
	opts.Seams.Clock = clock
	s, err := Open(filepath.Join(dir, "store"), opts)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{rig: &rig{t: t, store: s, clock: clock}, h: &logHistory{answers: l.Answers}}
	for _, e := range (&ownedLog{entries: l.Entries}).from(s.DurableIndex() + 1) {
		f.apply(e)
		before := f.compared
		if f.compare(); f.compared > before {
			fmt.Println("equal at", e.Index)
		} else {
			fmt.Println("applied", e.Index)
		}
	}
	if f.compare(); f.compared == 0 {
		t.Fatal("nothing was compared")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("end")
}

// TestAReplicaFollowsABusyLeader lets background work, writers, alterations, splits and merges go on at once on a leader,
// and background work and readers on the store that follows it.
func TestAReplicaFollowsABusyLeader(t *testing.T) {
	var l ownedLog
	var stores [2]*Store
	for i := range stores {
		opts := smallStores()
		opts.External, opts.Seams.FS = new(External), vfs.NewSim(vfs.SimOptions{})
		if i == 0 {
			opts.External.Propose, opts.PartitionSplitSize = l.propose, 32<<10
		}
		s, err := Open("/store", opts)
		wantError(t, "Open", err, nil)
		defer s.Close()
		stores[i] = s
	}
	l.leader = stores[0]
	table, err := stores[0].CreateTable(ctx(), TableSpec{
		Name: "t", Key: externalKey, Options: TableOptions{MaxVersions: 2}, Stream: &StreamSpec{RetentionSeconds: 1 << 30, Before: []string{"c"}},
	})
	wantError(t, "CreateTable", err, nil)
	var writers, others sync.WaitGroup
	var ended atomic.Bool
	var increments atomic.Int64
	each := max(shorter(300), 60)
	for w := range 4 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				pk, n := fmt.Sprint("p", rng.IntN(30)), rng.IntN(3)
				var err error
				switch i % 30 {
				case 0:
					err = table.Split(ctx(), row.String(pk))
				case 1:
					err = table.Merge(ctx(), row.String(pk))
				case 2:
					err = table.Alter(ctx(), TableChange{Annotations: []byte{byte(i)}})
				case 3:
					err = stores[0].FlushUpTo(ctx(), stores[0].AppliedIndex())
				default:
					err = table.Update(ctx(), Key(pk, n), func(_ context.Context, tx *RowTx) error {
						r, err := tx.Get(ReadOptions{})
						tx.Put("n", Now, row.Integer(r.Int64("n")+1))
						tx.Put("c", Now, row.String(strings.Repeat(fmt.Sprint(w, i), 100)))
						return err
					})
					increments.Add(1)
				}
				if err != nil {
					t.Errorf("step %d: %v", i, err)
				}
			}
		})
	}
	others.Go(func() {
		for applied := 0; ; {
			last := ended.Load()
			l.mu.Lock()
			due := l.entries[applied:]
			l.mu.Unlock()
			if _, err := stores[1].ApplyEntries(ctx(), due); err != nil {
				t.Error(err)
				return
			}
			if applied += len(due); last {
				return
			}
		}
	})
	others.Go(func() {
		for !ended.Load() {
			for _, table := range stores[1].Tables() {
				for _, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
					if err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
	writers.Wait()
	ended.Store(true)
	others.Wait()
	index, want := uint64(0), ""
	for at := stores[0].AppliedIndex(); index != at; at = stores[0].AppliedIndex() { // the balancer goes on
		index, want = at, content(t, stores[0])
	}
	l.mu.Lock()
	due := l.between(1, index)
	l.mu.Unlock()
	_, err = stores[1].ApplyEntries(ctx(), due)
	wantError(t, "ApplyEntries", err, nil)
	if got := content(t, stores[1]); stores[1].AppliedIndex() == index && got != want {
		t.Errorf("the replica differs: %s", firstDifference(got, want))
	}
	sum := int64(0)
	for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
		wantError(t, "Scan", err, nil)
		sum += r.Int64("n")
	}
	if sum != increments.Load() {
		t.Errorf("counted %d of %d increments", sum, increments.Load())
	}
	m := stores[0].Metrics()
	t.Logf("%d entries, %d splits, %d merges, durable up to %d", len(l.entries), m.Splits, m.Merges, stores[0].DurableIndex())
}

// TestS15_AReplicaGoesOnAfterAFullDisk lets calls of the file system fail while a replica applies entries. The owner repeats
// them, and opens the store again if it has stopped.
func TestS15_AReplicaGoesOnAfterAFullDisk(t *testing.T) {
	h := recorded(t, rand.Uint64(), 150)
	failed, stopped := 0, 0
	for round := range 1 + shorter(24) {
		f := h.follower(smallStores(), uint64(round))
		wantError(t, "Close", f.store.Close(), nil)
		fault := vfs.NewFault(f.fs, 1)
		f.openOn(fault)
		for i, e := range h.log.entries {
			if f.rng.IntN(10) == 0 {
				fault.Add(vfs.Rule{Ops: vfs.OpMutating, Nth: 1 + f.rng.Int64N(20), Times: 1 + f.rng.Int64N(3), Action: vfs.FailWith(syscall.ENOSPC)})
			}
			if f.rng.IntN(4) == 0 {
				f.exec.RunAll()
			}
			for attempt := 0; ; attempt++ {
				_, err := f.store.ApplyEntries(ctx(), h.log.entries[:i+1])
				if err == nil {
					break
				}
				if failed++; attempt > 0 { // what has failed is tried again after a while
					fault.Clear()
					f.clock.Advance(time.Minute)
					f.exec.RunAll()
				}
				if attempt > 3 {
					t.Fatalf("entry %d: %v", e.Index, err)
				}
				if errors.Is(err, ErrPoisoned) {
					stopped++
					fault.Clear()
					f.store.Close()
					f.openOn(fault)
				}
			}
			f.compare()
		}
		fault.Clear()
		f.store.Close()
		f.openOn(fault)
		f.apply(h.log.entries...)
		f.compare()
		f.store.Close()
	}
	t.Logf("%d failures, the store stopped %d times", failed, stopped)
	if failed == 0 && !testing.Short() {
		t.Error("nothing failed")
	}
}
