package flagstone

import (
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// fewFiles is a machine that lets a process open few files.
type fewFiles struct{ *vfs.Sim }

func (fewFiles) FileLimit() int { return 80 } // of which table files may have 12
func (fewFiles) Memory() int64  { return 1 << 30 }

func TestP18_AStoreOfManyFilesKeepsFewOpen(t *testing.T) {
	const rows, limit = 3000, 12
	for name, reads := range map[string]TableReads{"auto": TableReadsAuto, "mapped": TableReadsMapped, "direct": TableReadsDirect} {
		t.Run(name, func(t *testing.T) {
			sim := vfs.NewSim(vfs.SimOptions{})
			s, err := Open("/store", Options{
				MemtableSize: 8 << 10, TableFileSize: 4 << 10, CacheSize: 16 << 10, Sync: SyncNone, TableReads: reads,
				Seams: Seams{FS: fewFiles{sim}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range rows {
				put(t, table, "p", i, "c", startMillis, string(make([]byte, 100)))
			}
			if err := s.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
			if err := s.Compact(ctx()); err != nil {
				t.Fatal(err)
			}
			for i := range 3 * rows {
				r, err := table.Get(ctx(), Key("p", i*7919%rows), ReadOptions{})
				if err != nil || r == nil || len(r.Cells()) == 0 {
					t.Fatalf("row %d: %v, %v", i, r, err)
				}
			}
			m := s.Metrics()
			files := 0
			for _, n := range m.Tables[0].Files {
				files += n
			}
			if files < 4*limit || m.OpenFiles > limit {
				t.Errorf("of %d table files %d are open, want at most %d", files, m.OpenFiles, limit)
			}
			if (m.MappedFiles > 0) != (reads != TableReadsDirect) || m.IndexBytes == 0 || m.OffHeapBytes == 0 {
				t.Errorf("%d files mapped, %d bytes of indexes, %d bytes off the heap", m.MappedFiles, m.IndexBytes, m.OffHeapBytes)
			}
		})
	}
}

func TestTableReadsIsChecked(t *testing.T) {
	for _, reads := range []TableReads{-1, TableReadsDirect + 1} {
		_, err := Open("/store", Options{TableReads: reads, Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
		wantError(t, "Open", err, ErrInvalid)
	}
}
