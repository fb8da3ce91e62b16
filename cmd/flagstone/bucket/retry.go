package bucket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// patience is how long a request is sent again while its errors are of a kind that passes.
	patience = 5 * time.Minute
	// firstPatience replaces patience until the server has answered once: the endpoint may be a wrong one.
	firstPatience = 5 * time.Second
	// firstPause is how long a failed request rests. Each further pause is twice as long, up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 15 * time.Second
	// clientTries is how often the client itself sends a request. It needs a second try to follow a bucket to its region.
	clientTries = 2
)

// passing is an error that may be none at the next try: of the network, or of a server that is busy.
type passing string

func (p passing) Error() string { return string(p) }

func isPassing(err error) bool {
	_, ok := errors.AsType[passing](err)
	return ok
}

// waits are the pauses between the tries of one request. The zero value has seen no error.
type waits struct {
	first time.Time // when the first try failed
	pause time.Duration
}

// again waits, and reports whether the request may be sent again. If ctx ends, the next try says so.
func (w *waits) again(ctx context.Context, r *Repository, err error) bool {
	if !isPassing(err) {
		return false
	}
	now, limit := time.Now(), r.patience
	if w.first.IsZero() {
		w.first, w.pause = now, firstPause/2
	}
	if !r.transport.answered.Load() {
		limit = min(limit, firstPatience)
	}
	if now.Sub(w.first) >= limit {
		return false
	}
	w.pause = min(2*w.pause, longestPause)
	timer := time.NewTimer(w.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// retry calls send until it succeeds, fails for good, or has failed for too long.
func (r *Repository) retry(ctx context.Context, send func() error) error {
	var w waits
	err := send()
	for w.again(ctx, r, err) {
		err = send()
	}
	return err
}

// broken is the error of a server that does not keep to the protocol.
func (r *Repository) broken(name, format string, args ...any) error {
	return fmt.Errorf("s3://%s/%s%s: %s", r.bucket, r.prefix, name, fmt.Sprintf(format, args...))
}

// explain says what has failed. A missing object gives fs.ErrNotExist, and the end of ctx its error. Other errors match
// nothing outside of the package: an answer that is cut is no damage of an object. The text of a server is shortened and
// quoted.
func (r *Repository) explain(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	at := fmt.Sprintf("s3://%s/%s%s", r.bucket, r.prefix, name)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", at, ctx.Err())
	}
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	text := fmt.Sprintf("%s: %s", at, shorten(err.Error()))
	if ok {
		text = fmt.Sprintf("%s: the server refuses: %s: %q", at, shorten(answer.Code), shorten(answer.Message))
	}
	switch {
	case ok && answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%s: %w", at, fs.ErrNotExist)
	case ok && answer.Code == noSuchUpload:
		return fmt.Errorf("%s: %w", text, errNoUpload)
	case ok && !isBusy(answer), !ok && isLasting(err):
		return errors.New(text)
	}
	return passing(text)
}

// isBusy reports whether a server may answer otherwise later. An upload whose bytes were changed on the way may come
// whole the next time.
func isBusy(answer minio.ErrorResponse) bool {
	switch answer.Code {
	case "BadDigest", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling":
		return true
	}
	switch status := answer.StatusCode; status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500 && status != http.StatusNotImplemented
	}
}

// isLasting reports whether the next try of a request would give the same error.
func isLasting(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || errors.Is(err, errTooLong) || strings.Contains(err.Error(), "gave HTTP response to HTTPS client")
}

// shorten bounds a text of a server.
func shorten(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
