package compaction_test

// A model of a partition in memory: random writes, flushes and compactions, chosen by Pick and
// done by Run, several at once, against a copy that never prunes. Tables are mvcctest runs; the
// manifest is an array of levels.

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// job is a compaction that is done but not installed.
type job struct {
	candidate *compaction.Candidate
	output    []mvcctest.Run
}

type snapshot struct {
	view    mvcc.View
	answers map[string]string
}

type model struct {
	t         testing.TB
	rng       *rand.Rand
	log       []string
	cfg       compaction.Config
	levels    compaction.Levels
	clipped   []*manifest.FileMeta    // see compaction.Input
	runs      map[uint64]mvcctest.Run // by file number
	nextFile  uint64
	memtable  map[string][]row.Cell
	all       map[string][]row.Cell
	running   []*job
	snapshots []snapshot
	written   []int64 // clock of each sequence number
	limits    []int   // limit at each sequence number
	flushed   uint64  // larger sequence numbers are in the memtable
	now       int64
	keys      int
	deep      bool // level 0 stays, so that single files of it are rewritten in place
	deletes   bool // all writes until the next flush are deletes, as of a job that clears up
	from, to  int  // the range of keys that the partition has, to excluded
	limit     int
	ttl       int64
	watermark int64
}

const offsetSeconds = 5

func newModel(t testing.TB, seed uint64) *model {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)),
		cfg:  compaction.Config{L0Trigger: 3, LevelBase: 600, Multiplier: 3, TableFileSize: 200},
		runs: map[uint64]mvcctest.Run{}, nextFile: 1,
		memtable: map[string][]row.Cell{}, all: map[string][]row.Cell{},
		now: 20_000, ttl: -1, watermark: mvcc.NoExpiry,
	}
	m.limit = 1 + m.rng.IntN(5)
	m.keys = []int{5, 40}[m.rng.IntN(2)]
	m.to = m.keys
	if m.deep = m.rng.IntN(2) == 0; m.deep {
		m.cfg.L0Trigger, m.cfg.IdleDepth, m.cfg.L0Size, m.cfg.LevelBase = 9, 9, 1<<20, 1000
	}
	if m.rng.IntN(2) == 0 {
		m.ttl = int64(5 + m.rng.IntN(40))
	}
	m.logf("FLAGSTONE_SEED=%d FLAGSTONE_HISTORIES=1, limit %d, ttl %d", seed, m.limit, m.ttl)
	return m
}

func (m *model) logf(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) failf(format string, args ...any) {
	for _, l := range m.log[max(0, len(m.log)-60):] {
		m.t.Log(l)
	}
	m.t.Log(m.log[0])
	m.t.Fatalf(format, args...)
}

func (m *model) view() mvcc.View {
	return mvcc.View{
		Seq: row.MaxSequence, MaxVersions: m.limit,
		Cutoff: max(m.watermark, mvcc.CutoffAt(m.now, m.ttl)),
	}
}

func (m *model) nextSeq() uint64 {
	m.written = append(m.written, m.now)
	m.limits = append(m.limits, m.limit)
	return uint64(len(m.written))
}

// deleteVersion deletes the newest or second newest visible version of column a, with its trim.
func (m *model) deleteVersion(key string) (cells []row.Cell) {
	var visible []int64
	v := m.view()
	v.Cutoff = m.watermark
	var its []mvcc.Iterator
	for _, run := range m.sources() {
		it := run.NewIterator()
		if it.SeekRow([]byte(key)) && string(it.RowKey()) == key {
			its = append(its, it)
		}
	}
	r := mvcctest.NewReader(mvcctest.NewRowMerge(its), v, mvcc.Selection{Columns: [][]byte{[]byte("a")}})
	for r.StartRow(); r.NextCell(); {
		visible = append(visible, r.Cell().Version)
	}
	if len(visible) == 0 {
		return nil
	}
	del := visible[m.rng.IntN(min(2, len(visible)))]
	cells = append(cells, row.Cell{Column: []byte("a"), Version: del, Kind: row.KindDeleteVersion})
	if threshold, ok := mvcc.TrimForDelete(visible, del, m.limit); ok {
		cells = append(cells, row.Cell{Column: []byte("a"), Version: threshold, Kind: row.KindTrim})
	}
	return cells
}

