package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// twoMoments returns a rig with a backup of one moment, and a checkpoint of a later one.
func twoMoments(t *testing.T) (r *rig, first string, dir string) {
	t.Helper()
	r = newRig(t, 1, nil)
	r.write(200)
	first = r.backUp()
	r.write(200)
	return r, first, r.checkpoint()
}

// deaths are the ways in which a process ends at a call: before the call, or after it.
var deaths = map[string]func(repo Repository, call int) *stepped{
	"before": func(repo Repository, call int) *stepped { return &stepped{Repository: repo, before: dead(call)} },
	"after": func(repo Repository, call int) *stepped {
		return &stepped{Repository: repo, before: dead(call + 1), after: dead(call)}
	},
}

// mustGoOn creates a backup with what a killed call has left, restores and prunes it, and finds nothing left.
func (r *rig) mustGoOn(what, dir string) {
	r.t.Helper()
	info, err := r.create(r.repo(), dir)
	if err != nil {
		r.t.Fatalf("%s: the next create: %v", what, err)
	}
	a := r.archive()
	r.verify(a)
	r.compare(what, r.restore(a, info.Name), r.model.clone())
	r.prune(a, 1)
	r.verify(a)
	r.tidy(a)
}

// TestACreateThatIsKilledIsContinued kills it at each call of the repository.
func TestACreateThatIsKilledIsContinued(t *testing.T) {
	base, first, dir := twoMoments(t)
	for how, death := range deaths {
		for call, ended := 1, false; !ended; call++ {
			r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
			_, err := r.create(death(r.repo(), call), dir)
			if ended = err == nil; !ended && !errors.Is(err, errKilled) {
				t.Fatalf("killed %s call %d: %v", how, call, err)
			}
			what := fmt.Sprintf("killed %s call %d", how, call)
			if names := r.verify(r.archive()); names[0] != first {
				t.Errorf("%s: left are %v", what, names)
			}
			r.mustGoOn(what, dir)
		}
	}
}

// createsThatFail makes creates whose repository fails from a call of its file system on, later by up to so many calls
// each time, until one does not meet its failure. Then ended is true.
func createsThatFail(t *testing.T, base *rig, dir string, calls int64, look func(r *rig, call int64, ended bool, random *rand.Rand)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for call, ended := int64(1), false; !ended; call += 1 + random.Int64N(calls) {
		r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
		fault := vfs.NewFault(r.fs, seed)
		fault.Add(vfs.Rule{Nth: call, Times: vfs.Forever, Action: vfs.FailWith(errKilled)})
		_, err := Create(r.ctx, NewFolder(fault, "/repo"), r.fs, dir, r.options())
		ended = err == nil
		look(r, call, ended, random)
	}
}

// TestACreateSurvivesAPowerCut cuts the power at each call of the file system that has the repository.
func TestACreateSurvivesAPowerCut(t *testing.T) {
	base, first, dir := twoMoments(t)
	createsThatFail(t, base, dir, 12, func(r *rig, call int64, ended bool, random *rand.Rand) {
		for _, policy := range vfs.CrashPolicies() {
			after := r.on(r.fs.Image(policy, random.Uint64()))
			if names := after.verify(after.archive()); names[0] != first || ended && len(names) < 2 {
				t.Fatalf("cut at call %d, %s: left are %v", call, policy, names)
			}
			if policy == vfs.CrashSubset {
				after.mustGoOn(fmt.Sprintf("cut at call %d", call), dir)
			}
		}
	})
}

// TestAPruneThatIsKilledIsContinued kills it at each call of the repository, also where it has found an older plan.
func TestAPruneThatIsKilledIsContinued(t *testing.T) {
	base, _, dir := twoMoments(t)
	_, err := base.create(base.repo(), dir)
	base.ok(err)
	for how, death := range deaths {
		for call, ended := 1, false; !ended; call++ {
			r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
			what := fmt.Sprintf("killed %s call %d", how, call)
			for second := range 2 { // the second one meets what the first one has left
				a, err := r.openArchive(death(r.repo(), call+1)) // the opening makes one call
				r.ok(err)
				r.clock.Advance(48 * time.Hour)
				_, err = a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock})
				if ended = err == nil; !ended && !errors.Is(err, errKilled) {
					t.Fatalf("%s: %v", what, err)
				}
				if names := r.verify(r.archive()); second == 1 && len(names) > 2 {
					t.Errorf("%s: left are %v", what, names)
				}
			}
			r.mustGoOn(what, dir)
		}
	}
}

