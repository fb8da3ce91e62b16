package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

// small is a description that is legal.
func small() *description {
	return &description{name: "20261126T215022.123Z-00c0ffee", createdMillis: 1_795_730_000_000, added: 10, store: [16]byte{15: 1}, entries: []entry{
		{path: "CURRENT", file: file{kind: otherFile, size: 33, unique: [16]byte{1}}},
		{path: "MANIFEST-000001", file: file{kind: otherFile, size: 1 << 20, unique: [16]byte{2}}},
		{path: "capacity/CURRENT", file: file{kind: otherFile, size: 33, unique: [16]byte{3}}},
		{path: "capacity/sst/00/000007.sst", file: file{kind: tableFile, size: 8199, unique: [16]byte{4}, sum: 5}},
		{path: "instances", file: file{kind: otherFile, unique: [16]byte{6}}},
		{path: "val/00/000124.val", file: file{kind: valueFile, size: 1 << 40, unique: [16]byte{7}, sum: math.MaxUint64}, suffix: [8]byte{9}},
	}}
}

// reseal replaces the checksum of an encoded description.
func reseal(b []byte) []byte {
	body := b[:len(b)-8]
	return binary.LittleEndian.AppendUint64(slices.Clone(body), xxhash.Sum64(body))
}

func TestDescriptionsThatLieAreRefused(t *testing.T) {
	good, err := small().encode()
	if err != nil {
		t.Fatal(err)
	}
	if d, err := decodeDescription(good); err != nil || fmt.Sprint(d) != fmt.Sprint(small()) {
		t.Fatalf("%+v, %v", d, err)
	}
	lies := map[string]func(d *description){
		"no store":          func(d *description) { d.entries = d.entries[1:] },
		"nothing":           func(d *description) { d.entries = nil },
		"twice":             func(d *description) { d.entries[1] = d.entries[0] },
		"order":             func(d *description) { d.entries[0], d.entries[1] = d.entries[1], d.entries[0] },
		"kind of another":   func(d *description) { d.entries[3].kind = otherFile },
		"unknown kind":      func(d *description) { d.entries[0].kind = 9 },
		"sum of sizes":      func(d *description) { d.entries[0].size, d.entries[1].size = math.MaxInt64, 1 },
		"size below zero":   func(d *description) { d.entries[5].size = -1 },
		"a log of no store": func(d *description) { d.origins = []origin{{within: "other", segment: 1}} },
		"added below zero":  func(d *description) { d.added = -1 },
	}
	for _, p := range []string{
		"../CURRENT", "/etc/passwd", "..", ".", "", "a/../CURRENT", "capacity/../CURRENT", "capacity/instances", "admin", "LOCK", "wal/000001.log",
		"sst/00/000007.sst/x", "sst/01/000007.sst", "Capacity/CURRENT", "a/b/CURRENT", "CURRENT/", "sst", "MANIFEST-000000", "x\\..\\CURRENT", "c:/CURRENT", "con/CURRENT\x00",
		strings.Repeat("a", 33) + "/CURRENT", strings.Repeat("a", 300),
	} {
		lies[fmt.Sprintf("path %q", p)] = func(d *description) {
			d.entries = append(d.entries, entry{path: p, file: file{kind: otherFile}})
			slices.SortFunc(d.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
		}
	}
	for what, lie := range lies {
		d := small()
		lie(d)
		b, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeDescription(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range good[:len(good)-8] {
		if _, err := decodeDescription(reseal(good[:i+8])); err == nil {
			t.Errorf("%d bytes of it are taken for whole", i)
		}
	}
	many := &description{name: small().name}
	b, err := many.encode()
	if err != nil {
		t.Fatal(err)
	}
	b = binary.AppendUvarint(b[:len(b)-26], 1<<62)
	if _, err := decodeDescription(reseal(append(b, make([]byte, 8)...))); !errors.Is(err, ErrDamaged) {
		t.Errorf("2^62 files: %v", err)
	}
	next := slices.Clone(good)
	next[8] = descriptionVersion + 1
	if _, err := decodeDescription(reseal(next)); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a newer version: %v", err)
	}
}

func FuzzDecodeDescription(f *testing.F) {
	good, err := small().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 20 {
			return
		}
		b = reseal(b)
		d, err := decodeDescription(b)
		if err != nil {
			return
		}
		for i := range d.entries {
			if p := d.entries[i].path; path.Clean("/"+p) != "/"+p || strings.ContainsAny(p, "\\:") {
				t.Errorf("path %q", p)
			}
		}
		again, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := decodeDescription(again); err != nil || fmt.Sprint(second) != fmt.Sprint(d) {
			t.Errorf("%+v, %v; want %+v", second, err, d)
		}
	})
}