func (m *model) write() {
	key := fmt.Sprintf("k%02d", m.from+m.rng.IntN(m.to-m.from))
	seq := m.nextSeq()
	mut := row.Mutation{Key: []byte(key)}
	kind := m.rng.IntN(12)
	if m.deletes {
		kind = 0
	}
	switch kind {
	case 0, 1:
		mut.DeleteRow = true
	case 4, 5:
		mut.Cells = m.deleteVersion(key)
	case 2:
		mut.DeleteRow, mut.PutRow = true, true
	case 3:
		mut.Cells = append(mut.Cells, row.Cell{Column: []byte("a"), Version: row.MaxVersion, Kind: row.KindTrim})
	default:
		mut.DeleteRow = m.rng.IntN(4) == 0
		for _, name := range []string{"a", "b"}[:1+m.rng.IntN(2)] {
			mut.Cells = append(mut.Cells, row.Cell{
				Column: []byte(name), Version: m.now + m.rng.Int64N(offsetSeconds*1000), Kind: row.KindPut,
				Type: row.TypeInteger, Value: row.Integer(int64(seq)).AppendPayload(nil),
			})
		}
	}
	var cells []row.Cell
	if mut.DeleteRow {
		cells = append(cells, row.Cell{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow})
	}
	if v, ok := mvcctest.Marker(&mut); ok {
		cells = append(cells, row.Cell{Version: v, Seq: seq, Kind: row.KindRowMarker})
	}
	for _, c := range mut.Cells {
		c.Seq = seq
		cells = append(cells, c)
	}
	for _, at := range []map[string][]row.Cell{m.all, m.memtable} {
		at[key] = append(at[key], cells...)
		mvcctest.Sort(at[key])
	}
}

func toRun(rows map[string][]row.Cell) (run mvcctest.Run) {
	for key, cells := range rows {
		if len(cells) > 0 {
			run = append(run, mvcctest.Row{Key: []byte(key), Cells: slices.Clone(cells)})
		}
	}
	sort.Slice(run, func(i, j int) bool { return bytes.Compare(run[i].Key, run[j].Key) < 0 })
	return run
}

// keep is Policy.MaxVersions if mutations from seq on may lie in newer runs.
func (m *model) keep(seq uint64) int {
	limit := m.limit
	for s := max(seq, 1); s <= uint64(len(m.limits)); s++ {
		limit = max(limit, m.limits[s-1])
	}
	return limit
}

func (m *model) policy() mvcc.Policy {
	p := mvcc.Policy{ExpiryCutoff: m.view().Cutoff} // it asks no snapshot, so theirs can be below it
	for _, s := range m.snapshots {
		p.Views = append(p.Views, s.view)
	}
	p.Views = append(p.Views, m.view())
	for s, w := range m.written {
		if p.ExpiryCutoff != mvcc.NoExpiry && w/1000+offsetSeconds+1 <= p.ExpiryCutoff {
			p.TombstoneHorizon = uint64(s + 1)
		}
	}
	return p
}

func (m *model) install(level int, outputs []mvcctest.Run) (numbers []uint64) {
	for _, run := range outputs {
		m.runs[m.nextFile] = run
		m.levels[level] = append(slices.Clone(m.levels[level]), describe(m.nextFile, run))
		numbers = append(numbers, m.nextFile)
		m.nextFile++
	}
	files := m.levels[level]
	if level == 0 {
		sort.Slice(files, func(i, j int) bool {
			a, b := files[i], files[j]
			return a.LargestSeq < b.LargestSeq || a.LargestSeq == b.LargestSeq && a.Number < b.Number
		})
	} else {
		sort.Slice(files, func(i, j int) bool { return bytes.Compare(files[i].Smallest, files[j].Smallest) < 0 })
	}
	return numbers
}

func (m *model) remove(level int, file *manifest.FileMeta) {
	i := slices.Index(m.levels[level], file)
	if i < 0 {
		m.failf("file %d is not at level %d", file.Number, level)
	}
	m.levels[level] = slices.Delete(slices.Clone(m.levels[level]), i, i+1)
}

func (m *model) flush() {
	run := toRun(m.memtable)
	if len(run) == 0 {
		return
	}
	m.memtable = map[string][]row.Cell{}
	m.deletes = m.rng.IntN(4) == 0
	p := m.policy()
	p.MaxVersions = m.limit
	m.flushed = uint64(len(m.written))
	m.watermark = max(m.watermark, p.ExpiryCutoff)
	out := &tables{}
	if _, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{reluctant(run)}, Start: m.start(), End: m.end(), Policy: p,
		NewTable: out.NewTable, Below: m.belowMemory(), Pieces: m.cfg.TableFileSize, Grandparents: compaction.Base(&m.levels, m.cfg),
	}); err != nil {
		m.failf("flush: %v", err)
	}
	m.logf("flush to %v", m.install(0, out.done))
}

