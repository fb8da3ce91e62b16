// Package signature computes and checks the signatures of the OTS protocol: version 2,
// HMAC-SHA1 over a canonical text of the request or the answer; and version 4, for requests
// only, HMAC-SHA256 with a key derived for a day and a region.
//
//	request  = path "\n" "POST" "\n" "" "\n" field*     path: "/GetRow"
//	response = field* path
//	field    = name ":" trim(value) "\n"                sorted by name
//	version2 = base64( HMAC-SHA1( key = secret, request or response ) )
//
//	key      = base64( H(H(H(H("aliyun_v4" secret, date), region), "ots"), "aliyun_v4_request") )
//	version4 = base64( H( key, request "ots" ) )        H(key, text) = HMAC-SHA256
//
// The fields of a request are all its x-ots-* headers, with lower-case names, except
// x-ots-signature and x-ots-signaturev4. The fields of a response are all x-ots-* headers of
// the answer.
//
// Worked example (secret "aksecret", id "akid", instance "myinst"):
//
//	/ListTable\nPOST\n\nx-ots-accesskeyid:akid\nx-ots-apiversion:2015-12-31\n
//	x-ots-contentmd5:1B2M2Y8AsgTpgAmY7PhCfg==\n
//	x-ots-date:2024-01-02T03:04:05.678Z\nx-ots-instancename:myinst\n
//	signature sZeDkSTeu1Y5qbMXu8uIgSkFKTI=
package signature

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1" // required by the protocol; HMAC-SHA1 does not depend on collision resistance
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"slices"
	"strings"
)

// The headers that carry a signature. They are not signed.
const (
	HeaderV2 = "x-ots-signature"
	HeaderV4 = "x-ots-signaturev4"
)

// Field is one signed header; its name is in lower case.
type Field struct{ Name, Value string }

// Sort puts fields in the order of the canonical text.
func Sort(fields []Field) {
	slices.SortFunc(fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
}

// AppendRequest appends the canonical text of a request with sorted fields.
func AppendRequest(dst []byte, path string, fields []Field) []byte {
	dst = append(dst, path...)
	dst = append(dst, "\nPOST\n\n"...)
	return appendFields(dst, fields)
}

// AppendResponse appends the canonical text of the answer to a request to path, with sorted
// fields. It never equals the text of a request, which begins with a slash: so a client cannot
// make the server sign a request.
func AppendResponse(dst []byte, path string, fields []Field) []byte {
	dst = appendFields(dst, fields)
	return append(dst, path...)
}

func appendFields(dst []byte, fields []Field) []byte {
	for _, f := range fields {
		if f.Name == HeaderV2 || f.Name == HeaderV4 {
			continue
		}
		dst = append(dst, f.Name...)
		dst = append(dst, ':')
		dst = append(dst, strings.TrimSpace(f.Value)...)
		dst = append(dst, '\n')
	}
	return dst
}

// Sign returns the signature of a canonical text.
func Sign(secret string, text []byte) string {
	return base64.StdEncoding.EncodeToString(sum(sha1.New, secret, text))
}

// Verify reports whether got is the signature of a canonical text. Its time depends neither on
// whether got is malformed, wrong or right, nor on the position of a difference.
func Verify(secret string, text []byte, got string) bool {
	return verify(sum(sha1.New, secret, text), got)
}

// KeyV4 derives the key of version 4 signatures for a date (yyyyMMdd) and a region.
func KeyV4(secret, date, region string) string {
	key := "aliyun_v4" + secret
	for _, part := range [...]string{date, region, product, "aliyun_v4_request"} {
		key = string(sum(sha256.New, key, []byte(part)))
	}
	return base64.StdEncoding.EncodeToString([]byte(key))
}

// SignV4 returns the version 4 signature of a canonical text.
func SignV4(key string, text []byte) string {
	return base64.StdEncoding.EncodeToString(sum(sha256.New, key, text, product))
}

// VerifyV4 is Verify for version 4 signatures.
func VerifyV4(key string, text []byte, got string) bool {
	return verify(sum(sha256.New, key, text, product), got)
}

// verify compares a signature with the bytes that it must decode to.
func verify(want []byte, got string) bool {
	var decoded [sha256.Size + 2]byte // room for 44 decoded characters
	n := 0
	if len(got) == base64.StdEncoding.EncodedLen(len(want)) {
		var err error
		if n, err = base64.StdEncoding.Strict().Decode(decoded[:], []byte(got)); err != nil {
			n = 0
		}
	}
	return hmac.Equal(decoded[:n], want)
}

// product is the name of this service in version 4; the signed text ends with it.
const product = "ots"

func sum(algorithm func() hash.Hash, key string, text []byte, more ...string) []byte {
	mac := hmac.New(algorithm, []byte(key))
	mac.Write(text)
	for _, s := range more {
		mac.Write([]byte(s))
	}
	return mac.Sum(nil)
}
