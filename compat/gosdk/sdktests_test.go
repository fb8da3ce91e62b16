package gosdk_test

// This file runs the tests that the SDK has of its own tunnel packages, unmodified, and lets those that need an
// endpoint use ours.

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const sdkPath = "github.com/aliyun/aliyun-tablestore-go-sdk"

// waitOnly are tests of how long the SDK repeats requests to a server of its own: 150 seconds in all.
const waitOnly = "TestDoRequest_(RetryBackoffElapsedTimeFor(Meta|Data)Api|BadGateWayElapsedTime)$"

// withoutGiven are the tests of restored records, but the one that expects a generated key column to refuse a value
// that a client gives: docs/compatibility.md.
const withoutGiven = `Test_(RecordRestore|AutoIncrementPk_RecordRestore_WithRegenerate)`

// sdkTest is a test run of a package of the SDK against a server. What the SDK's testConfig has is set by the linker.
func sdkTest(url, pkg string, args ...string) *exec.Cmd {
	var set strings.Builder
	for name, value := range map[string]string{
		"OtsEndpoint": url, "InstanceName": endpoint.Instance, "OtsAccessId": endpoint.KeyID, "OtsAccessKey": endpoint.KeySecret,
		"Region": "cn-hangzhou",
	} {
		fmt.Fprintf(&set, " -X %s/testConfig.%s=%s", sdkPath, name, value)
	}
	return exec.Command("go", append([]string{"test", "-count=1", "-v", "-ldflags", set.String(), sdkPath + "/" + pkg}, args...)...)
}

// TestTheTunnelTestsOfTheSDKPass runs those that wait most of their time beside the others.
func TestTheTunnelTestsOfTheSDKPass(t *testing.T) {
	server, err := command.Start(t.TempDir(), "--log-level", "warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Kill() })
	const connection, daemon = "TestChannelConn_NotifyStatus", "TestTunnelWorkerDaemon_Run"
	for says, cmd := range map[string]*exec.Cmd{
		"--- PASS: TestNewTunnelApi ":   sdkTest(server.URL, "tunnel", "-skip", waitOnly+"|"+connection+"$|"+daemon),
		"--- PASS: " + connection + " ": sdkTest(server.URL, "tunnel", "-run", connection+"$"),
		"--- PASS: " + daemon + " ":     sdkTest(server.URL, "tunnel", "-run", daemon),
		"OK: 6 passed":                  sdkTest(server.URL, "tunnel/restore", "-check.f", withoutGiven),
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
