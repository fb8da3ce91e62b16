package gosdk_test

import (
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/common"
	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tunnel"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// v4 are credentials with which the SDK signs by version 4.
func v4(secret string, day time.Time) *common.V4Credentials {
	date := day.UTC().Format("20060102")
	return &common.V4Credentials{
		AccessKeyID: endpoint.KeyID, AccessKeySecret: secret, Region: "cn-hangzhou", SigningDate: date,
		V4SigningAccessKey: common.FinalSigningKeyString(secret, date, "cn-hangzhou", "ots", "HmacSHA256"),
	}
}

func TestSignaturesOfVersion4(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what        string
		credentials *common.V4Credentials
		code, part  string
	}{
		{"of today", v4(endpoint.KeySecret, now), "", ""},
		{"of some days ago", v4(endpoint.KeySecret, now.AddDate(0, 0, -6)), "", ""},
		{"of a month ago", v4(endpoint.KeySecret, now.AddDate(0, -1, 0)), "OTSAuthFailed", "Mismatch between system time and x-ots-signdate: "},
		{"with a wrong secret", v4(endpoint.KeySecret+"x", now), "OTSAuthFailed", "Signature mismatch."},
	} {
		signer := ots.NewClientWithCredentialsProvider(shared.URL, endpoint.Instance, c.credentials, noRetries())
		_, err := signer.ListTable()
		wantError(t, c.what, err, c.code, c.part)
	}
}

// TestRequestsOfTunnelsAreSigned: their client signs by code of its own.
func TestRequestsOfTunnelsAreSigned(t *testing.T) {
	name := create(t, table{}, "s")
	for what, c := range map[string]struct {
		provider common.CredentialsProvider
		part     string
	}{
		"version 4":                     {signer{v4(endpoint.KeySecret, time.Now())}, ""},
		"version 4 with a wrong secret": {signer{v4(endpoint.KeySecret+"x", time.Now())}, "Signature mismatch."},
		"version 2 with a wrong secret": {signer{&common.DefaultCredentials{AccessKeyID: endpoint.KeyID, AccessKeySecret: "x"}}, "Signature mismatch."},
	} {
		tunnels := tunnel.NewTunnelClientWithCredentialsProvider(shared.URL, endpoint.Instance, c.provider, nil)
		_, err := tunnels.ListTunnel(&tunnel.ListTunnelRequest{TableName: name})
		if c.part != "" {
			wantTunnelError(t, what, err, "OTSAuthFailed", c.part)
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// signer provides the same credentials always.
type signer struct{ common.Credentials }

func (s signer) GetCredentials() common.Credentials { return s.Credentials }

func TestTemporaryCredentialsAreRefused(t *testing.T) {
	stranger := ots.NewClientWithConfig(shared.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "token", noRetries())
	_, err := stranger.ListTable()
	wantError(t, "a security token", err, "OTSAuthFailed", "Temporary credentials (x-ots-ststoken) are not supported by this server.")
}
