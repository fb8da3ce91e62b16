package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// content is what a table holds: cells by key, each as column@version=hash.
type content map[string][]string

func (c content) clone() content {
	copied := content{}
	for key, cells := range c {
		copied[key] = slices.Clone(cells)
	}
	return copied
}

func cellText(column string, version int64, value []byte) string {
	return fmt.Sprintf("%s@%d=%x", column, version, xxhash.Sum64(value))
}

// rig is a store on a simulated disk, with a model of what it holds, and a repository on the same disk.
type rig struct {
	t       *testing.T
	ctx     context.Context
	fs      *vfs.Sim
	rand    *rand.Rand
	store   *flagstone.Store
	table   *flagstone.Table
	model   content
	version int64
	clock   *clocktest.Manual
	sealer  *testCipher
	made    int // checkpoints and restored directories
}

func newRig(t *testing.T, seed uint64, sealer *testCipher) *rig {
	t.Helper()
	r := &rig{
		t: t, ctx: context.Background(), fs: vfs.NewSim(vfs.SimOptions{}), rand: rand.New(rand.NewPCG(seed, 0)),
		model: content{}, clock: clocktest.NewManual(1_700_000_000_000), sealer: sealer,
	}
	r.store = r.open("/store", false)
	var err error
	r.table, err = r.store.CreateTable(r.ctx, flagstone.TableSpec{
		Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeString}},
		Options: flagstone.TableOptions{MaxVersions: 1000, TTLSeconds: flagstone.NeverExpires},
	})
	r.ok(err)
	t.Cleanup(func() { r.ok(r.store.Close()) })
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) open(dir string, readOnly bool) *flagstone.Store {
	r.t.Helper()
	opts := flagstone.Options{MemtableSize: 64 << 10, TableFileSize: 32 << 10, CacheSize: 1 << 20, MemoryBudget: 4 << 20, WALSegmentSize: 64 << 10, ReadOnly: readOnly}
	opts.Seams.FS = r.fs
	store, err := flagstone.Open(dir, opts)
	r.ok(err)
	return store
}

// write changes some rows, in the store and in the model.
func (r *rig) write(n int) {
	r.t.Helper()
	for range n {
		key := fmt.Sprintf("key%03d", r.rand.IntN(200))
		if r.rand.IntN(10) == 0 {
			r.ok(r.table.Delete(r.ctx, flagstone.Key(key)))
			delete(r.model, key)
			continue
		}
		r.version++
		column, value := "ab"[r.rand.IntN(2):][:1], make([]byte, 100)
		if r.rand.IntN(20) == 0 {
			value = make([]byte, 20<<10) // goes to a value file
		}
		for i := range value {
			value[i] = byte(r.rand.Uint32())
		}
		r.ok(r.table.Put(r.ctx, flagstone.Key(key), column, r.version, row.Binary(value)))
		r.model[key] = append(r.model[key], cellText(column, r.version, value))
	}
}

// checkpoint makes one and returns its directory.
func (r *rig) checkpoint() string {
	r.t.Helper()
	r.made++
	dir := fmt.Sprintf("/checkpoint%d", r.made)
	r.ok(r.store.Checkpoint(r.ctx, dir))
	return dir
}

func (r *rig) repo() *Folder {
	repo := NewFolder(r.fs, "/repo")
	repo.clock = r.clock
	return repo
}

func (r *rig) options() CreateOptions {
	r.clock.Advance(time.Second)
	opts := CreateOptions{Clock: r.clock}
	if r.sealer != nil {
		opts.Sealer = r.sealer
	}
	return opts
}

// create makes a backup of a checkpoint.
func (r *rig) create(repo Repository, dir string) (Info, error) {
	return Create(r.ctx, repo, r.fs, dir, r.options())
}

// backUp makes a backup of what the store holds now.
func (r *rig) backUp() string {
	r.t.Helper()
	info, err := r.create(r.repo(), r.checkpoint())
	r.ok(err)
	return info.Name
}

func (r *rig) archive() *Archive {
	r.t.Helper()
	a, err := r.openArchive(r.repo())
	r.ok(err)
	return a
}

func (r *rig) openArchive(repo Repository) (*Archive, error) {
	if r.sealer != nil {
		return Open(r.ctx, repo, r.sealer)
	}
	return Open(r.ctx, repo, nil)
}

// rows returns what a store holds.
func (r *rig) rows(store *flagstone.Store) content {
	r.t.Helper()
	found := content{}
	t, err := store.Table("t")
	r.ok(err)
	for read, err := range t.Scan(r.ctx, nil, nil, flagstone.ScanOptions{}).All() {
		r.ok(err)
		key := read.Key()[0].Text()
		for _, c := range read.Cells() {
			v, err := row.PayloadValue(c.Type, c.Value)
			r.ok(err)
			found[key] = append(found[key], cellText(string(c.Column), c.Version, v.Bytes()))
		}
	}
	return found
}

