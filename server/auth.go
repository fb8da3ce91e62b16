package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/signature"
)

// Header names in lower case, the form in which they are signed.
const (
	headerPrefix       = "x-ots-"
	headerDate         = "x-ots-date"
	headerAPIVersion   = "x-ots-apiversion"
	headerAccessKey    = "x-ots-accesskeyid"
	headerContentMD5   = "x-ots-contentmd5"
	headerInstance     = "x-ots-instancename"
	headerSTSToken     = "x-ots-ststoken"
	headerCompressType = "x-ots-request-compress-type"
	headerCompressSize = "x-ots-request-compress-size"
	headerSignRegion   = "x-ots-signregion"
	headerSignDate     = "x-ots-signdate"
)

const (
	apiVersion = "2015-12-31"
	maxSkew    = 15 * 60 // seconds; clients allow the same for answers
	// maxSignDays is the largest distance in days between today and the day of a version 4 key:
	// clients may keep such a key for some days.
	maxSignDays = 7
)

// collectFields gathers all x-ots-* headers, known or not, since all are signed. It looks up
// the sender's secret and verifies the signature. authenticate checks the result later: the
// answer is signed only if the request was.
func (x *exchange) collectFields() {
	x.fields = make([]signature.Field, 0, 8)
	for key, values := range x.r.Header {
		if len(key) < len(headerPrefix) || !strings.EqualFold(key[:len(headerPrefix)], headerPrefix) {
			continue
		}
		name := lowerName(key)
		if len(values) != 1 {
			x.duplicate = name
		}
		x.fields = append(x.fields, signature.Field{Name: name, Value: strings.TrimSpace(values[0])})
	}
	signature.Sort(x.fields)
	if id := x.field(headerAccessKey); id != "" && x.duplicate != headerAccessKey {
		if key, ok := x.s.cfg.Credentials(id); ok {
			x.key = key
		}
	}
	x.proven = x.verify() && x.duplicate == ""
}

// lowerName returns a header's name in lower case. It allocates nothing for the headers of
// every request, which arrive in the spelling of net/http.
func lowerName(key string) string {
	switch key {
	case "X-Ots-Date":
		return headerDate
	case "X-Ots-Apiversion":
		return headerAPIVersion
	case "X-Ots-Accesskeyid":
		return headerAccessKey
	case "X-Ots-Contentmd5":
		return headerContentMD5
	case "X-Ots-Instancename":
		return headerInstance
	case "X-Ots-Signature":
		return signature.HeaderV2
	}
	return strings.ToLower(key)
}

// field returns the value of an x-ots-* header, "" if it is missing.
func (x *exchange) field(name string) string {
	for i := range x.fields {
		if x.fields[i].Name == name {
			return x.fields[i].Value
		}
	}
	return ""
}

// authenticate checks the headers, the dates, the instance and the signature. The signature
// covers the MD5 of the body, which readBody compares.
func (x *exchange) authenticate() *ots.Error {
	if refusal := x.checkHeaders(); refusal != nil {
		return refusal
	}
	date := x.field(headerDate)
	sent, ok := parseDate(date)
	if !ok {
		return refuse(ots.CodeParameterInvalid, "Invalid date format: %s.", date)
	}
	if skew := x.at.Unix() - sent.Unix(); skew > maxSkew || skew < -maxSkew {
		return refuse(ots.CodeAuthFailed, "Mismatch between system time and x-ots-date: %s.", date)
	}
	if refusal := x.checkSignDate(); refusal != nil {
		return refusal
	}
	instance := x.field(headerInstance)
	service, canonical, ok := x.s.cfg.Instances(instance)
	if !ok {
		if !validInstanceName(instance) {
			return refuse(ots.CodeParameterInvalid, "Invalid instance name: '%s'.", instance)
		}
		return refuse(ots.CodeAuthFailed, "The instance is not found.")
	}
	if refusal := x.checkSignature(); refusal != nil {
		return refusal
	}
	if x.key.Instance != "" && x.key.Instance != canonical {
		return refuse(ots.CodeAuthFailed, "The user has no privilege to access the instance.")
	}
	x.service, x.instance = service, canonical
	return nil
}