// belowMemory says whether any table file may hold a row.
func (m *model) belowMemory() func(key []byte) mvcc.Below {
	levels := m.levels
	return func(key []byte) mvcc.Below {
		for _, files := range levels {
			for _, f := range files {
				if bytes.Compare(f.Smallest, key) <= 0 && bytes.Compare(key, f.Largest) <= 0 {
					return mvcc.BelowAnything
				}
			}
		}
		return mvcc.BelowNothing
	}
}

// compactRange does a manual compaction of a key range to the last level, once no other runs.
func (m *model) compactRange() {
	for len(m.running) > 0 {
		m.finish(0)
	}
	var start, end []byte
	if m.rng.IntN(3) > 0 {
		start = fmt.Appendf(nil, "k%02d", m.rng.IntN(m.keys))
	}
	if m.rng.IntN(3) > 0 {
		end = fmt.Appendf(nil, "k%02d", m.rng.IntN(m.keys))
	}
	m.logf("compact %s to %s", start, end)
	surplus := func(f *manifest.FileMeta) bool { return m.keep(f.SmallestSeq) > m.limit }
	for range 1000 {
		p := m.policy()
		in := compaction.Input{Levels: &m.levels, Clipped: m.clipped, Config: m.cfg, Policy: p}
		if c := compaction.Shortcut(in, start, end, surplus); c != nil {
			m.watermark = max(m.watermark, p.ExpiryCutoff)
			j := &job{candidate: c}
			if c.Move {
				j.output = m.moved(c)
			}
			m.running = append(m.running, j)
			m.finish(0)
			continue
		}
		c := compaction.Downwards(&m.levels, start, end)
		if c == nil {
			return
		}
		p.MaxVersions = m.keep(min(c.NewerSeq(&m.levels), m.flushed+1))
		m.watermark = max(m.watermark, p.ExpiryCutoff)
		m.merge(c, &c.Inputs, p)
	}
	m.failf("a merge of a range does not end")
}

// merge does a compaction of several levels at once.
func (m *model) merge(c *compaction.Candidate, files *compaction.Levels, p mvcc.Policy) {
	m.logf("merge %s", describeCandidate(c))
	var inputs []mvcc.Iterator
	for level, files := range files {
		files = slices.Clone(files)
		if level == 0 {
			slices.Reverse(files)
		}
		for _, f := range files {
			inputs = append(inputs, reluctant(m.runs[f.Number]))
			m.remove(level, f)
		}
	}
	out := &tables{}
	if _, err := runJob(compaction.Job{
		Inputs: inputs, Start: m.start(), End: m.end(), Policy: p, Below: c.Below(&m.levels),
		TargetSize: m.cfg.TableFileSize, NewTable: out.NewTable,
	}); err != nil {
		m.failf("compaction: %v", err)
	}
	m.logf("merged to %v", m.install(c.OutputLevel, out.done))
}

// compact picks a candidate and does its work, but does not install it. It returns false if
// there is nothing to pick.
func (m *model) compact(idle bool) bool {
	p := m.policy()
	in := compaction.Input{
		Levels: &m.levels, Clipped: m.clipped, Config: m.cfg, Policy: p,
		Lost: m.rng.Int64N(2) * m.rng.Int64N(4000), LostTo: make(map[uint64]int64), Idle: idle, Trim: idle,
	}
	for _, files := range m.levels[1:] {
		for _, f := range files {
			in.LostTo[f.Number] = m.rng.Int64N(2) * m.rng.Int64N(8000)
		}
	}
	if m.deep {
		in.Lost, in.LostTo, in.Idle = 0, nil, idle || m.rng.IntN(4) > 0
	}
	for _, r := range m.running {
		in.Running = append(in.Running, r.candidate)
	}
	c := compaction.Pick(in)
	if c == nil {
		return false
	}
	p.MaxVersions = m.keep(min(c.NewerSeq(&m.levels), m.flushed+1))
	j := &job{candidate: c}
	m.logf("pick %s", describeCandidate(c))
	switch {
	case c.Drop:
		m.watermark = max(m.watermark, p.ExpiryCutoff)
	case c.Move:
		j.output = m.moved(c)
	default:
		m.watermark = max(m.watermark, p.ExpiryCutoff)
		out := &tables{}
		var inputs []mvcc.Iterator
		files := c.Files()
		if c.Level == 0 {
			slices.Reverse(files[:len(c.Upper)]) // the newest first
		}
		for _, f := range files {
			inputs = append(inputs, reluctant(m.runs[f.Number]))
		}
		if _, err := runJob(compaction.Job{
			Inputs: inputs, Start: m.start(), End: m.end(), Policy: p, Below: c.Below(&m.levels),
			TargetSize: m.cfg.TableFileSize, Grandparents: c.Grandparents, NewTable: out.NewTable,
		}); err != nil {
			m.failf("compaction: %v", err)
		}
		j.output = out.done
	}
	m.running = append(m.running, j)
	return true
}

