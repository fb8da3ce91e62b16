package ots

// This file bounds the work of judging rows against filters. It counts steps; a step has a
// known maximum duration.

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"unicode/utf8"

	flagstone "github.com/flagstone-db/flagstone"
)

// A step is one instruction of a regular expression for one byte of a value, a look at one
// cell, or the comparison of compareBytes of a value. It takes at most 100 ns, see
// BenchmarkStepsOfExpressions.
const (
	// latchedSteps bounds a condition that is judged under its row's latch: 1.6 ms. A longer
	// one is judged outside the latch. Together with the read there (at most 2 ms), no
	// condition holds a latch for 5 ms.
	latchedSteps = 1 << 14
	// rowSteps bounds the judgement of one row: 3.4 s. A request that has spent requestSteps
	// judges no further row.
	rowSteps     = 1 << 25
	requestSteps = 1 << 25
	// sliceSteps lie between two checks of the context, 3.3 ms. The request then also yields
	// the processor.
	sliceSteps = 1 << 15

	compareBytes = 64
)

// errEffort says that judging a row takes more steps than allowed.
var errEffort = errors.New("ots: the judgement of a row takes too many steps")

func filterTooCostly() *Error {
	return invalid("The filter takes too long for one row: the limit is %d instructions of regular expressions times bytes of values.", rowSteps)
}

// effort counts the steps of judging one row.
type effort struct {
	ctx   context.Context
	left  int64 // steps
	slice int64 // steps since the last look at the context
}

// spend takes steps before they are made. It returns errEffort or the context's error.
func (w *effort) spend(steps int64) error {
	if w.left -= steps; w.left < 0 {
		return errEffort
	}
	if w.slice += steps; w.slice < sliceSteps {
		return nil
	}
	w.slice = 0
	runtime.Gosched()
	return w.ctx.Err()
}

// expression is a regular expression and its cost.
type expression struct {
	*regexp.Regexp
	instructions int64
	perByte      int64 // steps
}

// find returns the groups of the first match, nil if there is none. Errors are those of spend.
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

// slicedText reads a text, and ends it early when the steps are used up.
type slicedText struct {
	text    []byte
	at      int
	effort  *effort
	perByte int64
	slice   int // bytes
	paid    int // bytes whose steps were spent
	err     error
}

// ReadRune reads the next character. The matcher takes any error as the end of the text, so its
// caller must check err.
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

// exhausted reports whether the request has used up its steps. p may be nil.
func (p *predicate) exhausted() bool {
	return p != nil && p.spent != nil && p.spent.Load() >= requestSteps
}

// judge calls passes within the bounds of one row and of the request.
func (p *predicate) judge(ctx context.Context, r *flagstone.Row) (bool, error) {
	if p.exhausted() {
		return false, &Error{Code: CodeServerBusy, Message: "Server is busy."}
	}
	w := effort{ctx: ctx, left: rowSteps}
	ok, err := p.passes(r, &w)
	p.spent.Add(rowSteps - max(w.left, 0))
	if errors.Is(err, errEffort) {
		return false, filterTooCostly()
	}
	return ok, err
}
