package signature

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const emptyMD5 = "1B2M2Y8AsgTpgAmY7PhCfg=="

func requestFields(id, instance, date, md5 string) []Field {
	fields := []Field{
		{"x-ots-date", date}, {"x-ots-apiversion", "2015-12-31"}, {"x-ots-accesskeyid", id},
		{"x-ots-contentmd5", md5}, {"x-ots-instancename", instance},
	}
	Sort(fields)
	return fields
}

// TestRequestSignaturesEqualThoseOfTheSDKs uses requests of the official Go and Node.js SDKs,
// and the values that the Go SDK's own test asserts.
func TestRequestSignaturesEqualThoseOfTheSDKs(t *testing.T) {
	tests := []struct{ id, secret, instance, path, date, md5, want string }{
		{"akid", "aksecret", "myinst", "/ListTable", "2026-11-21T01:34:05.11211Z", emptyMD5, "hmKftDq57jwRRcC74L9iEVwG50o="},
		{"akid", "aksecret", "myinst", "/DeleteTable", "2026-11-21T01:35:59.619Z", "hcBSrbd3TlwRQCxaC6H+zA==", "1jr8zllyoLp/oQIW/ZHwIpI1h9k="},
		{"akid", "aksecret", "myinst", "/ListTable", "2024-01-02T03:04:05.678Z", emptyMD5, "sZeDkSTeu1Y5qbMXu8uIgSkFKTI="},
		{"credentials_test_id", "credentials_test_secret", "credentials_test", "/ListTable", "2024-08-08T03:22:47.8123Z", emptyMD5, "A940TpusldxW4mUEOFbhrtwctoU="},
	}
	for _, tt := range tests {
		text := AppendRequest(nil, tt.path, requestFields(tt.id, tt.instance, tt.date, tt.md5))
		if got := Sign(tt.secret, text); got != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.path, tt.date, got, tt.want)
		}
		if !Verify(tt.secret, text, tt.want) {
			t.Errorf("%s %s: right signature refused", tt.path, tt.date)
		}
		if Verify(tt.secret+"x", text, tt.want) || Verify(tt.secret, text[1:], tt.want) {
			t.Errorf("%s %s: wrong signature accepted", tt.path, tt.date)
		}
	}
}

// TestSignaturesOfVersion4EqualThoseOfTheSDKs takes its second case from the Go SDK's own test.
func TestSignaturesOfVersion4EqualThoseOfTheSDKs(t *testing.T) {
	for _, tt := range []struct{ id, secret, instance, at, date, region, key, want string }{
		{"akid", "aksecret", "myinst", "2024-01-02T03:04:05.678Z", "20240102", "cn-hangzhou",
			"Dj7vNeEZjzYI99OaasUmQ+jwOI2QA8WEm/qkHHmkTcw=", "RPlp6DKC80zGTWzNYHfG+zL/LCO9XXBPm89jF5/2hyw="},
		{"credentials_test_id", "credentials_test_secret", "credentials_test", "2024-08-08T03:22:47.8123Z", "20240808", "cn-hangzhou",
			"RNN1/s8/m45SdD+EzXlvpyGxc4Enu0RiODs1Lg+xFpo=", "mUSbIuIfN/JuO4/mCOaQZ72JHDc8z6gjPdBpPyAd/ac="},
	} {
		fields := append(requestFields(tt.id, tt.instance, tt.at, emptyMD5), Field{"x-ots-signdate", tt.date}, Field{"x-ots-signregion", tt.region})
		Sort(fields)
		text := AppendRequest(nil, "/ListTable", fields)
		key := KeyV4(tt.secret, tt.date, tt.region)
		if key != tt.key {
			t.Errorf("%s: key %s, want %s", tt.id, key, tt.key)
		}
		if got := SignV4(key, text); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.id, got, tt.want)
		}
		if !VerifyV4(key, text, tt.want) || VerifyV4(key+"x", text, tt.want) || VerifyV4(key, text[1:], tt.want) || Verify(key, text, tt.want) {
			t.Errorf("%s: the signature is misjudged", tt.id)
		}
		for _, bad := range []string{"", tt.want[:43], tt.want + "=", Sign(key, text)} {
			if VerifyV4(key, text, bad) {
				t.Errorf("%q is accepted", bad)
			}
		}
	}
}

