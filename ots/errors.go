package ots

// This file holds the errors of the protocol: a code for SDKs and a message for people and test
// suites (PROTOCOL section 11). The server maps codes to HTTP statuses.
//
// SDKs repeat a request if its code says that nothing was applied, so such a code is given only
// when that is certain. A write with an unknown outcome gets OTSInternalServerError or
// OTSTimeout, which clients repeat for reads only (PROTOCOL 1.8).

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
)

// Error codes (PROTOCOL 11.1).
const (
	CodeParameterInvalid            = "OTSParameterInvalid"
	CodeInvalidPK                   = "OTSInvalidPK"
	CodeForbiddenUpdateCapacityUnit = "OTSForbiddenUpdateCapacityUnit"
	CodeOutOfRowSizeLimit           = "OTSOutOfRowSizeLimit"
	CodeOutOfColumnCountLimit       = "OTSOutOfColumnCountLimit"
	CodeTrimmedDataAccess           = "OTSTrimmedDataAccess"
	CodeSessionNotExist             = "OTSSessionNotExist"
	CodeSessionBusy                 = "OTSSessionBusy"
	CodeOutOfTransactionDataSize    = "OTSOutOfTransactionDataSizeLimit"
	CodeDataOutOfRange              = "OTSDataOutOfRange"
	CodeAuthFailed                  = "OTSAuthFailed"
	CodeNoPermissionAccess          = "OTSNoPermissionAccess"
	CodeConditionCheckFail          = "OTSConditionCheckFail"
	CodeQuotaExhausted              = "OTSQuotaExhausted"
	CodeTooFrequentAdjustment       = "OTSTooFrequentReservedThroughputAdjustment"
	CodeCapacityUnitExhausted       = "OTSCapacityUnitExhausted"
	CodeNotEnoughCapacityUnit       = "OTSNotEnoughCapacityUnit"
	CodeObjectNotExist              = "OTSObjectNotExist"
	CodeTableNotReady               = "OTSTableNotReady"
	CodeMethodNotAllowed            = "OTSMethodNotAllowed"
	CodeRequestTimeout              = "OTSRequestTimeout"
	CodeObjectAlreadyExist          = "OTSObjectAlreadyExist"
	CodeRowOperationConflict        = "OTSRowOperationConflict"
	CodeRequestBodyTooLarge         = "OTSRequestBodyTooLarge"
	CodeFlowControl                 = "OTSFlowControl"
	CodeInternalServerError         = "OTSInternalServerError"
	CodeServerBusy                  = "OTSServerBusy"
	CodeStorageServerBusy           = "OTSStorageServerBusy"
	CodePartitionUnavailable        = "OTSPartitionUnavailable"
	CodeTimeout                     = "OTSTimeout"
	CodeServerUnavailable           = "OTSServerUnavailable"
	CodeOperationThrottled          = "OTSOperationThrottled"
	// Of tunnels.
	CodeTunnelExist             = "OTSTunnelExist"
	CodeTunnelExpired           = "OTSTunnelExpired"
	CodeTunnelServerUnavailable = "OTSTunnelServerUnavailable"
	CodeResourceGone            = "OTSResourceGone"
	CodeSequenceNumberNotMatch  = "OTSSequenceNumberNotMatch"
)

// Error is a refusal as the client gets it: Code is one of the constants above, Message never
// holds internals of the server, but that its disk is full.
type Error struct {
	Code, Message string
	cause         error
}

// Unwrap is the failure of the engine behind an answer that does not tell it; nil if there is none. It is for the
// operator, and not for clients.
func (e *Error) Unwrap() error { return e.cause }

// Error returns code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// invalid makes an OTSParameterInvalid error.
func invalid(format string, args ...any) *Error {
	return &Error{Code: CodeParameterInvalid, Message: fmt.Sprintf(format, args...)}
}

func invalidPK(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidPK, Message: fmt.Sprintf(format, args...)}
}

// unsupported refuses a feature that this server does not have yet. Such a request is never
// carried out without the feature.
func unsupported(feature string) *Error {
	return invalid("%s not supported yet by this server.", feature)
}

