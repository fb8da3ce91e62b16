package modeltest

// The model by itself, against what docs/semantics.md says in prose: a model
// that errs in the same way as the engine would find nothing.

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

func TestTheModelFollowsTheRuleBook(t *testing.T) {
	put := func(version int64, value string) call {
		return call{kind: callPut, column: "c", version: version, value: row.String(value)}
	}
	remove := func(version int64) call { return call{kind: callDeleteVersion, column: "c", version: version} }
	deleteRow, putRow := call{kind: callDeleteRow}, call{kind: callPutRow}
	deleteColumn := call{kind: callDeleteColumn, column: "c"}
	type mutations [][]call
	for _, c := range []struct {
		name  string
		limit int64
		ttl   int64
		now   int64
		calls mutations
		want  string
	}{
		{"nothing was written", 1, -1, 0, nil, "absent"},
		{"the last put of a version counts", 1, -1, 0, mutations{{put(5, "a")}, {put(5, "b")}}, "5=b"},
		{"the newest versions are shown", 2, -1, 0, mutations{{put(5, "a")}, {put(7, "b")}, {put(6, "c")}}, "7=b 6=c"},
		{"a delete acts on what was written before, whatever its version", 2, -1, 0,
			mutations{{put(9, "a")}, {deleteColumn}, {put(3, "b")}}, "3=b"},
		{"an older version written after a delete of the row is visible", 2, -1, 0,
			mutations{{put(9, "a")}, {deleteRow}, {put(3, "b")}}, "3=b"},
		{"a deleted row is absent", 1, -1, 0, mutations{{put(9, "a")}, {deleteRow}}, "absent"},
		{"a row without columns is left", 1, -1, 0, mutations{{put(9, "a")}, {deleteColumn}}, ""},
		{"a delete makes no row", 1, -1, 0, mutations{{deleteColumn}, {remove(4)}}, "absent"},
		{"a row can be put without cells", 1, 1, 1e6, mutations{{putRow}}, ""},
		{"a mutation's deletes leave its own puts", 3, -1, 0,
			mutations{{put(9, "a"), put(8, "b")}, {deleteColumn, put(7, "c")}, {putRow, put(6, "d")}}, "6=d"},
		{"a put that is undone in its mutation never was", 3, -1, 0, mutations{{put(9, "a"), remove(9)}}, "absent"},
		{"deleting a version of a full column brings back nothing", 2, -1, 0,
			mutations{{put(3, "a")}, {put(4, "b")}, {put(5, "c")}, {remove(5)}}, "4=b"},
		{"of a column that is not full, the others stay", 4, -1, 0,
			mutations{{put(3, "a")}, {put(4, "b")}, {put(5, "c")}, {remove(5)}}, "4=b 3=a"},
		{"what is written after a delete of a version is visible, below it too", 1, -1, 0,
			mutations{{put(5, "a")}, {remove(5)}, {put(2, "b")}}, "2=b"},
		{"a cell lives for its time to live, in whole seconds", 2, 10, 15_999, mutations{{put(5_000, "a"), put(4_999, "b")}}, "5000=a"},
		{"a row goes with its newest cell", 2, 10, 16_000, mutations{{put(5_999, "a"), put(4_999, "b")}}, "absent"},
		{"a row put without cells stays when its cells have expired", 2, 10, 16_000, mutations{{putRow}, {put(5_999, "a")}}, ""},
		{"a row lasts as long as its newest cell, deleted or not", 2, 10, 15_000,
			mutations{{put(5_000, "a")}, {remove(5_000)}, {put(4_000, "b")}}, ""},
		{"a time to live can be as long as time", 1, math.MaxInt64, math.MaxInt64, mutations{{put(0, "a")}}, "0=a"},
	} {
		m := model{}
		table := &mtable{name: "t", options: flagstone.TableOptions{MaxVersions: c.limit}}
		r := table.row([]row.Value{row.String("k")})
		for _, calls := range c.calls {
			ch := &change{row: r, calls: calls}
			ch.fold()
			ch.trim(math.MinInt64)
			m.issue([]*change{ch})
		}
		v := view{at: m.last, limit: c.limit, ttl: c.ttl, millis: c.now, watermark: math.MinInt64}
		a := r.answer(v)
		parts := []string{}
		for _, cell := range a.cells(&flagstone.ReadOptions{MaxVersions: int(c.limit)}) {
			parts = append(parts, fmt.Sprintf("%d=%s", cell.version, cell.value.Text()))
		}
		got := strings.Join(parts, " ")
		if !a.exists {
			got = "absent"
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheModelOrdersKeysColumnByColumn(t *testing.T) {
	ascending := [][]row.Value{
		{},
		{row.Min()},
		{row.Integer(math.MinInt64)},
		{row.Integer(-1)},
		{row.Integer(-1), row.String("")},
		{row.Integer(-1), row.String("a")},
		{row.Integer(-1), row.String("a\x00")},
		{row.Integer(-1), row.String("aa")},
		{row.Integer(-1), row.String("\xff")},
		{row.Integer(-1), row.Max()},
		{row.Integer(0)},
		{row.Integer(math.MaxInt64)},
		{row.Max()},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := compareTuples(a, b), compareTuples([]row.Value{row.Integer(int64(i))}, []row.Value{row.Integer(int64(j))}); got != want {
				t.Errorf("%s and %s compare as %d, want %d", showKey(a), showKey(b), got, want)
			}
		}
	}
}

func TestTheModelKnowsWhatIsUncertain(t *testing.T) {
	m := model{}
	table := &mtable{name: "t", options: flagstone.TableOptions{MaxVersions: 1}}
	r := table.row([]row.Value{row.String("k")})
	for version := range int64(3) {
		ch := &change{row: r, calls: []call{{kind: callPut, column: "c", version: version, value: row.Integer(version)}}}
		ch.fold()
		m.issue([]*change{ch})
	}
	v := view{at: m.last, limit: 1, ttl: -1, watermark: math.MinInt64}
	if a := r.answer(v); !a.exact() {
		t.Error("at the limit that always was, the answer is exact")
	}
	m.alter(table, flagstone.TableOptions{MaxVersions: 3})
	v.limit = 3
	shown := func(versions ...int64) (got []row.Cell) {
		for _, version := range versions {
			got = append(got, row.Cell{
				Column: []byte("c"), Version: version, Type: row.TypeInteger, Value: row.Integer(version).AppendPayload(nil),
			})
		}
		return got
	}
	for _, possible := range [][]int64{{2}, {2, 0}, {2, 1}, {2, 1, 0}} {
		if a := r.answer(v); a.exact() {
			t.Error("a surplus version may be back or not")
		} else if _, err := a.explain(true, shown(possible...)); err != nil {
			t.Errorf("%v is possible: %v", possible, err)
		}
	}
	for _, impossible := range [][]int64{{}, {1, 0}, {2, 0, 1}, {3, 2}, {2, 2}} {
		a := r.answer(v)
		if _, err := a.explain(true, shown(impossible...)); err == nil {
			t.Errorf("%v is impossible", impossible)
		}
	}
	a := r.answer(v)
	findings, err := a.explain(true, shown(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	m.events++
	v.event = m.events
	m.learn(r, &v, findings)
	if a := r.answer(v); !a.exact() || len(a.cells(&flagstone.ReadOptions{})) != 2 {
		t.Error("what was read once is known")
	}
	if _, err := a.explain(false, nil); err == nil {
		t.Error("the row exists")
	}
}
