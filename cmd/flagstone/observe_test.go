package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// get returns the status and body of a path.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// logged returns the lines of a JSON log with a message.
func logged(t *testing.T, log, message string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			continue // the snippet with the new access key
		}
		if line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestMetricsHealthAndSlowRequests(t *testing.T) {
	url, log, stop := servingWithLog(t, "--dir", filepath.Join(t.TempDir(), "data"),
		"--metrics-addr", "127.0.0.1:0", "--log-format", "json", "--slow-request", "1ns")
	at := logged(t, log.String(), "metrics")
	if len(at) != 1 {
		t.Fatalf("the log does not say where the metrics are:\n%s", log)
	}
	base := strings.TrimSuffix(at[0]["url"].(string), "/metrics")
	// A request that is refused, since it is not signed, counts too.
	resp, err := http.Post(url+"/GetRow", "", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	// The client may have the answer before it is counted.
	var slow []map[string]any
	for deadline := time.Now().Add(10 * time.Second); len(slow) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		slow = logged(t, log.String(), "slow request")
	}
	if len(slow) != 1 || slow[0]["request"] != resp.Header.Get("x-ots-requestid") || slow[0]["code"] != "OTSParameterInvalid" {
		t.Errorf("slow requests %v; the client was given the id %s", slow, resp.Header.Get("x-ots-requestid"))
	}
	for path, want := range map[string]string{
		"/metrics": `flagstone_requests_total{code="OTSParameterInvalid",instance_name="",operation="",table=""} 1`,
		"/healthz": "ok", "/readyz": "ready",
	} {
		if status, body := get(t, base+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, lacks %s:\n%.2000s", path, status, want, body)
		}
	}
	if status, _ := get(t, base+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles are served without --pprof: %d", status)
	}
	if status := stop(); status != 0 {
		t.Errorf("stopped with status %d:\n%s", status, log)
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := http.Get(base + "/healthz"); err == nil {
		t.Error("metrics are served after the end")
	}
}

func TestProfilesAreServedOnRequest(t *testing.T) {
	_, log, stop := servingWithLog(t, "--dir", filepath.Join(t.TempDir(), "data"), "--metrics-addr", "127.0.0.1:0", "--pprof", "--log-format", "json")
	base := strings.TrimSuffix(logged(t, log.String(), "metrics")[0]["url"].(string), "/metrics")
	if status, body := get(t, base+"/debug/pprof/"); status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("%d: %.300s", status, body)
	}
	http.DefaultClient.CloseIdleConnections()
	if status := stop(); status != 0 {
		t.Errorf("stopped with status %d", status)
	}
}

func TestFlagsOfMetricsThatMakeNoSenseAreRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--pprof"}, "--metrics-addr"},
		{[]string{"--slow-request=-1s"}, "--slow-request"},
		{[]string{"--metrics-addr", taken.Addr().String()}, "choose another with --metrics-addr"},
	} {
		args := append([]string{"serve", "--addr", "127.0.0.1:0", "--dir", filepath.Join(t.TempDir(), "data")}, c.args...)
		if status, out, errOut := command(t, args...); status != 1 || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, out, errOut)
		}
	}
}