// TestALongCreateIsNotTakenForDead lets a day and more pass, and prunes all the while.
func TestALongCreateIsNotTakenForDead(t *testing.T) {
	r, first, dir := twoMoments(t)
	opts := r.options()
	var passed time.Duration
	opts.Progress = func(Progress) {
		r.clock.Advance(8 * time.Hour)
		passed += 8 * time.Hour
		report, err := r.archive().Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock})
		if err != nil || report.Unfinished == "" || report.Unfinished == first {
			t.Errorf("%+v, %v", report, err)
		}
	}
	info, err := Create(r.ctx, r.repo(), r.fs, dir, opts)
	r.ok(err)
	if passed < 48*time.Hour {
		t.Errorf("it took %v only", passed)
	}
	r.compare("the long one", r.restore(r.archive(), info.Name), r.model.clone())
	r.prune(r.archive(), 1)
	r.tidy(r.archive())
}

// TestACreateThatWasTakenForDeadFails lets too much time pass at once.
func TestACreateThatWasTakenForDeadFails(t *testing.T) {
	r, first, dir := twoMoments(t)
	opts := r.options()
	opts.Progress = func(done Progress) {
		if done.Files == 1 { // between two files
			r.prune(r.archive(), 1)
		}
	}
	if _, err := Create(r.ctx, r.repo(), r.fs, dir, opts); err == nil || !strings.Contains(err.Error(), "abandoned") {
		t.Errorf("it ends with %v", err)
	}
	if names := r.verify(r.archive()); !slices.Equal(names, []string{first}) {
		t.Errorf("left are %v", names)
	}
	r.mustGoOn("the next one", dir)
}

// late is a repository whose put of a description fails, and is carried out later. If deaf is set, it takes no other put
// after that.
type late struct {
	Repository
	deaf bool
	put  func() error // the one to come
}

func (l *late) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if !strings.HasPrefix(name, backupsPrefix) {
		if l.put != nil && l.deaf {
			return errors.New("no answer")
		}
		return l.Repository.Put(ctx, name, write)
	}
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	l.put = func() error {
		return l.Repository.Put(ctx, name, func(w io.Writer) error {
			_, err := w.Write(content.Bytes())
			return err
		})
	}
	return errors.New("no answer")
}

// TestADescriptionThatComesLateCountsOnlyWithItsObjects prunes before it comes: it does not count, or its notice has
// kept its objects.
func TestADescriptionThatComesLateCountsOnlyWithItsObjects(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		r, first, dir := twoMoments(t)
		repo := &late{Repository: r.repo(), deaf: deaf}
		if _, err := r.create(repo, dir); err == nil || repo.put == nil {
			t.Fatalf("the create ends with %v", err)
		}
		report, err := r.archive().Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock})
		r.ok(errors.Join(err, repo.put()))
		names := r.verify(r.archive()) // all that count are whole
		if counts := len(names) == 2; counts != deaf || names[0] != first || deaf != (report.Objects == 0) {
			t.Errorf("deaf %v: left are %v after %+v", deaf, names, report)
		}
		r.mustGoOn("the next one", dir)
	}
}

// TestTwoCreatesMakeARepository stops one at each of its calls, while the other runs.
// full is a repository on a disk that is full from the put of a description on.
type full struct {
	Repository
	is    bool
	write bool // the error comes within write
}

func (f *full) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	f.is = f.is || strings.HasPrefix(name, backupsPrefix)
	if !f.is {
		return f.Repository.Put(ctx, name, write)
	}
	if f.write {
		return errKilled
	}
	return errors.Join(write(io.Discard), errNotPut)
}

// TestAFullDiskLeavesNoNotice: no put can come late, so no prune need wait for this create.
func TestAFullDiskLeavesNoNotice(t *testing.T) {
	for _, within := range []bool{false, true} {
		r := newRig(t, 1, nil)
		r.write(10)
		if _, err := r.create(&full{Repository: r.repo(), write: within}, r.checkpoint()); err == nil {
			t.Fatal("a create succeeds on a full disk")
		}
		for _, prefix := range []string{unfinishedPrefix, abandonedPrefix, backupsPrefix} {
			if left, err := names(r.ctx, r.repo(), prefix); err != nil || len(left) > 0 {
				t.Errorf("below %s is %v, %v", prefix, left, err)
			}
		}
	}
}

