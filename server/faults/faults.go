// Package faults makes a server fail on request, so that programs can be tested against the
// faults of the service: busy, timeout, conflict, slow. Rules say which requests fail, and how.
//
//	faults.go  rules and the requests they hit
//	rows.go    rows of batches that fail by themselves
//
// The server answers with the fault instead of performing the request, as the codes promise.
// Only a rule with Applied performs the request first and then loses its answer.
package faults

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// messages are the errors that can be injected, with the service's texts.
var messages = map[string]string{
	ots.CodeServerBusy:            "Server is busy.",
	ots.CodeStorageServerBusy:     "Server is busy.",
	ots.CodeTimeout:               "Operation timeout.",
	ots.CodeRowOperationConflict:  "Data is being modified by the other request.",
	ots.CodePartitionUnavailable:  "The partition is not available.",
	ots.CodeTableNotReady:         "The table is not ready.",
	ots.CodeNotEnoughCapacityUnit: "Remaining capacity unit is not enough.",
	ots.CodeCapacityUnitExhausted: "Capacity unit is not enough.",
	ots.CodeQuotaExhausted:        "Too frequent table operations.",
	ots.CodeFlowControl:           "Flow control.",
	ots.CodeOperationThrottled:    "Operation throttled.",
	ots.CodeInternalServerError:   "Internal server error.",
	ots.CodeServerUnavailable:     "Server is not available.",
	ots.CodeRequestTimeout:        "Request timeout.",
}

// open are the codes that leave it open whether the request was performed. The other codes
// promise that it was not, and clients repeat it by themselves.
var open = map[string]bool{
	ots.CodeTimeout: true, ots.CodeInternalServerError: true, ots.CodeServerUnavailable: true,
}

// operations are the operations that rules may name: all that a server offers.
var operations = [...]string{
	"CreateTable", "ListTable", "DescribeTable", "UpdateTable", "DeleteTable", "ComputeSplitPointsBySize",
	"GetRow", "GetRange", "BatchGetRow", "PutRow", "UpdateRow", "DeleteRow", "BatchWriteRow",
	"StartLocalTransaction", "CommitTransaction", "AbortTransaction",
	"ListStream", "DescribeStream", "GetShardIterator", "GetStreamRecord",
	"tunnel/create", "tunnel/list", "tunnel/describe", "tunnel/delete", "tunnel/connect", "tunnel/heartbeat",
	"tunnel/shutdown", "tunnel/getcheckpoint", "tunnel/checkpoint", "tunnel/readrecords",
}

// Rule says which requests fail, and how. Empty fields match everything.
type Rule struct {
	Operation string // such as PutRow, BatchWriteRow, CommitTransaction
	Instance  string // upper and lower case are the same
	Table     string // matches a request if it names this table among others

	// Code is the error of the answer. If empty, the request is performed after Delay.
	Code string
	// Rate is the fraction of matching requests to hit, a millionth to 1. Hits are spread
	// evenly: with 0.25, the first match and every fourth after it.
	Rate float64
	// Times bounds the number of hits; 0 means no bound.
	Times int
	// Applied performs the request before the error is answered, as if the answer had been
	// lost. It is allowed only for codes that leave that open.
	Applied bool
	// Rows hits single rows of BatchGetRow and BatchWriteRow instead of requests.
	Rows bool
	// Delay is the time to wait before the answer.
	Delay time.Duration
}

// Status is a rule with its counters.
type Status struct {
	Rule
	Matched, Hit int // requests, or rows
}

// maxDelay is below the time after which a server closes connections.
const maxDelay = time.Minute

// leastRate is the resolution of rates.
const leastRate = 1e-6

// maxRules bounds the work per request.
const maxRules = 100

// Check returns the error in a rule, if any.
func (r *Rule) Check() error {
	switch {
	case r.Code == "" && r.Delay == 0:
		return errors.New("a fault needs a code, a delay, or both")
	case r.Code != "" && messages[r.Code] == "":
		return fmt.Errorf("code %q cannot be injected", r.Code)
	case r.Operation != "" && !slices.Contains(operations[:], r.Operation):
		return fmt.Errorf("operation %q is none that the server offers", r.Operation)
	case !(r.Rate >= leastRate && r.Rate <= 1):
		return fmt.Errorf("rate %v is not from %v to 1", r.Rate, leastRate)
	case r.Times < 0:
		return fmt.Errorf("times is %d", r.Times)
	case r.Delay < 0 || r.Delay > maxDelay:
		return fmt.Errorf("delay %v is not from 0 to %v", r.Delay, maxDelay)
	case r.Applied && !open[r.Code]:
		return fmt.Errorf("%q says that nothing was applied; clients repeat such requests", r.Code)
	case r.Rows && (r.Applied || r.Delay != 0):
		return errors.New("rows of a batch fail unapplied and without a delay of their own")
	case r.Rows && r.Operation != "" && r.Operation != "BatchWriteRow" && r.Operation != "BatchGetRow":
		return fmt.Errorf("operation %q has no rows that fail by themselves", r.Operation)
	}
	return nil
}

// Injector holds rules and decides which requests fail. Its methods are safe for concurrent
// use; the zero value has no rules.
type Injector struct {
	mu    sync.Mutex
	rules []*activeRule
}

type activeRule struct {
	Status
	due float64 // at 1 the next match is a hit
}

// Add appends a rule. The first rule that hits a request decides.
func (in *Injector) Add(r Rule) error {
	if err := r.Check(); err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.rules) >= maxRules {
		return fmt.Errorf("there are %d faults already; remove some", len(in.rules))
	}
	in.rules = append(in.rules, &activeRule{Status: Status{Rule: r}, due: 1})
	return nil
}

// Clear removes all rules.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rules = nil
}

// List returns all rules, in order.
func (in *Injector) List() []Status {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := []Status{}
	for _, r := range in.rules {
		list = append(list, r.Status)
	}
	return list
}

// Fault is the fault of one request; the zero value means none.
type Fault struct {
	Err     *ots.Error // nil: none
	Applied bool       // perform the request first
	Delay   time.Duration
}

// Request returns the fault of a request.
func (in *Injector) Request(operation, instance string, tables []string) Fault {
	return in.next(operation, instance, tables, false)
}

// next returns the fault of the first rule that hits.
func (in *Injector) next(operation, instance string, tables []string, rows bool) Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.rules {
		if r.Rows == rows && r.matches(operation, instance, tables) && r.hits() {
			f := Fault{Applied: r.Applied, Delay: r.Delay}
			if r.Code != "" {
				f.Err = &ots.Error{Code: r.Code, Message: messages[r.Code]}
			}
			return f
		}
	}
	return Fault{}
}

func (r *activeRule) matches(operation, instance string, tables []string) bool {
	if r.Times > 0 && r.Hit >= r.Times ||
		r.Operation != "" && r.Operation != operation || r.Instance != "" && !strings.EqualFold(r.Instance, instance) {
		return false
	}
	if r.Table == "" {
		return true
	}
	for _, t := range tables {
		if t == r.Table {
			return true
		}
	}
	return false
}

// hits counts a match and reports whether it is a hit. It rounds to millionths, so that ten
// times 0.1 is exactly 1.
func (r *activeRule) hits() bool {
	r.Matched++
	hit := r.due >= 1
	if hit {
		r.Hit++
		r.due--
	}
	r.due = math.Round((r.due+r.Rate)*1e6) / 1e6
	return hit
}
