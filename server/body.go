package server

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/md5" // required by the protocol; the digest is signed
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// readBody reads the body, compares its MD5 with the signed header, and decompresses it. The
// result may share memory with buf. Memory is charged for bytes that arrive, not for the
// declared length, and bodyStep in advance, which also bounds the number of requests. It is
// held until the request is answered.
func (x *exchange) readBody(buf *bytes.Buffer) ([]byte, *ots.Error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), x.s.limits.RequestTimeout)
	defer cancel()
	if err := x.body.Take(ctx, bodyStep); err != nil {
		return nil, busy()
	}
	arriving := chargedReader{ctx: ctx, room: &x.body, paid: bodyStep}
	// Allocate at most this much for a declared length; beyond it, memory grows with arriving
	// data.
	const believed = 64 << 10
	if n := x.r.ContentLength; n > 0 {
		buf.Grow(int(min(n, believed)) + bytes.MinRead)
	}
	arriving.Reader = http.MaxBytesReader(x.w, x.r.Body, x.s.limits.BodyBytes)
	_, err := buf.ReadFrom(&arriving)
	x.received = int64(buf.Len())
	if err != nil {
		return nil, bodyRefusal(err)
	}
	if buf.Len() > believed {
		if err := x.turn.Take(ctx); err != nil {
			return nil, busy()
		}
	}
	if contentMD5(buf.Bytes()) != x.field(headerContentMD5) {
		return nil, refuse(ots.CodeAuthFailed, "Mismatch between MD5 value of request body and x-ots-contentmd5 in header.")
	}
	switch kind := x.field(headerCompressType); kind {
	case "":
		return buf.Bytes(), nil
	case "deflate":
		return x.inflate(&arriving, buf.Bytes())
	default:
		return nil, refuse(ots.CodeParameterInvalid, "Unsupported compress type: '%s'.", kind)
	}
}

// contentMD5 is the digest of a body as its header has it. It works in steps of 0.1 ms: a step
// cannot be preempted, and a garbage collection that waits for it stops the whole server.
func contentMD5(body []byte) string {
	const step = 64 << 10
	if len(body) <= step {
		sum := md5.Sum(body) // most are small, and this allocates nothing
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	digest := md5.New()
	for part := range slices.Chunk(body, step) {
		digest.Write(part)
		runtime.Gosched()
	}
	return base64.StdEncoding.EncodeToString(digest.Sum(nil))
}

func bodyRefusal(err error) *ots.Error {
	var tooLarge *http.MaxBytesError
	var refusal *ots.Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &tooLarge):
		return bodyTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(ots.CodeRequestTimeout, "Request timeout.")
	}
	return refuse(ots.CodeParameterInvalid, "The request body is not complete.")
}

// inflate decompresses a zlib stream that must have exactly the declared size. The size has the
// same limit, and the same memory charge, as a plain body.
func (x *exchange) inflate(arriving *chargedReader, compressed []byte) ([]byte, *ots.Error) {
	broken := refuse(ots.CodeParameterInvalid, "Decompress request body failed.")
	size, err := strconv.ParseUint(x.field(headerCompressSize), 10, 63)
	if err != nil {
		return nil, broken
	}
	if size > uint64(x.s.limits.BodyBytes) {
		return nil, bodyTooLarge()
	}
	z, err := zlib.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, broken
	}
	// Read one byte more than declared, to detect extra data and to verify the stream's
	// checksum.
	arriving.Reader = io.LimitReader(z, int64(size)+1)
	body, err := io.ReadAll(arriving)
	if refusal := (*ots.Error)(nil); errors.As(err, &refusal) {
		return nil, refusal
	}
	if err != nil || uint64(len(body)) != size {
		return nil, broken
	}
	return body, nil
}

// drain reads the rest of a refused request's body, within bounds: many clients read the answer
// only after they have sent everything, and would find the connection closed instead. It
// reports whether it reached the end of the body. From strangers it reads little, and not for
// long.
func (x *exchange) drain() bool {
	const (
		fromStrangers = 256 << 10
		forStrangers  = time.Second
	)
	most := x.s.limits.BodyBytes
	if !x.authentic {
		most = fromStrangers
	}
	if expectsContinue(x.r) || x.r.ContentLength > most {
		return false
	}
	if !x.authentic && x.r.ContentLength != 0 {
		// Only the writers of tests cannot set deadlines.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(forStrangers))
	}
	// An error means that the client has gone.
	n, err := io.CopyN(io.Discard, x.r.Body, most)
	return err == io.EOF && n < most
}
