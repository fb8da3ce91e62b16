package flagstone

// Recovery after a failed sync (P2, P3, P10). A sync fails and the process dies. The next process
// can read pages that may never reach the disk: another sync proves nothing. Power is cut at
// every call of that recovery that changes the disk, and again in the recovery from that. Each
// picture must hold all that was acknowledged, and no partial batch.
//
// The quick version judges some 500 pictures. FLAGSTONE_RECOVERY_IMAGES=n goes on
// until n different disks were judged.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

func TestP02_P03_P10_PowerCutsDuringRecoveryAfterAFailedSync(t *testing.T) {
	want, _ := strconv.Atoi(os.Getenv("FLAGSTONE_RECOVERY_IMAGES"))
	want = max(want, shorter(500))
	c := &crasher{t: t, often: 100, digests: map[uint64]bool{}}
	recoveries := 0
	for seed := uint64(0); len(c.digests) < want && !c.failed; seed++ {
		c.rng = rand.New(rand.NewPCG(seed, 3))
		f := failedSync{
			seed: seed, sync: SyncMode(seed % 2), direct: seed/2%2 == 0,
			model: vfs.SyncFailure(c.rng.IntN(4) / 3), spread: c.rng.IntN(4) == 0,
		}
		c.seen = map[picture]bool{}
		if f.run(c) {
			recoveries++
		}
		if seed > 100 && recoveries == 0 {
			t.Fatal("no sync failed")
		}
	}
	t.Logf("%d recoveries, %d pictures judged (%d of them of recoveries from pictures), %d different disks",
		recoveries, c.pictures, c.nested, len(c.digests))
}

// failedSync is a workload that ends at a sync that fails.
type failedSync struct {
	seed   uint64
	sync   SyncMode
	model  vfs.SyncFailure
	direct bool // the disk offers direct I/O
	spread bool // any sync may fail, not only those of log segments
}

func (f failedSync) String() string {
	return fmt.Sprintf("seed %d, sync mode %d, model %d, direct %v", f.seed, f.sync, f.model, f.direct)
}

// run lets a sync fail and the process die, and judges pictures of the recovery.
// It reports whether a sync failed.
func (f failedSync) run(c *crasher) bool {
	sim := vfs.SimOptions{}
	if !f.direct {
		sim.BlockSize = -1
	}
	disk := vfs.NewSim(sim)
	fault := vfs.NewFault(disk, 1)
	c.opts = withValues(scriptOptions(f.sync))
	c.opts.LogCompression = LogCompressionAlways + LogCompression(f.seed%2)
	s := newScript(fault, c.opts, f.seed)
	failed := false
	s.outcome = func(err error) bool {
		failed = errors.Is(err, ErrPoisoned)
		return !failed // a table that cannot be synced is written anew
	}
	rule := vfs.Rule{Glob: "0*.log", Ops: vfs.OpSync | vfs.OpSyncData, Nth: 1 + int64(c.rng.IntN(3)), Action: vfs.FailSync(f.model)}
	if f.spread {
		rule.Glob = ""
	}
	ok := s.open() == nil && s.create("a", 3) && s.create("b", 1) && s.work(c.rng.IntN(40))
	fault.Add(rule)
	for range 6 {
		ok = ok && s.crowd(5+c.rng.IntN(60)) && s.work(c.rng.IntN(3)) && s.flush()
	}
	if !failed {
		s.store.Close()
		return false
	}
	next := disk.Kill()
	s.store.Close()
	c.guard(func() { f.recover(c, s, next) })
	return true
}

