package main

// This file is how commands end: what they say when they are interrupted, and when their output is lost.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

// results takes what a command prints. It keeps the first error, since commands do not look at each.
type results struct {
	io.Writer
	failed error
}

// Write writes p.
func (r *results) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if r.failed == nil {
		r.failed = err
	}
	return n, err
}

// leftError is an error with what the command leaves.
type leftError struct {
	error
	left string
}

// leaving adds to an error what the command leaves. An interruption shows it too.
func leaving(err error, format string, args ...any) error {
	return &leftError{err, fmt.Sprintf(format, args...)}
}

// Error is the error, and what is left.
func (e *leftError) Error() string { return e.error.Error() + "; " + e.left }

// Unwrap is the error.
func (e *leftError) Unwrap() error { return e.error }

// interruption is what to say of an error of a command whose context has ended: not where that was noticed, but what is
// left, and the failures that were joined to it.
func interruption(err error) error {
	if !ended(err) {
		return err
	}
	said := []string{"interrupted"}
	if errors.Is(err, flagstone.ErrOutcomeUnknown) {
		said = append(said, "the outcome of the last writes is unknown")
	}
	return errors.New(strings.Join(append(said, beside(err)...), "; "))
}

// caused is what to say of an error that a store in this process answered: its cause, which clients are not told, without
// what the command did meanwhile, and the failures that were joined to it.
func caused(err error) error {
	if reflect.TypeOf(err) == joined {
		var causes []error
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			causes = append(causes, caused(err))
		}
		return errors.Join(causes...)
	}
	answer, ok := errors.AsType[*ots.Error](err)
	if !ok || answer.Unwrap() == nil {
		return err
	}
	if e, ok := err.(*leftError); ok {
		return leaving(caused(e.error), "%s", e.left)
	}
	if inner := errors.Unwrap(err); inner != nil && err != error(answer) {
		return caused(inner)
	}
	return advised(answer.Unwrap())
}

// advised adds to an error of damage what can be done.
func advised(err error) error {
	if !errors.Is(err, flagstone.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; 'flagstone check' lists all damage: restore a backup ('flagstone restore'), or let 'flagstone salvage' make a new store of what is intact", err)
}

// ended reports whether an error is of a context that has ended. The service, in this process too, calls that a timeout.
func ended(err error) bool {
	refused, ok := errors.AsType[*ots.Error](err)
	return errors.Is(err, context.Canceled) || ok && refused.Code == ots.CodeTimeout
}

// joined is the type of several failures. Other errors with several causes describe one failure.
var joined = reflect.TypeOf(errors.Join(io.EOF))

// beside lists what an error says besides that a context has ended.
func beside(err error) (said []string) {
	if !ended(err) {
		return []string{err.Error()}
	}
	if reflect.TypeOf(err) == joined {
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			said = append(said, beside(err)...)
		}
		return said
	}
	if inner := errors.Unwrap(err); inner != nil {
		said = beside(inner)
	}
	if e, ok := err.(*leftError); ok {
		said = append(said, e.left)
	}
	return said
}
