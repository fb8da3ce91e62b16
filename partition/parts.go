package partition

// Parts of a large compaction or flush: disjoint key ranges, merged in parallel where goroutines
// are free, and installed by one edit.

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
)

// errPartFailed ends the other parts of a compaction or flush when one part failed.
var errPartFailed = errors.New("partition: another part of the merge failed")

const (
	// partShare: a part has at least the size of a table file divided by this. Smaller parts
	// make smaller tables, because each part ends its own; larger parts leave processors idle
	// that a compaction of a few flushes could use.
	partShare = 4
	// maxParts bounds the parts of one compaction. There are more parts than goroutines, so that
	// a goroutine that is done early takes another part.
	maxParts = 16
	// flushShare: a part of a flush has at least the size of a memtable divided by this.
	// maxFlushParts bounds the parts, and with them the number of files. One goroutine flushes
	// rows more slowly than a writer puts them, and the last memtables are flushed when no
	// writes come: with parts, 100,000 rows of a kilobyte in batches were put and flushed in
	// 0.45 to 0.5 s instead of 0.5 to 0.63 on two processors. Four parts were no faster than
	// two.
	flushShare    = 4
	maxFlushParts = 2
	// partAnchors is how many keys each input file of a compaction proposes as ends of parts, and
	// how many the memtables propose for each part of a flush.
	partAnchors = 32
)

// parts is a compaction or flush that is divided.
type parts struct {
	start  []byte                // of the first part
	end    []byte                // behind the last part; nil: unbounded
	ends   [][]byte              // the keys between the parts
	job    func() compaction.Job // makes the job of a part, without its range and output
	help   executor.Class        // the class of goroutines that may help
	direct bool                  // see output

	cancelled func() error // returns why the work must end, nil if it may go on
}

// runParts merges part by part and returns the files of all parts, in key order and with durable
// names, and the number of cells that they dropped. After an error it leaves no files.
func (t *Tree) runParts(p parts) (joined *output, cells uint64, err error) {
	outputs := make([]*output, len(p.ends)+1)
	dropped := make([]uint64, len(outputs))
	errs := make([]error, len(outputs))
	var failed atomic.Bool
	cancelled := func() error {
		if failed.Load() {
			return errPartFailed
		}
		return p.cancelled()
	}
	t.share(len(outputs), p.help, func(i int) {
		job := p.job()
		job.Start, job.End = p.start, p.end
		job.Cancelled, job.Yield = cancelled, t.env.Scheduler.Yield
		if i > 0 {
			job.Start = p.ends[i-1]
		}
		if i < len(p.ends) {
			job.End = p.ends[i]
		}
		outputs[i] = newOutput(t.env, p.direct)
		job.NewTable = outputs[i].NewTable
		stats, err := compaction.Run(job)
		dropped[i] = stats.CellsIn - stats.CellsOut
		if errs[i] = outputs[i].end(err); errs[i] != nil {
			failed.Store(true)
		}
	})
	joined = newOutput(t.env, p.direct)
	for i, o := range outputs {
		// Not before: the part's last file was read back while the parts after it ran.
		if failed := o.verified(); errs[i] == nil {
			errs[i] = failed
		}
		cells += dropped[i]
		if errs[i] != nil && (err == nil || err == errPartFailed) {
			err = errs[i]
		}
		joined.join(o)
	}
	if err == nil {
		err = joined.sync()
	}
	if err != nil {
		joined.discard()
		return nil, cells, err
	}
	return joined, cells, nil
}

// share calls part for 0 to n-1, on this goroutine and on helpers of the class that become free
// in time. A helper that comes too late finds no part left.
func (t *Tree) share(n int, class executor.Class, part func(i int)) {
	var next atomic.Int64
	var done sync.WaitGroup
	done.Add(n)
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			part(int(i))
			done.Done()
		}
	}
	for range n - 1 {
		if !t.env.Executor.Spare(class, "part of a "+class.String(), work) {
			break
		}
	}
	work()
	done.Wait()
}

// partEnds returns the keys at which a compaction is divided; none for a small one, and none for one that
// is made for reads: nothing waits for it, and the other processors are left to those.
func (t *Tree) partEnds(v *version, c *compaction.Candidate) ([][]byte, error) {
	n := min(partShare*totalSize(c.Files())/t.env.Compaction.TableFileSize, maxParts)
	if n < 2 || c.Reason == compaction.ReasonReads {
		return nil, nil
	}
	var anchors Anchors
	for level, metas := range c.Inputs {
		for i, f := range v.open(level, metas) {
			if err := t.span().addFile(&anchors, f, metas[i].Size/partAnchors); err != nil {
				return nil, err
			}
		}
	}
	return divide(&anchors, n), nil
}

// flushEnds returns the keys at which the flush of these memtables is divided; none if they are
// small.
func flushEnds(flushes []flush) [][]byte {
	total := used(flushes)
	n := min(flushShare*total/flushes[0].env.MemtableSize, maxFlushParts)
	if n < 2 {
		return nil
	}
	var anchors Anchors
	for _, f := range flushes {
		for _, m := range f.waiting {
			apart := total / (n * partAnchors)
			f.span().addMemory(&anchors, m, apart, apart/4, 0)
		}
	}
	return divide(&anchors, n)
}

// divide returns at most n-1 keys that divide anchors into pieces of about equal size.
func divide(anchors *Anchors, n int64) (ends [][]byte) {
	var total, passed int64
	for _, size := range anchors.All() {
		total += size
	}
	for key, size := range anchors.All() {
		passed += size
		if int64(len(ends)+1) < n && passed >= total*int64(len(ends)+1)/n {
			if len(ends) == 0 || bytes.Compare(key, ends[len(ends)-1]) > 0 {
				ends = append(ends, key)
			}
		}
	}
	return ends
}
