//go:build unix

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	backedUpRows  = 2_000_000 // of 1,000 bytes that do not compress
	backupPhase   = 4 * time.Second
	backupLead    = time.Second
	backupPhases  = 15
	backupRate    = 8 << 20 // that of the command, if none is given
	keptPhase     = 3 * time.Second
	keptLead      = 2 * time.Second
	keptPhases    = 25
	backupWriters = 16
	backupReaders = 2
)

// checkpointEnv is the variable that names a checkpoint. If it is set, the test binary backs that up again and again, and
// runs no tests.
const checkpointEnv = "FLAGSTONE_BENCH_CHECKPOINT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(checkpointEnv); dir != "" {
		fmt.Fprintln(os.Stderr, backUpForever(dir, os.Getenv("FLAGSTONE_BENCH_REPOSITORY"), os.Getenv("FLAGSTONE_BENCH_RATE")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// backUpForever makes backups of a checkpoint at a rate in bytes per second, one after the other, each in an empty
// repository. It prints a line for each MiB that it has read.
func backUpForever(dir, repository, bytesPerSecond string) error {
	n, err := strconv.ParseInt(bytesPerSecond, 10, 64)
	for err == nil {
		said := int64(0)
		_, err = backup.Create(context.Background(), backup.NewFolder(nil, repository), nil, dir, backup.CreateOptions{
			BytesPerSecond: n, Progress: func(p backup.Progress) {
				for ; said+mebibyte <= p.Bytes; said += mebibyte {
					fmt.Println("read")
				}
			},
		})
		err = errors.Join(err, os.RemoveAll(repository))
	}
	return err
}

// BenchmarkBackup measures puts, which are synced, and gets of random rows of a store of 2 GB: beside backups at the
// default rate of the command, beside a checkpoint in each phase, which a backup begins with, beside a backup without a
// limit, and, for what chance does, beside nothing. A process of its own makes the backups, as the command does; it is
// stopped, and goes on, with the phases. Run it with -benchtime 1x. It reports what BenchmarkKeptLog does.
func BenchmarkBackup(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		store, err := flagstone.Open(filepath.Join(dir, "store"), flagstone.Options{})
		if err != nil {
			b.Fatal(err)
		}
		l := backupLoad{b: b, store: store, table: loadForBackup(b, store), lead: backupLead, length: backupPhase}
		l.phase("warm up", nil)
		l.series("nothing", nil, backupPhases)
		l.series("checkpoint", func(ctx context.Context, _ *atomic.Int64) {
			made := filepath.Join(dir, "made")
			err := store.Checkpoint(context.Background(), made)
			<-ctx.Done()
			if err = errors.Join(err, os.RemoveAll(made)); err != nil {
				b.Error(err)
			}
		}, backupPhases)
		checkpoint := filepath.Join(dir, "checkpoint")
		if err := store.Checkpoint(context.Background(), checkpoint); err != nil {
			b.Fatal(err)
		}
		l.besideBackups(checkpoint, filepath.Join(dir, "limited"), backupRate, func(beside func(context.Context, *atomic.Int64)) {
			l.series("backup", beside, backupPhases)
		})
		l.besideBackups(checkpoint, filepath.Join(dir, "unlimited"), 0, func(beside func(context.Context, *atomic.Int64)) {
			l.series("unlimited", beside, 1)
		})
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeptLog measures the same puts, synced and not, and gets: beside a log that is not kept, and beside one that
// is kept, and put into a repository each second, as 'backup log --every 1s' does. Run it with -benchtime 1x. Short phases
// alternate, since the machine's speed drifts, and each is compared with those beside it: it reports medians of the
// phases and of these ratios, with the bounds between which the median of more phases would lie, of 95% of such runs. The
// first seconds of each phase do not count: a log that begins to be kept makes segments, and deletes them when it ends.
// The repository is on the store's device, or costs no device anything (elsewhere). Rows do not compress, or by half (text).
func BenchmarkKeptLog(b *testing.B) {
	for _, c := range []struct {
		name      string
		mode      flagstone.SyncMode
		elsewhere bool
		text      bool
	}{
		{name: "synced"}, {name: "text", text: true}, {name: "elsewhere", elsewhere: true}, {name: "elsewhere-text", elsewhere: true, text: true},
		{name: "unsynced", mode: flagstone.SyncNone},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				at := filepath.Join(dir, "store")
				store, err := flagstone.Open(at, flagstone.Options{Sync: c.mode})
				if err != nil {
					b.Fatal(err)
				}
				l := backupLoad{b: b, store: store, table: loadForBackup(b, store), text: c.text, lead: keptLead, length: keptPhase}
				var repo backup.Repository = backup.NewFolder(nil, filepath.Join(dir, "repository"))
				l.firstBackup(repo, filepath.Join(dir, "checkpoint"))
				if c.elsewhere {
					repo = forgetful{repo}
				}
				l.phase("warm up", nil)
				l.series("kept", func(ctx context.Context, bytes *atomic.Int64) {
					l.keep(1 << 30)
					l.ship(ctx, at, repo, bytes)
					l.keep(0)
				}, keptPhases)
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// series has phases beside something, and as many and one more beside nothing, in turn, and reports them.
func (l *backupLoad) series(name string, beside func(ctx context.Context, bytes *atomic.Int64), phases int) {
	var with, without rates
	without.add(l.phase("none", nil))
	for range phases {
		with.add(l.phase(name, beside))
		without.add(l.phase("none", nil))
	}
	l.report(name+"-puts", with.puts, without.puts)
	l.report(name+"-gets", with.gets, without.gets)
}

// report reports the medians of phases and of those beside them, and of what each phase is to the mean of the two beside
// it, with bounds.
func (l *backupLoad) report(what string, phases, beside []float64) {
	ratios := make([]float64, len(phases))
	for i, rate := range phases {
		ratios[i] = 2 * rate / (beside[i] + beside[i+1])
	}
	for _, list := range [][]float64{ratios, phases, beside} {
		slices.Sort(list)
	}
	l.b.ReportMetric(phases[len(phases)/2], what+"/s")
	l.b.ReportMetric(beside[len(beside)/2], what+"-none/s")
	n := len(ratios)
	bound := max(int((float64(n)-1.96*math.Sqrt(float64(n)))/2), 0) // 1.96 standard deviations of a binomial count, sqrt(n)/2 each
	l.b.ReportMetric(ratios[n/2], what+"-ratio")
	l.b.ReportMetric(ratios[bound], what+"-ratio-low")
	l.b.ReportMetric(ratios[n-1-bound], what+"-ratio-high")
}

func loadForBackup(b *testing.B, store *flagstone.Store) *flagstone.Table {
	ctx := context.Background()
	table, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err != nil {
		b.Fatal(err)
	}
	w, err := table.BulkLoad(ctx, flagstone.BulkOptions{})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range int64(backedUpRows) {
		if err == nil {
			err = w.Put(flagstone.Key(i), flagstone.BulkCell{Column: "c", Version: 1, Value: row.Binary(thousand(random))})
		}
	}
	if err == nil {
		err = w.Commit(ctx)
	}
	if err != nil {
		b.Fatal(err)
	}
	return table
}

func thousand(random *rand.Rand) []byte {
	v := make([]byte, 1000)
	for i := 0; i < len(v); i += 8 {
		n := random.Uint64()
		for j := range 8 {
			v[i+j] = byte(n >> (8 * j))
		}
	}
	return v
}

// backupLoad is a store under load.
type backupLoad struct {
	b     *testing.B
	store *flagstone.Store
	table *flagstone.Table
	text  bool // half of each value repeats

	lead, length time.Duration // of a phase: what does not count, and what does
}

// rates are those of several phases.
type rates struct{ puts, gets []float64 }

func (r *rates) add(puts, gets float64) { r.puts, r.gets = append(r.puts, puts), append(r.gets, gets) }

// phase returns rates of puts and gets beside something, which ends with its context and counts bytes; nil is nothing.
func (l *backupLoad) phase(name string, beside func(ctx context.Context, bytes *atomic.Int64)) (putRate, getRate float64) {
	ctx, cancel := context.WithCancel(context.Background()) // a limiter refuses to wait beyond a deadline
	var puts, gets, bytes, early atomic.Int64
	defer time.AfterFunc(l.lead+l.length, cancel).Stop()
	defer time.AfterFunc(l.lead, func() {
		puts.Store(0)
		gets.Store(0)
		early.Store(bytes.Load())
	}).Stop()
	var group sync.WaitGroup
	for i := range backupWriters + backupReaders {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for ctx.Err() == nil {
				key, err := flagstone.Key(random.Int64N(backedUpRows)), error(nil)
				if i < backupWriters {
					value := thousand(random)
					if l.text {
						copy(value[500:], value[:500])
					}
					err = l.table.Put(context.Background(), key, "c", 2, row.Binary(value))
					puts.Add(1)
				} else {
					_, err = l.table.Get(context.Background(), key, flagstone.ReadOptions{})
					gets.Add(1)
				}
				if err != nil {
					l.b.Error(err)
					return
				}
			}
		})
	}
	if beside != nil {
		group.Go(func() { beside(ctx, &bytes) })
	}
	group.Wait()
	seconds := l.length.Seconds()
	putRate, getRate = float64(puts.Load())/seconds, float64(gets.Load())/seconds
	l.b.Logf("%s: %.0f puts/s, %.0f gets/s, %.0f MiB/s read beside", name, putRate, getRate, float64(bytes.Load()-early.Load())/seconds/mebibyte)
	return putRate, getRate
}

// besideBackups calls run with what lets a process go on that makes backups of a checkpoint, at a rate in bytes per
// second, where 0 is no limit, until a phase ends.
func (l *backupLoad) besideBackups(checkpoint, repository string, rate int64, run func(beside func(context.Context, *atomic.Int64))) {
	c := exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), checkpointEnv+"="+checkpoint, "FLAGSTONE_BENCH_REPOSITORY="+repository, fmt.Sprint("FLAGSTONE_BENCH_RATE=", rate)), os.Stderr
	lines, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		l.b.Fatal(err)
	}
	var phase atomic.Pointer[atomic.Int64] // what it has read
	phase.Store(new(atomic.Int64))
	var group sync.WaitGroup
	group.Go(func() {
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			phase.Load().Add(mebibyte)
		}
	})
	signal := func(s syscall.Signal) {
		if err := c.Process.Signal(s); err != nil {
			l.b.Error(err)
		}
	}
	defer func() {
		_ = c.Process.Kill()
		group.Wait()
		_ = c.Wait() // killed
		if err := os.RemoveAll(repository); err != nil {
			l.b.Error(err)
		}
	}()
	signal(syscall.SIGSTOP)
	run(func(ctx context.Context, bytes *atomic.Int64) {
		phase.Store(bytes)
		signal(syscall.SIGCONT)
		<-ctx.Done()
		signal(syscall.SIGSTOP)
	})
}