func (x *exchange) checkHeaders() *ots.Error {
	if x.duplicate != "" {
		return refuse(ots.CodeParameterInvalid, "Duplicated header: '%s'.", x.duplicate)
	}
	for _, name := range [...]string{headerDate, headerAPIVersion, headerAccessKey, headerContentMD5, headerInstance} {
		if x.field(name) == "" {
			return refuse(ots.CodeParameterInvalid, "Missing header: '%s'.", name)
		}
	}
	if x.field(signature.HeaderV2) != "" {
		return nil
	}
	if x.field(signature.HeaderV4) == "" {
		return refuse(ots.CodeParameterInvalid, "Missing header: '%s'.", signature.HeaderV2)
	}
	for _, name := range [...]string{headerSignRegion, headerSignDate} {
		if x.field(name) == "" {
			return refuse(ots.CodeParameterInvalid, "Missing header: '%s'.", name)
		}
	}
	return nil
}

// checkSignDate checks the day for which a version 4 signing key was derived; version 2 has
// none.
func (x *exchange) checkSignDate() *ots.Error {
	if x.field(signature.HeaderV2) != "" {
		return nil
	}
	text := x.field(headerSignDate)
	day, err := time.Parse("20060102", text)
	if err != nil {
		return refuse(ots.CodeParameterInvalid, "Invalid date format: %s.", text)
	}
	if days := x.at.Sub(day).Hours() / 24; days < -maxSignDays || days > maxSignDays+1 {
		return refuse(ots.CodeAuthFailed, "Mismatch between system time and x-ots-signdate: %s.", text)
	}
	return nil
}

// verify reports whether a known key made the signature. It does the same work for an unknown
// key.
func (x *exchange) verify() bool {
	secret := x.key.Secret
	known := secret != ""
	if !known {
		secret = x.s.dummy
	}
	text := signature.AppendRequest(make([]byte, 0, 512), x.path, x.fields)
	if v2 := x.field(signature.HeaderV2); v2 != "" {
		return signature.Verify(secret, text, v2) && known
	}
	key := signature.KeyV4(secret, x.field(headerSignDate), x.field(headerSignRegion))
	return signature.VerifyV4(key, text, x.field(signature.HeaderV4)) && known
}

func (x *exchange) checkSignature() *ots.Error {
	switch {
	case x.key.Secret == "":
		return refuse(ots.CodeAuthFailed, "The AccessKeyID does not exist.")
	case !x.proven:
		return refuse(ots.CodeAuthFailed, "Signature mismatch.")
	case x.field(headerSTSToken) != "":
		return refuse(ots.CodeAuthFailed, "Temporary credentials (x-ots-ststoken) are not supported by this server.")
	}
	return nil
}

// parseDate reads YYYY-MM-DDTHH:MM:SS[.fraction]Z in UTC with up to 9 digits of fraction. It
// ignores the fraction, since the digits that the Go SDK sends there are not a fraction.
func parseDate(s string) (time.Time, bool) {
	const layout = "2006-01-02T15:04:05"
	if len(s) <= len(layout) {
		return time.Time{}, false
	}
	for i := range layout {
		if isDigit(layout[i]) != isDigit(s[i]) {
			return time.Time{}, false
		}
	}
	t, err := time.Parse(layout, s[:len(layout)])
	rest, zulu := strings.CutSuffix(s[len(layout):], "Z")
	if err != nil || !zulu {
		return time.Time{}, false
	}
	if rest == "" {
		return t, true
	}
	const maxFraction = 9
	if rest[0] != '.' || len(rest) < 2 || len(rest) > 1+maxFraction {
		return time.Time{}, false
	}
	for i := 1; i < len(rest); i++ {
		if !isDigit(rest[i]) {
			return time.Time{}, false
		}
	}
	return t, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// validInstanceName is the rule of PROTOCOL 12: 3 to 16 letters, digits and hyphens, a letter
// first and no hyphen last.
func validInstanceName(name string) bool {
	if len(name) < 3 || len(name) > 16 || !isLetter(name[0]) || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && c != '-' {
			return false
		}
	}
	return true
}

// expectsContinue reports whether the client waits for permission to send its body.
func expectsContinue(r *http.Request) bool { return r.Header.Get("Expect") != "" }
