package partition

import (
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/sstable"
)

// hotLevels are the levels whose files are likely to be read soon after they were written. Deeper
// levels are written past the page cache if it cannot hold them, to leave it to readers.
const hotLevels = 2

// bypassesPageCache reports whether the output of a compaction is unlikely to be read soon. A
// compaction that reads caused does not count at any level: the reads go on, and would have to
// fetch from the device what was in memory before.
func bypassesPageCache(c *compaction.Candidate) bool {
	return c.OutputLevel >= hotLevels && c.Reason != compaction.ReasonReads
}

// Activity says how busy a tree's writers are, and so what it may be compacted for beyond what
// its shape asks for.
type Activity int

// The activities.
const (
	Busy    Activity = iota // nothing
	Quiet                   // reads, if they have lost enough time
	Idle                    // future reads: the tree has not been written for long
	Trimmed                 // and to have no files that reach beyond its range
)

// Compact does the most urgent compaction of the tree that can run beside those that run, and
// reports whether it did one. claimed, if not nil, is called when the compaction is chosen and
// before it is done: another one may run beside it. Compact does nothing while a CompactRange or
// a Drop runs or waits, which may take long: other trees need the goroutine. The caller of
// Compact tries again later.
func (t *Tree) Compact(activity Activity, claimed func()) (did bool, err error) {
	if !t.compacting.TryRLock() {
		return false, nil
	}
	defer t.compacting.RUnlock()
	if err := t.gone(); err != nil || t.dropped {
		return false, err
	}
	// Levels may open files, which must not happen under the lock.
	if err := t.env.Retention.Advance(t.table, oldestVersion(t.Levels())); err != nil {
		return false, err
	}
	t.running.Lock()
	v, memorySeq := t.pinVersion()
	defer v.unref()
	policy := t.env.Retention.Policy(t.table)
	levels := v.levels()
	in := compaction.Input{
		Levels: levels, Clipped: v.straddlers, Config: t.env.Compaction, Policy: policy, Running: t.running.candidates,
		Idle: activity >= Idle, Trim: activity == Trimmed, Values: t.env.Manifest.ValueFile,
	}
	merges := func(c *compaction.Candidate) bool { return c.Reason == compaction.ReasonReads }
	if (activity == Quiet || activity == Idle) && !slices.ContainsFunc(t.running.candidates, merges) {
		in.Lost, in.LostTo = t.lost.total(), v.lostTo()
	}
	c := compaction.Pick(in)
	if c == nil {
		t.running.Unlock()
		return false, nil
	}
	kept := t.keep(&policy, min(c.NewerSeq(levels), memorySeq))
	t.running.candidates = append(t.running.candidates, c)
	t.spend(v, c)
	t.running.Unlock()
	defer t.forget(c)
	if claimed != nil {
		claimed()
	}
	return true, t.run(v, c, policy, kept)
}

// forget takes a candidate off the list of those that run.
func (t *Tree) forget(c *compaction.Candidate) {
	t.running.Lock()
	defer t.running.Unlock()
	t.running.candidates = slices.DeleteFunc(t.running.candidates, func(r *compaction.Candidate) bool { return r == c })
}

// CompactRange compacts the table files that hold keys from start to end (nil for unbounded)
// into the deepest level, including whatever else lies in these files. did says that it did
// something, and more that data which was there at the call may still be left to compact. It
// waits for the compactions that run.
func (t *Tree) CompactRange(start, end []byte) (did, more bool, err error) {
	t.compacting.Lock()
	defer t.compacting.Unlock()
	if err := t.gone(); err != nil || t.dropped {
		return false, false, err
	}
	v, memorySeq := t.pinVersion()
	defer v.unref()
	levels := v.levels()
	if err := t.env.Retention.Advance(t.table, oldestVersion(levels)); err != nil {
		return false, false, err
	}
	policy := t.env.Retention.Policy(t.table)
	in := compaction.Input{Levels: levels, Clipped: v.straddlers, Config: t.env.Compaction, Policy: policy}
	latest := policy.Views[len(policy.Views)-1].MaxVersions
	// The file was written when the table kept more versions.
	surplus := func(f *manifest.FileMeta) bool { return t.env.Retention.MaxVersions(t.table, f.SmallestSeq) > latest }
	if c := compaction.Shortcut(in, start, end, surplus); c != nil {
		return true, true, t.run(v, c, policy, Kept{})
	}
	c := compaction.Downwards(levels, start, end)
	if c == nil {
		return false, false, nil
	}
	kept := t.keep(&policy, min(c.NewerSeq(levels), memorySeq))
	// This takes all there is, and does not wait for what is flushed meanwhile.
	return true, false, t.run(v, c, policy, kept)
}