func (r *rig) compare(what string, got, want content) {
	r.t.Helper()
	for _, c := range []content{got, want} {
		for _, cells := range c {
			slices.Sort(cells)
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		r.t.Fatalf("%s: %d rows, want %d, or other cells", what, len(got), len(want))
	}
}

// restore restores a backup, checks the store and returns what it holds.
func (r *rig) restore(a *Archive, name string) content {
	r.t.Helper()
	r.made++
	dir := fmt.Sprintf("/restored%d", r.made)
	r.ok(a.Restore(r.ctx, name, r.fs, dir, nil))
	opts := flagstone.Options{}
	opts.Seams.FS = r.fs
	report, err := flagstone.Check(r.ctx, dir, opts, nil)
	r.ok(errors.Join(append(report.Problems, err)...))
	store := r.open(dir, false)
	defer func() { r.ok(store.Close()) }()
	return r.rows(store)
}

// verify fails the test if the archive has a problem.
func (r *rig) verify(a *Archive) []string {
	r.t.Helper()
	names, err := a.Names(r.ctx)
	r.ok(err)
	report, err := a.Verify(r.ctx, names, nil)
	r.ok(errors.Join(append(report.Problems, err)...))
	return names
}

// prune keeps some backups, and takes all creates for dead that have not ended.
func (r *rig) prune(a *Archive, keep int) PruneReport {
	r.t.Helper()
	r.clock.Advance(UnfinishedAfter + time.Second)
	report, err := a.Prune(r.ctx, PruneOptions{Keep: keep, Clock: r.clock})
	r.ok(err)
	if report.Unfinished != "" {
		r.t.Fatalf("the prune waits for %s", report.Unfinished)
	}
	return report
}

// tidy fails the test if the repository has more than its backups need, and the names of those that do not count.
func (r *rig) tidy(a *Archive) {
	r.t.Helper()
	backups, err := a.Names(r.ctx)
	r.ok(err)
	used, _, err := a.used(r.ctx, backups)
	r.ok(err)
	r.ok(a.repo.List(r.ctx, "", func(name string, _ int64) error {
		if name != markerName && !used[name] && !strings.HasPrefix(name, backupsPrefix) && !strings.HasPrefix(name, abandonedPrefix) {
			r.t.Errorf("%s is left", name)
		}
		return nil
	}))
}

// on returns a rig of the same model on another disk, without a store.
func (r *rig) on(fs *vfs.Sim) *rig {
	copied := *r
	copied.fs, copied.store, copied.table = fs, nil, nil
	return &copied
}

// testCipher encrypts badly. What it decrypts is verified.
type testCipher struct{ key byte }

func (c *testCipher) Name() string { return fmt.Sprintf("test %d", c.key) }

func (c *testCipher) Seal(w io.Writer) (io.WriteCloser, error) {
	return &sealing{key: c.key, w: w}, nil
}

type sealing struct {
	key  byte
	w    io.Writer
	text bytes.Buffer
}

func (s *sealing) Write(p []byte) (int, error) { return s.text.Write(p) }

func (s *sealing) Close() error {
	b := s.text.Bytes()
	sum := xxhash.Sum64(b)
	for i := range b {
		b[i] ^= s.key
	}
	_, err := s.w.Write(fmt.Appendf(b, "%016x", sum))
	return err
}

func (c *testCipher) Unseal(r io.Reader) (io.Reader, error) {
	b, err := io.ReadAll(r)
	if err != nil || len(b) < 16 {
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	b, sum := b[:len(b)-16], string(b[len(b)-16:])
	for i := range b {
		b[i] ^= c.key
	}
	if fmt.Sprintf("%016x", xxhash.Sum64(b)) != sum {
		return nil, errors.New("not what was encrypted")
	}
	return bytes.NewReader(b), nil
}

var errKilled = errors.New("killed")

// stepped is a repository that asks before each call whether to go on.
type stepped struct {
	Repository
	mu sync.Mutex
	// before returns an error to fail the call; after makes a call that was done fail.
	before, after func(call int) error
	calls         int
}

func (s *stepped) step(do func() error) error {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if s.after != nil {
		return s.after(call)
	}
	return nil
}

func (s *stepped) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return s.step(func() error { return s.Repository.Put(ctx, name, write) })
}

func (s *stepped) Get(ctx context.Context, name string) (object io.ReadCloser, err error) {
	err = s.step(func() error {
		object, err = s.Repository.Get(ctx, name)
		return err
	})
	return object, err
}

func (s *stepped) List(ctx context.Context, prefix string, each func(string, int64) error) error {
	return s.step(func() error { return s.Repository.List(ctx, prefix, each) })
}

func (s *stepped) Sync(ctx context.Context, names []string) error {
	return s.step(func() error { return s.Repository.Sync(ctx, names) })
}

func (s *stepped) Delete(ctx context.Context, name string) error {
	return s.step(func() error { return s.Repository.Delete(ctx, name) })
}

// dead returns a function for stepped that fails all calls from one on, as if the process had been killed there.
func dead(from int) func(int) error {
	return func(call int) error {
		if call >= from {
			return errKilled
		}
		return nil
	}
}

// objectFile returns the file of an object.
func objectFile(name string) string { return filepath.Join("/repo", filepath.FromSlash(name)) }
