package partition

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
)

const (
	// smallShare divides MemtableSize: memtables of a tree that are smaller share table files with
	// those of its neighbours, until these hold that much.
	smallShare = 4
	// maxTogether bounds the trees that are rotated or flushed as one, and so the time for which
	// writers wait meanwhile, and the size of an edit. It makes 16 files of the memtables of a
	// thousand partitions.
	maxTogether = 64
)

// group collects trees of one table, in ascending order, whose memtables go to common table files.
type group struct {
	trees []*Tree
	bytes int64
	end   uint64 // where the memtables end
}

// add adds a tree with memtables of so many bytes that end at a sequence number. It returns false
// if they do not belong together.
func (g *group) add(t *Tree, bytes int64, end uint64) bool {
	if n := len(g.trees); n > 0 && (g.trees[0].table != t.table || g.end != end || n == maxTogether ||
		max(g.bytes, bytes) >= t.env.MemtableSize/smallShare) {
		return false
	}
	g.trees, g.bytes, g.end = append(g.trees, t), g.bytes+bytes, end
	return true
}

// Together divides trees into those that one call of Flush flushes, with the upTo of that call. It
// leaves out those that have no memtables that wait and end at most at upTo. Small memtables of
// neighbours go together: a file for each of a thousand partitions would cost a thousand syncs, and
// as many descriptors. Memtables that go together end at one sequence number. So a file of level 0
// holds nothing newer than the next file of any of its partitions does. A tree that inherited
// memtables goes alone: they may hold rows of other trees, which have flushed them long ago.
func Together(trees []*Tree, upTo uint64) []Group {
	var groups []Group
	var g group
	for _, t := range trees {
		bytes, end := t.waitingUpTo(upTo)
		if end == 0 {
			continue
		}
		if !g.add(t, bytes, end) {
			groups = append(groups, Group{g.trees, g.end})
			g = group{}
			g.add(t, bytes, end)
		}
	}
	if g.trees != nil {
		groups = append(groups, Group{g.trees, g.end})
	}
	return groups
}

// Group is what one flush flushes: the memtables of trees that were rotated up to a sequence number.
type Group struct {
	Trees []*Tree
	UpTo  uint64
}

// Heaviest returns neighbouring trees whose mutable memtables take the most memory together, and are
// to be rotated and flushed as one. It returns none if all are empty.
func Heaviest(trees []*Tree) []*Tree {
	var heaviest, g group
	for _, t := range trees {
		bytes := t.mutable.Load().bytes()
		if bytes > 0 && !g.add(t, bytes, 0) {
			g = group{}
			g.add(t, bytes, 0)
		}
		if g.bytes > heaviest.bytes {
			heaviest = g
		}
	}
	return heaviest.trees
}

// waitingUpTo is how many bytes are reserved in the memtables that wait and end at most at upTo, and
// where the last of them ends, 0 if there are none. Inherited memtables count as too many bytes.
func (t *Tree) waitingUpTo(upTo uint64) (bytes int64, end uint64) {
	s := t.pin()
	defer s.unref()
	waiting, end := t.waitingIn(s, upTo)
	for _, m := range waiting {
		if bytes += m.bytes(); m.startSeq < t.began {
			return math.MaxInt64 / 2, end
		}
	}
	return bytes, end
}

// waitingIn returns the memtables of a state that wait and end at most at upTo, and where the last of them
// ends, 0 if there are none. Inherited memtables all end where the tree began, since they may be those of
// several trees, and are flushed as one: none of them ends later than the next one begins.
func (t *Tree) waitingIn(s *state, upTo uint64) (waiting []*memory, end uint64) {
	waiting = s.waiting()
	for n := len(waiting); n > 0 && s.memories[n].startSeq > upTo && s.memories[n-1].startSeq >= t.began; n-- {
		waiting = waiting[:n-1]
	}
	if len(waiting) > 0 {
		end = s.memories[len(waiting)].startSeq // where the last one was rotated out
	}
	return waiting, end
}

// flush is what is flushed of one tree.
type flush struct {
	*Tree
	state   *state // pinned
	waiting []*memory
}

// Flush writes the memtables of a group to table files of level 0. It returns the bytes that were
// reserved in those that no other tree has yet to flush; did says that there were some memtables. A
// file with rows of several trees is listed by each of them. A memtable's end is the sequence number
// at which it was rotated out; a tree whose last one does not end where that of others does is left
// out. Flush calls settle with that end, and the trees, before it writes: settle returns when every write below the end is
// visible. durable then waits for what else must be durable before the manifest names the files; it may run
// while they are written. After an error the memtables still
// wait. The error is ErrReplaced if a tree was replaced: then other trees have its memtables.
func Flush(g Group, settle func(endSeq uint64, flushed []*Tree) (durable func() error, err error)) (freed int64, did bool, err error) {
	var flushes []flush
	var endSeq uint64
	for _, t := range g.Trees {
		t.flushing.Lock()
		defer t.flushing.Unlock()
		if err := t.gone(); err != nil {
			return 0, false, err
		}
		if t.dropped {
			continue
		}
		s := t.pin()
		defer s.unref()
		waiting, end := t.waitingIn(s, g.UpTo)
		if end > endSeq {
			flushes, endSeq = flushes[:0], end
		}
		if len(waiting) > 0 && end == endSeq {
			flushes = append(flushes, flush{t, s, waiting})
		}
	}
	if len(flushes) == 0 {
		return 0, false, nil
	}
	for _, f := range flushes {
		for _, m := range f.waiting {
			m.writers.Wait()
		}
	}
	flushed := make([]*Tree, len(flushes))
	for i, f := range flushes {
		flushed[i] = f.Tree
	}
	durable, err := settle(endSeq, flushed)
	if err != nil {
		return 0, false, err
	}
	job := beginFlush(flushes)
	out, kept, err := writeFlush(flushes, endSeq)
	if lost := durable(); lost != nil && err == nil {
		out.discard()
		err = lost
	}
	if err == nil {
		job.Written = out.written()
		err = commitFlush(flushes, endSeq, out, kept)
	}
	job.End(err)
	if err != nil {
		return 0, false, err
	}
	for _, f := range flushes {
		for _, m := range f.waiting {
			freed += m.letGo()
		}
	}
	return freed, true, nil
}

