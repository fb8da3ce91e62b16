package modeltest

// Operations that read: now, through snapshots, and by scans that are advanced
// step by step between other operations.

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// moment is an open snapshot and what it must go on showing.
type moment struct {
	snapshot *flagstone.Snapshot
	at       uint64
	views    map[*mtable]view
}

// holdMoment is the present of all tables, to be kept.
func (m *machine) holdMoment() *moment {
	mo := &moment{at: m.visible(), views: map[*mtable]view{}}
	for _, t := range m.model.tables {
		if t != nil {
			v := m.viewAt(t, mo.at)
			v.known = map[*put]bool{}
			mo.views[t] = v
		}
	}
	m.model.events++ // what is found out from now on is later
	return mo
}

// openSnapshot opens one more snapshot, or lets one go if there are many.
func (m *machine) openSnapshot() {
	if len(m.moments) >= 4 {
		m.closeSnapshot()
		return
	}
	mo := m.holdMoment()
	var err error
	if mo.snapshot, err = m.store.Snapshot(); err != nil {
		m.fail("snapshot: %v", err)
	}
	m.moments = append(m.moments, mo)
}

func (m *machine) closeSnapshot() {
	if len(m.moments) == 0 {
		return
	}
	i := m.rng.IntN(len(m.moments))
	mo := m.moments[i]
	for _, s := range m.scans {
		if s.moment == mo {
			return // a scan uses it
		}
	}
	m.moments = slices.Delete(m.moments, i, i+1)
	mo.snapshot.Close()
	if t := m.anyTable(); t != nil {
		_, err := m.tables[t].Get(m.ctx, m.anyKey(t), flagstone.ReadOptions{Snapshot: mo.snapshot})
		if !errors.Is(err, flagstone.ErrClosed) {
			m.fail("a read through a closed snapshot: %v", err)
		}
	}
}

// releaseMoments ends all scans and snapshots of a store that will be left.
func (m *machine) releaseMoments() {
	m.seen["gets from the row cache"] += int(m.store.Metrics().RowHits)
	for _, s := range m.scans {
		s.rows.Close()
	}
	for _, mo := range m.moments {
		mo.snapshot.Close()
	}
	m.scans, m.moments = nil, nil
}

// get reads one row as it is now.
func (m *machine) get() {
	t := m.anyTable()
	if t == nil {
		return
	}
	r := m.anyRow(t)
	opts := m.readOptions(r)
	m.doing = func() string { return fmt.Sprintf("get %s %s, %s", t.name, showKey(r.key), showOptions(&opts)) }
	v := m.view(t)
	m.checkGet(r, &v, opts, m.getter(r))
}

func (m *machine) getter(r *mrow) func(flagstone.ReadOptions) (*flagstone.Row, error) {
	return func(o flagstone.ReadOptions) (*flagstone.Row, error) {
		return m.tables[r.table].Get(m.ctx, r.key, o)
	}
}

// getHeld reads one row through a snapshot.
func (m *machine) getHeld() {
	t := m.anyTable()
	if t == nil || len(m.moments) == 0 {
		return
	}
	mo := m.moments[m.rng.IntN(len(m.moments))]
	r := m.anyRow(t)
	opts := m.readOptions(r)
	m.doing = func() string {
		return fmt.Sprintf("get through the snapshot of mutation %d: %s %s, %s", mo.at, t.name, showKey(r.key), showOptions(&opts))
	}
	get := m.getterAt(r, mo)
	v, known := mo.views[t]
	if !known {
		if _, err := get(opts); !errors.Is(err, flagstone.ErrTableNotFound) {
			m.fail("a read of a table that is younger than the snapshot: %v", err)
		}
		return
	}
	m.checkGet(r, &v, opts, get)
}

func (m *machine) getterAt(r *mrow, mo *moment) func(flagstone.ReadOptions) (*flagstone.Row, error) {
	get := m.getter(r)
	return func(o flagstone.ReadOptions) (*flagstone.Row, error) {
		o.Snapshot = mo.snapshot
		return get(o)
	}
}

// checkGet reads a row and compares; false if it could not be read.
func (m *machine) checkGet(r *mrow, v *view, opts flagstone.ReadOptions, get func(flagstone.ReadOptions) (*flagstone.Row, error)) bool {
	a := r.answer(*v)
	plain := isPlain(&opts)
	if plain || !a.exact() {
		got, err := get(flagstone.ReadOptions{})
		if m.excused(err) {
			return false
		}
		if err != nil {
			m.failRow(r, v, nil, "get: %v", err)
		}
		findings := m.match(r, v, got)
		if plain {
			return true
		}
		// What was found out holds for a second read of the same moment, also
		// where a write that is not visible yet has made it uncertain again.
		second := *v
		second.remember(findings)
		a = r.answer(second)
	}
	got, err := get(opts)
	if m.excused(err) {
		return false
	}
	if err != nil {
		m.failRow(r, v, nil, "get: %v", err)
	}
	m.matchSelected(r, v, &a, &opts, got)
	return true
}

