package flagstone

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// salvaged is a closed store whose files are damaged in turn, and what it held.
type salvaged struct {
	*rig
	rows    map[string]string // of all tables, by table and key; each row lies in one file, or in the log, but for deleted ones
	records int               // of the stream
	out     int
}

const salvageRows = 90 // of each table

var salvageTables = []string{"plain", "streamed", "moved", "dropped"}

// newSalvaged makes a store of three tables, one with a stream: some rows are in a deep level, some in level 0
// and some in the log; a third of them has values in value files. Two rows are deleted, in level 0 and in the log. The
// third table comes from another store. A fourth one is dropped.
func newSalvaged(t *testing.T) *salvaged {
	t.Helper()
	r := newRig(t, Options{WALSegmentSize: 64 << 10, Compression: CompressionNone, BlockSize: 256, Seams: Seams{ValueThreshold: 64}})
	plain := r.table("plain", TableOptions{MaxVersions: 2})
	streamed := r.streamed("streamed", StreamSpec{})
	fill := func(table *Table, round int) {
		for i := round; i < salvageRows; i += 3 {
			put(t, table, "p", i, "c", startMillis, fmt.Sprint("value ", i))
			if round != 2 && i%2 == 0 { // another write, but of the same file
				put(t, table, "p", i, "large", startMillis, strings.Repeat(fmt.Sprint(i, " "), 40))
			}
		}
		if gone := 27 + 6*(round-1); round > 0 {
			r.ok(table.Update(ctx(), Key("p", gone), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil }))
		}
	}
	for round := range 3 {
		fill(plain, round)
		fill(streamed, round)
		switch round {
		case 0:
			r.ok(r.store.Compact(ctx()))
		case 1:
			fill(r.table("dropped", TableOptions{}), 0)
			r.ok(r.store.Flush(ctx()))
			r.ok(r.store.DropTable(ctx(), "dropped"))
			moveTo(r, fill)
		}
		r.exec.RunAll()
	}
	s := &salvaged{rig: r}
	s.rows, s.records = s.content(r.store)
	r.ok(r.store.Close())
	return s
}

// moveTo moves a table from another store to that of r.
func moveTo(r *rig, fill func(table *Table, round int)) {
	other := newRig(r.t, r.opts)
	table := other.table("moved", TableOptions{})
	fill(table, 0)
	other.ok(other.store.Flush(ctx()))
	x, err := table.Export(ctx(), "/export", ExportOptions{})
	r.ok(err)
	r.ok(send(x, r.store))
	r.ok(r.store.Ingest(ctx(), x.Fragment))
}

// content reads all rows and counts the records of the stream.
func (s *salvaged) content(store *Store) (rows map[string]string, records int) {
	s.t.Helper()
	rows = map[string]string{}
	for _, name := range salvageTables {
		table, err := store.Table(name)
		if errors.Is(err, ErrTableNotFound) {
			continue
		}
		s.ok(err)
		for i := range salvageRows {
			if got := show(s.t, table, "p", i); got != "absent" {
				rows[fmt.Sprintf("%s %03d", name, i)] = got
			}
		}
	}
	table, err := store.Table("streamed")
	if errors.Is(err, ErrTableNotFound) {
		return rows, 0
	}
	s.ok(err)
	st := table.Stream()
	all, _ := readStream(s.t, st, oldest(s.t, st), StreamLimits{Records: 1000, Bytes: 1 << 20})
	return rows, len(all)
}

// salvage salvages the store and opens the new one, which must be in order.
func (s *salvaged) salvage(what string) (rows map[string]string, records int, report SalvageReport) {
	s.t.Helper()
	s.out++
	target := fmt.Sprintf("/out%d", s.out)
	opts := s.opts
	opts.Seams.FS, opts.Seams.Clock = s.fs, s.clock
	report, err := Salvage(ctx(), "/store", target, opts, nil)
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	if found, err := Check(ctx(), target, opts, nil); err != nil || len(found.Problems) > 0 {
		s.t.Fatalf("%s: the new store: %v %v", what, err, found.Problems)
	}
	opts.Seams.Executor = s.exec
	store, err := Open(target, opts)
	s.ok(err)
	rows, records = s.content(store)
	s.ok(store.Close())
	for _, name := range s.fs.Files() {
		if strings.HasPrefix("/"+name, target+"/") {
			s.ok(s.fs.Remove("/" + name))
		}
	}
	return rows, records, report
}

