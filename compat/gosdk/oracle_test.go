package gosdk_test

// This file is the oracle of the kill test: it knows of every row what was
// asked for and what was answered, so it can judge what a restarted server
// holds. And it makes rows that betray a torn or misplaced write: all columns
// follow from one number and the key, and one of them is a checksum.

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// A state is what a row holds: the content of a number, or nothing (0).
type state int64

const absent state = 0

// history is what is known of one row. One writer owns it at a time.
type history struct {
	// settled is the state that must be there: acknowledged, or found after a
	// restart.
	settled state
	// pending is a state that was asked for and not answered yet. While open,
	// the row holds settled or pending.
	pending  state
	open     bool
	replaces bool // the pending write removes all older versions
	// written are the numbers that may be found as older versions: held since
	// the row was last replaced.
	written map[state]bool
}

// intend notes a write before it is sent.
func (h *history) intend(s state, replaces bool) { h.pending, h.replaces, h.open = s, replaces, true }

// acknowledge notes that the intended write was answered with success.
func (h *history) acknowledge() {
	h.settled, h.open = h.pending, false
	if h.replaces || h.written == nil {
		h.written = map[state]bool{}
	}
	h.written[h.settled] = true
}

// observe judges what a read found, versions from newest to oldest (none: no
// row), and takes it as settled: a write whose answer was lost must not appear
// or vanish later.
func (h *history) observe(found []state) error {
	newest := absent
	if len(found) > 0 {
		newest = found[0]
	}
	switch known := h.String(); {
	case newest == h.settled:
		h.open = false
	case h.open && newest == h.pending:
		h.acknowledge()
	case newest == absent:
		return fmt.Errorf("is missing; %s", known)
	default:
		return fmt.Errorf("holds %d; %s", newest, known)
	}
	for _, older := range found[min(1, len(found)):] {
		if !h.written[older] {
			return fmt.Errorf("holds an older version %d, which was replaced or never written; %s", older, h)
		}
	}
	return nil
}

func (h *history) String() string {
	s := fmt.Sprintf("settled is %d", h.settled)
	if h.open {
		s += fmt.Sprintf(", %d was asked for without an answer", h.pending)
	}
	return s
}

// content returns the columns of a row that holds s: every type, values from
// nothing to some kilobytes, and in every third case one column less.
func content(rowID int64, s state) map[string]any {
	r := rand.New(rand.NewPCG(uint64(rowID), uint64(s)))
	size := r.IntN(200)
	if r.IntN(8) == 0 {
		size = r.IntN(6000)
	}
	binary := make([]byte, size)
	for i := range binary {
		binary[i] = byte(r.Uint32())
	}
	columns := map[string]any{
		"n": int64(s),
		"b": binary,
		"d": r.NormFloat64(),
		"s": fmt.Sprintf("row %d, number %d", rowID, s),
	}
	if s%3 != 0 {
		columns["o"] = r.IntN(2) == 0
	}
	columns["sum"] = checksum(rowID, columns)
	return columns
}

// checksum is over the row's key and all other columns.
func checksum(rowID int64, columns map[string]any) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %v %v %x %x %v", rowID, columns["n"], columns["s"], columns["b"],
		math.Float64bits(columns["d"].(float64)), columns["o"])
	return int64(h.Sum64())
}

// always are the columns of every row, in order.
var always = []string{"b", "d", "n", "s", "sum"}

// states returns what the versions of a row hold, newest first. It is an error
// if the columns of a version do not belong together.
func states(rowID int64, columns []*ots.AttributeColumn) ([]state, error) {
	byName := map[string][]*ots.AttributeColumn{}
	for _, c := range columns {
		byName[c.ColumnName] = append(byName[c.ColumnName], c)
	}
	numbers := byName["n"]
	if len(numbers) == 0 {
		return nil, fmt.Errorf("the row has no number: %v", names(columns))
	}
	var found []state
	for i, number := range numbers {
		n, ok := number.Value.(int64)
		if !ok {
			return nil, fmt.Errorf("the number is %v", number.Value)
		}
		found = append(found, state(n))
		expected := content(rowID, state(n))
		for _, name := range always {
			if len(byName[name]) != len(numbers) {
				return nil, fmt.Errorf("torn: %d versions of %s, %d of n: %v", len(byName[name]), name, len(numbers), names(columns))
			}
			c := byName[name][i]
			if c.Timestamp != number.Timestamp || !equal(c.Value, expected[name]) {
				return nil, fmt.Errorf("torn: version %d of %s does not belong to number %d: %v", i, name, n, names(columns))
			}
		}
		if err := optional(byName["o"], number.Timestamp, expected["o"], i == 0); err != nil {
			return nil, fmt.Errorf("torn: number %d: %w: %v", n, err, names(columns))
		}
	}
	return found, nil
}

// optional checks the column that not every state has. Taking it away deletes
// all its versions, so older states may have lost theirs.
func optional(versions []*ots.AttributeColumn, at int64, expected any, newest bool) error {
	i := slices.IndexFunc(versions, func(c *ots.AttributeColumn) bool { return c.Timestamp == at })
	switch {
	case i >= 0 && (expected == nil || versions[i].Value != expected):
		return fmt.Errorf("o is %v; want %v", versions[i].Value, expected)
	case i < 0 && newest && expected != nil:
		return fmt.Errorf("o is missing")
	case newest && expected == nil && len(versions) > 0:
		return fmt.Errorf("o was deleted")
	}
	return nil
}

func equal(a, b any) bool {
	if x, ok := a.([]byte); ok {
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	}
	return a == b
}

// names lists columns and versions for messages.
func names(columns []*ots.AttributeColumn) (out []string) {
	for _, c := range columns {
		out = append(out, fmt.Sprintf("%s@%d", c.ColumnName, c.Timestamp))
	}
	return out
}