// TestAHugeObjectTakesLittleMemory has objects without an end in place of a description, a marker and a file.
func TestAHugeObjectTakesLittleMemory(t *testing.T) {
	r := newRig(t, 1, nil)
	name := r.backUp()
	a := r.archive()
	d, err := a.description(r.ctx, name)
	r.ok(err)
	endless := endlessRepository{r.repo()}
	if _, err := (&Archive{repo: endless}).description(r.ctx, name); !errors.Is(err, ErrDamaged) {
		t.Errorf("description: %v", err)
	}
	if _, err := Open(r.ctx, endless, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("marker: %v", err)
	}
	if err := readObject(r.ctx, endless, nil, &d.entries[0], io.Discard); !errors.Is(err, ErrDamaged) {
		t.Errorf("object: %v", err)
	}
}

type endlessRepository struct{ *Folder }

func (endlessRepository) Get(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(zeros{}), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestAnObjectOfAnotherFileIsRefused has objects that are as they were put, and of the right size, in place of others.
func TestAnObjectOfAnotherFileIsRefused(t *testing.T) {
	r := newRig(t, 1, nil)
	r.write(200)
	name := r.backUp()
	d, err := r.archive().description(r.ctx, name)
	r.ok(err)
	for _, e := range d.entries {
		if e.kind == tableFile {
			continue // the manifest has the checksum
		}
		good, err := r.fs.ReadFile(objectFile(e.object()))
		r.ok(err)
		other := e.file
		other.unique[0]++
		var object bytes.Buffer
		r.ok(writeObject(&object, nil, &other, func(w io.Writer) error {
			_, err := w.Write(make([]byte, e.size))
			return err
		}))
		r.damage(e.object(), object.Bytes())
		r.refused("the object of another file than "+e.path, e.object(), []string{name}, name)
		r.damage(e.object(), good)
	}
}

func TestASourceThatIsNotWholeIsRefused(t *testing.T) {
	for what, harm := range map[string]func(r *rig, dir string, files []string){
		"a flipped byte": func(r *rig, dir string, files []string) { r.ok(r.fs.FlipByte(files[0], 100, 1)) },
		"a short file":   func(r *rig, dir string, files []string) { r.ok(r.fs.Cut(files[0], 100)) },
		"a missing file": func(r *rig, dir string, files []string) { r.ok(r.fs.Remove(files[0])) },
		"no CURRENT":     func(r *rig, dir string, files []string) { r.ok(r.fs.Remove(dir + "/CURRENT")) },
	} {
		for _, of := range []string{manifest.TablesDir, manifest.ValuesDir} {
			r := newRig(t, 1, nil)
			r.write(300)
			dir := r.checkpoint()
			var files []string
			for _, name := range r.fs.Files() {
				if strings.HasPrefix("/"+name, dir+"/"+of) {
					files = append(files, "/"+name)
				}
			}
			if len(files) == 0 {
				t.Fatalf("no file in %s", of)
			}
			harm(r, dir, files)
			if _, err := r.create(r.repo(), dir); !errors.Is(err, ErrSource) {
				t.Errorf("%s in %s: %v", what, of, err)
			}
		}
	}
	r := newRig(t, 1, nil)
	if _, err := r.create(r.repo(), "/store"); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "checkpoint") {
		t.Errorf("a store with a log: %v", err)
	}
}