// oldestVersion is the smallest version in the table files.
func oldestVersion(levels *compaction.Levels) int64 {
	oldest := int64(math.MaxInt64)
	for _, f := range allFiles(levels) {
		oldest = min(oldest, f.MinVersion)
	}
	return oldest
}

// pinVersion returns the present table files, pinned, and a sequence number at or below all
// those in the memtables. A compaction may take long, so it pins no memtables: flushed ones
// would stay in memory beside their successors. The caller ends the pin with unref.
func (t *Tree) pinVersion() (v *version, memorySeq uint64) {
	s := t.pin()
	defer s.unref()
	s.version.refs.Add(1)
	return s.version, s.memories[0].startSeq
}

// run does what a candidate asks for.
func (t *Tree) run(v *version, c *compaction.Candidate, policy compaction.Policy, kept Kept) error {
	job := t.env.Events.Begin(event.Event{
		Kind: event.Compaction, Table: t.table, Partitions: []uint64{t.id}, Reason: string(c.Reason),
		Level: c.Level, Output: c.OutputLevel, Files: len(c.Files()), Moved: c.Move, Input: totalSize(c.Files()),
	})
	var err error
	if c.Drop || c.Move {
		err = t.edit(c)
	} else {
		err = t.merge(v, c, policy, kept, &job.Event)
	}
	job.End(err)
	return err
}

// edit drops or moves the candidate's files.
func (t *Tree) edit(c *compaction.Candidate) error {
	var e manifest.Edit
	t.deleteFiles(&e, &c.Inputs)
	work := &t.env.Work.Dropped
	if c.Move {
		e.Added = []manifest.Addition{{Partition: t.id, Level: c.OutputLevel, File: c.Upper[0]}}
		work = &t.env.Work.Moved
	}
	if err := commit(&e, Kept{}, newOutput(t.env, false), install{Tree: t}); err != nil {
		return err
	}
	work.Add(totalSize(c.Upper))
	return nil
}

// merge merges the candidate's files into its output level, and completes the event of its end.
func (t *Tree) merge(v *version, c *compaction.Candidate, policy compaction.Policy, kept Kept, end *event.Event) error {
	ends, err := t.partEnds(v, c)
	if err != nil {
		return err
	}
	out, dropped, err := t.runParts(parts{
		start: t.start, end: t.end, cancelled: t.cancelled,
		ends: ends, help: executor.Compaction, direct: bypassesPageCache(c) && t.env.Files.Outgrown(),
		job: func() compaction.Job {
			return compaction.Job{
				Inputs: v.runsOf(&c.Inputs, t.env.Memory), Policy: policy, Below: c.Below(v.levels()),
				TargetSize: t.env.Compaction.TableFileSize, Grandparents: c.Grandparents,
			}
		},
	})
	if err != nil {
		return err
	}
	var e manifest.Edit
	t.deleteFiles(&e, &c.Inputs)
	out.addTo(&e, t.table, t.id, c.OutputLevel)
	if err := commit(&e, kept, out, install{Tree: t}); err != nil {
		return err
	}
	end.Written, end.Dropped = out.written(), dropped
	t.env.Work.CompactedIn.Add(end.Input)
	t.env.Work.CompactedOut.Add(end.Written)
	return nil
}

func (t *Tree) deleteFiles(e *manifest.Edit, levels *compaction.Levels) {
	for level, files := range levels {
		for _, f := range files {
			e.Deleted = append(e.Deleted, manifest.Deletion{Partition: t.id, Level: level, Number: f.Number})
		}
	}
}

// runsOf returns the runs of a compaction's inputs, newest first. Each file of level 0 is a run;
// the files of a deeper level are one run together.
func (v *version) runsOf(inputs *compaction.Levels, memory *offheap.Pool) (runs []mvcc.Iterator) {
	opts := sstable.IterOptions{NoCacheFill: true, Memory: memory}
	for level, metas := range inputs {
		files := v.open(level, metas)
		if level == 0 {
			for i := range slices.Backward(files) {
				runs = append(runs, newLevelIterator(files[i:i+1], opts))
			}
		} else if len(files) > 0 {
			runs = append(runs, newLevelIterator(files, opts))
		}
	}
	return runs
}
