package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// Options of a pass.
type Options struct {
	Selection
	Settings
	// Out is the directory of results, Work the one for stores, which is
	// emptied of them at the end.
	Out, Work string
	// Fresh forgets the records in Out. Reload makes the data sets anew in each
	// round.
	Fresh, Reload bool
	// Profiles is a directory for CPU profiles of the children, "" for none.
	Profiles string
	Header   Header
	// Progress is told what is done; Terminal says that a line of it can be
	// overwritten.
	Progress io.Writer
	Terminal bool
}

// clearLine makes a terminal forget its last line.
const clearLine = "\r\x1b[K"

// runner is a pass under way.
type runner struct {
	Options
	jobs    []job
	rivals  map[string][]job // those of the first round, by workload
	journal *journal
	sets    map[string]string // loaded data sets: variant and set to directory
	failed  map[string]Record // those that could not be loaded
	work    string            // this pass's own directory in Work
	start   time.Time
	spent   time.Duration // on jobs done in this process
	ran     int
}

// Run runs a pass and returns when it is complete, or the context ended it.
func Run(ctx context.Context, engines []rowstore.Engine, o Options) error {
	o.Header.Settings = o.Settings
	jobs := plan(engines, o.Selection)
	if len(jobs) == 0 {
		return errors.New("runner: nothing is selected")
	}
	journal, err := openJournal(o.Out, o.Header, o.Fresh)
	if err != nil {
		return err
	}
	defer journal.file.Close()
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(o.Work, "flagstone-peers-")
	if err != nil {
		return err
	}
	r := &runner{
		Options: o, rivals: map[string][]job{}, journal: journal,
		sets: map[string]string{}, failed: map[string]Record{}, work: work, start: time.Now(),
	}
	defer os.RemoveAll(work)
	for _, j := range jobs {
		if j.round == 1 {
			r.rivals[j.spec.Name] = append(r.rivals[j.spec.Name], j)
		}
	}
	if r.jobs, err = r.screened(jobs); err != nil {
		return err
	}
	for i := range r.jobs {
		if err := r.step(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// Binary is a hash of the running programme.
func Binary() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// step does one job, unless it was done before the interruption.
func (r *runner) step(ctx context.Context, i int) error {
	j := &r.jobs[i]
	if r.skips(j) {
		return nil
	}
	begun := time.Now()
	record, err := r.do(ctx, j)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	record.Workload, record.Shape, record.Variant, record.Values = j.spec.Name, j.spec.Shape, j.variant.Name, r.Values
	if err := r.journal.add(record); err != nil {
		return err
	}
	r.spent += time.Since(begun)
	r.ran++
	r.tell(i, &record)
	return r.forget(i)
}

// skips says that the job was done already, or need not be done.
func (r *runner) skips(j *job) bool {
	return r.journal.done[j.key()] || j.round > 1 && r.far(j, r.journal.first)
}

// do runs the job's workload and returns the record of it.
func (r *runner) do(ctx context.Context, j *job) (Record, error) {
	dir := filepath.Join(r.work, "run")
	if err := os.RemoveAll(dir); err != nil {
		return Record{}, err
	}
	if j.spec.Set != "" {
		set, failed := r.load(ctx, j)
		switch {
		case failed != nil:
			return *failed, nil
		case j.spec.Writes:
			if err := os.CopyFS(dir, os.DirFS(set)); err != nil {
				return Record{}, err
			}
		default:
			dir = set
		}
	} else if err := os.Mkdir(dir, 0o755); err != nil {
		return Record{}, err
	}
	return r.child(ctx, j, j.spec.Name, dir)
}

// child runs a workload of the job's variant in dir.
func (r *runner) child(ctx context.Context, j *job, name, dir string) (Record, error) {
	// What others left to be written is written now, not during the run.
	unix.Sync()
	fetchMemory(r.Cache + 6*r.Memtable)
	p := workload.Params{
		Workload: name, Engine: j.engine.Name, Encoding: j.variant.Encoding, Tuning: j.variant.Tuning, Round: j.round, Dir: dir,
		Rows: r.Rows, Keys: r.Keys, Beyond: r.Beyond, Values: r.Values, Unmerged: r.Unmerged, Memtable: r.Memtable, Cache: r.Cache,
		MemoryLimit: r.MemoryLimit, ReadSeconds: r.ReadSeconds, LimitSeconds: r.LimitSeconds,
	}
	loading := name != j.spec.Name
	if j.spec.Bounded() && !loading {
		if group, err := newCgroup(r.MemoryLimit); err == nil {
			p.Cgroup = group.dir
			defer group.remove()
		}
	}
	if r.Profiles != "" && !loading {
		p.CPUProfile = filepath.Join(r.Profiles, fmt.Sprintf("%s.%s.%d.pprof", name, j.variant.Name, j.round))
	}
	limit := time.Duration(10*r.LimitSeconds+60) * time.Second
	if loading || j.spec.Shape == workload.Growth {
		limit += 15 * time.Minute
	}
	return runChild(ctx, p, limit, func(line string) {
		if r.Terminal && strings.HasPrefix(line, name) {
			fmt.Fprintf(r.Progress, clearLine+"  %s %s", j.variant.Name, line)
		}
	}), nil
}

// setKey names a loaded data set. A set that is loaded in each round is another
// one in each.
func (r *runner) setKey(j *job) string {
	k := j.variant.Name + "-" + j.spec.Set
	if r.Reload {
		k = fmt.Sprintf("%s-%d", k, j.round)
	}
	return k
}

// load returns the directory of the job's data set, which it makes if need be;
// or the record of how that failed.
func (r *runner) load(ctx context.Context, j *job) (string, *Record) {
	k := r.setKey(j)
	if dir := r.sets[k]; dir != "" {
		return dir, nil
	}
	if record, ok := r.failed[k]; ok {
		record.Round = j.round
		return "", &record
	}
	dir := filepath.Join(r.work, "set-"+k)
	err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755))
	record := Record{Round: j.round, Engine: j.engine.Name, Encoding: j.variant.Encoding, Tuning: j.variant.Tuning}
	if err == nil {
		record, err = r.child(ctx, j, workload.LoadName(j.spec.Set), dir)
	}
	if err == nil && record.Error != "" {
		err = errors.New(record.Error)
	}
	if err != nil {
		record.Error, record.Figures = "loading: "+err.Error(), nil
		r.failed[k] = record
		return "", &record
	}
	r.sets[k] = dir
	return dir, nil
}

// forget deletes the data sets that no later job needs, and the store of the
// job that was done.
func (r *runner) forget(i int) error {
	for k, dir := range r.sets {
		needed := slices.ContainsFunc(r.jobs[i+1:], func(j job) bool {
			return j.spec.Set != "" && r.setKey(&j) == k && !r.skips(&j)
		})
		if needed {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		delete(r.sets, k)
	}
	return os.RemoveAll(filepath.Join(r.work, "run"))
}

// tell prints what a job came to, and how long the rest may take.
func (r *runner) tell(i int, record *Record) {
	left := 0
	for _, j := range r.jobs[i+1:] {
		if !r.skips(&j) {
			left++
		}
	}
	eta := time.Duration(left) * (r.spent / time.Duration(r.ran))
	if r.Terminal {
		fmt.Fprint(r.Progress, clearLine)
	}
	fmt.Fprintf(r.Progress, "[%d/%d %s, left about %s] round %d ", i+1, len(r.jobs),
		time.Since(r.start).Round(time.Second), eta.Round(time.Second), record.Round)
	fmt.Fprintf(r.Progress, "%s %s", record.Workload, record.Variant)
	for _, f := range record.Figures {
		name := strings.TrimPrefix(strings.TrimPrefix(f.Name, record.Workload), "/")
		mark := ""
		if f.Stopped {
			mark = "~"
		}
		fmt.Fprintf(r.Progress, "  %s %.4g%s/s", name, f.Headline(), mark)
		if len(record.Figures) == 1 {
			fmt.Fprintf(r.Progress, " %s p50 %.3g p99 %.3g us, %.1f allocs", f.Unit, f.P50, f.P99, f.Allocs)
		}
	}
	fmt.Fprintln(r.Progress)
	if record.Error != "" {
		fmt.Fprintf(r.Progress, "    FAILED: %s\n", record.Error)
		for _, line := range record.Output {
			fmt.Fprintf(r.Progress, "    | %s\n", line)
		}
	}
}
