package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// loadDamaged reads what is left of the store, which must be something.
func (d *damagedStore) loadDamaged(t *testing.T, what string) (string, []Damage) {
	t.Helper()
	s, damage, _, err := LoadDamaged(d.sim, testDir)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return image(s), damage
}

// edit replaces the content of files for the time of a test.
func (d *damagedStore) edit(t *testing.T, content map[string][]byte, test func()) {
	t.Helper()
	for name, b := range content {
		before, err := d.sim.ReadFile(name)
		if err == nil && b == nil {
			err = d.sim.Remove(name)
		} else if err == nil {
			err = d.sim.Edit(name, func([]byte) []byte { return b })
		}
		if err != nil {
			t.Fatal(err)
		}
		defer write(t, d.sim, name, before)
	}
	test()
}

// TestOneOfManifestAndCopyIsEnough damages each of them everywhere.
func TestOneOfManifestAndCopyIsEnough(t *testing.T) {
	d := newDamagedStore(t, true)
	twin := filepath.Join(testDir, copyName(2))
	if content, err := d.sim.ReadFile(twin); err != nil || !bytes.Equal(content, d.content[:len(content)]) || len(content) < len(d.before)*blockSize {
		t.Fatalf("the copy differs: %d bytes of %d, %v", len(content), len(d.content), err)
	}
	if durable, err := d.sim.Image(vfs.CrashLoseAll, 1).ReadFile(twin); err != nil || len(durable) < len(d.before)*blockSize {
		t.Errorf("a power cut leaves %d bytes of the copy, %v", len(durable), err)
	}
	enough := func(name, what string, damaged []byte) {
		d.edit(t, map[string][]byte{name: damaged}, func() {
			if got, damage := d.loadDamaged(t, what); got != d.right() || len(damage) > 0 {
				t.Errorf("%s, %s: another state, or %v", name, what, damage)
			}
		})
	}
	for _, name := range []string{d.manifest, twin} {
		for at := 0; at < len(d.content); at += 7 {
			if at >= blockSize && d.recordAt(at) < 0 {
				continue
			}
			b := bytes.Clone(d.content)
			b[at] ^= 0x10
			enough(name, fmt.Sprint("byte ", at), b)
		}
		for at := 0; at < len(d.content); at += blockSize {
			b := bytes.Clone(d.content)
			clear(b[at : at+blockSize])
			enough(name, fmt.Sprint("zeros at ", at), b)
			enough(name, fmt.Sprint("cut at ", at), d.content[:at:at])
		}
		enough(name, "removed", nil)
	}
}