// covers reports whether a loss of the report tells of a row.
func covers(report SalvageReport, name string, i int) bool {
	key, err := row.AppendKey(nil, 2, Key("p", i)...)
	if err != nil {
		panic(err)
	}
	return slices.ContainsFunc(report.Losses, func(l SalvageLoss) bool {
		return l.Table == "" || l.Table == name && !l.Stream && bytes.Compare(l.From, key) <= 0 && bytes.Compare(key, l.To) <= 0
	})
}

// judge compares what came back with what was there, and returns how many rows differ.
func (s *salvaged) judge(what string) (differ, records int, losses []SalvageLoss) {
	s.t.Helper()
	rows, records, report := s.salvage(what)
	for _, name := range salvageTables {
		for i := range salvageRows {
			id := fmt.Sprintf("%s %03d", name, i)
			switch {
			case rows[id] == s.rows[id]:
			case !covers(report, name, i):
				s.t.Errorf("%s: row %s is %q, was %q, and no loss says so: %v", what, id, rows[id], s.rows[id], report.Losses)
			default:
				differ++
			}
		}
	}
	for _, l := range report.Losses {
		if (l.Table == "") != (l.From == nil) || (l.Table == "") != (l.To == nil) || l.Err == nil {
			s.t.Errorf("%s: table %q, keys from %x to %x: %v", what, l.Table, l.From, l.To, l.Err)
		}
	}
	ofStream := slices.ContainsFunc(report.Losses, func(l SalvageLoss) bool { return l.Stream || l.Table == "" })
	if records != s.records && !ofStream {
		s.t.Errorf("%s: %d records of the stream, were %d, and no loss says so", what, records, s.records)
	}
	// Table files may have the records that a damaged log has lost.
	named := slices.ContainsFunc(report.Losses, func(l SalvageLoss) bool { return l.Table != "" })
	if differ == 0 && records == s.records && named {
		s.t.Errorf("%s: nothing is lost, but the list says %v", what, report.Losses)
	}
	return differ, records, report.Losses
}

// filesOf returns the files of the store with a suffix.
func (s *salvaged) filesOf(suffix string) (names []string) {
	for _, name := range s.fs.Files() {
		if strings.HasPrefix(name, "store/") && strings.HasSuffix(name, suffix) && !strings.Contains(name, "spare") {
			names = append(names, "/"+name)
		}
	}
	return names
}

func TestAnIntactStoreIsSalvagedAsItIs(t *testing.T) {
	s := newSalvaged(t)
	rows, records, report := s.salvage("intact")
	if fmt.Sprint(rows) != fmt.Sprint(s.rows) || records != s.records || records == 0 || len(report.Losses)+report.Rewritten+report.Lost != 0 || report.Copied == 0 || report.Records == 0 {
		t.Errorf("%d rows of %d, %d records of %d, %+v", len(rows), len(s.rows), records, s.records, report)
	}
}

// TestEveryRowThatNoDamagedBlockHeldComesBack flips bytes of each table file, value file and segment of the log.
func TestEveryRowThatNoDamagedBlockHeldComesBack(t *testing.T) {
	s := newSalvaged(t)
	for _, suffix := range []string{".sst", ".val", ".log"} {
		files := s.filesOf(suffix)
		if len(files) == 0 {
			t.Fatalf("no files %s", suffix)
		}
		few := 0
		for _, name := range files {
			content, err := s.fs.ReadFile(name)
			s.ok(err)
			for at := 0; at < len(content); at += max(len(content)/12, 1) {
				flip := func(b []byte) []byte { b = bytes.Clone(b); b[at] ^= 0x10; return b }
				s.ok(s.fs.Edit(name, flip))
				if differ, _, _ := s.judge(fmt.Sprintf("%s, byte %d", name, at)); differ <= 8 {
					few++
				}
				s.ok(s.fs.Edit(name, flip))
			}
			now, err := s.fs.ReadFile(name)
			if err != nil || !bytes.Equal(now, content) {
				t.Errorf("%s was changed: %v", name, err)
			}
		}
		if few < 5*len(files) {
			t.Errorf("%s: only %d flips of %d files lost few rows", suffix, few, len(files))
		}
	}
}