// blind is a repository that lists a description, and says that it is not there.
type blind struct{ Repository }

func (b blind) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasPrefix(name, backupsPrefix) {
		return nil, fs.ErrNotExist
	}
	return b.Repository.Get(ctx, name)
}

func TestAPruneDeletesNothingIfADescriptionIsListedAndNotGiven(t *testing.T) {
	r := newRig(t, 1, nil)
	r.write(10)
	r.backUp()
	a, err := r.openArchive(blind{r.repo()})
	r.ok(err)
	r.clock.Advance(UnfinishedAfter + time.Second)
	if _, err := a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: r.clock}); err == nil || !strings.Contains(err.Error(), "gives it to no read") {
		t.Errorf("%v", err)
	}
	r.verify(r.archive())
}

func TestTwoCreatesMakeARepository(t *testing.T) {
	base := newRig(t, 1, nil)
	dir := base.checkpoint()
	for stop := 1; stop <= 4; stop++ {
		r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
		s := newTurns(stop)
		ended := s.start(r.repo(), func(repo Repository) error { _, err := r.create(repo, dir); return err })
		_, err := r.create(r.repo(), dir)
		close(s.goOn)
		if err := errors.Join(err, <-ended); err != nil {
			t.Errorf("stopped at call %d: %v", stop, err)
		}
		if names := r.verify(r.archive()); len(names) != 2 {
			t.Errorf("stopped at call %d: left are %v", stop, names)
		}
	}
}

func TestTwoCreatesAtOnce(t *testing.T) {
	r, first, dir := twoMoments(t)
	early := r.model.clone()
	r.write(100)
	later := r.checkpoint()
	var group sync.WaitGroup
	made := map[string]Info{}
	var mu sync.Mutex
	for _, d := range []string{dir, later} {
		opts := r.options()
		group.Go(func() {
			info, err := Create(r.ctx, r.repo(), r.fs, d, opts)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			made[d] = info
			mu.Unlock()
		})
	}
	group.Wait()
	a := r.archive()
	if found := r.verify(a); len(found) != 3 || found[0] != first || made[dir] == made[later] {
		t.Errorf("found %v, want %s and %v", found, first, made)
	}
	r.compare("the first", r.restore(a, made[dir].Name), early)
	r.compare("the second", r.restore(a, made[later].Name), r.model.clone())
	r.prune(a, 2)
	r.tidy(a)
}

// turns lets two processes take turns: one makes some calls, the other some, and then each ends.
type turns struct {
	stop    int           // the call before which the process stops
	stopped chan struct{} // closed when it stops there, or ends
	goOn    chan struct{} // closed when it may go on
}

func newTurns(stop int) *turns { return &turns{stop, make(chan struct{}), make(chan struct{})} }

// start runs f with a repository that stops before a call, until there.
func (s *turns) start(repo Repository, f func(Repository) error) (ended chan error) {
	ended = make(chan error, 1)
	reached := false
	go func() {
		err := f(&stepped{Repository: repo, before: func(call int) error {
			if call == s.stop {
				reached = true
				close(s.stopped)
				<-s.goOn
			}
			return nil
		}})
		if !reached {
			close(s.stopped)
		}
		ended <- err
	}()
	<-s.stopped
	return ended
}