// TestARepositoryIsOfOneKind also looks at folders that are none.
func TestARepositoryIsOfOneKind(t *testing.T) {
	r := newRig(t, 1, nil)
	dir := r.checkpoint()
	create := func(repo string, sealer Sealer) error {
		opts := r.options()
		opts.Sealer = sealer
		_, err := Create(r.ctx, NewFolder(r.fs, repo), r.fs, dir, opts)
		return err
	}
	r.ok(create("/plain", nil))
	r.ok(create("/sealed", &testCipher{1}))
	r.ok(create("/sealed", &testCipher{1}))
	check := func(repo string, sealer Sealer) error { return CheckMarker(r.ctx, NewFolder(r.fs, repo), sealer) }
	r.ok(errors.Join(check("/nowhere", nil), check("/plain", nil), check("/sealed", &testCipher{1})))
	for what, err := range map[string]error{
		"sealed into plain": create("/plain", &testCipher{1}), "plain into sealed": create("/sealed", nil), "for others": create("/sealed", &testCipher{2}),
		"into a store": create("/store", nil), "a look at sealed": check("/sealed", nil), "a look at plain": check("/plain", &testCipher{1}),
	} {
		if !errors.Is(err, ErrNotRepository) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for dir, unsealer := range map[string]Unsealer{"/nowhere": nil, "/store": nil, "/sealed": nil} {
		if _, err := Open(r.ctx, NewFolder(r.fs, dir), unsealer); !errors.Is(err, ErrNotRepository) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := Open(r.ctx, NewFolder(r.fs, "/plain"), &testCipher{1}); !errors.Is(err, ErrNotRepository) {
		t.Errorf("plain, with a key: %v", err)
	}
	r.ok(r.fs.FlipByte("/plain/repository", 20, 1))
	if _, err := Open(r.ctx, NewFolder(r.fs, "/plain"), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged marker: %v", err)
	}
}

// TestNamesInAnEncryptedRepositoryTellNothing looks for parts of keys, values and files.
func TestNamesInAnEncryptedRepositoryTellNothing(t *testing.T) {
	r := newRig(t, 1, &testCipher{0x5a})
	r.write(300)
	name := r.backUp()
	d, err := r.archive().description(r.ctx, name)
	r.ok(err)
	r.ok(r.repo().List(r.ctx, "", func(object string, _ int64) error {
		content, err := r.fs.ReadFile(objectFile(object))
		for _, e := range d.entries {
			for _, part := range []string{e.path, fmt.Sprintf("%x", e.unique), string(e.unique[:]), "CURRENT", "MANIFEST"} {
				if strings.Contains(object, part) || bytes.Contains(content, []byte(part)) {
					t.Errorf("object %s shows %q", object, part)
				}
			}
		}
		return err
	}))
}

func TestPruneKeepsWhatItIsTold(t *testing.T) {
	r := newRig(t, 1, nil)
	dir := r.checkpoint()
	var all []string
	for range 6 {
		info, err := r.create(r.repo(), dir)
		r.ok(err)
		all = append(all, info.Name)
	}
	a := r.archive()
	for _, opts := range []PruneOptions{{}, {Keep: -1}, {OlderThan: -1, Keep: 1}} {
		if _, err := a.Prune(r.ctx, opts); err == nil {
			t.Errorf("%+v is taken", opts)
		}
	}
	now := r.clock.NowMillis()
	for _, c := range []struct {
		opts PruneOptions
		left int
	}{
		{PruneOptions{Keep: 9}, 6}, {PruneOptions{Keep: 2}, 2}, {PruneOptions{OlderThan: 2500 * time.Millisecond}, 3}, {PruneOptions{OlderThan: 1}, 1},
		{PruneOptions{Keep: 2, OlderThan: 3500 * time.Millisecond}, 4}, {PruneOptions{Keep: 5, OlderThan: 1500 * time.Millisecond}, 5},
	} {
		if drop := c.opts.choose(all, nil, now); !slices.Equal(drop, all[:6-c.left]) {
			t.Errorf("%+v drops %v", c.opts, drop)
		}
	}
	r.damage(backupsPrefix+all[3], []byte("nonsense"))
	if _, err := a.Prune(r.ctx, PruneOptions{Keep: 4, Clock: r.clock}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), all[3]) {
		t.Errorf("with a damaged backup that stays: %v", err)
	}
	if found, err := a.Names(r.ctx); err != nil || len(found) != 6 {
		t.Errorf("left are %v, %v", found, err)
	}
	r.prune(a, 2) // the damaged one goes
	r.verify(a)
	r.tidy(a)
}

// TestStoresShareARepository: each keeps its own backups, and a restore says which stores there are.
func TestStoresShareARepository(t *testing.T) {
	r := newRig(t, 1, nil)
	other := *newRig(t, 2, nil)
	other.fs, other.clock = r.fs, r.clock
	other.store, other.made = r.open("/other", false), 50
	t.Cleanup(func() { other.store.Close() })
	var mine, its []string
	for range 3 {
		mine = append(mine, r.backUp())
		its = append(its, other.backUp())
	}
	a := r.archive()
	first, err := a.Info(r.ctx, mine[0])
	r.ok(err)
	last, err := a.Info(r.ctx, its[2])
	r.ok(err)
	if first.Store == last.Store || len(first.Store) != 32 {
		t.Fatalf("the stores are %q and %q", first.Store, last.Store)
	}
	for what, find := range map[string]func() (string, error){
		"newest": func() (string, error) { return a.Find(r.ctx, "") },
		"moment": func() (string, error) {
			name, _, err := a.RestoreAt(r.ctx, "", 1, r.fs, "/at", nil)
			return name, err
		},
	} {
		if name, err := find(); !errors.Is(err, ErrNoBackup) || !strings.Contains(err.Error(), mine[2]) || !strings.Contains(err.Error(), last.Store[:8]) {
			t.Errorf("%s: %q, %v", what, name, err)
		}
	}
	if _, err := a.Of(r.ctx, ""); !errors.Is(err, ErrNoBackup) {
		t.Errorf("any store: %v", err)
	}
	one, err := a.Of(r.ctx, first.Store[:8])
	r.ok(err)
	if name, err := one.Find(r.ctx, ""); err != nil || name != mine[2] {
		t.Errorf("the newest of one store: %q, %v", name, err)
	}
	if _, err := one.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock}); err == nil {
		t.Error("an archive of one store was pruned")
	}
	newest, err := getAll(r.ctx, r.repo(), backupsPrefix+mine[2], nil)
	r.ok(err)
	r.damage(backupsPrefix+mine[2], []byte("nonsense"))
	damaged, err := r.archive().Of(r.ctx, first.Store)
	r.ok(err)
	if name, err := damaged.Find(r.ctx, ""); err == nil && name != mine[2] {
		t.Errorf("the newest of one store cannot be read, and %q is in its place", name)
	}
	r.damage(backupsPrefix+mine[2], newest)
	if report := r.prune(a, 2); !slices.Equal(report.Backups, []string{mine[0], its[0]}) {
		t.Errorf("deleted are %q", report.Backups)
	}
	r.damage(backupsPrefix+mine[1], []byte("nonsense")) // three newer ones of any store
	if report := r.prune(a, 1); !slices.Equal(report.Backups, []string{mine[1], its[1]}) {
		t.Errorf("deleted are %q", report.Backups)
	}
	r.prune(a, 1)
	r.verify(a)
	r.tidy(a)
}

