package backup

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestAttacksOnASealedRepositoryAreRefused replaces objects by others that are legal by themselves.
func TestAttacksOnASealedRepositoryAreRefused(t *testing.T) {
	for what, attack := range map[string]struct {
		harm func(r *rig, old, newest string)
		want error
	}{
		"the marker of a plain repository": {func(r *rig, _, _ string) {
			r.ok(putText(r.ctx, r.repo(), markerName, markerKind, plain+"\n"))
		}, ErrNotRepository},
		"one object by another": {func(r *rig, _, newest string) {
			d, err := r.archive().description(r.ctx, newest)
			r.ok(err)
			content, err := r.fs.ReadFile(objectFile(d.entries[0].object()))
			r.ok(err)
			r.damage(d.entries[1].object(), content)
		}, ErrDamaged},
		"a description by an older one": {func(r *rig, old, newest string) {
			content, err := r.fs.ReadFile(objectFile(backupsPrefix + old))
			r.ok(err)
			r.damage(backupsPrefix+newest, content)
		}, ErrDamaged},
		"an object that is not sealed": {func(r *rig, _, newest string) {
			d, err := r.archive().description(r.ctx, newest)
			r.ok(err)
			e := &d.entries[0]
			r.ok(r.repo().Put(r.ctx, e.object(), func(w io.Writer) error {
				return writeObject(w, nil, &e.file, func(w io.Writer) error { _, err := w.Write(make([]byte, e.size)); return err })
			}))
		}, ErrDamaged},
		// Deletion and roll-back go unnoticed: docs/backup.md says so.
		"the deletion of the newest backup": {func(r *rig, _, newest string) { r.ok(r.repo().Delete(r.ctx, backupsPrefix+newest)) }, nil},
	} {
		r := newRig(t, 1, &testCipher{0x5a})
		r.write(100)
		old := r.backUp()
		r.write(100)
		newest := r.backUp()
		attack.harm(r, old, newest)
		a, err := r.openArchive(r.repo())
		var name string
		if err == nil {
			name, err = a.Find(r.ctx, "")
		}
		if err == nil {
			err = a.Restore(r.ctx, name, r.fs, "/restored", nil)
		}
		if !errors.Is(err, attack.want) {
			t.Errorf("%s: %v, want %v", what, err, attack.want)
		}
	}
}

// twoFaced is a file system on which a value file has a flipped byte when it is read for the first time.
type twoFaced struct {
	vfs.FS
	flipped bool
}

func (f *twoFaced) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	file, err := f.FS.Open(name, opts)
	if err == nil && !f.flipped && strings.HasSuffix(name, ".val") {
		f.flipped = true
		return flippedFile{file}, nil
	}
	return file, err
}

type flippedFile struct{ vfs.File }

func (f flippedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if off <= 100 && off+int64(n) > 100 {
		p[100-off] ^= 1
	}
	return n, err
}

// TestWhatIsStoredOfAValueFileIsWhatWasVerified reads one that is good only the second time.
func TestWhatIsStoredOfAValueFileIsWhatWasVerified(t *testing.T) {
	r := newRig(t, 1, nil)
	r.write(300)
	dir := r.checkpoint()
	source := &twoFaced{FS: r.fs}
	if _, err := Create(r.ctx, r.repo(), source, dir, r.options()); !errors.Is(err, ErrSource) || !source.flipped {
		t.Errorf("flipped %v: %v", source.flipped, err)
	}
}

// TestAVerifyTellsDamageFromWhatCannotBeRead has a repository that fails, a wrong identity, and a prune beside it.
func TestAVerifyTellsDamageFromWhatCannotBeRead(t *testing.T) {
	for _, sealer := range []*testCipher{nil, {0x5a}} {
		r := newRig(t, 1, sealer)
		old, newest := r.backUp(), r.backUp()
		a := r.archive()
		broken := errors.New("the device fails")
		for nth := int64(1); nth <= 3; nth++ {
			fault := vfs.NewFault(r.fs, 1)
			fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: nth, Times: vfs.Forever, Action: vfs.FailWith(broken)})
			failing := &Archive{repo: NewFolder(fault, "/repo"), unsealer: a.unsealer}
			if report, err := failing.Verify(r.ctx, []string{old, newest}, nil); !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
				t.Errorf("read %d fails: %+v, %v", nth, report, err)
			}
		}
		other := &Archive{repo: r.repo(), unsealer: strangers{}}
		report, err := other.Verify(r.ctx, []string{old}, nil)
		if err != nil || len(report.Problems) != 1 || !errors.Is(report.Problems[0], ErrIdentity) || errors.Is(report.Problems[0], ErrDamaged) {
			t.Errorf("another identity: %+v, %v", report, err)
		}
		r.prune(a, 1)
		if report, err := a.Verify(r.ctx, []string{old, newest}, nil); err != nil || len(report.Problems) > 0 || report.Backups != 1 {
			t.Errorf("after a prune: %+v, %v", report, err)
		}
	}
}