// TestNoOrderOfACreateAndAPruneHurtsABackup stops each at each of its calls, while the other runs to each of its
// calls, in both orders. With impatient prunes, which take every create for dead, a create may fail, but no backup
// is damaged.
func TestNoOrderOfACreateAndAPruneHurtsABackup(t *testing.T) {
	base, _, dir := twoMoments(t)
	_, err := base.create(base.repo(), dir) // the checkpoint, whose files lose their backup by the prune, is backed up again
	base.ok(err)
	base.write(50)
	base.ok(base.store.Compact(base.ctx))
	base.backUp()
	const creates, prunes = 18, 34
	for stopCreate := 1; stopCreate <= creates; stopCreate++ {
		for stopPrune := 1; stopPrune <= prunes; stopPrune++ {
			for _, order := range []string{"create first", "prune first", "create first, impatient", "prune first, impatient"} {
				what := fmt.Sprintf("%s: create stops at call %d, prune at %d", order, stopCreate, stopPrune)
				r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
				impatient := order[len(order)-9:] == "impatient"
				var made Info
				create := func(repo Repository) (err error) { made, err = r.create(repo, dir); return err }
				prune := func(repo Repository) error {
					a, err := r.openArchive(repo)
					if err != nil {
						return err
					}
					opts := PruneOptions{Keep: 1, Clock: r.clock}
					if impatient {
						opts.Clock = clocktest.NewManual(r.clock.NowMillis() + 48*time.Hour.Milliseconds())
					}
					_, err = a.Prune(r.ctx, opts)
					return err
				}
				c, p := newTurns(stopCreate), newTurns(stopPrune)
				var created, pruned chan error
				if order[0] == 'c' {
					created = c.start(r.repo(), create)
					pruned = p.start(r.repo(), prune)
				} else {
					pruned = p.start(r.repo(), prune)
					created = c.start(r.repo(), create)
				}
				close(c.goOn)
				err := <-created
				close(p.goOn)
				if err := <-pruned; err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%s: prune: %v", what, err)
				}
				if err != nil && !impatient {
					t.Fatalf("%s: create: %v", what, err)
				}
				if names := r.verify(r.archive()); len(names) == 0 || err == nil && !slices.Contains(names, made.Name) {
					t.Fatalf("%s: left are %v, made was %s", what, names, made.Name)
				}
			}
		}
	}
}

// TestNoOrderOfADeathAndTwoPrunesHurtsABackup stops a create at each of its calls, and an impatient prune at each of its
// own. Then the create makes one call more and dies, the prune ends, and another one looks again. No backup that
// counts is damaged, and one is left.
func TestNoOrderOfADeathAndTwoPrunesHurtsABackup(t *testing.T) {
	base, _, dir := twoMoments(t)
	_, err := base.create(base.repo(), dir)
	base.ok(err)
	base.write(50)
	base.ok(base.store.Compact(base.ctx))
	newest, counted := base.backUp(), 0
	const creates, prunes = 18, 34
	for stopCreate := 1; stopCreate <= creates; stopCreate++ {
		for stopPrune := 2; stopPrune <= prunes; stopPrune++ {
			what := fmt.Sprintf("create stops at call %d, prune at %d", stopCreate, stopPrune)
			r := base.on(base.fs.Image(vfs.CrashKeepAll, 0))
			later := clocktest.NewManual(r.clock.NowMillis() + 48*time.Hour.Milliseconds())
			prune := func(repo Repository) error {
				a, err := r.openArchive(repo)
				if err == nil {
					_, err = a.Prune(r.ctx, PruneOptions{Keep: 1, Clock: later})
				}
				return err
			}
			c, p := newTurns(stopCreate), newTurns(stopPrune)
			created := c.start(r.repo(), func(repo Repository) error {
				_, err := r.create(&stepped{Repository: repo, before: dead(stopCreate + 1)}, dir)
				return err
			})
			pruned := p.start(r.repo(), prune)
			close(c.goOn)
			failed := <-created
			second := prune(r.repo())
			close(p.goOn)
			if err := errors.Join(second, <-pruned); err != nil {
				t.Fatalf("%s: prune: %v", what, err)
			}
			for range 2 {
				names := r.verify(r.archive())
				if len(names) == 0 {
					t.Fatalf("%s: nothing is left", what)
				}
				if failed != nil && names[len(names)-1] != newest {
					counted++
				}
				r.ok(prune(r.repo()))
			}
		}
	}
	if counted == 0 {
		t.Error("no killed create put its description: the test looks at the wrong calls")
	}
}

// TestWhatIsReusedIsDurable cuts the power after a create that went on with what a killed one had left.
func TestWhatIsReusedIsDurable(t *testing.T) {
	base, _, dir := twoMoments(t)
	createsThatFail(t, base, dir, 4, func(r *rig, call int64, ended bool, random *rand.Rand) {
		info, err := r.create(r.repo(), dir)
		r.ok(err)
		after := r.on(r.fs.Image(vfs.CrashLoseAll, random.Uint64()))
		if names := after.verify(after.archive()); !slices.Contains(names, info.Name) {
			t.Fatalf("killed at call %d: left are %v, want %s", call, names, info.Name)
		}
	})
}

