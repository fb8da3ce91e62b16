package server

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/ots"
)

// mutation is a signed request with one change, and the code with which it must be refused.
type mutation struct {
	name string
	d    *draft
	code string
	text string // required beginning of the message; "" for any
}

const (
	invalidRequest = ots.CodeParameterInvalid
	authFailed     = ots.CodeAuthFailed
)

func good(t testing.TB) *draft { return newDraft("GetRow", marshal(t, getRowMessage())) }

// mutations returns all mutations, in groups.
func mutations(t testing.TB) []mutation {
	var all []mutation
	add := func(name string, d *draft, code, text string) {
		all = append(all, mutation{name, d, code, text})
	}
	signed := func() *draft { return good(t).sign(testSecret) }
	mutateHeaders(signed, add)
	mutateSignatures(t, signed, add)
	mutateDates(t, add)
	mutateSenders(t, signed, add)
	mutateTargets(t, signed, add)
	mutateBodies(t, signed, add)
	return all
}

func mutateHeaders(signed func() *draft, add func(string, *draft, string, string)) {
	for _, h := range signed().headers {
		name, value := h[0], h[1]
		// The code for a wrong value depends on the header.
		code := authFailed
		if name == "x-ots-date" || name == "x-ots-apiversion" {
			code = invalidRequest
		}
		add(name+" dropped", signed().drop(name), invalidRequest, "Missing header: '"+name+"'.")
		add(name+" empty", signed().set(name, ""), invalidRequest, "Missing header: '"+name+"'.")
		add(name+" blank", signed().set(name, " \t "), invalidRequest, "Missing header: '"+name+"'.")
		add(name+" doubled", signed().add(name, value), invalidRequest, "Duplicated header: '"+name+"'.")
		add(name+" doubled, other case", signed().add(strings.ToUpper(name), value), invalidRequest, "Duplicated header: '"+name+"'.")
		add(name+" doubled, other value", signed().add(name, "x"), invalidRequest, "Duplicated header: '"+name+"'.")
		add(name+" doubled, empty first", signed().drop(name).add(name, "").add(name, value), invalidRequest, "Duplicated header: '"+name+"'.")
		add(name+" joined", signed().set(name, value+", "+value), "", "")
		add(name+" one character more", signed().set(name, value+"1"), "", "")
		add(name+" one character less", signed().set(name, value[:len(value)-1]), "", "")
		add(name+" first character changed", signed().set(name, "~"+value[1:]), "", "")
		add(name+" space inside", signed().set(name, value[:3]+" "+value[3:]), "", "")
		add(name+" quoted", signed().set(name, `"`+value+`"`), "", "")
		if swapped := swapCase(value); swapped != value {
			add(name+" other case", signed().set(name, swapped), code, "")
		}
	}
	for _, name := range []string{"x-ots-sdk-traceid", "x-ots-trace-threshold", "x-ots-request-tag", "x-ots-new-and-unknown"} {
		add(name+" added unsigned", signed().add(name, "1"), authFailed, "Signature mismatch.")
	}
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

func mutateSignatures(t testing.TB, signed func() *draft, add func(string, *draft, string, string)) {
	right := signed().value("x-ots-signature")
	for i := range len(right) - 1 {
		other := byte('A')
		if right[i] == other {
			other = 'B'
		}
		add(fmt.Sprintf("signature character %d", i), signed().set("x-ots-signature", right[:i]+string(other)+right[i+1:]), authFailed, "Signature mismatch.")
	}
	for _, wrong := range []string{
		"AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "=", "!", strings.Repeat("=", 28), right[:20], right + right,
		right[:27], strings.Repeat("A", 28), strings.Repeat("A", 5000), hex.EncodeToString([]byte(right)),
		"%00", "null", "OTS akid:" + right, strings.TrimRight(right, "="), "\xff\xfe" + right[2:],
	} {
		add(fmt.Sprintf("signature %.30q", wrong), signed().set("x-ots-signature", wrong), authFailed, "Signature mismatch.")
	}
	add("signed with another key's secret", good(t).sign("othersecret"), authFailed, "Signature mismatch.")
	add("signed with an empty secret", good(t).sign(""), authFailed, "Signature mismatch.")
	add("signed with the key id", good(t).sign(testKey), authFailed, "Signature mismatch.")
	add("version 4 without a region", good(t).signV4(testSecret, "20261121", ""), invalidRequest, "Missing header: 'x-ots-signregion'.")
	add("version 4 without a date", good(t).signV4(testSecret, "", "cn-hangzhou"), invalidRequest, "Missing header: 'x-ots-signdate'.")
	for _, date := range []string{"20261113", "20261129", "20251121", "19700101"} {
		add("version 4 of "+date, good(t).signV4(testSecret, date, "cn-hangzhou"), authFailed, "Mismatch between system time and x-ots-signdate: "+date+".")
	}
	for _, date := range []string{"2026-11-21", "20261321", "x", "2026112"} {
		add("version 4 of "+date, good(t).signV4(testSecret, date, "cn-hangzhou"), invalidRequest, "Invalid date format: "+date+".")
	}
	v4 := func() *draft { return good(t).signV4(testSecret, "20261121", "cn-hangzhou") }
	add("version 4 with another key's secret", good(t).signV4("othersecret", "20261121", "cn-hangzhou"), authFailed, "Signature mismatch.")
	for _, name := range []string{"x-ots-signdate", "x-ots-signregion"} {
		add("version 4 with another "+name, v4().set(name, map[string]string{"x-ots-signdate": "20261120", "x-ots-signregion": "cn-beijing"}[name]), authFailed, "Signature mismatch.")
	}
	add("version 4 with a header more", v4().set("x-ots-request-tag", "1"), authFailed, "Signature mismatch.")
	add("version 4 with a signature of version 2", v4().set("x-ots-signaturev4", right), authFailed, "Signature mismatch.")
	add("version 4 in the place of version 2", v4().set("x-ots-signature", v4().value("x-ots-signaturev4")), authFailed, "Signature mismatch.")
	add("a right version 4 beside a wrong version 2", v4().set("x-ots-signature", right[1:]+"A"), authFailed, "Signature mismatch.")
	add("version 4 with a security token", good(t).set("x-ots-ststoken", "token").signV4(testSecret, "20261121", "cn-hangzhou"), authFailed, "Temporary credentials")
	add("security token", good(t).set("x-ots-ststoken", "token").sign(testSecret), authFailed, "Temporary credentials")
	add("security token unsigned", signed().set("x-ots-ststoken", "token"), authFailed, "Signature mismatch.")
}

func mutateDates(t testing.TB, add func(string, *draft, string, string)) {
	at := func(s string) *draft { return good(t).set("x-ots-date", s).sign(testSecret) }
	for _, skew := range []time.Duration{15*time.Minute + time.Second, -15*time.Minute - time.Second, time.Hour, -time.Hour, 24 * 365 * time.Hour, -24 * 365 * 20 * time.Hour} {
		date := testNow().Add(skew).Format("2006-01-02T15:04:05Z")
		add("clock off by "+skew.String(), at(date), authFailed, "Mismatch between system time and x-ots-date: "+date+".")
	}
	for _, bad := range []string{
		"2026-11-21T01:34:05", "2026-11-21 01:34:05Z", "2026-11-21T01:34:05z", "2026-11-21t01:34:05Z", "2026-11-21T01:34Z",
		"2026-11-21T01:34:05.Z", "2026-11-21T01:34:05.1234567890Z", "2026-11-21T01:34:05,5Z", "2026-11-21T01:34:05.5",
		"2026-11-21T01:34:05.5+00:00", "2026-11-21T01:34:05+00:00", "2026-11-21T01:34:60Z", "2026-11-21T24:00:00Z",
		"2026-11-31T01:34:05Z", "2026-13-21T01:34:05Z", "2026-00-21T01:34:05Z", "2026-11-00T01:34:05Z", "2026-02-29T01:34:05Z",
		"+026-11-21T01:34:05Z", "2026-11-21T01:34:05.-1Z", "2026-11-21T01:34:05.1eZ", "12026-11-21T01:34:05Z", "Z", "now",
		"1795224845", "Sat, 21 Nov 2026 01:34:05 GMT", "2026-11-21T01:34:05.5ZZ", "2026-11-21T1:34:05.5Z", "\xff", strings.Repeat("9", 4000),
	} {
		add(fmt.Sprintf("date %.30q", bad), at(bad), invalidRequest, "Invalid date format: ")
	}
}

func mutateSenders(t testing.TB, signed func() *draft, add func(string, *draft, string, string)) {
	for _, id := range []string{"nobody", "AKID", "akid2", "aki", "*", "' or 1=1", "../akid"} {
		for _, secret := range []string{testSecret, "", "x"} {
			add(fmt.Sprintf("key %q, secret %q", id, secret), good(t).set("x-ots-accesskeyid", id).sign(secret), authFailed, "The AccessKeyID does not exist.")
		}
	}
	add("key of another instance", newDraft("GetRow", good(t).body).set("x-ots-accesskeyid", "other").sign("othersecret"), authFailed, "The user has no privilege to access the instance.")
	add("key of another sender", signed().set("x-ots-accesskeyid", "other"), authFailed, "Signature mismatch.")
	for _, name := range []string{"yourinst", "myinst2", "abc"} {
		add("instance "+name, good(t).set("x-ots-instancename", name).sign(testSecret), authFailed, "The instance is not found.")
		add("instance "+name+" unsigned", signed().set("x-ots-instancename", name), authFailed, "")
	}
	for _, name := range []string{"a", "my-inst-", "1inst", "my_inst", "../myinst", "myinst/t", strings.Repeat("a", 17), "my inst"} {
		add("instance "+name, good(t).set("x-ots-instancename", name).sign(testSecret), invalidRequest, "Invalid instance name: '"+name+"'.")
	}
	for _, v := range []string{"2014-08-08", "2015-12-30", "latest"} {
		add("API version "+v, good(t).set("x-ots-apiversion", v).sign(testSecret), invalidRequest, "Invalid API version: '"+v+"'.")
	}
}

func mutateTargets(t testing.TB, signed func() *draft, add func(string, *draft, string, string)) {
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "post", "POSTER", "PROPFIND"} {
		d := signed()
		d.method = method
		add("method "+method, d, ots.CodeMethodNotAllowed, "Only POST method for requests is supported.")
	}
	for _, path := range []string{"/", "/PutRow", "/DeleteTable", "/getrow", "/GetRow/", "/x//GetRow", "/GetRow%20", "/%47etRow", "/./GetRow", "/a/../GetRow", "/GetRow;x", "http://elsewhere/PutRow", "/healthz"} {
		d := signed()
		d.path = path
		add("path "+path, d, authFailed, "Signature mismatch.")
	}
	unsupported := map[string]string{
		"/GetRow?": "GetRow?", "/GetRow?a=b": "GetRow?a=b", "/GetRow/": "GetRow/", "/x//GetRow": "x//GetRow", "/": "", "/getrow": "getrow",
		"/%47etRow": "%47etRow", "/Drop": "Drop", "/healthz": "healthz", "/debug/pprof/": "debug/pprof/", "/SQLQuery": "SQLQuery",
		"/tunnel/getrpo": "tunnel/getrpo", "/tunnel/": "tunnel/", "/Search": "Search",
	}
	for path, name := range unsupported {
		d := good(t)
		d.path = path
		add("signed path "+path, d.sign(testSecret), invalidRequest, "Unsupported operation: '"+name+"'.")
	}
}

