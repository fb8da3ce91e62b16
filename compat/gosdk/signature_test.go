package gosdk_test

import (
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/common"
	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
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

func TestTemporaryCredentialsAreRefused(t *testing.T) {
	stranger := ots.NewClientWithConfig(shared.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "token", noRetries())
	_, err := stranger.ListTable()
	wantError(t, "a security token", err, "OTSAuthFailed", "Temporary credentials (x-ots-ststoken) are not supported by this server.")
}