func isPlain(o *flagstone.ReadOptions) bool {
	return o.Columns == nil && o.StartColumn == "" && o.EndColumn == "" && o.MaxVersions == 0 &&
		o.MinVersion == 0 && o.MaxVersion == 0
}

// match compares a row that was read without selection, and learns from it.
func (m *machine) match(r *mrow, v *view, got *flagstone.Row) []finding {
	m.note(got)
	a := r.answer(*v)
	findings, err := a.explain(got.Exists(), got.Cells())
	if err == nil && got != nil && compareTuples(got.Key(), r.key) != 0 {
		err = fmt.Errorf("got the row of %s", showKey(got.Key()))
	}
	if err != nil {
		m.failRow(r, v, got, "%v", err)
	}
	for _, f := range findings {
		if f.there {
			m.seen["surplus versions that came back"]++
		} else {
			m.seen["surplus versions that were collected"]++
		}
	}
	m.model.learn(r, v, findings)
	return findings
}

// matchSelected compares a row that was read with a selection. The answer must
// be exact.
func (m *machine) matchSelected(r *mrow, v *view, a *answer, opts *flagstone.ReadOptions, got *flagstone.Row) {
	m.note(got)
	if !a.exact() {
		m.failRow(r, v, got, "the model is not sure of the answer even after it was read")
	}
	if got == nil || !a.exists {
		if (got != nil) != a.exists {
			m.failRow(r, v, got, "the row exists: got %v, want %v", got != nil, a.exists)
		}
		return
	}
	want := a.cells(opts)
	for i := range max(len(want), len(got.Cells())) {
		switch {
		case i >= len(got.Cells()):
			m.failRow(r, v, got, "%q version %d is missing, reading %s", want[i].column, want[i].version, showOptions(opts))
		case i >= len(want):
			m.failRow(r, v, got, "got %s, which should not be there, reading %s", showCell(&got.Cells()[i]), showOptions(opts))
		}
		g, w := &got.Cells()[i], want[i]
		if string(g.Column) != w.column || g.Version != w.version {
			m.failRow(r, v, got, "got %s, want %q version %d, reading %s", showCell(g), w.column, w.version, showOptions(opts))
		}
		if err := sameValue(g, w.value); err != nil {
			m.failRow(r, v, got, "%v", err)
		}
	}
	m.matchNewest(r, v, want, got)
}

// matchNewest checks Row.Value for a column that is there and one that is not.
func (m *machine) matchNewest(r *mrow, v *view, want []cell, got *flagstone.Row) {
	if _, ok := got.Value("no such column"); ok {
		m.failRow(r, v, got, "Row.Value finds a column that is not there")
	}
	if len(want) == 0 {
		return
	}
	w := want[m.rng.IntN(len(want))]
	first := want[slices.IndexFunc(want, func(c cell) bool { return c.column == w.column })]
	if value, ok := got.Value(w.column); !ok || value.Type() != first.value.Type() || value.String() != first.value.String() {
		m.failRow(r, v, got, "Row.Value of %q is %s, want %s", w.column, value, first.value)
	}
}

// note hands an answer to the trace.
func (m *machine) note(got *flagstone.Row) {
	if m.trace == nil {
		return
	}
	if got == nil {
		m.trace("no row")
		return
	}
	text := showKey(got.Key())
	for i := range got.Cells() {
		text += " " + showCell(&got.Cells()[i])
	}
	m.trace(text)
}

// scan is a scan under way.
type scan struct {
	table   *mtable
	moment  *moment // nil: the scan's own
	at      view
	opts    flagstone.ScanOptions
	rows    *flagstone.Rows
	start   []row.Value
	end     []row.Value
	last    []row.Value // key of the row before, nil at the start
	started bool
}

func (s *scan) String() string {
	return fmt.Sprintf("scan %s %s to %s, reverse %v, pausing after %d, %s, at mutation %d, after %s",
		s.table.name, showKey(s.start), showKey(s.end), s.opts.Reverse, s.opts.MaxExamined, showOptions(&s.opts.ReadOptions), s.at.at, showKey(s.last))
}

// beginScan opens a scan with random bounds and options, now or through a
// snapshot. What it selects must have exact answers, so a scan with a
// selection goes through a snapshot, where a row can be read again.
func (m *machine) beginScan() *scan {
	t := m.anyTable()
	if t == nil {
		return nil
	}
	s := &scan{table: t}
	s.opts.Reverse = m.rng.IntN(2) == 0
	if m.rng.IntN(2) == 0 {
		s.opts.ReadOptions = m.readOptions(m.anyRow(t))
	}
	if m.rng.IntN(3) == 0 && len(m.moments) > 0 {
		s.moment = m.moments[m.rng.IntN(len(m.moments))]
	} else if !isPlain(&s.opts.ReadOptions) {
		m.openSnapshot()
		if len(m.moments) == 0 {
			return nil
		}
		s.moment = m.moments[len(m.moments)-1]
	}
	if m.rng.IntN(3) == 0 {
		s.opts.MaxExamined = 1 + m.rng.Int64N(30)
	}
	s.start, s.end = m.scanBounds(t, s.opts.Reverse)
	if s.moment == nil {
		s.at = m.holdMoment().views[t]
	} else {
		known := false
		if s.at, known = s.moment.views[t]; !known {
			return nil
		}
		s.opts.Snapshot = s.moment.snapshot
	}
	s.rows = m.tables[t].Scan(m.ctx, s.start, s.end, s.opts)
	return s
}