// recover opens what the dead process left, and takes pictures before
// calls that change the disk, and one after the last.
func (f failedSync) recover(c *crasher, s *script, disk *vfs.Sim) {
	fault := vfs.NewFault(disk, 1)
	calls := 0
	shoot := func(what string) {
		policies := vfs.CrashPolicies()
		policy := policies[calls%len(policies)]
		if calls%2 == 0 {
			policy = vfs.CrashLoseAll // that is where a tail that was never synced goes
		}
		calls++
		label := fmt.Sprintf("%v, step %q; in recovery before call %d (%s), %v", f, s.step, calls, what, policy)
		c.judge(s, disk.Image(policy, f.seed+uint64(calls)), label, 1)
	}
	fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
		if call.Op&vfs.OpMutating != 0 && c.rng.IntN(6) == 0 {
			shoot(fmt.Sprint(call.Op, " ", call.Name))
		}
	}})
	r := newScript(fault, c.opts, f.seed+1000)
	if err := r.open(); err != nil {
		c.fatalf("%v: open: %v", f, err)
	}
	fault.Observe(vfs.Observer{})
	shown, err := readAll(r.store)
	if err != nil {
		c.fatalf("%v: read: %v", f, err)
	}
	again := disk.Image(vfs.CrashLoseAll, 1)
	r.store.Close()
	r2 := c.recover(s, again, fmt.Sprintf("%v; recovered, and power lost", f), 3)
	if got := r2.now().text(); got != shown {
		c.fatalf("%v: what was shown after recovery was lost:\n%s", f, difference(shown, got))
	}
	r2.closeAtEnd()
}

// crowd begins many batches before it waits for any, so that one group of the log carries them
// and much is lost with it. Some are larger than a log segment.
func (s *script) crowd(batches int) bool {
	s.step = "crowd"
	type begun struct {
		state  int
		commit *Commit
	}
	var all []begun
	var failure error
	for range batches {
		version, n := s.nextVersion(), s.rng.IntN(14)
		value := fmt.Sprintf("%d-%s", version-startMillis, strings.Repeat("y", s.rng.IntN(90)))
		if s.rng.IntN(80) == 0 {
			value = noise(s.rng, int(s.opts.WALSegmentSize)*3/4+s.rng.IntN(9000))
		}
		next := s.now().clone()
		b := s.store.NewBatch()
		for _, t := range s.store.Tables() {
			next.tables[t.Name()].rows[rowName("pair", n)] = oracleRow{"stamp": {version: value}}
			c := b.Row(t, Key("pair", n))
			c.PutRow()
			c.Put("stamp", version, row.String(value))
		}
		s.states = append(s.states, next)
		commit, err := s.store.ApplyAsync(context.Background(), b)
		if err != nil {
			failure = err
			if !errors.Is(err, ErrPoisoned) {
				s.states = s.states[:len(s.states)-1]
			}
			break
		}
		all = append(all, begun{len(s.states) - 1, commit})
	}
	for _, b := range all {
		if err := b.commit.Wait(context.Background()); err != nil {
			failure = err
		} else if s.opts.Sync == SyncAlways && failure == nil {
			s.acked = b.state
		}
	}
	return failure == nil || s.outcome(failure)
}

// noise returns text that hardly compresses.
func noise(rng *rand.Rand, size int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
	b := make([]byte, size)
	for i := range b {
		b[i] = digits[rng.IntN(len(digits))]
	}
	return string(b)
}

// TestALogIsReadWhetherItIsCompressedOrNot puts text into one log that is compressed and not, between power
// cuts, after each of which the store is opened the other way.
func TestALogIsReadWhetherItIsCompressedOrNot(t *testing.T) {
	const size = 15 << 10 // of a value that stays in the row
	text := strings.Repeat("a log of text shrinks to a part of this. ", size/41+1)[:size]
	r := newRig(t, Options{})
	for i, compression := range []LogCompression{LogCompressionNever, LogCompressionAlways, LogCompressionAlways, LogCompressionAuto} {
		r.opts.LogCompression = compression
		compress := compression == LogCompressionAlways
		r.crash(vfs.CrashLoseAll, 0)
		table := r.table("t", TableOptions{MaxVersions: 1})
		before := r.store.Metrics().LogBytes
		put(t, table, "p", i, "c", startMillis, text)
		if wrote := r.store.Metrics().LogBytes - before; compress == (wrote >= size) {
			t.Errorf("compressed %t: a record of %d bytes takes %d of the log", compress, size, wrote)
		}
		for n := range i + 1 {
			if got := show(t, table, "p", n); !strings.Contains(got, text) {
				t.Errorf("opened with %t: row %d is %.60q", compress, n, got)
			}
		}
	}
}
