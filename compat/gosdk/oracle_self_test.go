package gosdk_test

import (
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// TestTheOracleFindsWhatItForbids plants one fault after the other, since a
// check that has never failed proves nothing.
func TestTheOracleFindsWhatItForbids(t *testing.T) {
	// The row was put with 1, updated to 2; 4 was asked for and not answered.
	known := func(replaces bool) *history {
		h := new(history)
		h.intend(1, true)
		h.acknowledge()
		h.intend(2, false)
		h.acknowledge()
		h.intend(4, replaces)
		return h
	}
	for _, c := range []struct {
		what     string
		replaces bool
		found    []state
		fine     bool
	}{
		{"acknowledged", false, []state{2, 1}, true},
		{"acknowledged, written within one millisecond", false, []state{2}, true},
		{"asked for", false, []state{4, 2}, true},
		{"asked for, older ones replaced", true, []state{4}, true},
		{"asked for, but what it replaces is still there", true, []state{4, 2}, false},
		{"lost", false, nil, false},
		{"overwritten", false, []state{1}, false},
		{"never written", false, []state{3}, false},
		{"an older one never written", false, []state{2, 3}, false},
	} {
		if err := known(c.replaces).observe(c.found); (err == nil) != c.fine {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	h := known(false)
	if h.observe([]state{2, 1}) != nil || h.observe([]state{4, 2}) == nil {
		t.Error("a write that was seen to be lost may appear later")
	}
}

func TestTheOracleFindsTornRows(t *testing.T) {
	// version returns the columns of number n of a row, at a version.
	version := func(rowID, n, at int64) (out []*ots.AttributeColumn) {
		for _, name := range append([]string{"o"}, always...) {
			if v := content(rowID, state(n))[name]; v != nil {
				out = append(out, &ots.AttributeColumn{ColumnName: name, Value: v, Timestamp: at})
			}
		}
		return out
	}
	without := func(columns []*ots.AttributeColumn, name string) (out []*ots.AttributeColumn) {
		for _, c := range columns {
			if c.ColumnName != name {
				out = append(out, c)
			}
		}
		return out
	}
	for _, c := range []struct {
		what    string
		columns []*ots.AttributeColumn
		fine    bool
	}{
		{"whole", version(7, 1, 10), true},
		{"without the optional column", version(7, 3, 10), true},
		{"two versions", append(version(7, 2, 11), version(7, 1, 10)...), true},
		{"two versions, the optional column deleted between", append(version(7, 2, 11), without(version(7, 1, 10), "o")...), true},
		{"no columns", nil, false},
		{"a column missing", without(version(7, 1, 10), "s"), false},
		{"the optional column missing", without(version(7, 1, 10), "o"), false},
		{"the optional column too much", append(version(7, 3, 10), version(7, 1, 10)[0]), false},
		{"one column of another write", append(without(version(7, 1, 10), "b"), &ots.AttributeColumn{ColumnName: "b", Value: content(7, 2)["b"], Timestamp: 10}), false},
		{"one column of another moment", append(without(version(7, 1, 10), "d"), &ots.AttributeColumn{ColumnName: "d", Value: content(7, 1)["d"], Timestamp: 11}), false},
		{"another row", version(8, 1, 10), false},
		{"half of an older version", append(version(7, 2, 11), without(version(7, 1, 10), "sum")...), false},
	} {
		if _, err := states(7, c.columns); (err == nil) != c.fine {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