func mutateBodies(t testing.TB, signed func() *draft, add func(string, *draft, string, string)) {
	const mismatch = "Mismatch between MD5 value of request body and x-ots-contentmd5 in header."
	for i := range good(t).body {
		d := signed()
		d.body[i] ^= 1 << (i % 8)
		add(fmt.Sprintf("body byte %d", i), d, authFailed, mismatch)
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"longer":  func(b []byte) []byte { return append(b, 0) },
		"twice":   func(b []byte) []byte { return append(b, b...) },
		"another": func([]byte) []byte { return []byte("\x0a\x01u") },
	} {
		d := signed()
		d.body = change(d.body)
		add("body "+name, d, authFailed, mismatch)
		d = signed()
		d.body, d.chunked = change(d.body), true
		add("body "+name+", chunked", d, authFailed, mismatch)
	}
	for _, sum := range []string{"1B2M2Y8AsgTpgAmY7PhCfg==", "x", strings.Repeat("A", 24)} {
		add("signed MD5 "+sum, good(t).set("x-ots-contentmd5", sum).sign(testSecret), authFailed, mismatch)
	}
	large := newDraft("GetRow", bytes.Repeat([]byte{0x0a}, 6<<20)).sign(testSecret)
	add("6 MB", large, ots.CodeRequestBodyTooLarge, "The size of POST data is too large.")
	chunked := *large
	chunked.chunked = true
	add("6 MB, chunked", &chunked, ots.CodeRequestBodyTooLarge, "")
	unsigned := newDraft("GetRow", large.body)
	add("6 MB, unsigned", unsigned, ots.CodeRequestBodyTooLarge, "")

	rng := rand.New(rand.NewPCG(1, 21))
	for n := range 40 {
		body := make([]byte, 1+n*n)
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		body[0] |= 7 // an invalid wire type
		add(fmt.Sprintf("%d random bytes", len(body)), newDraft("GetRow", body).sign(testSecret), invalidRequest, "Parse PBMessage from RawString failed.")
	}
	add("no body", newDraft("GetRow", nil).sign(testSecret), invalidRequest, "Parse PBMessage from RawString failed.")
}

