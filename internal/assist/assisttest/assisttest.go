// Package assisttest offers helpers that do work when a test says so.
package assisttest

import "github.com/flagstone-db/flagstone/internal/assist"

// NewManual returns helpers for tests with one goroutine: a task that judge accepts is done
// before Offer returns, and others never.
func NewManual(judge func() bool) *assist.Helpers {
	return assist.NewStepped(func(l *assist.Task, _ assist.Work) {
		if judge() {
			l.Help()
		}
	}, nil)
}
