package prometheus_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// limit is how long the test waits for a scrape.
const limit = 30 * time.Second

// free is an address of this machine that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts a server with metrics, and returns where these are.
func serve(t *testing.T) (server *endpoint.Server, metrics string) {
	t.Helper()
	command, err := endpoint.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Remove() })
	metrics = free(t)
	server, err = command.Start(t.TempDir(), "--metrics-addr", metrics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server, metrics
}

// scrape starts a Prometheus that scrapes an address each second, and returns its own, and what tells of each scrape that
// begins.
func scrape(t *testing.T, metrics string) (base string, scrapes <-chan struct{}) {
	t.Helper()
	dir, at, begun := t.TempDir(), free(t), make(chan struct{}, 1)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: metrics})
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case begun <- struct{}{}:
		default:
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n  - job_name: flagstone\n    scrape_interval: 1s\n    static_configs:\n      - targets: [\"%s\"]\n", between.Listener.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	p.Stdout, p.Stderr = &log, &log
	if err := p.Start(); err != nil {
		t.Fatalf("Debian's package prometheus has it: %v", err)
	}
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		_ = p.Wait()
		if t.Failed() {
			t.Logf("prometheus printed:\n%s", &log)
		}
	})
	return "http://" + at, begun
}

// answer is what Prometheus answers to a query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

// ask asks for the present value of an expression.
func ask(base, expression string) (a answer, err error) {
	r, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	return a, json.NewDecoder(r.Body).Decode(&a)
}

// await asks after each scrape until the first value is the wanted one. Values are there when the next scrape begins.
func await(t *testing.T, base string, scrapes <-chan struct{}, expression, want string) {
	t.Helper()
	var a answer
	var err error
	for end := time.After(limit); ; {
		if a, err = ask(base, expression); err == nil && len(a.Data.Result) > 0 && a.Data.Result[0].Value[1] == want {
			return
		}
		select {
		case <-scrapes:
		case <-end:
			t.Fatalf("%s is not %s after %v: %+v, %v", expression, want, limit, a, err)
		}
	}
}

func TestPrometheusScrapesAServer(t *testing.T) {
	server, metrics := serve(t)
	client := ots.NewClient(server.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret)
	meta := &ots.TableMeta{TableName: "orders"}
	meta.AddPrimaryKeyColumn("id", ots.PrimaryKeyType_STRING)
	_, err := client.CreateTable(&ots.CreateTableRequest{
		TableMeta: meta, TableOption: ots.NewTableOption(-1, 1), ReservedThroughput: &ots.ReservedThroughput{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		key := new(ots.PrimaryKey)
		key.AddPrimaryKeyColumn("id", fmt.Sprint(i))
		change := &ots.PutRowChange{TableName: "orders", PrimaryKey: key}
		change.AddColumn("state", "new")
		change.SetCondition(ots.RowExistenceExpectation_IGNORE)
		if _, err := client.PutRow(&ots.PutRowRequest{PutRowChange: change}); err != nil {
			t.Fatal(err)
		}
	}
	base, scrapes := scrape(t, metrics)
	await(t, base, scrapes, `up{job="flagstone"}`, "1")
	await(t, base, scrapes, `sum(flagstone_requests_total{job="flagstone",operation="PutRow",table="orders",code="OK"})`, "7")
	await(t, base, scrapes, `count(flagstone_request_duration_seconds_bucket{operation="PutRow",le="+Inf"})`, "1")
	await(t, base, scrapes, `flagstone_store_poisoned{store="high-performance"}`, "0")
	t.Run("dashboard", func(t *testing.T) { askDashboard(t, base) })
	t.Run("promtool", func(t *testing.T) { lint(t, metrics) })
}

// askDashboard asks for every expression of the dashboard, with its variables set as Grafana does.
func askDashboard(t *testing.T, base string) {
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"expr": *("(?:[^"\\]|\\.)*")`).FindAllSubmatch(text, -1)
	if len(found) < 20 {
		t.Fatalf("%d expressions", len(found))
	}
	variables := strings.NewReplacer("$job", "flagstone", "$db", ".*", "$table", ".*", "$__rate_interval", "1m")
	for _, f := range found {
		var expression string
		if err := json.Unmarshal(f[1], &expression); err != nil {
			t.Fatal(err)
		}
		if a, err := ask(base, variables.Replace(expression)); err != nil || a.Status != "success" {
			t.Errorf("%s: %s %s, %v", expression, a.Status, a.Error, err)
		}
	}
}

// lint has the metrics checked by Prometheus' own tool.
func lint(t *testing.T, metrics string) {
	r, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = bytes.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