func TestMutatedRequestsAreRefusedAndNeverReachTheService(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	if r := send(t, addr, "POST", good(t).sign(testSecret).raw()); r.status != http.StatusOK || fake.calls.Swap(0) != 1 {
		t.Fatalf("the request that is mutated is refused: %d %q", r.status, r.body)
	}
	all := mutations(t)
	if len(all) < 200 {
		t.Fatalf("%d mutations", len(all))
	}
	t.Logf("%d mutated requests", len(all))
	for _, m := range all {
		r := send(t, addr, m.d.method, m.d.raw())
		if r.status < 400 || r.status > 499 {
			t.Errorf("%s: status %d", m.name, r.status)
			continue
		}
		if m.d.method == "HEAD" {
			if r.status != http.StatusMethodNotAllowed {
				t.Errorf("%s: status %d", m.name, r.status)
			}
			continue
		}
		code, text := r.refusal(t)
		if r.status != statusOf(code) || m.code != "" && code != m.code || !strings.HasPrefix(text, m.text) {
			t.Errorf("%s: got %d %s %q, want %s %q", m.name, r.status, code, text, m.code, m.text)
		}
		if m.code == "" && code != authFailed && code != invalidRequest {
			t.Errorf("%s: code %s", m.name, code)
		}
		checkResponseHeaders(t, m.name, m.d, r)
	}
	if n := fake.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

// checkResponseHeaders checks the required headers of every answer (client traps 1 and 2).
// TestHeadersAreLowerCaseOnTheWire checks the spelling of the names.
func checkResponseHeaders(t *testing.T, name string, d *draft, r reply) {
	t.Helper()
	wantMD5 := (&draft{body: r.body}).setMD5().value("x-ots-contentmd5")
	if got := r.header.Get("x-ots-contentmd5"); got != wantMD5 {
		t.Errorf("%s: x-ots-contentmd5 %q, want %q", name, got, wantMD5)
	}
	if got := r.header.Get("x-ots-date"); got != "2026-11-21T01:34:05.500000Z" {
		t.Errorf("%s: x-ots-date %q", name, got)
	}
	id := r.header.Get("x-ots-requestid")
	if len(id) != 36 || strings.Count(id, "-") != 4 {
		t.Errorf("%s: x-ots-requestid %q", name, id)
	}
	if got := r.header.Get("x-ots-contenttype"); got != "protocol buffer" {
		t.Errorf("%s: x-ots-contenttype %q", name, got)
	}
	want := ""
	if secret := map[string]string{testKey: testSecret, "other": "othersecret"}[strings.TrimSpace(d.value("x-ots-accesskeyid"))]; secret != "" && d.signedWith(secret) {
		path, _, _ := strings.Cut(strings.TrimPrefix(d.path, "http://elsewhere"), "?")
		want = "OTS " + strings.TrimSpace(d.value("x-ots-accesskeyid")) + ":" + hmacSHA1(secret, "x-ots-contentmd5:"+wantMD5+
			"\nx-ots-contenttype:protocol buffer\nx-ots-date:2026-11-21T01:34:05.500000Z\nx-ots-requestid:"+id+"\n"+path)
	}
	if got := r.header.Get("authorization"); got != want {
		t.Errorf("%s: authorization %q, want %q", name, got, want)
	}
}

func TestHarmlessVariantsOfARequestAreAccepted(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.ReadResult{})
	addr := listen(t, s)
	at := func(date string) *draft { return good(t).set("x-ots-date", date).sign(testSecret) }
	variants := map[string]*draft{
		"15 minutes early":     at("2026-11-21T01:19:05Z"),
		"15 minutes late":      at("2026-11-21T01:49:05Z"),
		"the Go SDK's date":    at("2026-11-21T01:34:05.11211Z"),
		"Python's date":        at("2026-11-21T01:34:05.000Z"),
		"nine digits":          at("2026-11-21T01:34:05.999999999Z"),
		"no fraction":          at("2026-11-21T01:34:05Z"),
		"trace headers":        good(t).set("x-ots-sdk-traceid", "8a2c").set("x-ots-trace-threshold", "500").sign(testSecret),
		"unknown x-ots header": good(t).set("x-ots-invented-tomorrow", "1").sign(testSecret),
		"empty x-ots header":   good(t).set("x-ots-request-tag", "").sign(testSecret),
		"unsigned user agent":  good(t).sign(testSecret).set("User-Agent", "x").set("Content-Type", "text/plain"),
		"version 4":            good(t).signV4(testSecret, "20261121", "cn-hangzhou"),
		"an older version 4":   good(t).signV4(testSecret, "20261114", "anywhere"),
		"a version 4 ahead":    good(t).signV4(testSecret, "20261128", "anywhere"),
		"both signatures":      good(t).sign(testSecret).set("x-ots-signaturev4", "whatever"),
		"hints":                good(t).set("x-ots-request-priority", "1").set("x-ots-response-compress-type", "deflate").sign(testSecret),
	}
	upper := good(t).sign(testSecret)
	mixed := good(t).sign(testSecret)
	padded := good(t).sign(testSecret)
	for i := range upper.headers {
		upper.headers[i][0] = strings.ToUpper(upper.headers[i][0])
		mixed.headers[i][0] = http.CanonicalHeaderKey(mixed.headers[i][0])
		padded.headers[i][1] = "  \t" + padded.headers[i][1] + " \t "
	}
	reversed := good(t).sign(testSecret)
	for i, j := 0, len(reversed.headers)-1; i < j; i, j = i+1, j-1 {
		reversed.headers[i], reversed.headers[j] = reversed.headers[j], reversed.headers[i]
	}
	chunked := good(t).sign(testSecret)
	chunked.chunked = true
	host := good(t).sign(testSecret)
	host.host = "myinst.somewhere.example:8080"
	variants["upper-case names"], variants["canonical names"], variants["padded values"] = upper, mixed, padded
	variants["headers in another order"], variants["chunked body"], variants["another host"] = reversed, chunked, host
	for name, d := range variants {
		if r := send(t, addr, "POST", d.raw()); r.status != http.StatusOK {
			code, text := r.refusal(t)
			t.Errorf("%s: %d %s %s", name, r.status, code, text)
		} else {
			checkResponseHeaders(t, name, d, r)
		}
	}
	if n := fake.calls.Load(); int(n) != len(variants) {
		t.Errorf("the service was called %d times for %d requests", n, len(variants))
	}
}