// TestDamageToManifestAndCopyIsTold damages one record in both.
func TestDamageToManifestAndCopyIsTold(t *testing.T) {
	d := newDamagedStore(t, true)
	twin := filepath.Join(testDir, copyName(2))
	told := 0
	for at := blockSize; at < len(d.content); at += 37 {
		record := d.recordAt(at)
		if record < 1 {
			continue
		}
		b := bytes.Clone(d.content)
		b[at] ^= 0x10
		for _, other := range [][]byte{b, nil} {
			d.edit(t, map[string][]byte{d.manifest: b, twin: other}, func() {
				got, damage := d.loadDamaged(t, "both")
				if got != d.before[record-1] || len(damage) != 1 || !strings.Contains(damage[0].Err.Error(), fmt.Sprintf("record %d and its copy", record)) {
					t.Errorf("byte %d of record %d: %v, or not the state before it", at, record, damage)
				}
				told++
			})
		}
	}
	if told < 10 {
		t.Errorf("%d cases are no example", told)
	}
	for what, content := range map[string]map[string][]byte{
		"no snapshot": {d.manifest: d.content[:blockSize:blockSize], twin: nil},
		"no manifest": {d.manifest: nil, twin: nil},
	} {
		d.edit(t, content, func() {
			if _, _, _, err := LoadDamaged(d.sim, testDir); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// TestADamagedHeaderIsNotNeeded has no copy to take the header from.
func TestADamagedHeaderIsNotNeeded(t *testing.T) {
	d := newDamagedStore(t, true)
	b := bytes.Clone(d.content)
	b[2], b[41] = 'x', b[41]^1
	d.edit(t, map[string][]byte{d.manifest: b, filepath.Join(testDir, copyName(2)): nil}, func() {
		if got, damage := d.loadDamaged(t, "header"); got != d.right() || len(damage) > 0 {
			t.Errorf("another state, or %v", damage)
		}
	})
}

// TestWithoutCurrentTheNewestStateIsTaken has one manifest, or another one that CURRENT never named.
func TestWithoutCurrentTheNewestStateIsTaken(t *testing.T) {
	for _, begun := range []bool{false, true} {
		sim := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(sim, 1)
		l := newStore(t, fault)
		for i, e := range smallEdits() {
			if begun && i == 1 { // CURRENT cannot be renamed: the old manifest goes on
				fault.Add(vfs.Rule{Ops: vfs.OpRename, Action: vfs.FailWith(syscall.ENOSPC)})
				l.rotateAt = 0
			}
			commit(t, l, e)
		}
		if numbers := manifests(t, sim); len(numbers) != 1 && !begun || len(numbers) != 2 && begun {
			t.Fatal(numbers)
		}
		want := image(l.State())
		closeLog(t, l)
		d := &damagedStore{sim: sim}
		current := filepath.Join(testDir, CurrentName)
		for _, content := range [][]byte{[]byte("?"), nil} {
			d.edit(t, map[string][]byte{current: content}, func() {
				if got, damage := d.loadDamaged(t, "CURRENT"); got != want || len(damage) != 1 || damage[0].File != current {
					t.Errorf("begun %t: another state, or %v", begun, damage)
				}
			})
		}
	}
	if _, _, _, err := LoadDamaged(vfs.NewSim(vfs.SimOptions{}), testDir); !errors.Is(err, ErrNotStore) {
		t.Error(err)
	}
}

// TestThereIsOneCopy rotates a log, and opens one where a copy was left over.
func TestThereIsOneCopy(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	one := func(what string) {
		t.Helper()
		numbers, err := listNumbers(sim, testDir, copyName)
		if err != nil || len(numbers) != 1 || numbers[0] != l.number {
			t.Errorf("%s: copies %v of manifest %d, %v", what, numbers, l.number, err)
		}
	}
	one("new")
	for _, e := range smallEdits() {
		l.rotateAt = 0
		commit(t, l, e)
		one("rotated")
	}
	closeLog(t, l)
	f, err := sim.Create(filepath.Join(testDir, copyName(1)), vfs.OpenOptions{})
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	l = openStore(t, sim)
	one("opened")
	closeLog(t, l)
}

// TestAnErrorOfTheCopyEndsTheCopyAlone fails each change of copies in turn.
func TestAnErrorOfTheCopyEndsTheCopyAlone(t *testing.T) {
	for n := int64(1); ; n++ {
		sim := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(sim, 1)
		fault.Add(vfs.Rule{Ops: vfs.OpMutating, Glob: "COPY-*", Nth: n, Action: vfs.FailWith(syscall.EIO)})
		l := newStore(t, fault)
		for _, e := range smallEdits() {
			commit(t, l, e)
		}
		want := image(l.State())
		closeLog(t, l)
		l = openStore(t, fault)
		if image(l.State()) != want {
			t.Fatalf("change %d: another state", n)
		}
		closeLog(t, l)
		if len(fault.Injected()) == 0 {
			if n < 10 {
				t.Errorf("%d changes of copies are no example", n-1)
			}
			return
		}
	}
}

// write makes a file with a content.
func write(t *testing.T, fsys vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fsys.Create(name, vfs.OpenOptions{})
	if err == nil {
		_, err = f.WriteAt(content, 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestACopyThatWasNotClosedIsTold has the manifest of a store that crashed, whose copy lacks the newest edits.
func TestACopyThatWasNotClosedIsTold(t *testing.T) {
	d := newDamagedStore(t, false)
	twin := filepath.Join(testDir, copyName(2))
	const kept = 3 // edits in the copy
	end := len(d.content)
	for d.recordAt(end-1) < 0 {
		end--
	}
	end = int(roundUp(int64(end)))
	cut := blockSize
	for d.recordAt(cut) <= kept {
		cut += blockSize
	}
	write(t, d.sim, twin, d.content[:cut])
	check := func(what string, fsys vfs.FS, want string, told string) {
		t.Helper()
		s, damage, _, err := LoadDamaged(fsys, testDir)
		if err != nil || image(s) != want {
			t.Errorf("%s: another state, or %v", what, err)
		}
		if told == "" && len(damage) > 0 || told != "" && (len(damage) != 1 || !strings.Contains(damage[0].Err.Error(), told)) {
			t.Errorf("%s: damage %v, want %q", what, damage, told)
		}
	}
	change := func(at int, b byte) []byte {
		c := bytes.Clone(d.content)
		c[at] ^= b
		return c
	}
	const older = "which was not closed; newer edits may be lost"
	check("intact", d.sim, d.right(), "")
	for what, c := range map[string]struct {
		manifest   []byte
		want, told string
	}{
		"removed":     {nil, d.before[kept], older},
		"header only": {d.content[:100:100], d.before[kept], older},
		"cut":         {d.content[: 2*blockSize : 2*blockSize], d.before[kept], older},
		"zeros":       {make([]byte, len(d.content)), d.before[kept], older},
		"header":      {change(3, 1), d.right(), ""},
		"snapshot":    {change(blockSize+40, 1), d.right(), ""},
		"torn":        {change(end, 1), d.right(), "never acknowledged"},
		"last edit":   {change(end-blockSize+10, 1), d.before[len(d.before)-2], "never acknowledged"},
	} {
		d.edit(t, map[string][]byte{d.manifest: c.manifest}, func() { check(what, d.sim, c.want, c.told) })
	}
	fault := vfs.NewFault(d.sim, 1)
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Glob: "MANIFEST-*", Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
	check("unreadable", fault, d.before[kept], older)
	d.edit(t, map[string][]byte{d.manifest: d.content[:cut:cut], twin: change(cut+1, 1)}, func() {
		check("the copy goes on", d.sim, d.before[kept], "no good record")
	})
}

// TestACopyOfAnotherStoreIsNotTaken has a right header of another id in the copy.
func TestACopyOfAnotherStoreIsNotTaken(t *testing.T) {
	d := newDamagedStore(t, true)
	other := bytes.Clone(d.content)
	putHeader(other, 2, [16]byte{9})
	twin := filepath.Join(testDir, copyName(2))
	d.edit(t, map[string][]byte{twin: other}, func() {
		got, damage := d.loadDamaged(t, "another id")
		if got != d.right() || len(damage) != 1 || damage[0].File != twin || !strings.Contains(damage[0].Err.Error(), "another store") {
			t.Errorf("another state, or %v", damage)
		}
	})
}

// TestALeftOverCopyIsNoManifest has the closed copy of an old manifest, which could not be deleted with it.
func TestALeftOverCopyIsNoManifest(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	closeLog(t, l)
	old, err := sim.ReadFile(filepath.Join(testDir, copyName(2)))
	if err != nil {
		t.Fatal(err)
	}
	l = openStore(t, sim)
	for _, e := range smallEdits() {
		commit(t, l, e)
	}
	l.rotateAt = 0
	e := &Edit{LastSeq: l.State().LastSeq + 1}
	if err := l.rotateOrPutOff(); err != nil { // the newest manifest has only its snapshot
		t.Fatal(err)
	}
	want := image(l.State())
	write(t, sim, filepath.Join(testDir, copyName(2)), old)
	if err := sim.Remove(filepath.Join(testDir, CurrentName)); err != nil {
		t.Fatal(err)
	}
	s, damage, _, err := LoadDamaged(sim, testDir)
	if err != nil || image(s) != want || len(damage) != 1 || !strings.HasSuffix(damage[0].Err.Error(), "that of "+manifestName(l.number)) {
		t.Fatalf("another state, or %v, %v", damage, err)
	}
	commit(t, l, e)
	want = image(l.State())
	if err := sim.Remove(filepath.Join(testDir, manifestName(l.number))); err != nil {
		t.Fatal(err)
	}
	s, damage, _, err = LoadDamaged(sim, testDir)
	if err != nil || image(s) != want || !strings.HasSuffix(damage[len(damage)-1].Err.Error(), "that of "+copyName(l.number)) {
		t.Errorf("the copy alone: another state, or %v, %v", damage, err)
	}
	closeLog(t, l)
}

// TestANewManifestIsNotNamedLikeALeftOverCopy opens a store that has the copy of a newer manifest.
func TestANewManifestIsNotNamedLikeALeftOverCopy(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, sim)
	closeLog(t, l)
	write(t, sim, filepath.Join(testDir, copyName(9)), nil)
	if l = openStore(t, sim); l.number != 10 {
		t.Errorf("manifest %d, want 10", l.number)
	}
	closeLog(t, l)
}

// removals notes which files are removed.
type removals struct {
	vfs.FS
	names []string
}

func (r *removals) Remove(name string) error {
	r.names = append(r.names, filepath.Base(name))
	return r.FS.Remove(name)
}

// TestTheCopyGoesBeforeItsManifest lists the removals when a new manifest begins.
func TestTheCopyGoesBeforeItsManifest(t *testing.T) {
	fsys := &removals{FS: vfs.NewSim(vfs.SimOptions{})}
	l := newStore(t, fsys)
	want := []string{copyName(l.number), manifestName(l.number)}
	l.rotateAt = 0
	commit(t, l, smallEdits()[0])
	if got := fsys.names[max(0, len(fsys.names)-2):]; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v at last", got, want)
	}
	closeLog(t, l)
}

// TestAnErrorOfAnOldCopyNamesIt fails the close of a copy when a new manifest begins.
func TestAnErrorOfAnOldCopyNamesIt(t *testing.T) {
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	l := newStore(t, fault)
	var logged bytes.Buffer
	l.logger = slog.New(slog.NewTextHandler(&logged, nil))
	fault.Add(vfs.Rule{Ops: vfs.OpClose, Glob: "COPY-*", Nth: 1, Action: vfs.FailWith(syscall.EIO)})
	name := filepath.Join(testDir, copyName(l.number))
	l.rotateAt = 0
	commit(t, l, smallEdits()[0])
	if !strings.Contains(logged.String(), "file="+name) {
		t.Errorf("want a warning that names %s, got %q", name, logged.String())
	}
	closeLog(t, l)
}

// TestOnlyAnEndThatIsProvenIsComplete changes the ends of manifest and copy.
func TestOnlyAnEndThatIsProvenIsComplete(t *testing.T) {
	open, closed := newDamagedStore(t, false), newDamagedStore(t, true)
	twin := filepath.Join(testDir, copyName(2))
	end := len(bytes.TrimRight(open.content, "\x00"))
	last := (end - 1) / blockSize * blockSize // the last record takes one block
	cut := open.content[:last:last]
	zeroed := append(bytes.Clone(cut), make([]byte, blockSize)...)
	torn := bytes.Clone(open.content)
	torn[int(roundUp(int64(end)))+5] = 1
	write(t, open.sim, twin, open.content)
	for _, c := range []struct {
		what           string
		d              *damagedStore
		manifest, copy []byte
		complete       bool
	}{
		{"killed", open, open.content, open.content, true},
		{"the copy has no reserved space", open, open.content, open.content[:end:end], true},
		{"no copy", open, open.content, nil, false},
		{"the copy lags", open, open.content, cut, false},
		{"the copy is zeroed at its end", open, open.content, zeroed, false},
		{"the manifest is cut", open, cut, open.content, false},
		{"the manifest is zeroed at its end", open, zeroed, open.content, false},
		{"the manifest is cut, and the copy lags more", open, cut, open.content[: 2*blockSize : 2*blockSize], false},
		{"a torn edit", open, torn, open.content, false},
		{"a torn edit in the copy", open, open.content, torn, false},
		{"no manifest", open, nil, open.content, false},
		{"closed", closed, closed.content, closed.content, true},
		{"closed, no copy", closed, closed.content, nil, true},
		{"closed, no manifest", closed, nil, closed.content, true},
		{"closed, the copy lags", closed, closed.content, cut, true},
	} {
		c.d.edit(t, map[string][]byte{c.d.manifest: c.manifest, twin: c.copy}, func() {
			if _, damage, complete, err := LoadDamaged(c.d.sim, testDir); err != nil || complete != c.complete {
				t.Errorf("%s: complete is %t, %v, %v", c.what, complete, damage, err)
			}
		})
	}
	for _, glob := range []string{"MANIFEST-*", "COPY-*"} {
		fault := vfs.NewFault(open.sim, 1)
		fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Glob: glob, Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
		if _, _, complete, err := LoadDamaged(fault, testDir); err != nil || complete {
			t.Errorf("%s cannot be read: complete is %t, %v", glob, complete, err)
		}
	}
	if err := open.sim.Remove(filepath.Join(testDir, CurrentName)); err != nil {
		t.Fatal(err)
	}
	if _, _, complete, err := LoadDamaged(open.sim, testDir); err != nil || complete {
		t.Errorf("without CURRENT: complete is %t, %v", complete, err)
	}
}