func beginFlush(flushes []flush) *event.Job {
	e := event.Event{Kind: event.Flush, Table: flushes[0].table, Input: used(flushes)}
	for _, f := range flushes {
		e.Partitions = append(e.Partitions, f.id)
	}
	return flushes[0].env.Events.Begin(e)
}

// used is how many bytes the memtables of flushes hold.
func used(flushes []flush) (total int64) {
	for _, f := range flushes {
		for _, m := range f.waiting {
			total += m.table.Used()
		}
	}
	return total
}

// commitFlush makes a flush durable and installs it.
func commitFlush(flushes []flush, endSeq uint64, out *output, kept Kept) error {
	env := flushes[0].env
	var e manifest.Edit
	installs := make([]install, len(flushes))
	for i, f := range flushes {
		e.Flushed = append(e.Flushed, manifest.Flush{Partition: f.id, Seq: endSeq - 1})
		installs[i] = install{f.Tree, len(f.waiting)}
		for _, meta := range out.metas {
			if f.overlaps(meta) {
				e.Added = append(e.Added, manifest.Addition{Partition: f.id, File: meta})
			}
		}
	}
	out.addValues(&e, flushes[0].table)
	if err := commit(&e, kept, out, installs...); err != nil {
		return err
	}
	env.Work.Flushed.Add(out.written())
	return nil
}

// writeFlush writes the table files of a flush.
func writeFlush(flushes []flush, endSeq uint64) (*output, Kept, error) {
	first, last := flushes[0], flushes[len(flushes)-1]
	env := first.env
	if err := env.Retention.Advance(first.table, 0); err != nil {
		return nil, Kept{}, err
	}
	policy := env.Retention.Policy(first.table)
	kept := first.keep(&policy, endSeq)
	var grandparents []*manifest.FileMeta // a file of several trees is not cut for one of them
	if len(flushes) == 1 {
		grandparents = compaction.Base(first.state.version.levels(), env.Compaction)
	}
	out, _, err := first.runParts(parts{
		start: first.start, end: last.end,
		ends: flushEnds(flushes), help: executor.Flush, cancelled: func() (err error) {
			for _, f := range flushes {
				err = cmp.Or(err, f.cancelled())
			}
			return err
		},
		direct: false, // what was just written is likely to be read
		job: func() compaction.Job {
			var inputs []mvcc.Iterator
			for _, f := range flushes {
				for _, m := range slices.Backward(f.waiting) {
					inputs = append(inputs, m.table.NewIterator())
				}
			}
			return compaction.Job{
				Inputs: inputs, Policy: policy, Below: belowMemory(flushes),
				Pieces: env.Compaction.TableFileSize, Grandparents: grandparents,
			}
		},
	})
	return out, kept, err
}

// belowMemory says what the table files may hold of a row: nothing, if no file's range covers
// it. So rows that come in key order lose their delete-row tombstones when they are flushed, and
// their files can be dropped unread once they are expired. The caller asks in ascending key
// order.
func belowMemory(flushes []flush) func(key []byte) mvcc.Below {
	var below func(key []byte) mvcc.Below // of the first flush
	return func(key []byte) mvcc.Below {
		for end := flushes[0].end; end != nil && bytes.Compare(key, end) >= 0; end = flushes[0].end {
			flushes, below = flushes[1:], nil
		}
		if below == nil {
			levels := flushes[0].state.version.levels()
			runs := append(compaction.Runs(levels[0]), levels[1:]...)
			below = compaction.Below(runs, func(*manifest.FileMeta) mvcc.Below { return mvcc.BelowAnything })
		}
		return below(key)
	}
}

// keep completes a policy with the number of versions to keep, given that mutations from
// newerSeq on may lie in newer runs.
func (t *Tree) keep(policy *compaction.Policy, newerSeq uint64) Kept {
	policy.MaxVersions = t.env.Retention.MaxVersions(t.table, newerSeq)
	return Kept{Versions: policy.MaxVersions, NewerSeq: newerSeq}
}

// install is what a commit does to one tree: it takes away the first memtables that waited, so many
// as were flushed.
type install struct {
	*Tree
	flushed int
}

// commit makes the outcome of a flush or compaction durable and installs it: versions with the
// files that the edit leaves, without the flushed memtables. The states get
// copies of the other memtables' lists, since a subslice would keep all of them alive. The trees
// are in ascending order.
func commit(e *manifest.Edit, kept Kept, out *output, installs ...install) error {
	for _, i := range installs {
		i.commits.Lock()
		defer i.commits.Unlock()
	}
	env := out.env
	committed, err := env.Manifest.Commit(installs[0].table, kept, e)
	if err != nil {
		// A refused edit leaves the files unused. After a failed write the manifest may or may
		// not name them, so they stay.
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrStale) {
			out.discard()
		}
		return err
	}
	for _, i := range installs {
		_, meta := committed.Partition(i.id)
		v := newVersion(env.Files, meta)
		i.replace(func(old *state) *state {
			old.version.markObsolete(committed)
			return newState(slices.Clone(old.memories[i.flushed:]), v)
		})
	}
	return nil
}
