package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/signature"
)

// respond sends the answer with its headers, which are spelled in lower case
// because some clients look for nothing else, and with its signature, which
// some verify on refusals, too. A stranger gets none: it would be material to
// guess the secret with. The last answer on a connection says so.
func (x *exchange) respond(status int, body []byte, last bool) {
	const dateLayout = "2006-01-02T15:04:05.000000Z" // a fraction is demanded
	digest := contentMD5(body)
	x.turn.Leave()
	values := [...]string{ // one piece of memory for what the header map holds
		digest,
		"protocol buffer",
		x.s.cfg.Now().UTC().Format(dateLayout),
		x.id,
		"application/octet-stream",
		strconv.Itoa(len(body)),
		"",
	}
	fields := [...]signature.Field{ // sorted by name
		{Name: headerContentMD5, Value: values[0]},
		{Name: "x-ots-contenttype", Value: values[1]},
		{Name: headerDate, Value: values[2]},
		{Name: "x-ots-requestid", Value: values[3]},
	}
	h := x.w.Header()
	for i := range fields {
		h[fields[i].Name] = values[i : i+1 : i+1]
	}
	h["Content-Type"], h["Content-Length"] = values[4:5:5], values[5:6:6]
	if x.proven {
		text := signature.AppendResponse(make([]byte, 0, 256), x.path, fields[:])
		values[6] = "OTS " + x.field(headerAccessKey) + ":" + signature.Sign(x.key.Secret, text)
		h["authorization"] = values[6:7:7]
	}
	if last {
		h["Connection"] = []string{"close"}
	}
	x.w.WriteHeader(status)
	x.write(body)
}

// write sends a body in parts. Each must be taken within a time of its own, so that a
// client that does not read holds the memory of its answer no longer than that.
func (x *exchange) write(body []byte) {
	const part = 64 << 10
	controller := http.NewResponseController(x.w)
	last := time.Now().Add(x.s.limits.WriteTimeout)
	for {
		next := time.Now().Add(x.s.limits.StallTimeout)
		if next.After(last) {
			next = last
		}
		_ = controller.SetWriteDeadline(next) // a writer that cannot is a test's
		n := min(len(body), part)
		if _, err := x.w.Write(body[:n]); err != nil {
			return // the client has gone
		}
		if body = body[n:]; len(body) == 0 {
			if !x.authentic {
				_ = controller.Flush() // here, where it counts: see refuseStranger
			}
			return
		}
	}
}

// encodeError returns the body of a refusal.
func encodeError(e *ots.Error) []byte {
	body, err := proto.Marshal(errorMessage(e))
	if err != nil {
		panic(fmt.Sprintf("server: an error message does not encode: %v", err))
	}
	return body
}

// errorMessage makes the message of a refusal. Texts may quote what a client
// sent: they are cut to a decent length and made valid UTF-8, without which
// some clients cannot read the message.
func errorMessage(e *ots.Error) *otspb.Error {
	const most = 1024
	text := e.Message
	if len(text) > most {
		cut := most
		for cut > most-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	return &otspb.Error{Code: &e.Code, Message: &text}
}

func refuse(code, format string, args ...any) *ots.Error {
	return &ots.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func internalError() *ots.Error {
	return refuse(ots.CodeInternalServerError, "Internal server error.")
}

func bodyTooLarge() *ots.Error {
	return refuse(ots.CodeRequestBodyTooLarge, "The size of POST data is too large.")
}

// parseFailed refuses a body that is no message of the operation.
func parseFailed() *ots.Error {
	return refuse(ots.CodeParameterInvalid, "Parse PBMessage from RawString failed.")
}

// statusOf returns the HTTP status of an error code (PROTOCOL 11.1).
func statusOf(code string) int {
	switch code {
	case ots.CodeParameterInvalid, ots.CodeInvalidPK, ots.CodeForbiddenUpdateCapacityUnit,
		ots.CodeOutOfRowSizeLimit, ots.CodeOutOfColumnCountLimit, ots.CodeTrimmedDataAccess,
		ots.CodeSessionNotExist, ots.CodeSessionBusy, ots.CodeOutOfTransactionDataSize, ots.CodeDataOutOfRange:
		return http.StatusBadRequest
	case ots.CodeAuthFailed, ots.CodeNoPermissionAccess, ots.CodeConditionCheckFail, ots.CodeQuotaExhausted,
		ots.CodeTooFrequentAdjustment, ots.CodeCapacityUnitExhausted, ots.CodeNotEnoughCapacityUnit:
		return http.StatusForbidden
	case ots.CodeObjectNotExist, ots.CodeTableNotReady:
		return http.StatusNotFound
	case ots.CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case ots.CodeRequestTimeout:
		return http.StatusRequestTimeout
	case ots.CodeObjectAlreadyExist, ots.CodeRowOperationConflict:
		return http.StatusConflict
	case ots.CodeRequestBodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case ots.CodeFlowControl:
		return http.StatusTooManyRequests
	case ots.CodeServerBusy, ots.CodeStorageServerBusy, ots.CodePartitionUnavailable, ots.CodeTimeout,
		ots.CodeServerUnavailable, ots.CodeOperationThrottled:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