// strangers fit no object.
type strangers struct{}

func (strangers) Unseal(io.Reader) (io.Reader, error) { return nil, ErrIdentity }

// TestAPruneLeavesWhatIsBeingPut also looks at names that no Put makes.
func TestAPruneLeavesWhatIsBeingPut(t *testing.T) {
	r := newRig(t, 1, nil)
	r.backUp()
	a := r.archive()
	r.ok(r.fs.MkdirAll("/repo/partial/deep"))
	for _, name := range []string{"partial/notes", "partial/deep/" + strings.Repeat("A", 26) + ".1", "objects/readme"} {
		r.damage(name, []byte("not ours"))
	}
	r.ok(r.repo().Put(r.ctx, markerName, func(w io.Writer) error { // a prune runs while the marker is put
		_, err := io.WriteString(w, "x")
		_, pruned := a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock})
		return errors.Join(err, pruned)
	}))
	errDead := errors.New("dead")
	fault := vfs.NewFault(r.fs, 1)
	fault.Add(vfs.Rule{Ops: vfs.OpRename | vfs.OpRemove, Times: vfs.Forever, Action: vfs.FailWith(errDead)})
	dead := NewFolder(fault, "/repo")
	dead.clock = r.clock
	if err := putEmpty(r.ctx, dead, "objects/x"); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	partials := func() []string {
		list, err := names(r.ctx, r.repo(), partialPrefix)
		r.ok(err)
		return list
	}
	if len(partials()) != 3 {
		t.Fatalf("there are %v", partials())
	}
	r.prune(a, 1) // a day later
	if left := partials(); !slices.Equal(left, []string{"deep/" + strings.Repeat("A", 26) + ".1", "notes"}) {
		t.Errorf("left are %v", left)
	}
	if _, err := r.fs.Stat("/repo/objects/readme"); err != nil {
		t.Error(err)
	}
	for _, after := range []time.Duration{-1, 1, LeastUnfinishedAfter - 1} {
		if _, err := a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock, UnfinishedAfter: after}); err == nil {
			t.Errorf("%v is taken for the age of dead creates", after)
		}
	}
}

// TestANoticeIsRenewedWithinAFile lets time pass between two pieces of one.
func TestANoticeIsRenewedWithinAFile(t *testing.T) {
	r := newRig(t, 1, nil)
	now := r.clock.NowMillis()
	c := creator{repo: r.repo(), opts: CreateOptions{Clock: r.clock}, notice: notice{r.repo(), newName(now), now, now}}
	r.ok(c.notice.put(r.ctx))
	for range 3 {
		r.clock.Advance(renewAfter * time.Millisecond)
		r.ok(c.wait(r.ctx, chunk))
		list, err := names(r.ctx, r.repo(), unfinishedPrefix)
		r.ok(err)
		if _, newest := parseDated(list[len(list)-1]); len(list) != 2 || newest != r.clock.NowMillis() {
			t.Errorf("notices are %v", list)
		}
	}
	r.ok(c.notice.remove(r.ctx))
	if list, err := names(r.ctx, r.repo(), unfinishedPrefix); err != nil || len(list) > 0 {
		t.Errorf("left are %v, %v", list, err)
	}
}

func TestACreateRefusesTooManyPlans(t *testing.T) {
	r := newRig(t, 1, nil)
	dir := r.checkpoint()
	for range maxPlans + 1 {
		r.ok(putText(r.ctx, r.repo(), plansPrefix+newName(r.clock.NowMillis()), planKind, "objects/x\n"))
	}
	r.ok(putText(r.ctx, r.repo(), markerName, markerKind, plain+"\n"))
	if _, err := r.create(r.repo(), dir); err == nil || !strings.Contains(err.Error(), "prune") {
		t.Error(err)
	}
}