// moved returns the file that goes to another level unchanged.
func (m *model) moved(c *compaction.Candidate) []mvcctest.Run {
	if slices.Contains(m.clipped, c.Upper[0]) {
		m.failf("file %d reaches beyond the partition and is moved", c.Upper[0].Number)
	}
	return []mvcctest.Run{m.runs[c.Upper[0].Number]}
}

func (m *model) finish(i int) {
	j := m.running[i]
	m.running = slices.Delete(m.running, i, i+1)
	for _, f := range j.candidate.Upper {
		m.remove(j.candidate.Level, f)
	}
	for _, f := range j.candidate.Lower {
		m.remove(j.candidate.OutputLevel, f)
	}
	m.logf("finish %s -> %v", describeCandidate(j.candidate), m.install(j.candidate.OutputLevel, j.output))
}

func describeCandidate(c *compaction.Candidate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d->%d", c.Reason, c.Level, c.OutputLevel)
	if c.Move {
		b.WriteString(" move")
	}
	if c.Drop {
		b.WriteString(" drop")
	}
	for i, files := range [][]*manifest.FileMeta{c.Upper, c.Lower} {
		fmt.Fprintf(&b, " %s(", [...]string{"upper", "lower"}[i])
		for k, f := range files {
			if k > 0 {
				b.WriteString(" ")
			}
			fmt.Fprintf(&b, "%d[%s-%s]", f.Number, f.Smallest, f.Largest)
		}
		b.WriteString(")")
	}
	return b.String()
}

// sources are all runs, newest first.
func (m *model) sources() (runs []mvcctest.Run) {
	runs = append(runs, toRun(m.memtable))
	for _, f := range slices.Backward(m.levels[0]) {
		runs = append(runs, m.runs[f.Number])
	}
	for _, files := range m.levels[1:] {
		var level mvcctest.Run
		for _, f := range files {
			level = append(level, m.runs[f.Number]...)
		}
		runs = append(runs, level)
	}
	return runs
}