func TestWhatATruncatedOrMissingFileHeldIsListed(t *testing.T) {
	s := newSalvaged(t)
	files := slices.Concat(s.filesOf(".sst"), s.filesOf(".val"), s.filesOf(".log"))
	if len(files) < 6 {
		t.Fatalf("only %v", files)
	}
	for _, name := range files {
		content, err := s.fs.ReadFile(name)
		s.ok(err)
		s.ok(s.fs.Edit(name, func(b []byte) []byte { return bytes.Clone(b[:len(b)/2]) }))
		s.judge(name + ", cut")
		s.ok(s.fs.Remove(name))
		s.judge(name + ", removed")
		f, err := s.fs.Create(name, vfs.OpenOptions{})
		s.ok(err)
		_, err = f.WriteAt(content, 0)
		s.ok(errors.Join(err, f.Sync(), f.Close()))
	}
	s.judge("restored")
}

// TestSalvageAfterRandomDamage damages each file of a store in turn at a random place: a byte, a page, the end, or all of it.
func TestSalvageAfterRandomDamage(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSalvaged(t)
	kinds := map[string]int{}
	for _, name := range slices.Repeat(s.filesOf(""), 3) {
		content, err := s.fs.ReadFile(name)
		s.ok(err)
		if len(content) == 0 { // the lock
			continue
		}
		kinds[strings.TrimLeft(path.Base(name), "0123456789")]++
		for _, damage := range []string{"flip", "zero", "cut", "remove"} {
			from := rng.IntN(len(content))
			b := bytes.Clone(content)
			switch damage {
			case "flip":
				b[from] ^= byte(1 + rng.IntN(255))
			case "zero":
				from = from / 4096 * 4096
				clear(b[from:min(from+4096, len(b))])
			case "cut":
				b = b[:from]
			case "remove":
				from = 0
			}
			if damage == "remove" {
				s.ok(s.fs.Remove(name))
			} else {
				s.ok(s.fs.Edit(name, func([]byte) []byte { return b }))
			}
			what := fmt.Sprintf("seed %d, %s %s at %d of %d", seed, damage, name, from, len(content))
			differ, records, losses := s.judge(what)
			harmless := false
			switch base := path.Base(name); {
			case base == "CURRENT":
				if len(losses) != 1 || losses[0].File != name {
					t.Errorf("%s: %v", what, losses)
				}
				losses, harmless = nil, true
			case !strings.Contains(base, "."):
				harmless = true
			case strings.HasSuffix(base, ".sst"):
				const footer, dataLength = 80, 16
				harmless = uint64(from) >= binary.LittleEndian.Uint64(content[len(content)-footer+dataLength:])
			case strings.HasSuffix(base, ".val"):
				const footer = 72
				harmless = from >= len(content)-footer
			}
			if harmless && (differ > 0 || records != s.records || len(losses) > 0) {
				t.Errorf("%s: %d rows differ, %d records of %d, losses %v", what, differ, records, s.records, losses)
			}
			if damage == "remove" {
				f, err := s.fs.Create(name, vfs.OpenOptions{})
				s.ok(err)
				_, err = f.WriteAt(content, 0)
				s.ok(errors.Join(err, f.Sync(), f.Close()))
			} else {
				s.ok(s.fs.Edit(name, func([]byte) []byte { return content }))
			}
		}
	}
	if kinds[".sst"] < 18 || kinds[".val"] < 9 || kinds[".log"] < 6 || kinds["CURRENT"] != 3 || len(kinds) < 6 {
		t.Errorf("the files are no example: %v", kinds)
	}
}

// TestWhatManifestAndCopyBothLoseIsTold zeroes each edit in both.
func TestWhatManifestAndCopyBothLoseIsTold(t *testing.T) {
	s := newSalvaged(t)
	var names []string
	for _, name := range s.filesOf("") {
		if base := path.Base(name); !strings.Contains(base, ".") && strings.Contains(base, "-") {
			names = append(names, name)
		}
	}
	content, err := s.fs.ReadFile(names[0])
	s.ok(err)
	const block, firstEdit = 4096, 2
	used := len(bytes.TrimRight(content, "\x00")) / block // the last one has the end record
	older := 0
	for i := firstEdit; i < used; i++ {
		b := bytes.Clone(content)
		clear(b[i*block : (i+1)*block])
		for _, name := range names {
			s.ok(s.fs.Edit(name, func([]byte) []byte { return b }))
		}
		what := fmt.Sprintf("edit in block %d of %d", i, used)
		differ, records, losses := s.judge(what)
		told := slices.ContainsFunc(losses, func(l SalvageLoss) bool {
			return path.Base(l.File) == path.Base(names[1]) && l.Offset == int64(i*block) && l.Older && l.Table == ""
		})
		if !told {
			t.Errorf("%s: %v", what, losses)
		}
		if differ > 0 || records != s.records {
			older++
		}
	}
	if len(names) != 2 || older == 0 {
		t.Errorf("%v: %d older states are no example", names, older)
	}
}

