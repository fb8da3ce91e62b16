package modeltest

// What the rule-book leaves open. Raising Max Versions may bring back versions
// that were surplus and have not been collected yet. So the model keeps a fate
// for every put:
//
//	certain    it was never surplus, or a read has shown it since: it is there
//	uncertain  it was surplus at some moment, and may have been collected
//	gone       a read did not show it though it should have, had it been there
//
// A put that was ever surplus is one that had at least Max Versions larger
// versions beside it, at the limit in force then, after some mutation. All else
// is exact. What a read shows is checked against what is possible, and then
// known: a put that was shown goes on being shown until it is surplus again or
// deleted, and one that was missing never comes back. Fates carry the point in
// time at which they changed, so that a held moment can be asked later.

import (
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

type fate uint8

const (
	certain fate = iota
	uncertain
	gone
)

type fateChange struct {
	event uint64
	fate  fate
}

// fateOf is what the view knows of a put.
func (v *view) fateOf(p *put) fate {
	if v.known != nil {
		if there, ok := v.known[p]; ok {
			if there {
				return certain
			}
			return gone
		}
	}
	f := certain
	for _, c := range p.fates {
		if c.event > v.event {
			break
		}
		f = c.fate
	}
	return f
}

// fate is what is known now.
func (p *put) fate() fate {
	if len(p.fates) == 0 {
		return certain
	}
	return p.fates[len(p.fates)-1].fate
}

func (p *put) become(f fate, event uint64) {
	if p.fate() != f {
		p.fates = append(p.fates, fateChange{event, f})
	}
}

// markSurplus makes the fate of every put uncertain that the limit may hide.
func (c *column) markSurplus(limit int64, event uint64) {
	var larger int64
	for _, p := range c.puts {
		if p.fate() == gone {
			continue
		}
		if larger++; larger > limit {
			p.become(uncertain, event)
		}
	}
}

// finding is what a read said about a put whose fate was uncertain.
type finding struct {
	column string
	put    *put
	there  bool
}

// explain checks that a row, read without any selection, is a possible answer,
// and returns what that says about uncertain puts.
func (a *answer) explain(exists bool, rest []row.Cell) ([]finding, error) {
	if exists != a.exists {
		return nil, fmt.Errorf("the row exists: got %v, want %v", exists, a.exists)
	}
	if !exists {
		return nil, nil
	}
	var findings []finding
	for i := range a.columns {
		c := &a.columns[i]
		n := 0
		for n < len(rest) && string(rest[n].Column) == c.name {
			n++
		}
		found, err := c.explain(rest[:n])
		if err != nil {
			return nil, err
		}
		findings, rest = append(findings, found...), rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("got %s, which should not be there, or not in this place", showCell(&rest[0]))
	}
	return findings, nil
}

func (a *columnAnswer) explain(got []row.Cell) (findings []finding, err error) {
	var shown int64
	for i, p := range a.puts {
		if shown == a.limit {
			break // the column is full: what is older says nothing
		}
		there := len(got) > 0 && got[0].Version == p.version
		switch {
		case there:
			if err := sameValue(&got[0], p.value); err != nil {
				return nil, err
			}
			got = got[1:]
			shown++
		case a.sure[i]:
			return nil, fmt.Errorf("column %q: version %d is missing", a.name, p.version)
		}
		if !a.sure[i] {
			findings = append(findings, finding{a.name, p, there})
		}
	}
	if len(got) > 0 {
		return nil, fmt.Errorf("got %s, which should not be there", showCell(&got[0]))
	}
	return findings, nil
}

// sameValue compares what a cell holds with what was put.
func sameValue(got *row.Cell, want row.Value) error {
	v, err := row.PayloadValue(got.Type, got.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", showCell(got), err)
	}
	same := v.Type() == want.Type()
	switch {
	case !same:
	case v.Type() == row.TypeDouble:
		same = math.Float64bits(v.Float64()) == math.Float64bits(want.Float64())
	default:
		same = v.Int64() == want.Int64() && v.Bool() == want.Bool() && v.Text() == want.Text()
	}
	if !same {
		return fmt.Errorf("got %s, want the value %s %.60s", showCell(got), want.Type(), want)
	}
	return nil
}

// remember makes findings known to the view alone.
func (v *view) remember(findings []finding) {
	if v.known == nil {
		v.known = map[*put]bool{}
	}
	for _, f := range findings {
		v.known[f.put] = f.there
	}
}

// learn makes findings known: to the view, if it is a held moment, else for
// all times to come.
func (m *model) learn(r *mrow, v *view, findings []finding) {
	if v.known != nil {
		v.remember(findings)
		return
	}
	for _, f := range findings {
		if f.there {
			f.put.become(certain, m.events)
		} else {
			f.put.become(gone, m.events)
		}
	}
	if len(findings) > 0 {
		// The view may lie a few mutations behind the newest state, in which
		// what was shown is surplus again.
		for _, c := range r.now.columns {
			c.markSurplus(r.table.options.MaxVersions, m.events)
		}
	}
}

// issue carries out the mutations of a request, each with the next number.
func (m *model) issue(changes []*change) {
	for _, c := range changes {
		m.last++
		c.mutation.at = m.last
		r := c.row
		r.since = append(r.since, &c.mutation)
		r.now.apply(&c.mutation)
		for i := range c.mutation.columns {
			r.now.column(c.mutation.columns[i].name).markSurplus(r.table.options.MaxVersions, m.events)
		}
	}
}

// alter changes a table's options.
func (m *model) alter(t *mtable, options flagstone.TableOptions) {
	t.options = options
	for _, r := range t.rows {
		for _, c := range r.now.columns {
			c.markSurplus(options.MaxVersions, m.events)
		}
	}
}

// cut takes back all mutations above a number, as a power cut does.
func (m *model) cut(at uint64) {
	m.last = at
	for _, t := range m.tables {
		if t == nil {
			continue
		}
		for _, r := range t.rows {
			n := len(r.since)
			for n > 0 && r.since[n-1].at > at {
				n--
			}
			if n == len(r.since) {
				continue
			}
			r.since = r.since[:n]
			r.now = r.base.clone()
			for _, mu := range r.since {
				r.now.apply(mu)
			}
		}
	}
}