func TestCanonicalTextTrimsValuesAndLeavesSignaturesOut(t *testing.T) {
	fields := append(requestFields("akid", "myinst", "2024-01-02T03:04:05.678Z", emptyMD5),
		Field{HeaderV4, "four"}, Field{HeaderV2, "two"})
	fields[0].Value = " \t" + fields[0].Value + "  "
	Sort(fields)
	const want = "/ListTable\nPOST\n\nx-ots-accesskeyid:akid\nx-ots-apiversion:2015-12-31\nx-ots-contentmd5:1B2M2Y8AsgTpgAmY7PhCfg==\nx-ots-date:2024-01-02T03:04:05.678Z\nx-ots-instancename:myinst\n"
	if got := string(AppendRequest(nil, "/ListTable", fields)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResponseSignatureEqualsTheDocumentedExample(t *testing.T) {
	body, _ := hex.DecodeString("0a0d64617461546573745461626c65")
	sum := md5.Sum(body)
	fields := []Field{
		{"x-ots-requestid", "00000000-0000-0000-0000-000000000001"}, {"x-ots-date", "2024-01-02T03:04:05.678000Z"},
		{"x-ots-contenttype", "protocol buffer"}, {"x-ots-contentmd5", base64.StdEncoding.EncodeToString(sum[:])},
	}
	Sort(fields)
	if got := Sign("aksecret", AppendResponse(nil, "/ListTable", fields)); got != "VqNJZM2e6OLwxZ3nqTiMGdbxCb4=" {
		t.Errorf("got %s", got)
	}
}

func TestMalformedSignaturesAreRefused(t *testing.T) {
	text := []byte("text")
	good := Sign("secret", text)
	raw, _ := base64.StdEncoding.DecodeString(good)
	for _, bad := range []string{
		"", "=", good[:27], good + "=", good[:26] + "==", good + "\n", " " + good, good[:10] + "\n" + good[10:],
		good[:10] + "\n" + good[11:], strings.ToLower(good), good[:27] + "A", base64.StdEncoding.EncodeToString(raw[:19]),
		base64.StdEncoding.EncodeToString(append(raw[:20:20], 0)), hex.EncodeToString(raw), strings.Repeat("A", 27) + "=",
		good[:26] + string(good[26]+1) + "=", // the unused bits of the last character are set
	} {
		if Verify("secret", text, bad) {
			t.Errorf("%q accepted for %q", bad, good)
		}
	}
}

// TestNoSignatureIsComparedInVariableTime parses the code: hmac.Equal must be the only
// comparison of byte strings, and no operator may compare got or want.
func TestNoSignatureIsComparedInVariableTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "signature.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	equals := 0
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if n.Path.Value == `"bytes"` {
				t.Error("bytes is imported")
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == "hmac" && n.Sel.Name == "Equal" {
				equals++
			}
		case *ast.BinaryExpr:
			for _, side := range []ast.Expr{n.X, n.Y} {
				if id, ok := side.(*ast.Ident); ok && (id.Name == "got" || id.Name == "want" || id.Name == "decoded") {
					t.Errorf("%s is compared with %s", id.Name, n.Op)
				}
			}
		}
		return true
	})
	if equals != 1 {
		t.Errorf("hmac.Equal is used %d times, want 1", equals)
	}
}

func BenchmarkVerify(b *testing.B) {
	fields := requestFields("akid", "myinst", "2024-01-02T03:04:05.678Z", emptyMD5)
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = AppendRequest(buf[:0], "/ListTable", fields)
		if !Verify("aksecret", buf, "sZeDkSTeu1Y5qbMXu8uIgSkFKTI=") {
			b.Fatal("refused")
		}
	}
}