// TooManyRows refuses a batch with more than most rows or table entries.
func TooManyRows(most int) *Error {
	return invalid("Rows count exceeds the upper limit: %d.", most)
}

func tableMissing() *Error {
	return &Error{Code: CodeObjectNotExist, Message: "Requested table does not exist."}
}

func timedOut(cause error) *Error {
	return &Error{Code: CodeTimeout, Message: "Operation timeout.", cause: cause}
}

func conditionFailed() *Error {
	return &Error{Code: CodeConditionCheckFail, Message: "Condition check failed."}
}

func internalError() *Error {
	return &Error{Code: CodeInternalServerError, Message: "Internal server error."}
}

// asError turns an error of the engine into the answer for the client. If applied is set, the
// change may have been applied, and no code is given that makes clients repeat a write. Causes
// that a client cannot act upon go to the log, not into the message.
func (e *Engine) asError(err error, operation, table string, applied bool) *Error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, flagstone.ErrOutcomeUnknown):
		return timedOut(nil)
	case errors.Is(err, flagstone.ErrTableNotFound):
		return tableMissing()
	case errors.Is(err, flagstone.ErrTableExists):
		return &Error{Code: CodeObjectAlreadyExist, Message: "Requested table already exists."}
	case errors.Is(err, flagstone.ErrConflict):
		return &Error{Code: CodeRowOperationConflict, Message: "Data is being modified by the other request."}
	case errors.Is(err, flagstone.ErrTransactionEnded):
		return sessionMissing()
	case errors.Is(err, flagstone.ErrTransactionMemory), !applied && errors.Is(err, flagstone.ErrTooManyFiles):
		return &Error{Code: CodeServerBusy, Message: "Server is busy."}
	case !applied && (errors.Is(err, flagstone.ErrFrozen) || errors.Is(err, flagstone.ErrDetached)):
		return &Error{Code: CodePartitionUnavailable, Message: "The partition is not available."}
	case errors.Is(err, flagstone.ErrRowTooLarge):
		return rowTooLarge()
	case errors.Is(err, flagstone.ErrVersionOutOfRange):
		return invalid("Invalid timestamp.")
	}
	if leftOut, logs := e.failures.add(e.store.Elapsed(), table, err); logs {
		e.logger.Error("operation failed", "operation", operation, "table", table, "error", err, "left_out", leftOut)
	}
	answer := internalError()
	switch {
	case applied, errors.Is(err, flagstone.ErrPoisoned):
	case errors.Is(err, flagstone.ErrNoSpace):
		answer = &Error{Code: CodeStorageServerBusy, Message: "Server is busy: no space left on the disk."}
	case errors.Is(err, flagstone.ErrReadOnly), errors.Is(err, flagstone.ErrClosed):
		answer = &Error{Code: CodeServerUnavailable, Message: "Server is not available."}
	}
	answer.cause = err
	return answer
}

const (
	// failureSilence is how long the log is silent about a cause after it was told of it.
	failureSilence = time.Minute
	// mostCauses bounds the memory for causes. All are forgotten when there are more.
	mostCauses = 1000
)

// failures are the causes of which the log was told. A full disk refuses thousands of requests per second.
type failures struct {
	mu     sync.Mutex
	causes map[string]*failure
}

type failure struct {
	logged  time.Duration
	leftOut int
}

// add reports whether the log is to be told of an error at a table now, and how many of its cause were left out since it
// was told of the last one. Errors of the state of a store are one cause each, whatever table and file they name.
func (f *failures) add(now time.Duration, table string, err error) (leftOut int, logs bool) {
	cause := table + "\x00" + err.Error()
	for _, state := range []error{flagstone.ErrPoisoned, flagstone.ErrNoSpace, flagstone.ErrReadOnly, flagstone.ErrClosed} {
		if errors.Is(err, state) {
			cause = state.Error()
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.causes[cause]
	if known != nil && now-known.logged < failureSilence {
		known.leftOut++
		return 0, false
	}
	if known != nil {
		leftOut = known.leftOut
	}
	if f.causes == nil || len(f.causes) >= mostCauses {
		f.causes = make(map[string]*failure)
	}
	f.causes[cause] = &failure{logged: now}
	return leftOut, true
}