func TestSDKExamplesAreAccepted(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer([]string{"dataTestTable"})
	body, _ := hex.DecodeString("0a0d64617461546573745461626c65")
	goSDK := newDraft("ListTable", nil).set("x-ots-date", "2026-11-21T01:34:05.11211Z").set("x-ots-signature", "hmKftDq57jwRRcC74L9iEVwG50o=")
	node := newDraft("DeleteTable", body).set("x-ots-date", "2026-11-21T01:35:59.619Z").set("x-ots-signature", "1jr8zllyoLp/oQIW/ZHwIpI1h9k=")
	for name, d := range map[string]*draft{"Go": goSDK, "Node.js": node} {
		if r := handle(s, d); r.status != http.StatusOK {
			t.Errorf("%s: %d %q", name, r.status, r.body)
		}
	}
	if r := handle(s, goSDK); !bytes.Equal(r.body, body) {
		t.Errorf("ListTable answers %x, want %x", r.body, body)
	}
}

func TestChecksComeInTheProtocolsOrder(t *testing.T) {
	s, _ := newTestServer(t, nil)
	// Each step repairs the fault that was reported last; the server must then report the next.
	d := newDraft("Nothing", []byte{0xff}).set("x-ots-date", "yesterday").set("x-ots-instancename", "nowhere").
		set("x-ots-accesskeyid", "nobody").set("x-ots-contentmd5", "wrong")
	d.method = "PUT"
	body := d.body
	d.body = make([]byte, 6<<20)
	steps := []struct {
		want   string
		mend   func()
		signed bool
	}{
		{"Only POST method", func() { d.method = "POST" }, false},
		{"The size of POST data", func() { d.body = body }, false},
		{"Missing header: 'x-ots-signature'", func() { d.set("x-ots-signature", "AAAA") }, false},
		{"Invalid date format", func() { d.set("x-ots-date", "2020-01-01T00:00:00Z") }, false},
		{"Mismatch between system time", func() { d.set("x-ots-date", "2026-11-21T01:34:05Z") }, false},
		{"The instance is not found.", func() { d.set("x-ots-instancename", testInstance) }, false},
		{"The AccessKeyID does not exist.", func() { d.set("x-ots-accesskeyid", testKey) }, false},
		{"Signature mismatch.", func() {}, true},
		{"Mismatch between MD5", func() { d.setMD5() }, true},
		{"Unsupported operation: 'Nothing'.", func() { d.path = "/GetRow" }, true},
		{"Parse PBMessage", func() {}, true},
	}
	for i, step := range steps {
		if _, text := ptr(handle(s, d)).refusal(t); !strings.HasPrefix(text, step.want) {
			t.Fatalf("step %d: got %q, want %q", i, text, step.want)
		}
		step.mend()
		if step.signed {
			d.sign(testSecret)
		}
	}
}

