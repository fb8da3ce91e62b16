package ots

// This file bounds the work of judging rows, by counts: the time that a step
// takes, at most, is known, and what a judgement may take is a number of steps.

import (
	"context"
	"errors"
	"regexp"
	"unicode/utf8"

	flagstone "github.com/flagstone-db/flagstone"
)

// A step is what an instruction of a regular expression does for one byte of a
// value, a look at one cell, or the comparison of compareBytes of a value: 100 ns at
// most, see BenchmarkStepsOfExpressions.
const (
	// latchedSteps bound a condition that is judged under the latch of its row: 1.6
	// ms. One that takes more is judged outside. With what is read there (2 ms at
	// most), no condition holds a latch for 5 ms.
	latchedSteps = 1 << 14
	// rowSteps bound the judgement of one row, and requestSteps are when a request
	// judges no further row: 3.4 s.
	rowSteps     = 1 << 25
	requestSteps = 1 << 25
	// sliceSteps are between two looks at the context, 3.3 ms: others get the
	// processor then, too.
	sliceSteps = 1 << 15

	compareBytes = 64
)

// errEffort says that a judgement takes more steps than it may.
var errEffort = errors.New("ots: the judgement of a row takes too many steps")

func filterTooCostly() *Error {
	return invalid("The filter takes too long for one row: the limit is %d instructions of regular expressions times bytes of values.", rowSteps)
}

// effort is what the judgement of one row takes.
type effort struct {
	ctx   context.Context
	left  int64 // steps
	slice int64 // steps since the last look at the context
}

// spend takes steps that are about to be made. Errors are errEffort and the context's.
func (w *effort) spend(steps int64) error {
	if w.left -= steps; w.left < 0 {
		return errEffort
	}
	if w.slice += steps; w.slice < sliceSteps {
		return nil
	}
	w.slice = 0
	if err := turnOf(w.ctx).Yield(w.ctx); err != nil {
		return err
	}
	return w.ctx.Err()
}

// expression is a regular expression and what it costs.
type expression struct {
	*regexp.Regexp
	instructions int64
	perByte      int64 // steps
}

// find returns the groups of the first match, nil if there is none. Errors are those
// of spend.
func (x *expression) find(text []byte, w *effort) ([]int, error) {
	steps := x.perByte * int64(len(text)+1)
	if steps <= sliceSteps {
		return x.FindSubmatchIndex(text), w.spend(steps)
	}
	if w.left < steps {
		return nil, errEffort
	}
	r := slicedText{text: text, effort: w, perByte: x.perByte, slice: int(max(sliceSteps/x.perByte, 1))}
	groups := x.FindReaderSubmatchIndex(&r)
	return groups, r.err
}

// slicedText is a text that ends when the effort does.
type slicedText struct {
	text    []byte
	at      int
	effort  *effort
	perByte int64
	slice   int // bytes
	paid    int // bytes whose steps were spent
	err     error
}

// ReadRune reads the next character. The matcher takes any error for the end of the
// text, so its caller has to look at err.
func (r *slicedText) ReadRune() (c rune, size int, err error) {
	if r.at >= r.paid && r.err == nil {
		r.err = r.effort.spend(r.perByte * int64(r.slice))
		r.paid += r.slice
	}
	if r.err != nil || r.at == len(r.text) {
		return 0, 0, errEndOfText
	}
	c, size = utf8.DecodeRune(r.text[r.at:])
	r.at += size
	return c, size, nil
}

var errEndOfText = errors.New("ots: end of the text")

// exhausted reports whether the request is to judge no further row by a predicate,
// which may be nil.
func (p *predicate) exhausted() bool {
	return p != nil && p.spent != nil && p.spent.Load() >= requestSteps
}

// judge is passes within the bounds of one row and of the request.
func (p *predicate) judge(ctx context.Context, r *flagstone.Row) (bool, error) {
	if p.exhausted() {
		return false, &Error{CodeServerBusy, "Server is busy."}
	}
	w := effort{ctx: ctx, left: rowSteps}
	ok, err := p.passes(r, &w)
	p.spent.Add(rowSteps - max(w.left, 0))
	if errors.Is(err, errEffort) {
		return false, filterTooCostly()
	}
	return ok, err
}
