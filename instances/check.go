package instances

// This file checks the stores of a home while they are served.

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

// CheckStep is what a check of a store tells: a file that it begins with, a problem that it found, or its end.
type CheckStep struct {
	Store ots.InstanceType `json:"store"` // of the instances of this type
	// File is the next file, when so many bytes of all table files, value files and log segments are done.
	File string `json:"file,omitempty"`
	Done int64  `json:"done,omitempty"`
	All  int64  `json:"all,omitempty"`
	// Problem names a file that is damaged, and where.
	Problem string `json:"problem,omitempty"`
	// Report is what the store has, without the problems. It comes last.
	Report *flagstone.CheckReport `json:"report,omitempty"`
}

// checkBurst is how many bytes a check may read at once after it has read less than it might: what it reads with one
// call of Pace.
const checkBurst = 1 << 20

// Check verifies the files of the stores, one store after the other: see flagstone.Store.Check. It reads so many bytes
// per second at most, more than 0, and tells each step. Errors match ErrQuota if another check runs.
func (h *Home) Check(ctx context.Context, bytesPerSecond int64, tell func(CheckStep)) error {
	if bytesPerSecond <= 0 {
		return fmt.Errorf("%w: a check at %d bytes per second", ErrInvalid, bytesPerSecond)
	}
	if !h.checking.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: a check is under way already; stop it, or wait until it has ended", ErrQuota)
	}
	defer h.checking.Store(false)
	limiter := rate.NewLimiter(rate.Limit(bytesPerSecond), checkBurst)
	stores := h.view.Load().stores
	for _, kind := range []ots.InstanceType{ots.HighPerformance, ots.Capacity} {
		if stores[kind] == nil {
			continue
		}
		begun := time.Now()
		report, err := stores[kind].Check(ctx, flagstone.CheckOptions{
			Pace:     func(bytes int) error { return limiter.WaitN(ctx, bytes) },
			Progress: func(file string, done, all int64) { tell(CheckStep{Store: kind, File: file, Done: done, All: all}) },
			Problem:  func(err error) { tell(CheckStep{Store: kind, Problem: err.Error()}) },
		})
		if err != nil {
			return err
		}
		h.opts.Logger.Info("check ended", "store", kind, "took", time.Since(begun), "problems", len(report.Problems))
		report.Problems = nil
		tell(CheckStep{Store: kind, Report: &report})
	}
	return nil
}
