package ots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	flagstone "github.com/flagstone-db/flagstone"
)

func TestErrorsOfTheEngineBecomeAnswersWithoutInternals(t *testing.T) {
	var log bytes.Buffer
	e := openFixture(t, Limits{})
	e.logger = slog.New(slog.NewTextHandler(&log, nil))
	wrap := func(err error) error { return fmt.Errorf("sst/00/000001.sst at 4096: %w", err) }
	for _, c := range []struct {
		err           error
		applied       bool
		code, message string
		logged        bool
	}{
		{conditionFailed(), false, CodeConditionCheckFail, "Condition check failed.", false},
		{wrap(conditionFailed()), true, CodeConditionCheckFail, "Condition check failed.", false},
		{wrap(flagstone.ErrTableNotFound), false, CodeObjectNotExist, "Requested table does not exist.", false},
		{wrap(flagstone.ErrTableExists), false, CodeObjectAlreadyExist, "Requested table already exists.", false},
		{wrap(flagstone.ErrVersionOutOfRange), false, CodeParameterInvalid, "Invalid timestamp.", false},
		{wrap(context.DeadlineExceeded), false, CodeTimeout, "Operation timeout.", false},
		{wrap(context.Canceled), true, CodeTimeout, "Operation timeout.", false},
		{errors.Join(flagstone.ErrOutcomeUnknown, flagstone.ErrNoSpace), false, CodeTimeout, "Operation timeout.", false},
		{errors.Join(flagstone.ErrOutcomeUnknown, context.DeadlineExceeded), true, CodeTimeout, "Operation timeout.", false},
		{wrap(flagstone.ErrNoSpace), false, CodeStorageServerBusy, "Server is busy: no space left on the disk.", true},
		{wrap(flagstone.ErrNoSpace), true, CodeInternalServerError, "Internal server error.", true},
		{errors.Join(flagstone.ErrPoisoned, flagstone.ErrNoSpace), false, CodeInternalServerError, "Internal server error.", true},
		{wrap(flagstone.ErrFrozen), false, CodePartitionUnavailable, "The partition is not available.", false},
		{wrap(flagstone.ErrDetached), false, CodePartitionUnavailable, "The partition is not available.", false},
		{wrap(flagstone.ErrFrozen), true, CodeInternalServerError, "Internal server error.", true},
		{wrap(flagstone.ErrReadOnly), false, CodeServerUnavailable, "Server is not available.", true},
		{wrap(flagstone.ErrClosed), false, CodeServerUnavailable, "Server is not available.", true},
		{wrap(flagstone.ErrClosed), true, CodeInternalServerError, "Internal server error.", true},
		{wrap(flagstone.ErrCorrupt), false, CodeInternalServerError, "Internal server error.", true},
		{wrap(flagstone.ErrInvalid), false, CodeInternalServerError, "Internal server error.", true},
		{errors.New("anything"), false, CodeInternalServerError, "Internal server error.", true},
	} {
		log.Reset()
		e.clock.Advance(failureSilence)
		wantError(t, e.asError(c.err, "test", "t", c.applied), c.code, c.message)
		if got := e.asError(c.err, "test", "t", c.applied); errors.Is(got, c.err) != (c.logged || got == c.err) {
			t.Errorf("%v: the cause for the operator is %v", c.err, got.Unwrap())
		}
		if logged := strings.Contains(log.String(), "operation=test table=t"); logged != c.logged {
			t.Errorf("%v: logged %v, want %v: %s", c.err, logged, c.logged, log.String())
		}
	}
}

// TestTheLogIsToldOfACauseOnceAMinute: a full disk refuses each put of a load, and each names another file.
func TestTheLogIsToldOfACauseOnceAMinute(t *testing.T) {
	f := openFixture(t, Limits{})
	var log bytes.Buffer
	f.logger = slog.New(slog.NewTextHandler(&log, nil))
	lines := func() int { return strings.Count(log.String(), "operation failed") }
	for i := range 500 {
		f.asError(fmt.Errorf("spare-%06d.log: %w", i, flagstone.ErrNoSpace), "write row", "t", false)
	}
	if lines() != 1 {
		t.Fatalf("500 errors of one cause: %d lines", lines())
	}
	f.asError(fmt.Errorf("000001.sst: %w", flagstone.ErrCorrupt), "get row", "t", false)
	f.asError(fmt.Errorf("000002.sst: %w", flagstone.ErrCorrupt), "get row", "t", false)
	if lines() != 3 || !strings.Contains(log.String(), "000002.sst") {
		t.Fatalf("two more causes: %s", log.String())
	}
	f.asError(fmt.Errorf("000002.sst: %w", flagstone.ErrCorrupt), "get row", "other", false)
	if lines() != 4 || !strings.Contains(log.String(), "table=other") {
		t.Fatalf("the same at another table: %s", log.String())
	}
	f.clock.Advance(failureSilence)
	f.asError(flagstone.ErrNoSpace, "write row", "t", false)
	if lines() != 5 || !strings.Contains(log.String(), "left_out=499") {
		t.Fatalf("a minute later: %s", log.String())
	}
	for i := range 2 * mostCauses {
		f.asError(fmt.Errorf("cause %d", i), "get row", "t", false)
	}
	if n := len(f.failures.causes); n > mostCauses {
		t.Errorf("%d causes are kept", n)
	}
}

func TestAnErrorPrintsCodeAndMessage(t *testing.T) {
	if got, want := tableMissing().Error(), "OTSObjectNotExist: Requested table does not exist."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAClosedStoreAnswersThatTheServerIsNotAvailable(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := f.write(putOf(pk("a")))
	wantError(t, err, CodeServerUnavailable, "Server is not available.")
	_, err = f.get(pk("a"), all())
	wantError(t, err, CodeServerUnavailable, "Server is not available.")
	_, err = f.rangeOf(everything())
	wantError(t, err, CodeServerUnavailable, "Server is not available.")
}

func TestARangeOfACancelledRequestTimesOut(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.fill(10, func(int) []Cell { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req := everything()
	req.Table = "t"
	_, err := f.GetRange(ctx, testInstance, &req)
	wantError(t, err, CodeTimeout, "Operation timeout.")
}

// TestTooManyOpenFilesIsAnsweredAsBusy checks that clients may try again, since nothing was
// done. A write that may have been applied must get another code.
func TestTooManyOpenFilesIsAnsweredAsBusy(t *testing.T) {
	f := openFixture(t, Documented())
	err := fmt.Errorf("%w: open 000001.sst", flagstone.ErrTooManyFiles)
	if got := f.asError(err, "get row", "t", false); got.Code != CodeServerBusy {
		t.Errorf("a read: %v", got)
	}
	if got := f.asError(err, "write row", "t", true); got.Code != CodeInternalServerError {
		t.Errorf("a write that may have been applied: %v", got)
	}
}