// TestTwoFirstCreatesOfDifferentKinds stops a plain one before it puts the marker, and a sealed one after that. The
// marker that is put last wins.
func TestTwoFirstCreatesOfDifferentKinds(t *testing.T) {
	const marker = 3 // the call that puts it
	plain := newRig(t, 1, nil)
	dir := plain.checkpoint()
	sealed := plain.on(plain.fs)
	sealed.sealer = &testCipher{1}
	for stop := marker + 1; stop <= marker+6; stop++ {
		plain.ok(plain.fs.MkdirAll("/repo"))
		first, second := newTurns(marker), newTurns(stop)
		var made Info
		created := first.start(plain.repo(), func(repo Repository) (err error) { made, err = plain.create(repo, dir); return err })
		refused := second.start(sealed.repo(), func(repo Repository) error { _, err := sealed.create(repo, dir); return err })
		close(first.goOn)
		plain.ok(<-created)
		close(second.goOn)
		if err := <-refused; !errors.Is(err, ErrNotRepository) {
			t.Errorf("stopped at call %d: %v", stop, err)
		}
		plain.compare("plain", plain.restore(plain.archive(), made.Name), plain.model.clone())
		plain.ok(plain.fs.Rename("/repo", fmt.Sprintf("/repo%d", stop)))
	}
}

// TestAKilledRestoreLeavesNoStoreThatIsNotWhole kills it at calls of the file system, and cuts the power.
func TestAKilledRestoreLeavesNoStoreThatIsNotWhole(t *testing.T) {
	base, _, dir := twoMoments(t)
	info, err := base.create(base.repo(), dir)
	base.ok(err)
	for call, ended := int64(1), false; !ended; call++ {
		sim := base.fs.Image(vfs.CrashKeepAll, 0)
		fault := vfs.NewFault(sim, 1)
		fault.Add(vfs.Rule{Nth: call, Times: vfs.Forever, Action: vfs.FailWith(errKilled)})
		r := base.on(sim)
		ended = r.archive().Restore(r.ctx, info.Name, fault, "/restored", nil) == nil
		for _, policy := range vfs.CrashPolicies() {
			after := r.on(r.fs.Image(policy, uint64(call)))
			for _, name := range []string{"/restored", "/restored.partial"} {
				opts := flagstone.Options{ReadOnly: true}
				opts.Seams.FS = after.fs
				store, err := flagstone.Open(name, opts)
				if err != nil {
					if ended && name == "/restored" {
						t.Errorf("a restore that succeeded left no store: %s: %v", policy, err)
					}
					continue
				}
				after.compare(fmt.Sprintf("%s after call %d, %s", name, call, policy), after.rows(store), base.model.clone())
				after.ok(store.Close())
			}
		}
	}
}

func TestARestoreTakesOnlyAnEmptyDirectory(t *testing.T) {
	r := newRig(t, 1, nil)
	name := r.backUp()
	for _, dir := range []string{"/store", "/full", "/unfinished"} {
		r.ok(r.fs.MkdirAll("/full/x"))
		r.ok(r.fs.MkdirAll("/unfinished.partial"))
		if err := r.archive().Restore(r.ctx, name, r.fs, dir, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	r.ok(r.fs.MkdirAll("/empty"))
	r.ok(r.archive().Restore(r.ctx, name, r.fs, "/empty", nil))
}

func TestAContextEndsEachCall(t *testing.T) {
	r, first, dir := twoMoments(t)
	ctx, cancel := context.WithCancel(r.ctx)
	opts := r.options()
	opts.BytesPerSecond = 1 << 30
	opts.Progress = func(Progress) { cancel() }
	if _, err := Create(ctx, r.repo(), r.fs, dir, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v", err)
	}
	a := r.archive()
	if _, err := a.Verify(ctx, []string{first}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("verify: %v", err)
	}
	if err := a.Restore(ctx, first, r.fs, "/restored", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("restore: %v", err)
	}
	if _, err := a.Prune(ctx, PruneOptions{Keep: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("prune: %v", err)
	}
	r.mustGoOn("after an end", dir)
}
