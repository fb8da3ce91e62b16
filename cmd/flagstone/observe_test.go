package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server"
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
func logged(log, message string) (lines []map[string]any) {
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

func TestMetricsAndHealth(t *testing.T) {
	url, log, stop := servingWithLog(t, "--dir", filepath.Join(t.TempDir(), "data"), "--metrics-addr", "127.0.0.1:0", "--log-format", "json")
	at := logged(log(), "metrics")
	if len(at) != 1 {
		t.Fatalf("the log does not say where the metrics are:\n%s", log())
	}
	base := strings.TrimSuffix(at[0]["url"].(string), "/metrics")
	// A request that is refused, since it is not signed, counts too. The server ends the connection once it has
	// counted it.
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /GetRow HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, base+"/metrics"); !strings.Contains(body, "\nflagstone_checkpoints 0\n") {
		t.Error("the metrics lack the number of checkpoints")
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
		t.Errorf("stopped with status %d:\n%s", status, log())
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := http.Get(base + "/healthz"); err == nil {
		t.Error("metrics are served after the end")
	}
}

// TestAServerThatRecoversIsLiveAndNotReady asks an observer before it is told of a home.
func TestAServerThatRecoversIsLiveAndNotReady(t *testing.T) {
	o, err := (&observeFlags{MetricsAddr: "127.0.0.1:0"}).listen(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + o.listener.Addr().String()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 503} {
		if status, body := get(t, base+path); status != want || status == 503 && !strings.Contains(body, "recovered") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := o.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSlowRequestsAreLoggedUnlessTheSenderHasNoAccess(t *testing.T) {
	var log bytes.Buffer
	o := observer{feed: console.NewFeed(), slow: time.Second, logger: slog.New(slog.NewJSONHandler(&log, nil))}
	for _, r := range []server.Served{
		{ID: "fast", Instance: "demo", Took: time.Second - 1},
		{ID: "slow", Instance: "demo", Took: time.Second, Code: server.CodeOK},
		{ID: "stranger", Took: time.Minute},
	} {
		o.request()(&r)
	}
	if slow := logged(log.String(), "slow request"); len(slow) != 1 || slow[0]["request"] != "slow" || slow[0]["code"] != "OK" {
		t.Errorf("logged %s", &log)
	}
	if shown := o.feed.Recent().Slow; len(shown) != 1 || shown[0].ID != "slow" || shown[0].Took != 1 {
		t.Errorf("the console shows %+v", shown)
	}
	o.slow = 0
	if o.request() != nil {
		t.Error("an observer without a task is told of requests")
	}
}

func TestAServerWhoseStoreTakesNoWritesIsNotReady(t *testing.T) {
	disk := vfs.NewFault(vfs.OS(), 1)
	store := flagstone.Options{CacheSize: 1 << 20}
	store.Seams.FS = disk
	home, err := instances.Open(t.TempDir(), instances.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var o observer
	o.start(home)
	before, after := httptest.NewRecorder(), httptest.NewRecorder()
	o.ready(before)
	disk.Add(vfs.Rule{Ops: vfs.OpSyncs, Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
	engine, name, _ := home.Service("demo")
	err = engine.CreateTable(context.Background(), name, &ots.CreateTableRequest{
		Table: "t", PrimaryKey: []ots.KeyColumn{{Name: "pk", Type: row.TypeString}}, Options: &ots.TableOptions{TimeToLive: new(int32(-1)), MaxVersions: new(int32(1))},
	})
	if err == nil {
		t.Fatal("a table was made on a disk that fails")
	}
	o.ready(after)
	if before.Code != http.StatusOK || after.Code != http.StatusServiceUnavailable || !strings.Contains(after.Body.String(), "high-performance") {
		t.Errorf("ready: %d; with a failed disk: %d %s", before.Code, after.Code, after.Body)
	}
}

// TestAProfileThatRunsDoesNotSpoilTheEnd ends an observer when a request is running and there is no time left.
func TestAProfileThatRunsDoesNotSpoilTheEnd(t *testing.T) {
	home, err := instances.Open(t.TempDir(), instances.Options{Store: flagstone.Options{CacheSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var log bytes.Buffer
	o, err := (&observeFlags{MetricsAddr: "127.0.0.1:0", Pprof: true}).listen(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	o.start(home)
	c, err := net.Dial("tcp", o.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /debug/pprof/trace?seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the trace has begun
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.close(ended); err != nil || !strings.Contains(log.String(), "cut off") {
		t.Errorf("closed with %v; logged %s", err, &log)
	}
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestProfilesAreServedOnRequest(t *testing.T) {
	_, log, stop := servingWithLog(t, "--dir", filepath.Join(t.TempDir(), "data"), "--metrics-addr", "127.0.0.1:0", "--pprof", "--log-format", "json")
	base := strings.TrimSuffix(logged(log(), "metrics")[0]["url"].(string), "/metrics")
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