func answers(t testing.TB, runs []mvcctest.Run, v mvcc.View) map[string]string {
	var its []mvcc.Iterator
	for _, run := range runs {
		its = append(its, run.NewIterator())
	}
	it := mvcc.NewMergeIterator(its)
	defer it.Close()
	r := mvcctest.NewReader(it, v, mvcc.Selection{})
	found := map[string]string{}
	for ok := it.First(); ok; ok = it.NextRow() {
		r.StartRow()
		var b strings.Builder
		for r.NextCell() {
			fmt.Fprintf(&b, " %s", r.Cell())
		}
		if r.Exists() {
			found[string(it.RowKey())] = b.String()
		}
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	return found
}

func (m *model) check() {
	m.checkInvariants()
	runs := m.sources()
	for i, s := range m.snapshots {
		m.compare(fmt.Sprintf("snapshot %d", i), m.clip(answers(m.t, runs, s.view)), s.answers)
	}
	v := m.view()
	m.compare("newest view", m.clip(answers(m.t, runs, v)), answers(m.t, []mvcctest.Run{toRun(m.all)}, v))
}

func (m *model) compare(what string, got, want map[string]string) {
	for key := range want {
		if g, ok := got[key]; !ok || g != want[key] {
			m.failf("%s: row %s:\n got  %q (%t)\n want %q", what, key, g, ok, want[key])
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			m.failf("%s: row %s should not exist, got %q", what, key, got[key])
		}
	}
}

func (m *model) checkInvariants() {
	for level := 1; level < len(m.levels); level++ {
		files := m.levels[level]
		for i := 1; i < len(files); i++ {
			if bytes.Compare(files[i-1].Largest, files[i].Smallest) >= 0 {
				m.failf("level %d: files %d and %d overlap", level, files[i-1].Number, files[i].Number)
			}
		}
	}
	newest := map[string]uint64{} // smallest sequence number in the newer runs
	for i, run := range m.sources() {
		for _, r := range run {
			if !m.contains(r.Key) {
				continue
			}
			smallest := uint64(math.MaxUint64)
			for _, c := range r.Cells {
				if s, ok := newest[string(r.Key)]; ok && c.Seq >= s {
					m.failf("run %d: row %s: %s is older than sequence %d in a newer run", i, r.Key, c.String(), s)
				}
				smallest = min(smallest, c.Seq)
			}
			newest[string(r.Key)] = smallest
		}
	}
}

func (m *model) step() {
	switch p := m.rng.IntN(42); {
	case p < 20:
		m.write()
	case p < 23:
		m.flush()
	case p < 29:
		if len(m.running) < 3 {
			m.compact(m.rng.IntN(4) == 0)
		}
	case p < 35:
		if n := len(m.running); n > 0 {
			m.finish(m.rng.IntN(n))
		}
	case p < 36:
		if len(m.snapshots) < 2 {
			v := m.view()
			v.Seq = uint64(len(m.written))
			m.snapshots = append(m.snapshots, snapshot{v, m.clip(answers(m.t, m.sources(), v))})
		}
	case p < 37:
		if n := len(m.snapshots); n > 0 {
			m.snapshots = m.snapshots[1:]
		}
	case p < 38:
		if m.rng.IntN(4) == 0 && m.limit > 1 { // raising would leave the answer open
			m.limit--
			m.logf("limit %d", m.limit)
		}
	case p < 39:
		if m.rng.IntN(4) == 0 {
			m.compactRange()
		}
	case p < 40:
		if m.rng.IntN(3) == 0 {
			m.split()
		}
	default:
		m.now += m.rng.Int64N([]int64{4000, 20_000}[m.rng.IntN(2)])
	}
}

// settle runs the compactions of an idle partition until there is nothing left to do.
func (m *model) settle() {
	for range 10_000 {
		for len(m.running) > 0 {
			m.finish(0)
		}
		if !m.compact(true) {
			for _, files := range m.levels {
				if at := slices.IndexFunc(files, func(f *manifest.FileMeta) bool { return slices.Contains(m.clipped, f) }); at >= 0 {
					m.failf("file %d still reaches beyond the partition", files[at].Number)
				}
			}
			return
		}
	}
	m.failf("compaction does not come to rest")
}

func envUint(t testing.TB, name string, def uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestCompactionsKeepAnswersAndOrder drives random partitions. FLAGSTONE_SEED is the first one's
// seed, FLAGSTONE_HISTORIES their number.
func TestCompactionsKeepAnswersAndOrder(t *testing.T) {
	first := envUint(t, "FLAGSTONE_SEED", rand.Uint64()%math.MaxUint32)
	count := envUint(t, "FLAGSTONE_HISTORIES", 30)
	t.Logf("FLAGSTONE_SEED=%d FLAGSTONE_HISTORIES=%d", first, count)
	for seed := first; seed < first+count; seed++ {
		m := newModel(t, seed)
		for i := range 600 {
			m.step()
			if i%5 == 0 {
				m.check()
			}
		}
		m.settle()
		m.check()
		// Once all is deleted or expired and no snapshot is open, no level may hold anything.
		m.snapshots = nil
		for key := range m.all {
			c := row.Cell{Version: row.MaxVersion, Seq: m.nextSeq(), Kind: row.KindDeleteRow}
			m.all[key] = append([]row.Cell{c}, m.all[key]...)
			m.memtable[key] = append([]row.Cell{c}, m.memtable[key]...)
		}
		m.flush()
		m.settle()
		m.check()
		for level, files := range m.levels {
			if len(files) > 0 {
				m.failf("level %d still has %d files", level, len(files))
			}
		}
	}
}

// reluctant makes an iterator that hands over whole rows in about half of all cases.
func reluctant(run mvcctest.Run) *mvcctest.Iterator {
	it := run.NewIterator()
	it.Reluctant = true
	return it
}