func TestAStoreWithoutItsManifestIsNotGuessed(t *testing.T) {
	s := newSalvaged(t)
	opts := Options{Seams: Seams{FS: s.fs}}
	for _, c := range []struct {
		what, target string
		ctx          func() context.Context
		before       func()
	}{
		{"a target inside", "/store/new", ctx, func() {}},
		{"a target with files", "/store/..", ctx, func() {}},
		{"a cancelled context", "/out", func() context.Context { c, cancel := context.WithCancel(ctx()); cancel(); return c }, func() {}},
		{"no manifest", "/out2", ctx, func() {
			for _, name := range s.fs.Files() {
				if strings.HasPrefix(name, "store/MANIFEST") || strings.HasPrefix(name, "store/COPY") {
					s.ok(s.fs.Remove("/" + name))
				}
			}
		}},
	} {
		c.before()
		if _, err := Salvage(c.ctx(), "/store", c.target, opts, nil); err == nil {
			t.Errorf("%s: no error", c.what)
		}
		if _, err := Open(c.target, Options{ReadOnly: true, Seams: Seams{FS: s.fs}}); !errors.Is(err, ErrNotStore) {
			t.Errorf("%s: a store was made: %v", c.what, err)
		}
	}
}

// TestSalvageListsFilesThatACutManifestNoLongerNames takes the manifest back to what it was before a flush, and
// before any file. The copy is lost.
func TestSalvageListsFilesThatACutManifestNoLongerNames(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 64}})
	s := &salvaged{rig: r}
	table := r.table("t", TableOptions{})
	name := ""
	for _, file := range s.fs.Files() {
		if strings.HasPrefix(file, "store/MANIFEST") {
			name = "/" + file
		}
	}
	empty, err := s.fs.ReadFile(name)
	s.ok(err)
	put(t, table, "p", 1, "c", startMillis, "first")
	r.ok(r.store.Flush(ctx()))
	one, err := s.fs.ReadFile(name)
	s.ok(err)
	put(t, table, "p", 2, "c", startMillis, strings.Repeat("second", 40))
	r.ok(r.store.Flush(ctx()))
	r.ok(r.store.Close())
	r.ok(s.fs.Remove(strings.Replace(name, "MANIFEST", "COPY", 1)))
	files := slices.Concat(s.filesOf(".sst"), s.filesOf(".val"))
	if len(files) != 3 {
		t.Fatal(files)
	}
	for i, manifest := range [][]byte{one, empty} {
		s.ok(s.fs.Edit(name, func([]byte) []byte { return bytes.Clone(manifest) }))
		report, err := Salvage(ctx(), "/store", fmt.Sprint("/out", i), Options{Seams: Seams{FS: s.fs}}, nil)
		var listed []string
		for _, l := range report.Losses {
			if strings.Contains(l.Err.Error(), "not named by the manifest") {
				listed = append(listed, l.File)
			}
		}
		slices.Sort(listed)
		want := slices.Sorted(slices.Values(files))
		want = slices.DeleteFunc(want, func(name string) bool { return i == 0 && name == s.filesOf(".sst")[0] })
		if err != nil || !slices.Equal(listed, want) {
			t.Errorf("manifest %d: %v, %v, want %v", i, listed, err, want)
		}
	}
}

