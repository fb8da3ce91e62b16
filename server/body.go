package server

import (
	"bytes"
	"compress/zlib"
	"crypto/md5" // demanded by the protocol; the digest is signed
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/ots"
)

// budget is an amount that many take parts of and give them back.
type budget struct{ left atomic.Int64 }

func (b *budget) take(n int64) bool {
	if b.left.Add(-n) >= 0 {
		return true
	}
	b.left.Add(n)
	return false
}

func (b *budget) give(n int64) { b.left.Add(n) }

// bodyCharge is what the request counts for among all that are being worked
// on: its body, the whole limit if the length is not declared, and the limit
// once more for what a compressed body grows to. It is never too small to
// bound the number of requests as well.
func (x *exchange) bodyCharge() int64 {
	const least = 16 << 10
	charge := x.r.ContentLength
	if charge < 0 {
		charge = x.s.limits.BodyBytes
	}
	if x.field(headerCompressType) != "" {
		charge += x.s.limits.BodyBytes
	}
	return max(charge, least)
}

// readBody reads the body, compares its MD5 with the signed header, and
// uncompresses it. The result may share memory with buf.
func (x *exchange) readBody(buf *bytes.Buffer) ([]byte, *ots.Error) {
	// A declared length is believed only so far: memory grows with what
	// really arrives.
	const believed = 64 << 10
	if n := x.r.ContentLength; n > 0 {
		buf.Grow(int(min(n, believed)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(http.MaxBytesReader(x.w, x.r.Body, x.s.limits.BodyBytes)); err != nil {
		return nil, bodyRefusal(err)
	}
	sum := md5.Sum(buf.Bytes())
	if base64.StdEncoding.EncodeToString(sum[:]) != x.field(headerContentMD5) {
		return nil, refuse(ots.CodeAuthFailed, "Mismatch between MD5 value of request body and x-ots-contentmd5 in header.")
	}
	switch kind := x.field(headerCompressType); kind {
	case "":
		return buf.Bytes(), nil
	case "deflate":
		return x.inflate(buf.Bytes())
	default:
		return nil, refuse(ots.CodeParameterInvalid, "Unsupported compress type: '%s'.", kind)
	}
}

func bodyRefusal(err error) *ots.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return bodyTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(ots.CodeRequestTimeout, "Request timeout.")
	}
	return refuse(ots.CodeParameterInvalid, "The request body is not complete.")
}

// inflate uncompresses a zlib stream that must have exactly the declared size,
// which is held to the same limit as a body that is not compressed.
func (x *exchange) inflate(compressed []byte) ([]byte, *ots.Error) {
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
	// One byte more than declared is asked for, to see that there is none and
	// to have the stream's checksum verified.
	body, err := io.ReadAll(io.LimitReader(z, int64(size)+1))
	if err != nil || uint64(len(body)) != size {
		return nil, broken
	}
	return body, nil
}

// drain reads what is left of the body of a refused request, within bounds:
// many clients read no answer before they have sent everything, and would find
// the connection closed instead.
func (x *exchange) drain() {
	const bodies = 4 // how many times the limit is still read
	most := bodies * x.s.limits.BodyBytes
	if expectsContinue(x.r) || x.r.ContentLength > most {
		return
	}
	// An error means that nobody listens any more.
	_, _ = io.CopyN(io.Discard, x.r.Body, most)
}
