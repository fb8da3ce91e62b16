package partition

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// memory is a memtable with what the write path needs to know of it.
type memory struct {
	// refs counts the states that hold the memtable. The last one frees its memory.
	refs atomic.Int64

	// holders counts the trees that have yet to flush the memtable: more than one after a split.
	holders atomic.Int64

	// writers counts the mutations that have a place reserved in the memtable and are not
	// done yet. It rises only while the memtable is mutable, so after the rotation
	// writers.Wait returns when the content is final.
	writers sync.WaitGroup

	// reserved is the size of the memtable in bytes: of the applied mutations, plus the upper
	// bounds promised to the others. rotatedBit is set in it once the memtable is rotated out.
	reserved atomic.Int64

	// segment is the log segment at the end of the log when the first mutation was reserved: no
	// older segment holds anything of this memtable. It is set once, before that mutation is
	// applied, and 0 while the memtable is empty.
	segment atomic.Uint64

	// newest is the log segment at the end of the log when the last mutation had been appended: no
	// later segment holds anything of this memtable. It is 0 while the memtable is empty.
	newest atomic.Uint64

	// startSeq is at or below every sequence number in the memtable, and above all those in older
	// ones.
	startSeq uint64

	table memtable.Memtable // at the next cache line: an object of this size begins at one
}

const rotatedBit = 1 << 62

// bytes is the upper bound of what the memtable takes.
func (m *memory) bytes() int64 { return m.reserved.Load() &^ rotatedBit }

// version is one immutable set of table files.
type version struct {
	refs  atomic.Int64
	meta  *manifest.Partition
	files []*tablefiles.File // of all levels, in their order
	// byLevel are the same files, in the order of meta.
	byLevel [manifest.NumLevels][]*tablefiles.File
	clipped
	// runs are the files in the order in which readers read them, newest first. Files of level 0
	// that do not overlap are one run, and so is each other level that has files. The files of a
	// run are in key order.
	runs [][]*tablefiles.File
	// recent is how many of the runs are of level 0.
	recent int
	// prefix is what all keys in the files have in common.
	prefix []byte
	// newest is the largest sequence number in the files. It can be above those of memtables: an
	// installation brings rows that never were in one.
	newest uint64
}

// newVersion takes a reference to every file that meta names. The first state that holds the
// version takes the first reference to it.
func newVersion(files *tablefiles.Registry, meta *manifest.Partition) *version {
	v := &version{meta: meta}
	for _, m := range allFiles(&meta.Levels) {
		v.files = append(v.files, files.Ref(m))
		v.newest = max(v.newest, m.LargestSeq)
	}
	rest := v.files
	for level, metas := range meta.Levels {
		v.byLevel[level], rest = rest[:len(metas):len(metas)], rest[len(metas):]
	}
	runs := compaction.Runs(meta.Levels[0])
	v.recent = len(runs)
	for _, metas := range slices.Backward(runs) {
		v.runs = append(v.runs, v.open(0, metas))
	}
	for _, files := range v.byLevel[1:] {
		if len(files) > 0 {
			v.runs = append(v.runs, files)
		}
	}
	for i, m := range allFiles(&meta.Levels) {
		if i == 0 {
			v.prefix = m.Smallest
		}
		v.prefix = v.prefix[:min(row.CommonPrefix(v.prefix, m.Smallest), row.CommonPrefix(v.prefix, m.Largest))]
	}
	return v
}

// open returns the files of a level that metas describe, whole or clipped.
func (v *version) open(level int, metas []*manifest.FileMeta) []*tablefiles.File {
	files := make([]*tablefiles.File, len(metas))
	all, next := v.byLevel[level], 0
	for i, m := range metas {
		is := func(f *tablefiles.File) bool { return f.Meta.Number == m.Number }
		at := slices.IndexFunc(all[next:], is) // metas of deeper levels are in the level's order
		if at < 0 {
			next, at = 0, slices.IndexFunc(all, is)
		}
		files[i], next = all[next+at], next+at+1
	}
	return files
}

// allFiles returns what describes the files of all levels, in their order.
func allFiles(levels *compaction.Levels) []*manifest.FileMeta { return slices.Concat(levels[:]...) }

func (v *version) unref() {
	if v.refs.Add(-1) != 0 {
		return
	}
	for _, f := range v.files {
		f.Unref()
	}
}

// state is what a reader pins: a version, and memtables, oldest first, of which the last is
// mutable. It lives until it is replaced and no reader pins it.
type state struct {
	id       uint64 // for Env.Rows: no other state has the same
	memories []*memory
	version  *version

	// Pins are counted in stripes, so that readers on several processors do not take one cache
	// line from each other twice per read. A reader pins and unpins in the same stripe. A stripe
	// that is at zero after the state was replaced stays there: a pin that comes too late sees
	// the replacement and is undone before anything is read through it.
	pins     stripes
	replaced atomic.Bool
	released atomic.Bool
}

const pinStripes = 8

// stripes is a sum that is counted in several cache lines.
type stripes [pinStripes]struct {
	count atomic.Int64
	_     [56]byte // the rest of a cache line
}

func (s *stripes) of(stripe uint32) *atomic.Int64 { return &s[stripe%pinStripes].count }

func (s *stripes) total() (sum int64) {
	for i := range s {
		sum += s[i].count.Load()
	}
	return sum
}

func (s *stripes) reset() {
	for i := range s {
		s[i].count.Store(0)
	}
}

func newState(memories []*memory, v *version) *state {
	v.refs.Add(1)
	for _, m := range memories {
		m.refs.Add(1)
	}
	return &state{memories: memories, version: v}
}

// unpin ends a pin in a stripe.
func (s *state) unpin(stripe uint32) {
	s.pins.of(stripe).Add(-1)
	if s.replaced.Load() {
		s.release()
	}
}

// unref ends a pin of the first stripe.
func (s *state) unref() { s.unpin(0) }

// retire is called once the tree has another state.
func (s *state) retire() {
	s.replaced.Store(true)
	s.release()
}

// release lets go of version and memtables if no reader pins the state. REQUIRES: it was
// replaced.
func (s *state) release() {
	if s.pins.total() != 0 {
		return // the reader that ends the last pin calls release
	}
	if s.released.CompareAndSwap(false, true) {
		s.version.unref()
		for _, m := range s.memories {
			m.unref()
		}
	}
}

// letGo is called when a tree has flushed or dropped the memtable. It returns the bytes that are
// accounted for it once no tree holds it, else 0.
func (m *memory) letGo() int64 {
	if m.holders.Add(-1) == 0 {
		return m.bytes()
	}
	return 0
}

// unref ends the hold of a state.
func (m *memory) unref() {
	if m.refs.Add(-1) != 0 {
		return
	}
	// When a store is closed or a table is dropped, some writers may not be done yet.
	m.writers.Wait()
	m.table.Free()
}

func (s *state) mutable() *memory { return s.memories[len(s.memories)-1] }

// waiting returns the memtables that wait to be flushed, oldest first.
func (s *state) waiting() []*memory { return s.memories[:len(s.memories)-1] }

// Pin keeps the tree's present table files from being deleted until release is called, and returns
// the manifest entry that names them. It keeps no memtables.
func (t *Tree) Pin() (files *manifest.Partition, release func()) {
	v, _ := t.pinVersion()
	return v.meta, v.unref
}

// markObsolete marks the files of the version that next does not name, for this or another
// partition. They are deleted when no reader uses them any more.
func (v *version) markObsolete(next *manifest.State) {
	for _, f := range v.files {
		f.MarkObsolete(next)
	}
}
