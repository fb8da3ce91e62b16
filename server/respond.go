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

// respond sends the answer. Header names are in lower case, since some clients look for nothing
// else. The answer is signed, since some clients verify even refusals. A stranger gets no
// signature, which would help to guess the secret. last announces the end of the connection.
func (x *exchange) respond(status int, body []byte, last bool) {
	const dateLayout = "2006-01-02T15:04:05.000000Z" // the protocol requires a fraction
	digest := contentMD5(body)
	x.turn.Leave()
	values := [...]string{ // one allocation for all header values
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

// write sends a body in parts. The client must take each part within StallTimeout, which bounds
// how long a client that does not read holds the memory of its answer.
func (x *exchange) write(body []byte) {
	const part = 64 << 10
	controller := http.NewResponseController(x.w)
	last := time.Now().Add(x.s.limits.WriteTimeout)
	for {
		next := time.Now().Add(x.s.limits.StallTimeout)
		if next.After(last) {
			next = last
		}
		_ = controller.SetWriteDeadline(next) // only writers of tests cannot
		n := min(len(body), part)
		if _, err := x.w.Write(body[:n]); err != nil {
			return // the client has gone
		}
		if body = body[n:]; len(body) == 0 {
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

// errorMessage makes the message of a refusal. Texts may quote the client's data: they are cut
// to a bounded length and made valid UTF-8, which some clients need to read the message.
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

// parseFailed refuses a body that does not decode as the operation's message.
func parseFailed() *ots.Error {
	return refuse(ots.CodeParameterInvalid, "Parse PBMessage from RawString failed.")
}

// statusOf returns the HTTP status of an error code (PROTOCOL 11.1).
func statusOf(code string) int {
	switch code {
	case ots.CodeParameterInvalid, ots.CodeInvalidPK, ots.CodeForbiddenUpdateCapacityUnit,
		ots.CodeOutOfRowSizeLimit, ots.CodeOutOfColumnCountLimit, ots.CodeTrimmedDataAccess,
		ots.CodeSessionNotExist, ots.CodeSessionBusy, ots.CodeOutOfTransactionDataSize, ots.CodeDataOutOfRange,
		ots.CodeTunnelExpired:
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
	case ots.CodeObjectAlreadyExist, ots.CodeRowOperationConflict, ots.CodeTunnelExist, ots.CodeSequenceNumberNotMatch:
		return http.StatusConflict
	case ots.CodeResourceGone:
		return http.StatusGone
	case ots.CodeRequestBodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case ots.CodeFlowControl:
		return http.StatusTooManyRequests
	case ots.CodeServerBusy, ots.CodeStorageServerBusy, ots.CodePartitionUnavailable, ots.CodeTimeout,
		ots.CodeServerUnavailable, ots.CodeOperationThrottled, ots.CodeTunnelServerUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