// TestASlashBehindTheEndpointIsNoPartOfThePath imitates clients that join the endpoint's URL
// and the path, and sign only the path.
func TestASlashBehindTheEndpointIsNoPartOfThePath(t *testing.T) {
	s, _ := newTestServer(t, nil)
	for _, slashes := range []string{"", "/", "//"} {
		d := newDraft("ListTable", nil).sign(testSecret)
		d.path = slashes + d.path
		r := handle(s, d)
		if r.status != http.StatusOK {
			t.Errorf("%q: %d %q", d.path, r.status, r.body)
			continue
		}
		d.path = "/ListTable" // the client expects the answer's signature to cover this
		checkResponseHeaders(t, slashes, d, r)
	}
}

// TestTheServiceIsToldTheInstancesOwnName sends the name in another case, and signs that
// spelling.
func TestTheServiceIsToldTheInstancesOwnName(t *testing.T) {
	for _, only := range []string{"", testInstance} { // keys of the account and of the instance
		s, fake := newTestServer(t, func(c *Config) {
			c.Credentials = func(string) (AccessKey, bool) { return AccessKey{Secret: testSecret, Instance: only}, true }
		})
		r := handle(s, newDraft("DescribeTable", []byte("\x0a\x01t")).
			set("x-ots-instancename", strings.ToUpper(testInstance)).sign(testSecret))
		if fake.instance != testInstance {
			t.Errorf("key of %q: %d %q, the service was told %q", only, r.status, r.body, fake.instance)
		}
	}
}

