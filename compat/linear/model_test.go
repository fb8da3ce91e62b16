package linear_test

// What one row does, for porcupine: a row is a partition of the history.

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// kind is what an operation does to its row.
type kind string

const (
	read      kind = "read"
	put       kind = "put"       // replaces the row by v = value
	update    kind = "update"    // sets v = value
	remove    kind = "remove"    // deletes the row
	insert    kind = "insert"    // puts the row if it does not exist
	replace   kind = "replace"   // puts the row if it exists
	exchange  kind = "exchange"  // sets v = value if v is before
	increment kind = "increment" // adds value to n, and returns n
)

// request is an operation's input.
type request struct {
	row           int
	kind          kind
	value, before int64
}

// row is the state of a row, and what a read returns. 0 stands for an absent
// column: no operation writes it.
type row struct {
	exists bool
	v, n   int64
}

// outcome is how an operation was answered.
type outcome string

const (
	done    outcome = "done"
	refused outcome = "refused" // its condition did not hold
	unknown outcome = "unknown" // nobody knows whether it was carried out
)

// answer is an operation's output.
type answer struct {
	outcome outcome
	found   row // of a read, or the n that an increment returns
}

// never is the time of an answer that did not come: the operation may take effect
// at any moment, also after everything else, which is as if it never did.
const never = math.MaxInt64

// step says whether a row may answer a request like that, and what it is then.
func step(s row, r request, a answer) (bool, row) {
	allowed := true
	after := s
	switch r.kind {
	case read:
		return a.found == s, s
	case put:
		after = row{exists: true, v: r.value}
	case update:
		after.exists, after.v = true, r.value
	case remove:
		after = row{}
	case insert:
		allowed, after = !s.exists, row{exists: true, v: r.value}
	case replace:
		allowed, after = s.exists, row{exists: true, v: r.value}
	case exchange:
		allowed, after.v = s.exists && s.v == r.before, r.value
	case increment:
		after.exists, after.n = true, s.n+r.value
	}
	if !allowed {
		after = s
	}
	switch a.outcome {
	case done:
		return allowed && (r.kind != increment || a.found.n == after.n), after
	case refused:
		return !allowed, s
	}
	return true, after
}

// model is a row as porcupine wants it.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return row{} },
		Step: func(s, in, out any) (bool, any) {
			ok, after := step(s.(row), in.(request), out.(answer))
			return ok, after
		},
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			rows := map[int][]porcupine.Operation{}
			for _, op := range history {
				n := op.Input.(request).row
				rows[n] = append(rows[n], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range rows {
				parts = append(parts, part)
			}
			return parts
		},
		Hash: func(s any) uint64 {
			r := s.(row)
			h := uint64(r.v)*0x9E3779B97F4A7C15 ^ uint64(r.n)*0xBF58476D1CE4E5B9
			if r.exists {
				h++
			}
			return h
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}
