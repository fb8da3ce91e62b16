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
	backupPhases  = 15 // beside backups, and one more beside none
	keptPhase     = 3 * time.Second
	keptLead      = 2 * time.Second
	keptPhases    = 25 // of each kind
	backupWriters = 16
	backupReaders = 2
)

// backedUp names the variable that says to the test binary which checkpoint it backs up, instead of running tests.
const backedUp = "FLAGSTONE_BENCH_CHECKPOINT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(backedUp); dir != "" {
		if err := backUp(dir, os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// backUp makes a backup of a checkpoint at a rate in bytes per second, and prints how many bytes it has read.
func backUp(dir, repository, bytesPerSecond string) error {
	n, err := strconv.ParseInt(bytesPerSecond, 10, 64)
	if err == nil {
		_, err = backup.Create(context.Background(), backup.NewFolder(nil, repository), nil, dir, backup.CreateOptions{
			BytesPerSecond: n, Progress: func(p backup.Progress) { fmt.Println(p.Bytes) },
		})
	}
	return err
}

// BenchmarkBackup measures puts, which are synced, and gets of random rows of a store of 2 GB: beside no backup,
// beside backups at the default rate of the command, and beside backups without a limit, one after the other into
// repositories that are empty. A process of its own makes them, as the command does, of a checkpoint that is made before.
// Run it with -benchtime 1x. Phases alternate, since the store grows; it reports what BenchmarkKeptLog does.
func BenchmarkBackup(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		store, err := flagstone.Open(filepath.Join(dir, "store"), flagstone.Options{})
		if err != nil {
			b.Fatal(err)
		}
		l := backupLoad{b: b, dir: dir, store: store, table: loadForBackup(b, store), lead: backupLead, length: backupPhase}
		checkpoint := filepath.Join(dir, "checkpoint")
		if err := store.Checkpoint(context.Background(), checkpoint); err != nil {
			b.Fatal(err)
		}
		l.phase("warm up", nil)
		without, limited := rates{}, rates{}
		without.add(l.phase("none", nil))
		for range backupPhases {
			limited.add(l.phase("limited", l.backUps(checkpoint, 8<<20)))
			without.add(l.phase("none", nil))
		}
		reportRatio(b, "puts", limited.puts, without.puts)
		reportRatio(b, "gets", limited.gets, without.gets)
		var unlimited rates
		unlimited.add(l.phase("unlimited", l.backUps(checkpoint, 0)))
		report(b, map[string]rates{"none": without, "limited": limited, "unlimited": unlimited})
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
				store, err := flagstone.Open(filepath.Join(dir, "store"), flagstone.Options{Sync: c.mode})
				if err != nil {
					b.Fatal(err)
				}
				l := backupLoad{b: b, dir: dir, store: store, table: loadForBackup(b, store), text: c.text, lead: keptLead, length: keptPhase}
				var repo backup.Repository = backup.NewFolder(vfs.OS(), filepath.Join(dir, "repository"))
				l.backUpFirst(repo)
				if c.elsewhere {
					repo = forgetful{repo}
				}
				l.phase("warm up", nil)
				without, kept := rates{}, rates{}
				without.add(l.phase("none", nil))
				for range keptPhases {
					l.keep(1 << 30)
					kept.add(l.phase("kept", func(ctx context.Context, bytes *atomic.Int64) { l.ship(ctx, repo, bytes) }))
					l.keep(0)
					without.add(l.phase("none", nil))
				}
				reportRatio(b, "puts", kept.puts, without.puts)
				reportRatio(b, "gets", kept.gets, without.gets)
				report(b, map[string]rates{"none": without, "kept": kept})
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// report reports the medians of several phases.
func report(b *testing.B, all map[string]rates) {
	for name, r := range all {
		slices.Sort(r.puts)
		slices.Sort(r.gets)
		b.ReportMetric(r.puts[len(r.puts)/2], name+"-puts/s")
		b.ReportMetric(r.gets[len(r.gets)/2], name+"-gets/s")
	}
}

// reportRatio reports the median of what the phases of one kind are to the means of the two beside each, and its bounds.
func reportRatio(b *testing.B, what string, phases, beside []float64) {
	ratios := make([]float64, len(phases))
	for i, rate := range phases {
		ratios[i] = 2 * rate / (beside[i] + beside[i+1])
	}
	slices.Sort(ratios)
	n := len(ratios)
	bound := n/2 - int(math.Sqrt(float64(n))) // 1.96 standard deviations of a binomial count, sqrt(n)/2 each
	b.ReportMetric(ratios[n/2], what+"-ratio")
	b.ReportMetric(ratios[bound], what+"-ratio-low")
	b.ReportMetric(ratios[n-1-bound], what+"-ratio-high")
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
	dir   string
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

// backUps makes backups of a checkpoint in empty repositories, one after the other, in processes of their own, at a rate
// in bytes per second; 0 is no limit. It deletes them, and the one that the end interrupts.
func (l *backupLoad) backUps(checkpoint string, rate int64) func(ctx context.Context, bytes *atomic.Int64) {
	return func(ctx context.Context, bytes *atomic.Int64) {
		repository := filepath.Join(l.dir, "repository")
		for ctx.Err() == nil {
			c := exec.CommandContext(ctx, os.Args[0], repository, fmt.Sprint(rate))
			c.Env, c.Stderr = append(os.Environ(), backedUp+"="+checkpoint), os.Stderr
			read, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				l.b.Error(err)
				return
			}
			before := bytes.Load()
			for lines := bufio.NewScanner(read); lines.Scan(); {
				if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
					bytes.Store(before + n)
				}
			}
			if err := c.Wait(); err != nil && ctx.Err() == nil {
				l.b.Error(err)
				return
			}
			if err := os.RemoveAll(repository); err != nil {
				l.b.Error(err)
				return
			}
		}
	}
}

// backUpFirst makes the backup that a kept log continues.
func (l *backupLoad) backUpFirst(repo backup.Repository) {
	dir := filepath.Join(l.dir, "checkpoint")
	err := l.store.Checkpoint(context.Background(), dir)
	if err == nil {
		_, err = backup.Create(context.Background(), repo, nil, dir, backup.CreateOptions{})
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
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
		l.b.Fatal(err)
	}
}

// ship puts the log into a repository, each second. The time that it takes counts to the second.
func (l *backupLoad) ship(ctx context.Context, repo backup.Repository, bytes *atomic.Int64) {
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
			report, err = backup.Ship(ctx, repo, vfs.OS(), filepath.Join(l.dir, "store"), kept, backup.CreateOptions{BytesPerSecond: 64 << 20}, func(part flagstone.KeptLog) error {
				return l.store.LogShipped(ctx, part)
			})
			bytes.Add(report.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			l.b.Error(err)
		}
	}
}