// scanNow scans a random range, up to a random number of rows.
func (m *machine) scanNow() {
	s := m.beginScan()
	if s == nil {
		return
	}
	m.doing = s.String
	limit := math.MaxInt
	if m.rng.IntN(2) == 0 {
		limit = m.rng.IntN(10)
	}
	for n := 0; n < limit && m.advance(s); n++ {
	}
	s.rows.Close()
}

// beginLongScan opens a scan that stays open for many operations.
func (m *machine) beginLongScan() {
	if len(m.scans) >= 3 {
		return
	}
	if s := m.beginScan(); s != nil {
		m.scans = append(m.scans, s)
	}
}

// stepLongScan advances one of them.
func (m *machine) stepLongScan() {
	if len(m.scans) == 0 {
		return
	}
	i := m.rng.IntN(len(m.scans))
	s := m.scans[i]
	m.doing = s.String
	if !m.advance(s) || m.rng.IntN(200) == 0 {
		s.rows.Close()
		m.scans = slices.Delete(m.scans, i, i+1)
	}
}

// advance moves a scan to its next row and compares; false at the end.
func (m *machine) advance(s *scan) bool {
	want := s.next()
	ok := s.rows.Next()
	if err := s.rows.Err(); err != nil {
		if s.table.dropped && errors.Is(err, flagstone.ErrTableNotFound) {
			return false
		}
		if m.excused(err) {
			return false
		}
		m.fail("%v: %v", s, err)
	}
	if key, paused := s.rows.Paused(); !ok && paused {
		return m.resume(s, want, slices.Clone(key))
	}
	if !ok {
		if want != nil {
			m.failRow(want, &s.at, nil, "%v: ended, a row is missing; dropped: %v, started: %v", s, s.table.dropped, s.started)
		}
		return false
	}
	got := s.rows.Row()
	s.started = true
	if want == nil {
		m.fail("%v: got the row %s, want the end", s, showKey(got.Key()))
	}
	if compareTuples(got.Key(), want.key) != 0 {
		m.failRow(want, &s.at, got, "%v: got the row %s", s, showKey(got.Key()))
	}
	s.last = want.key
	if isPlain(&s.opts.ReadOptions) {
		m.match(want, &s.at, got)
		return true
	}
	a := want.answer(s.at)
	if !a.exact() {
		if s.table.dropped || !m.checkGet(want, &s.at, flagstone.ReadOptions{}, m.getterAt(want, s.moment)) {
			return true // it cannot be read again
		}
		a = want.answer(s.at)
	}
	m.matchSelected(want, &s.at, &a, &s.opts.ReadOptions, got)
	return true
}

// resume goes on with a scan that paused over rows that do not exist. Its own
// moment ended with it, so only a scan through a snapshot can go on.
func (m *machine) resume(s *scan, want *mrow, key []row.Value) bool {
	m.seen["paused scans"]++
	if want != nil {
		if c := compareTuples(key, want.key); c > 0 && !s.opts.Reverse || c < 0 && s.opts.Reverse {
			m.failRow(want, &s.at, nil, "%v: paused at %s, and left out a row", s, showKey(key))
		}
	}
	if s.moment == nil || s.table.dropped {
		return false
	}
	s.rows.Close()
	s.start, s.last = key, nil
	s.opts.MaxExamined *= 2 // a row can be larger than what is examined at once
	s.rows = m.tables[s.table].Scan(m.ctx, s.start, s.end, s.opts)
	return m.advance(s)
}

// next is the row that must come next, nil at the end.
func (s *scan) next() *mrow {
	t := s.table
	if s.opts.Reverse {
		i := len(t.rows)
		if s.last != nil {
			i, _ = t.find(s.last)
		} else if len(s.start) > 0 {
			i, _ = t.find(s.start)
			if i < len(t.rows) && compareTuples(t.rows[i].key, s.start) == 0 {
				i++ // inclusive
			}
		}
		for i--; i >= 0; i-- {
			if len(s.end) > 0 && compareTuples(t.rows[i].key, s.end) <= 0 {
				return nil
			}
			if a := t.rows[i].answer(s.at); a.exists {
				return t.rows[i]
			}
		}
		return nil
	}
	i := 0
	if s.last != nil {
		i, _ = t.find(s.last)
		i++
	} else {
		i, _ = t.find(s.start)
	}
	for ; i < len(t.rows); i++ {
		if len(s.end) > 0 && compareTuples(t.rows[i].key, s.end) >= 0 {
			return nil
		}
		if a := t.rows[i].answer(s.at); a.exists {
			return t.rows[i]
		}
	}
	return nil
}