// TestRefusalsToStrangersAreNotSignedWithTheSecret, since a stranger could use such a signature
// to guess the secret offline, without having seen a request.
func TestRefusalsToStrangersAreNotSignedWithTheSecret(t *testing.T) {
	s, _ := newTestServer(t, nil)
	for what, d := range map[string]*draft{
		"no signature":     good(t),
		"wrong signature":  good(t).sign(testSecret + "x"),
		"wrong version 4":  good(t).signV4(testSecret+"x", "20261121", "cn-hangzhou"),
		"wrong date":       good(t).set("x-ots-date", "2020-01-01T00:00:00Z").sign("x"),
		"wrong instance":   good(t).set("x-ots-instancename", "nowhere").sign("x"),
		"wrong version":    good(t).set("x-ots-apiversion", "1").sign("x"),
		"doubled header":   good(t).sign(testSecret).add("x-ots-date", "now"),
		"too large a body": newDraft("GetRow", make([]byte, 6<<20)).sign("x"),
	} {
		r := handle(s, d)
		if got := r.header.Get("authorization"); r.status == http.StatusOK || got != "" {
			t.Errorf("%s: status %d, authorization %q", what, r.status, got)
		}
	}
	// The owner of the key gets a signed refusal for every fault.
	for what, d := range map[string]*draft{
		"date":     good(t).set("x-ots-date", "2020-01-01T00:00:00Z").sign(testSecret),
		"instance": good(t).set("x-ots-instancename", "nowhere").sign(testSecret),
		"body":     newDraft("GetRow", make([]byte, 6<<20)).sign(testSecret),
		"message":  newDraft("GetRow", []byte{0xff}).signV4(testSecret, "20261121", "cn-hangzhou"),
	} {
		r := handle(s, d)
		if r.status == http.StatusOK || r.header.Get("authorization") == "" {
			t.Errorf("%s: status %d, authorization %q", what, r.status, r.header.Get("authorization"))
		}
		checkResponseHeaders(t, what, d, r)
	}
}