// TestFilesThatAKillLeftOverAreNoLoss has one with a number that the manifest has given out, and a newer one. They are
// losses only if the end of the manifest is in doubt.
func TestFilesThatAKillLeftOverAreNoLoss(t *testing.T) {
	s := newSalvaged(t)
	s.open()
	table, err := s.store.Table("plain")
	s.ok(err)
	put(t, table, "p", 0, "c", startMillis+1, "newest")
	s.ok(s.store.Flush(ctx()))
	s.rows, s.records = s.content(s.store)
	next := s.store.state().NextFile
	s.fs = s.fs.Image(vfs.CrashKeepAll, 1)
	twin := s.filesOf("")[0]
	manifest := strings.Replace(twin, "COPY", "MANIFEST", 1)
	needed := s.filesOf(".sst")
	free := uint64(1)
	for strings.Contains(fmt.Sprint(s.filesOf("")), fmt.Sprintf("/%06d.", free)) {
		free++
	}
	left := []string{fmt.Sprintf("/store/sst/00/%06d.sst", free), fmt.Sprintf("/store/sst/00/%06d.sst", next+7)}
	for _, name := range left {
		f, err := s.fs.Create(name, vfs.OpenOptions{})
		s.ok(errors.Join(err, f.Close()))
	}
	if free >= next {
		t.Fatalf("file %d of %d is free", free, next)
	}
	cut := func(b []byte) []byte { // the newest edit, which takes one block
		return bytes.Clone(b[:(len(bytes.TrimRight(b, "\x00"))-1)/4096*4096])
	}
	for _, c := range []struct {
		what   string
		damage func(fs *vfs.Sim) error
	}{
		{"killed", func(*vfs.Sim) error { return nil }},
		{"no copy", func(fs *vfs.Sim) error { return fs.Remove(twin) }},
		{"the copy lags", func(fs *vfs.Sim) error { return fs.Edit(twin, cut) }},
		{"the manifest is cut", func(fs *vfs.Sim) error { return fs.Edit(manifest, cut) }},
		{"the manifest is cut, and has no copy", func(fs *vfs.Sim) error { return errors.Join(fs.Edit(manifest, cut), fs.Remove(twin)) }},
		{"a file is missing", func(fs *vfs.Sim) error { return fs.Remove(needed[0]) }},
		{"both are cut, and the log goes on later", func(fs *vfs.Sim) error {
			err := errors.Join(fs.Edit(manifest, cut), fs.Edit(twin, cut))
			for _, name := range s.filesOf(".log") {
				err = errors.Join(err, fs.Remove(name))
			}
			return err
		}},
	} {
		d := *s
		d.rig = &rig{t: t, fs: s.fs.Image(vfs.CrashKeepAll, 1), clock: s.clock, exec: s.exec, opts: s.opts}
		s.ok(c.damage(d.fs))
		differ, records, losses := d.judge(c.what)
		_, _, report := d.salvage(c.what)
		if c.what == "killed" {
			if differ > 0 || records != s.records || len(losses) > 0 || !slices.Equal(report.Leftover, left) {
				t.Errorf("%d rows differ, %d records of %d, losses %v, left over %v", differ, records, s.records, losses, report.Leftover)
			}
			continue
		}
		var listed []string
		for _, l := range losses {
			if strings.Contains(l.Err.Error(), "not named by the manifest") {
				listed = append(listed, l.File)
			}
		}
		missed := slices.ContainsFunc(left, func(name string) bool { return !slices.Contains(listed, name) })
		if missed || len(report.Leftover) > 0 {
			t.Errorf("%s: %v are listed, %v left over", c.what, listed, report.Leftover)
		}
	}
}

// TestAFileOfSeveralPartitionsGoesToThoseThatItStillHasRowsOf damages all blocks of a file that one of its two
// partitions needs.
func TestAFileOfSeveralPartitionsGoesToThoseThatItStillHasRowsOf(t *testing.T) {
	r := newRig(t, Options{Compression: CompressionNone, BlockSize: 256})
	table := r.table("t", TableOptions{})
	const rows = 40
	for i := range rows {
		put(t, table, fmt.Sprintf("p%03d", i), i, "c", startMillis, strings.Repeat("v", 100))
	}
	r.ok(r.store.Flush(ctx()))
	r.ok(table.Split(ctx(), row.String("p004")))
	r.ok(r.store.Close())
	s := &salvaged{rig: r}
	files := s.filesOf(".sst")
	if len(files) != 1 {
		t.Fatal(files)
	}
	s.ok(s.fs.Edit(files[0], func(b []byte) []byte {
		b = bytes.Clone(b)
		for at := range 5 {
			b[100+200*at] ^= 1
		}
		return b
	}))
	opts := s.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = s.fs, s.clock, s.exec
	report, err := Salvage(ctx(), "/store", "/out", opts, nil)
	if err != nil || report.Rewritten != 1 || len(report.Losses) == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	store, err := Open("/out", opts)
	s.ok(err)
	defer store.Close()
	table, err = store.Table("t")
	s.ok(err)
	first := 0
	for first < rows && show(t, table, fmt.Sprintf("p%03d", first), first) == "absent" {
		first++
	}
	if len(table.Partitions()) != 2 || first < 4 || first > 20 || show(t, table, fmt.Sprintf("p%03d", rows-1), rows-1) == "absent" {
		t.Errorf("%d partitions, the first row is %d", len(table.Partitions()), first)
	}
}

