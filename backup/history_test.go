package backup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHistories makes backups at random moments between writes, flushes and compactions, prunes them, and compares what
// they restore with a model of the moment.
func TestHistories(t *testing.T) {
	seed, steps := rand.Uint64(), 60
	if text := os.Getenv("FLAGSTONE_BACKUP_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	restores := 0
	for i, sealer := range []*testCipher{nil, {key: 0x5a}} {
		t.Logf("seed %d", seed)
		r := newRig(t, seed, sealer)
		moments := map[string]content{}
		for range steps {
			switch k := r.rand.IntN(12); {
			case k < 5:
				r.write(1 + r.rand.IntN(200))
			case k < 6:
				r.ok(r.store.Flush(r.ctx))
			case k < 7:
				r.ok(r.store.Compact(r.ctx))
			case k < 10:
				name := r.backUp()
				moments[name] = r.model.clone()
			case len(moments) == 0:
			case k < 11:
				r.prune(r.archive(), 1+r.rand.IntN(4))
				r.tidy(r.archive())
			default:
				names := r.verify(r.archive())
				name := names[r.rand.IntN(len(names))]
				r.compare(name, r.restore(r.archive(), name), moments[name].clone())
				restores++
			}
		}
		name := r.backUp()
		r.compare(name, r.restore(r.archive(), name), r.model)
		seed += uint64(i + 1)
	}
	t.Logf("%d restores between, and one at each end", restores)
}

// TestABackupUnderLoadIsOfOneMoment has writers that each write rows in order. A restored store has a prefix of the
// rows of each: all that were finished when the checkpoint began, and none that was begun after it.
func TestABackupUnderLoadIsOfOneMoment(t *testing.T) {
	const writers, backups = 4, 6
	r := newRig(t, rand.Uint64(), nil)
	var begun, finished [writers]atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	defer group.Wait()
	defer stop.Store(true)
	for w := range writers {
		group.Go(func() {
			for n := int64(1); !stop.Load(); n++ {
				begun[w].Store(n)
				if err := r.table.Put(r.ctx, flagstone.Key(fmt.Sprintf("%d-%09d", w, n)), "n", 1, row.Binary(make([]byte, 200))); err != nil {
					t.Error(err)
					return
				}
				finished[w].Store(n)
			}
		})
	}
	for range backups {
		var least, most [writers]int64
		for w := range writers {
			least[w] = finished[w].Load()
		}
		dir := r.checkpoint()
		for w := range writers {
			most[w] = begun[w].Load()
		}
		info, err := r.create(r.repo(), dir)
		r.ok(err)
		rows := r.restore(r.archive(), info.Name)
		for w := range writers {
			n := int64(0)
			for rows[fmt.Sprintf("%d-%09d", w, n+1)] != nil {
				n++
			}
			if n < least[w] || n > most[w] {
				t.Errorf("writer %d: rows up to %d; %d were finished before, %d begun in the end", w, n, least[w], most[w])
			}
			most[w] = n
		}
		if total := most[0] + most[1] + most[2] + most[3]; int64(len(rows)) != total {
			t.Errorf("%d rows, of which %d are the first ones of their writers", len(rows), total)
		}
	}
}

// TestASecondBackupAddsWhatIsNew also compares what is reused with what the store has.
func TestASecondBackupAddsWhatIsNew(t *testing.T) {
	r := newRig(t, 1, nil)
	r.write(2000)
	r.ok(r.store.Compact(r.ctx))
	first, err := r.create(r.repo(), r.checkpoint())
	r.ok(err)
	r.ok(r.table.Put(r.ctx, flagstone.Key("one more"), "a", 1, row.Binary([]byte("x"))))
	second, err := r.create(r.repo(), r.checkpoint())
	r.ok(err)
	if first.AddedBytes != first.Bytes || second.AddedBytes > second.Bytes/2 {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if info, err := r.archive().Info(r.ctx, second.Name); err != nil || info != second {
		t.Errorf("%+v, %v; want %+v", info, err, second)
	}
}

// TestDamageIsRefusedByName damages each object in turn, in several ways.
func TestDamageIsRefusedByName(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, sealer := range []*testCipher{nil, {key: 0x5a}} {
		r := newRig(t, seed, sealer)
		r.write(300)
		old := r.backUp()
		r.write(300)
		newest := r.backUp()
		a := r.archive()
		oldDescription, err := a.description(r.ctx, old)
		r.ok(err)
		newDescription, err := a.description(r.ctx, newest)
		r.ok(err)
		users := map[string][]string{backupsPrefix + old: {old}, backupsPrefix + newest: {newest}}
		for _, d := range []*description{oldDescription, newDescription} {
			for i := range d.entries {
				object := d.entries[i].object()
				users[object] = append(users[object], d.name)
			}
		}
		for object, names := range users {
			content, err := r.fs.ReadFile(objectFile(object))
			r.ok(err)
			damages := [][]byte{content[:len(content)-1], content[:r.rand.IntN(len(content))], append(slices.Clone(content), 0), {}}
			for _, at := range []int{0, len(content) - 1, len(content) / 2, r.rand.IntN(len(content)), r.rand.IntN(len(content))} {
				flipped := slices.Clone(content)
				flipped[at] ^= 1 << r.rand.IntN(8)
				damages = append(damages, flipped)
			}
			if !strings.HasPrefix(object, backupsPrefix) {
				damages = append(damages, nil)
			}
			for i, damaged := range damages {
				r.damage(object, damaged)
				r.refused(fmt.Sprintf("damage %d of %s", i, object), object, names, old, newest)
			}
			r.damage(object, content)
		}
		r.verify(a)
	}
}

// damage replaces an object, or removes it for nil.
func (r *rig) damage(object string, content []byte) {
	r.t.Helper()
	r.ok(r.repo().Delete(r.ctx, object))
	if content == nil {
		return
	}
	f, err := r.fs.Create(objectFile(object), vfs.OpenOptions{})
	r.ok(err)
	_, err = f.Write(content)
	r.ok(errors.Join(err, f.Close()))
}

// refused fails the test unless verify names the object and each backup that it hurts, and restores of these are
// refused likewise. What is not hurt is restored.
func (r *rig) refused(what, object string, hurt []string, all ...string) {
	r.t.Helper()
	a := r.archive()
	report, err := a.Verify(r.ctx, all, nil)
	r.ok(err)
	said := errors.Join(report.Problems...)
	if len(report.Problems) != 1 {
		r.t.Fatalf("%s: %d problems: %v", what, len(report.Problems), said)
	}
	for _, name := range append(slices.Clone(hurt), object) {
		if !strings.Contains(said.Error(), name) {
			r.t.Errorf("%s: %s is not named: %v", what, name, said)
		}
	}
	for _, name := range all {
		r.made++
		dir := fmt.Sprintf("/refused%d", r.made)
		err := a.Restore(r.ctx, name, r.fs, dir, nil)
		if slices.Contains(hurt, name) != (err != nil) {
			r.t.Errorf("%s: backup %s is restored with %v", what, name, err)
		}
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), object) || !strings.Contains(err.Error(), name) {
			r.t.Errorf("%s: the restore says %v", what, err)
		}
		for _, left := range []string{dir, dir + ".partial"} {
			if _, err := r.fs.Stat(left); err == nil {
				r.t.Errorf("%s: %s is left", what, left)
			}
		}
	}
}