// firstBackup makes the backup that a kept log continues.
func (l *backupLoad) firstBackup(repo backup.Repository, checkpoint string) {
	err := l.store.Checkpoint(context.Background(), checkpoint)
	if err == nil {
		_, err = backup.Create(context.Background(), repo, nil, checkpoint, backup.CreateOptions{})
	}
	if err = errors.Join(err, os.RemoveAll(checkpoint)); err != nil {
		l.b.Fatal(err)
	}
}

// forgetful is a repository that keeps nothing of what is put from now on.
type forgetful struct{ backup.Repository }

func (forgetful) Put(_ context.Context, _ string, write func(io.Writer) error) error {
	return write(io.Discard)
}

// keep begins or ends to keep the log.
func (l *backupLoad) keep(limit int64) {
	if err := l.store.KeepLog(context.Background(), limit); err != nil {
		l.b.Error(err)
	}
}

// ship puts the log of the store in dir into a repository, each second. The time that it takes counts to the second.
func (l *backupLoad) ship(ctx context.Context, dir string, repo backup.Repository, bytes *atomic.Int64) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		kept, err := l.store.KeptLog(ctx)
		if err == nil {
			var report backup.ShipReport
			report, err = backup.Ship(ctx, repo, vfs.OS(), dir, kept, backup.CreateOptions{BytesPerSecond: 64 << 20}, func(part flagstone.KeptLog) error {
				return l.store.LogShipped(ctx, part)
			})
			bytes.Add(report.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			l.b.Error(err)
		}
	}
}