// TestAnErrorThatIsNoDamageMakesNoStore opens no table file, value file or segment.
func TestAnErrorThatIsNoDamageMakesNoStore(t *testing.T) {
	s := newSalvaged(t)
	for _, glob := range []string{"*.sst", "*.val", "*.log"} {
		disk := vfs.NewFault(s.fs, 1)
		disk.Add(vfs.Rule{Ops: vfs.OpOpen, Glob: glob, Times: vfs.Forever, Action: vfs.FailWith(syscall.EACCES)})
		target := "/out" + glob[2:]
		if report, err := Salvage(ctx(), "/store", target, Options{Seams: Seams{FS: disk}}, nil); !errors.Is(err, syscall.EACCES) || len(report.Losses) > 0 {
			t.Errorf("%s: %v, %v", glob, report.Losses, err)
		}
		if _, err := Open(target, Options{ReadOnly: true, Seams: Seams{FS: s.fs}}); !errors.Is(err, ErrNotStore) {
			t.Errorf("%s: a store was made: %v", glob, err)
		}
	}
}

// countedFiles counts the files that are open when another one is.
type countedFiles struct {
	fewFiles
	most *int
}

func (c countedFiles) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	f, err := c.fewFiles.Open(name, opts)
	*c.most = max(*c.most, len(c.OpenFiles()))
	return f, err
}

// TestP18_SalvageOfManyDamagedFilesKeepsFewOpen damages every value file, of which there are more than may be open.
func TestP18_SalvageOfManyDamagedFilesKeepsFewOpen(t *testing.T) {
	const files, limit = 40, 20 // 12 table and value files, and what is copied, written and locked
	r := newRig(t, Options{Compression: CompressionNone, Seams: Seams{ValueThreshold: 64}})
	table := r.table("t", TableOptions{})
	for i := range files {
		put(t, table, "p", i, "kept", startMillis, strings.Repeat("a", 100))
		put(t, table, "p", i, "lost", startMillis, strings.Repeat("z", 100))
		r.ok(r.store.Flush(ctx()))
	}
	r.ok(r.store.Close())
	damaged := 0
	for _, name := range r.fs.Files() {
		if strings.HasSuffix(name, ".val") {
			damaged++
			r.ok(r.fs.Edit("/"+name, func(b []byte) []byte {
				b = bytes.Clone(b)
				b[bytes.Index(b, []byte("zzzz"))] = 'y'
				return b
			}))
		}
	}
	most := 0
	report, err := Salvage(ctx(), "/store", "/out", Options{Seams: Seams{FS: countedFiles{fewFiles{r.fs}, &most}}}, nil)
	if err != nil || damaged != files || report.Rewritten != files || len(report.Losses) != files || most > limit {
		t.Errorf("%d files are damaged, %d were open at a time; %d rewritten, %d losses, %v", damaged, most, report.Rewritten, len(report.Losses), err)
	}
}

// TestASalvageThatIsCutShortMakesNoStore fails all changes from the nth on.
func TestASalvageThatIsCutShortMakesNoStore(t *testing.T) {
	s := newSalvaged(t)
	s.ok(s.fs.Edit(s.filesOf(".sst")[0], func(b []byte) []byte { b = bytes.Clone(b); b[100] ^= 1; return b }))
	for n := 1; ; n++ {
		disk := vfs.NewFault(s.fs, 1)
		disk.Add(vfs.Rule{Ops: vfs.OpMutating, Nth: int64(n), Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
		target := fmt.Sprint("/out", n)
		_, err := Salvage(ctx(), "/store", target, Options{Seams: Seams{FS: disk}}, nil)
		report, unfit := Check(ctx(), target, Options{Seams: Seams{FS: s.fs}}, nil)
		if len(report.Problems) > 0 || unfit != nil && (err == nil || !errors.Is(unfit, ErrNotStore)) {
			t.Fatalf("cut short before change %d: %v; the new store: %v, %v", n, err, report.Problems, unfit)
		}
		if err == nil {
			return
		}
	}
}