// TestTheVersionOfTheProtocolMattersOnlyToOperationsThatAreOffered names the version of tunnels, which
// others refuse.
func TestTheVersionOfTheProtocolMattersOnlyToOperationsThatAreOffered(t *testing.T) {
	s, _ := newTestServer(t, nil)
	for path, want := range map[string]string{
		"tunnel/schedule":     "Unsupported operation: 'tunnel/schedule'. The operation is known, but this server does not offer it.",
		"CreateSearchIndex":   "Unsupported operation: 'CreateSearchIndex'. The operation is known, but this server does not offer it.",
		"InventedInTheFuture": "Unsupported operation: 'InventedInTheFuture'.",
		"GetRow":              "Invalid API version: '2018-04-01'.",
		"tunnel/create":       "Parse PBMessage from RawString failed.", // the version is right
	} {
		r := handle(s, newDraft(path, nil).set("x-ots-apiversion", "2018-04-01").sign(testSecret))
		if _, text := r.refusal(t); text != want {
			t.Errorf("%s: %q", path, text)
		}
	}
	r := handle(s, newDraft("tunnel/create", nil).set("x-ots-apiversion", "2015-12-31").sign(testSecret))
	if _, text := r.refusal(t); text != "Invalid API version: '2015-12-31'." {
		t.Errorf("a tunnel with the version of others: %q", text)
	}
}