// TestBackupsOfAnUnknownStore: those of older programs, which do not say it, may be of another store than newer ones.
func TestBackupsOfAnUnknownStore(t *testing.T) {
	r := newRig(t, 1, nil)
	var all []string
	for range 5 {
		all = append(all, r.backUp())
	}
	a := r.archive()
	forget := func(name string) {
		d, err := a.description(r.ctx, name)
		r.ok(err)
		d.store = [16]byte{}
		content, err := d.encode()
		r.ok(err)
		r.damage(backupsPrefix+name, content)
	}
	forget(all[0])
	forget(all[1])
	if name, err := r.archive().Find(r.ctx, ""); err != nil || name != all[4] {
		t.Errorf("older ones are of an unknown store: %q, %v", name, err)
	}
	if report := r.prune(r.archive(), 2); !slices.Equal(report.Backups, []string{all[2]}) {
		t.Errorf("deleted are %q", report.Backups)
	}
	forget(all[4])
	if name, err := r.archive().Find(r.ctx, ""); !errors.Is(err, ErrNoBackup) {
		t.Errorf("the newest is of an unknown store: %q, %v", name, err)
	}
	r.damage(backupsPrefix+all[4], []byte("nonsense"))
	if name, err := r.archive().Find(r.ctx, ""); err != nil || name != all[4] {
		t.Errorf("the newest cannot be read: %q, %v", name, err)
	}
}

// TestNoticesOfWrongClocksDoNotStayForEver also has a name that is none.
func TestNoticesOfWrongClocksDoNotStayForEver(t *testing.T) {
	r := newRig(t, 1, nil)
	name := r.backUp()
	day := 24 * time.Hour.Milliseconds()
	for _, millis := range []int64{0, r.clock.NowMillis() - 2*day, r.clock.NowMillis() + 2*day, math.MaxInt64, math.MinInt64} {
		r.ok((&notice{r.repo(), name, millis, millis}).put(r.ctx))
	}
	r.ok(r.repo().Put(r.ctx, unfinishedPrefix+"nonsense", func(io.Writer) error { return nil }))
	a := r.archive()
	report, err := a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock})
	if err != nil || report.Unfinished != "" {
		t.Errorf("%+v, %v", report, err)
	}
	r.tidy(a)
	ahead := r.clock.NowMillis() + day/2
	near := notice{r.repo(), name, ahead, ahead}
	r.ok(near.put(r.ctx))
	if report, err := a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock}); err != nil || report.Unfinished != name {
		t.Errorf("half a day ahead: %+v, %v", report, err)
	}
}

func TestFolderNamesStayInside(t *testing.T) {
	repo := NewFolder(vfs.NewSim(vfs.SimOptions{}), "/repo")
	for _, name := range []string{"../x", "/x", "", "a/../../x"} {
		if err := repo.Put(t.Context(), name, func(io.Writer) error { return nil }); err == nil {
			t.Errorf("put %q", name)
		}
		if _, err := repo.Get(t.Context(), name); err == nil {
			t.Errorf("get %q", name)
		}
	}
}
