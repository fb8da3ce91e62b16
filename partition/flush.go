package partition

import (
	"errors"
	"slices"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
)

// Flush writes the waiting memtables whose end is at most upTo to table files of level 0, and
// returns the bytes that were reserved in them, but for those that another tree has yet to flush
// after a split; did says that there were some. A memtable's end is the
// sequence number at which it was rotated out. Flush calls settle with the largest end before it
// writes: settle returns when every write below that end is visible. durable then waits until
// these writes are durable in the log too; it may run while files are written, since they count
// only once the manifest names them. After an error the memtables still wait.
func (t *Tree) Flush(upTo uint64, settle func(endSeq uint64) (durable func() error, err error)) (freed int64, did bool, err error) {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	if err := t.gone(); err != nil || t.dropped {
		return 0, false, err
	}
	s := t.pin()
	defer s.unref()
	waiting := s.waiting()
	for len(waiting) > 0 && s.memories[len(waiting)].startSeq > upTo {
		waiting = waiting[:len(waiting)-1]
	}
	if len(waiting) == 0 {
		return 0, false, nil
	}
	for _, m := range waiting {
		m.writers.Wait()
	}
	endSeq := s.memories[len(waiting)].startSeq // where the last one was rotated out
	durable, err := settle(endSeq)
	if err != nil {
		return 0, false, err
	}
	out, kept, err := t.writeFlush(s, waiting, endSeq)
	if lost := durable(); lost != nil && err == nil {
		out.discard()
		err = lost
	}
	if err != nil {
		return 0, false, err
	}
	e := manifest.Edit{Flushed: []manifest.Flush{{Partition: t.id, Seq: endSeq - 1}}}
	out.addTo(&e, t.table, t.id, 0)
	if err := t.commit(&e, kept, out, len(waiting)); err != nil {
		return 0, false, err
	}
	t.env.Work.Flushed.Add(out.written())
	for _, m := range waiting {
		freed += m.letGo()
	}
	return freed, true, nil
}

// writeFlush writes the table files of a flush.
func (t *Tree) writeFlush(s *state, waiting []*memory, endSeq uint64) (*output, Kept, error) {
	if err := t.env.Retention.Advance(t.table, 0); err != nil {
		return nil, Kept{}, err
	}
	policy := t.env.Retention.Policy(t.table)
	kept := t.keep(&policy, endSeq)
	out, _, err := t.runParts(parts{
		ends: t.flushEnds(waiting), help: executor.Flush,
		direct: false, // what was just written is likely to be read
		job: func() compaction.Job {
			inputs := make([]mvcc.Iterator, 0, len(waiting))
			for _, m := range slices.Backward(waiting) {
				inputs = append(inputs, m.table.NewIterator())
			}
			return compaction.Job{
				Inputs: inputs, Policy: policy, Below: s.belowMemory(),
				Pieces:       t.env.Compaction.TableFileSize,
				Grandparents: compaction.Base(s.version.levels(), t.env.Compaction),
			}
		},
	})
	return out, kept, err
}

// belowMemory says what the table files may hold of a row: nothing, if no file's range covers
// it. So rows that come in key order lose their delete-row tombstones when they are flushed, and
// their files can be dropped unread once they are expired. The caller asks in ascending key
// order.
func (s *state) belowMemory() func(key []byte) mvcc.Below {
	levels := s.version.levels()
	runs := append(compaction.Runs(levels[0]), levels[1:]...)
	return compaction.Below(runs, func(*manifest.FileMeta) mvcc.Below { return mvcc.BelowAnything })
}

// keep completes a policy with the number of versions to keep, given that mutations from
// newerSeq on may lie in newer runs.
func (t *Tree) keep(policy *compaction.Policy, newerSeq uint64) Kept {
	policy.MaxVersions = t.env.Retention.MaxVersions(t.table, newerSeq)
	return Kept{Versions: policy.MaxVersions, NewerSeq: newerSeq}
}

// commit makes the outcome of a flush or compaction durable and installs it: a version with the
// files that the edit leaves, without the first flushed memtables that waited. The state gets a
// copy of the other memtables' list, since a subslice would keep all of them alive.
func (t *Tree) commit(e *manifest.Edit, kept Kept, out *output, flushed int) error {
	t.commits.Lock()
	defer t.commits.Unlock()
	committed, err := t.env.Manifest.Commit(t.table, kept, e)
	if err != nil {
		// A refused edit leaves the files unused. After a failed write the manifest may or may
		// not name them, so they stay.
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrStale) {
			out.discard()
		}
		return err
	}
	_, meta := committed.Partition(t.id)
	v := newVersion(t.env.Files, meta)
	t.replace(func(old *state) *state {
		old.version.markObsolete(committed)
		return newState(slices.Clone(old.memories[flushed:]), v)
	})
	return nil
}
