package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	backupPhase   = 10 * time.Second
	backupWriters = 16
	backupReaders = 2
)

// BenchmarkBackup measures puts, which are synced, and gets of random rows of a store of 2 GB: beside no backup,
// beside backups at the default rate of the command, and beside backups without a limit, one after the other into
// repositories that are empty. Run it with -benchtime 1x. Phases alternate, since the store grows; it reports their
// medians.
func BenchmarkBackup(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		store, err := flagstone.Open(filepath.Join(dir, "store"), flagstone.Options{})
		if err != nil {
			b.Fatal(err)
		}
		l := backupLoad{b: b, dir: dir, store: store, table: loadForBackup(b, store)}
		l.phase(0)
		without, limited := rates{}, rates{}
		for range 5 {
			without.add(l.phase(0))
			limited.add(l.phase(16 << 20))
		}
		var unlimited rates
		unlimited.add(l.phase(-1))
		for name, r := range map[string]rates{"none": without, "limited": limited, "unlimited": unlimited} {
			slices.Sort(r.puts)
			slices.Sort(r.gets)
			b.ReportMetric(r.puts[len(r.puts)/2], name+"-puts/s")
			b.ReportMetric(r.gets[len(r.gets)/2], name+"-gets/s")
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
	}
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
	made  int
}

// rates are those of several phases.
type rates struct{ puts, gets []float64 }

func (r *rates) add(puts, gets float64) { r.puts, r.gets = append(r.puts, puts), append(r.gets, gets) }

// phase returns rates of puts and gets beside backups with a limit in bytes per second: 0 makes none, -1 has no limit.
func (l *backupLoad) phase(rate int64) (putRate, getRate float64) {
	ctx, cancel := context.WithTimeout(context.Background(), backupPhase)
	defer cancel()
	var puts, gets, backups atomic.Int64
	var group sync.WaitGroup
	for i := range backupWriters + backupReaders {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for ctx.Err() == nil {
				key, err := flagstone.Key(random.Int64N(backedUpRows)), error(nil)
				if i < backupWriters {
					err = l.table.Put(context.Background(), key, "c", 2, row.Binary(thousand(random)))
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
	if rate != 0 {
		group.Go(func() {
			for ctx.Err() == nil {
				l.backUp(ctx, max(rate, 0), &backups)
			}
		})
	}
	group.Wait()
	seconds := backupPhase.Seconds()
	putRate, getRate = float64(puts.Load())/seconds, float64(gets.Load())/seconds
	l.b.Logf("limit %d: %.0f puts/s, %.0f gets/s, %.0f MiB/s backed up", rate, putRate, getRate, float64(backups.Load())/seconds/mebibyte)
	return putRate, getRate
}

// backUp makes a backup in an empty repository, or begins one, and deletes it.
func (l *backupLoad) backUp(ctx context.Context, rate int64, bytes *atomic.Int64) {
	l.made++
	dir, repo := filepath.Join(l.dir, fmt.Sprint("checkpoint", l.made)), filepath.Join(l.dir, fmt.Sprint("repository", l.made))
	before, last := bytes.Load(), int64(0)
	err := l.store.Checkpoint(ctx, dir)
	if err == nil {
		_, err = backup.Create(ctx, backup.NewFolder(vfs.OS(), repo), vfs.OS(), dir, backup.CreateOptions{
			BytesPerSecond: rate, Progress: func(p backup.Progress) { last = p.Bytes },
		})
	}
	bytes.Store(before + last)
	if err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(repo)); err != nil && ctx.Err() == nil {
		l.b.Error(err)
	}
}
