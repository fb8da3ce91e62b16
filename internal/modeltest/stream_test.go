package modeltest

// Streams. A consumer reads the stream of each table that has one, now and
// then, and compares every record with the mutation that the model made: each
// must come once, in order, and none may be missing that is visible. What was
// read must survive a crash.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// mstream is the stream of a table, with its consumer.
type mstream struct {
	id        uint64
	retention int64 // seconds
	position  flagstone.StreamPosition
	left      []streamEntry // not read yet
	latest    int64         // the largest reading of the clock since it was enabled
}

// streamEntry is a record that is to come.
type streamEntry struct {
	row      *mrow
	mutation *mutation
	millis   int64 // NowMillis when it was made
	// unsure: after a crash, what is there could be told with and without the
	// mutation. If it is not there, neither are later ones of that crash.
	unsure bool
}

// newStream draws a stream.
func (m *machine) newStream() *flagstone.StreamSpec {
	if m.rng.IntN(3) > 0 {
		return &flagstone.StreamSpec{RetentionSeconds: 10_000_000}
	}
	return &flagstone.StreamSpec{RetentionSeconds: 1 + m.rng.Int64N(600)}
}

// streamEnabled notes that a table has got a stream.
func (m *machine) streamEnabled(t *mtable) {
	st := m.tables[t].Stream()
	info := st.Info()
	t.stream = &mstream{id: info.ID, retention: info.RetentionSeconds, latest: m.clock.NowMillis()}
	var err error
	if t.stream.position, err = st.Oldest(m.ctx, st.Shards()[0].ID); err != nil {
		m.fail("the beginning of a stream: %v", err)
	}
	if at := t.stream.position.After; at > m.model.last {
		m.fail("a stream begins after mutation %d of %d", at, m.model.last)
	}
}

// alterStream enables or disables the stream of a table.
func (m *machine) alterStream() {
	t := m.anyTable()
	if t == nil || t.splits != nil {
		return
	}
	change := &flagstone.StreamChange{}
	if t.stream == nil {
		change.Enable = m.newStream()
	}
	m.doing = func() string { return fmt.Sprintf("change the stream of %s to %+v", t.name, change.Enable) }
	m.waitAll()
	var err error
	m.atRisk(func() { err = m.tables[t].Alter(m.ctx, flagstone.TableChange{Stream: change}) })
	if m.after != nil {
		m.streamAltered = t // to be seen when the store is open again
		if t.stream != nil {
			m.consumed(t.stream)
		}
		return
	}
	if m.excused(err) {
		return
	}
	if err != nil {
		m.fail("change the stream: %v", err)
	}
	t.stream = nil
	if change.Enable != nil {
		m.streamEnabled(t)
	}
}

// consumed makes sure that what a consumer has read survives.
func (m *machine) consumed(s *mstream) { m.kept = max(m.kept, min(s.position.After, m.model.last)) }

// reattachStream checks that a table has the stream that it had.
func (m *machine) reattachStream(t *mtable) {
	st := m.tables[t].Stream()
	switch uncertain := m.streamAltered == t; {
	case st == nil && t.stream == nil:
	case st != nil && t.stream != nil && st.Info().ID == t.stream.id:
		if info := st.Info(); info.RetentionSeconds != t.stream.retention {
			m.fail("the stream of table %s is %+v", t.name, info)
		}
	case uncertain && st == nil:
		t.stream = nil
	case uncertain && t.stream == nil:
		m.streamEnabled(t)
	default:
		m.fail("table %s had the stream %+v and has another", t.name, t.stream)
	}
}

// recordChanges notes the records that changes will leave.
func (m *machine) recordChanges(changes []*change, millis int64) {
	for _, c := range changes {
		if s := c.row.table.stream; s != nil {
			s.left = append(s.left, streamEntry{row: c.row, mutation: &c.mutation, millis: millis})
		}
	}
}

// cutStreams takes back the records of mutations that did not survive: those
// above last. Of those above sure, some may have survived.
func (m *machine) cutStreams(sure, last uint64) {
	for _, t := range m.model.tables {
		if t == nil || t.stream == nil {
			continue
		}
		t.stream.left = slices.DeleteFunc(t.stream.left, func(e streamEntry) bool { return e.mutation.at > last })
		for i := range t.stream.left {
			e := &t.stream.left[i]
			e.unsure = e.unsure || e.mutation.at > sure
		}
	}
}

// settleUnsure takes back an unsure entry that the stream has passed over, and
// those of the same crash that follow it.
func (s *mstream) settleUnsure(i int) {
	n := i
	for n < len(s.left) && s.left[n].unsure {
		n++
	}
	s.left = slices.Delete(s.left, i, n)
}

// watchStreams follows the clock.
func (m *machine) watchStreams() {
	for _, t := range m.model.tables {
		if t != nil && t.stream != nil {
			t.stream.latest = max(t.stream.latest, m.clock.NowMillis())
		}
	}
}

// consume reads some of a stream.
func (m *machine) consume() {
	t := m.anyTable()
	if t == nil || t.stream == nil {
		return
	}
	limits := flagstone.StreamLimits{}
	if m.rng.IntN(2) == 0 {
		limits.Records = 1 + m.rng.IntN(20)
	}
	if m.rng.IntN(3) == 0 {
		limits.Bytes = int64(1 + m.rng.IntN(2000))
	}
	m.doing = func() string { return fmt.Sprintf("consume the stream of %s, %+v", t.name, limits) }
	m.consumeFrom(t, limits, true)
}

