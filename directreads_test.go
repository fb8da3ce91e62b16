package flagstone

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// littleMemory is a machine with little memory that counts how table files are
// opened for reading.
type littleMemory struct {
	*vfs.Sim
	direct, buffered *atomic.Int64
}

func (littleMemory) FileLimit() int { return 0 }
func (littleMemory) Memory() int64  { return 64 << 10 }

func (m littleMemory) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		if opts.Direct {
			m.direct.Add(1)
		} else {
			m.buffered.Add(1)
		}
	}
	return m.Sim.Open(name, opts)
}

// TestTablesFarBeyondMemoryAreReadPastThePageCache, if most of the memory is the
// block cache's, and only then.
func TestTablesFarBeyondMemoryAreReadPastThePageCache(t *testing.T) {
	const rows = 3000
	for name, c := range map[string]struct {
		cache  int64
		direct bool
	}{"large cache": {40 << 10, true}, "small cache": {16 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			fs := littleMemory{vfs.NewSim(vfs.SimOptions{}), new(atomic.Int64), new(atomic.Int64)}
			open := func() (*Store, *Table) {
				s, err := Open("/store", Options{
					MemtableSize: 64 << 10, TableFileSize: 16 << 10, CacheSize: c.cache, Sync: SyncNone,
					Compression: CompressionNone, Seams: Seams{FS: fs},
				})
				if err != nil {
					t.Fatal(err)
				}
				table, err := s.Table("t")
				if err != nil {
					table, err = s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
				}
				if err != nil {
					t.Fatal(err)
				}
				return s, table
			}
			s, table := open()
			for i := range rows {
				put(t, table, "p", i, "c", startMillis, strings.Repeat("v", i%100))
			}
			if err := s.Compact(ctx()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			fs.direct.Store(0)
			fs.buffered.Store(0)
			s, table = open()
			defer s.Close()
			for i := range rows {
				at := i * 7919 % rows
				r, err := table.Get(ctx(), Key("p", at), ReadOptions{})
				if err != nil || r == nil {
					t.Fatalf("row %d: %v, %v", at, r, err)
				}
				if v, _ := r.Value("c"); v.Text() != strings.Repeat("v", at%100) {
					t.Fatalf("row %d: %q", at, v.Text())
				}
			}
			n := 0
			for scan := table.Scan(ctx(), nil, nil, ScanOptions{}); scan.Next(); n++ {
			}
			if n != rows {
				t.Errorf("%d rows of %d", n, rows)
			}
			if direct, buffered := fs.direct.Load(), fs.buffered.Load(); direct > 0 != c.direct || !c.direct && buffered == 0 {
				t.Errorf("%d table files opened direct, %d not", direct, buffered)
			}
		})
	}
}
