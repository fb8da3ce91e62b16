package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// loadDamaged reads what is left of the store, which must be something.
func (d *damagedStore) loadDamaged(t *testing.T, what string) (string, []Damage) {
	t.Helper()
	s, damage, err := LoadDamaged(d.sim, testDir)
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
		defer func() {
			f, err := d.sim.Create(name, vfs.OpenOptions{})
			if err == nil {
				_, err = f.WriteAt(before, 0)
				err = errors.Join(err, f.Sync(), f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}()
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
			if _, _, err := LoadDamaged(d.sim, testDir); !errors.Is(err, ErrCorrupt) {
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
	if _, _, err := LoadDamaged(vfs.NewSim(vfs.SimOptions{}), testDir); !errors.Is(err, ErrNotStore) {
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