// compareStreams reads all streams to their ends, and stays where it is.
func (m *machine) compareStreams() {
	for _, t := range m.model.tables {
		if t != nil && t.stream != nil {
			m.consumeFrom(t, flagstone.StreamLimits{}, false)
		}
	}
}

func (m *machine) consumeFrom(t *mtable, limits flagstone.StreamLimits, move bool) {
	s, st := t.stream, m.tables[t].Stream()
	if st == nil {
		m.fail("table %s has lost its stream", t.name)
	}
	visible := m.visible()
	page, err := st.Read(m.ctx, s.position, limits)
	if errors.Is(err, flagstone.ErrStreamTrimmed) {
		m.trimmed(t, st)
		return
	}
	if err != nil {
		m.fail("read the stream of %s: %v", t.name, err)
	}
	for i := range page.Records {
		r := &page.Records[i]
		if i < len(s.left) && s.left[i].unsure && s.left[i].mutation.at != r.Sequence {
			s.settleUnsure(i)
		}
		if i == len(s.left) {
			m.fail("the stream of %s has a record of mutation %d that is not to be: %s", t.name, r.Sequence, showRecord(r))
		}
		e := &s.left[i]
		if want := e.show(); r.Sequence != e.mutation.at || showRecord(r) != want {
			m.failRow(e.row, nil, nil, "the stream of %s has mutation %d, want %d\ngot  %s\nwant %s",
				t.name, r.Sequence, e.mutation.at, showRecord(r), want)
		}
	}
	n := len(page.Records)
	if !page.More && n < len(s.left) && s.left[n].unsure {
		s.settleUnsure(n)
	}
	if !page.More && n < len(s.left) && s.left[n].mutation.at <= visible {
		m.fail("the stream of %s lacks mutation %d, which is visible: %s", t.name, s.left[n].mutation.at, s.left[n].show())
	}
	m.seen["stream records"] += n
	if !move {
		return
	}
	s.left, s.position = slices.Clone(s.left[n:]), page.Next
	m.consumed(s)
}

// trimmed begins anew, after what has expired.
func (m *machine) trimmed(t *mtable, st *flagstone.Stream) {
	s := t.stream
	if oldest := s.latest/1000 - s.retention; s.position.AsOf/1_000_000 >= oldest {
		m.fail("the stream of %s: the position as of %d should be good until the clock is at %d, it was at most at %d",
			t.name, s.position.AsOf, s.position.AsOf/1000+1000*s.retention, s.latest)
	}
	pos, err := st.Oldest(m.ctx, s.position.Shard)
	if err != nil {
		m.fail("the oldest record of the stream of %s: %v", t.name, err)
	}
	for len(s.left) > 0 && s.left[0].mutation.at <= pos.After {
		if e := &s.left[0]; !e.unsure && e.millis/1000 > s.latest/1000-s.retention {
			m.fail("the stream of %s lacks mutation %d, which has not expired: made at %d, the clock was at most at %d, retention %d s",
				t.name, e.mutation.at, e.millis, s.latest, s.retention)
		}
		s.left = s.left[1:]
		m.seen["stream records trimmed"]++
	}
	s.position = pos
	m.consumed(s)
}

// show prints an entry as showRecord prints its record.
func (e *streamEntry) show() string {
	mu := e.mutation
	var b strings.Builder
	columns, wrote := slices.Clone(mu.columns), false
	slices.SortFunc(columns, func(a, b columnChange) int { return cmp.Compare(a.name, b.name) })
	for _, c := range columns {
		if c.deleted {
			fmt.Fprintf(&b, " %q deleted", c.name)
		}
		type act struct {
			version int64
			what    string
		}
		var acts []act
		for _, p := range c.puts {
			wrote = true
			acts = append(acts, act{p.version, fmt.Sprintf(" %q@%d=%s", c.name, p.version, p.value)})
		}
		for _, v := range c.removed {
			acts = append(acts, act{v, fmt.Sprintf(" %q@%d deleted", c.name, v)})
		}
		slices.SortFunc(acts, func(a, b act) int { return cmp.Compare(b.version, a.version) })
		for _, a := range acts {
			b.WriteString(a.what)
		}
	}
	action := flagstone.StreamUpdate
	switch {
	case mu.putRow || mu.deleteRow && wrote:
		action = flagstone.StreamPut
	case mu.deleteRow:
		action = flagstone.StreamDelete
	}
	return fmt.Sprintf("%d %s%s", action, showKey(e.row.key), b.String())
}

func showRecord(r *flagstone.StreamRecord) string {
	var b strings.Builder
	for i := range r.Cells {
		c := &r.Cells[i]
		switch v, err := row.PayloadValue(c.Type, c.Value); {
		case c.Kind == row.KindTrim:
			fmt.Fprintf(&b, " %q deleted", c.Column)
		case c.Kind == row.KindDeleteVersion:
			fmt.Fprintf(&b, " %q@%d deleted", c.Column, c.Version)
		case err != nil:
			fmt.Fprintf(&b, " %q: %v", c.Column, err)
		default:
			fmt.Fprintf(&b, " %q@%d=%s", c.Column, c.Version, v)
		}
	}
	return fmt.Sprintf("%d %s%s", r.Action, showKey(r.Key), b.String())
}
