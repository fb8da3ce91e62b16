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
	sparing, others *atomic.Int64
}

func (littleMemory) FileLimit() int { return 0 }
func (littleMemory) Memory() int64  { return 64 << 10 }

func (m littleMemory) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		if opts.Sparing {
			m.sparing.Add(1)
		} else {
			m.others.Add(1)
		}
	}
	return m.Sim.Open(name, opts)
}

func TestReadsOfTablesThatAreNotMappedSpareThePageCache(t *testing.T) {
	for name, c := range map[string]struct {
		rows    int
		sparing bool
	}{"far beyond memory": {3000, true}, "little more": {1200, true}, "a third": {150, false}} {
		t.Run(name, func(t *testing.T) {
			rows := c.rows
			fs := littleMemory{vfs.NewSim(vfs.SimOptions{}), new(atomic.Int64), new(atomic.Int64)}
			open := func() (*Store, *Table) {
				s, err := Open("/store", Options{
					MemtableSize: 64 << 10, TableFileSize: 16 << 10, CacheSize: 16 << 10, Sync: SyncNone,
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
			fs.sparing.Store(0)
			fs.others.Store(0)
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
			if sparing, others := fs.sparing.Load(), fs.others.Load(); sparing > 0 != c.sparing || !c.sparing && others == 0 {
				t.Errorf("%d table files opened sparing, %d not", sparing, others)
			}
		})
	}
}
