package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withStore returns the metrics of a store with the table demo/people, which has one row in a file. The row was
// got so often that some of the gets were timed.
func withStore(t *testing.T) *Metrics {
	t.Helper()
	ctx := context.Background()
	var store *flagstone.Store
	m := New(Config{
		Stores: func() map[ots.InstanceType]flagstone.Metrics {
			return map[ots.InstanceType]flagstone.Metrics{ots.HighPerformance: store.Metrics()}
		},
		Throughput: func(instance, table string) (ots.Throughput, error) {
			if instance != "demo" || table != "people" {
				return ots.Throughput{}, errors.New("no such table")
			}
			return ots.Throughput{ReservedRead: 1, AdditionalRead: 2, ReservedWrite: 3, AdditionalWrite: 4}, nil
		},
		Checkpoints: func() int { return 1 },
		Version:     "v1",
	})
	var err error
	store, err = flagstone.Open(t.TempDir(), flagstone.Options{CacheSize: 1 << 20, OnEvent: func(e flagstone.Event) { m.Event(ots.HighPerformance, e) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	people, err := store.CreateTable(ctx, flagstone.TableSpec{
		Name: "demo/people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = people.Update(ctx, flagstone.Key("alice"), func(_ context.Context, tx *flagstone.RowTx) error {
		tx.Put("city", flagstone.Now, row.String("Vienna"))
		return nil
	})
	if err := errors.Join(err, store.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if _, err := people.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// without returns the metrics of a server without stores. A table exists unless its name begins with unknown,
// or gone has it.
func without(gone *sync.Map) *Metrics {
	return New(Config{
		Stores: func() map[ots.InstanceType]flagstone.Metrics { return nil },
		Throughput: func(_, table string) (t ots.Throughput, err error) {
			if _, ok := gone.Load(table); ok || strings.HasPrefix(table, "unknown") {
				err = errors.New("no such table")
			}
			return t, err
		},
	})
}

func served(m *Metrics, operation, table, code string) {
	m.Served(&server.Served{Operation: operation, Instance: "demo", Table: table, Code: code, Took: 3 * time.Millisecond, Received: 10, Sent: 20})
}

func TestNamesFollowTheConventions(t *testing.T) {
	m := withStore(t)
	served(m, "GetRow", "people", server.CodeOK)
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestFiguresOfAStore(t *testing.T) {
	err := testutil.GatherAndCompare(withStore(t).Gatherer(), strings.NewReader(`
		# HELP flagstone_capacity_units_total Capacity units that requests used, within what is reserved or above it.
		# TYPE flagstone_capacity_units_total counter
		flagstone_capacity_units_total{instance_name="demo",kind="additional",side="read",table="people"} 2
		flagstone_capacity_units_total{instance_name="demo",kind="additional",side="write",table="people"} 4
		flagstone_capacity_units_total{instance_name="demo",kind="reserved",side="read",table="people"} 1
		flagstone_capacity_units_total{instance_name="demo",kind="reserved",side="write",table="people"} 3
		# HELP flagstone_table_files Table files, by level.
		# TYPE flagstone_table_files gauge
		flagstone_table_files{instance_name="demo",level="0",table="people"} 1
		# HELP flagstone_table_rows Rows in all table files; a row in two files counts twice.
		# TYPE flagstone_table_rows gauge
		flagstone_table_rows{instance_name="demo",table="people"} 1
		# HELP flagstone_store_poisoned 1 if the store takes no more writes until it is opened again.
		# TYPE flagstone_store_poisoned gauge
		flagstone_store_poisoned{store="high-performance"} 0
		# HELP flagstone_build_info 1, with the version of the programme.
		# TYPE flagstone_build_info gauge
		flagstone_build_info{version="v1"} 1
	`), "flagstone_capacity_units_total", "flagstone_table_files", "flagstone_table_rows", "flagstone_store_poisoned", "flagstone_build_info")
	if err != nil {
		t.Error(err)
	}
}

// TestJobsAreCountedByReasonAndEnd counts what stores say that they did. What ends badly has a counter before.
func TestJobsAreCountedByReasonAndEnd(t *testing.T) {
	m := without(new(sync.Map))
	counters := func() string {
		t.Helper()
		families, err := m.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, f := range families {
			if name := f.GetName(); name != "flagstone_store_jobs_total" && name != "flagstone_store_failures_total" {
				continue
			}
			for _, metric := range f.Metric {
				fmt.Fprint(&text, f.GetName())
				for _, l := range metric.Label {
					fmt.Fprintf(&text, " %s=%q", l.GetName(), l.GetValue())
				}
				fmt.Fprintln(&text, "", metric.Counter.GetValue())
			}
		}
		return text.String()
	}
	before := counters()
	for _, e := range []flagstone.Event{
		{Kind: flagstone.EventCompaction, Begun: true, Reason: "reads", Input: 1000},
		{Kind: flagstone.EventCompaction, Reason: "reads", Input: 1000, Written: 900, Took: 2 * time.Second},
		{Kind: flagstone.EventCompaction, Reason: "reads", Input: 500, Written: 400, Took: time.Second},
		{Kind: flagstone.EventCompaction, Reason: "size", Input: 7, Took: time.Second, Cancelled: true, Err: errors.New("replaced")},
		{Kind: flagstone.EventFlush, Input: 64, Written: 32, Took: time.Second, Err: errors.New("no room")},
		{Kind: flagstone.EventSplit, Took: time.Second},
		{Kind: flagstone.EventLoad, Took: time.Second, Refused: true, Err: errors.New("the range has rows")},
		{Kind: flagstone.EventLogSegment, Segment: 3},
		{Kind: flagstone.EventFailure, Reason: "flush", Err: errors.New("no room")},
	} {
		m.Event(ots.Capacity, e)
	}
	err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(`
		# HELP flagstone_store_job_seconds_total Time that they took, side by side; of a split or merge the whole job, with the flushes and compactions that a merge needs.
		# TYPE flagstone_store_job_seconds_total counter
		flagstone_store_job_seconds_total{kind="compaction",reason="reads",store="capacity"} 3
		flagstone_store_job_seconds_total{kind="compaction",reason="size",store="capacity"} 1
		flagstone_store_job_seconds_total{kind="flush",reason="",store="capacity"} 1
		flagstone_store_job_seconds_total{kind="load",reason="",store="capacity"} 1
		flagstone_store_job_seconds_total{kind="split",reason="",store="capacity"} 1
		# HELP flagstone_store_job_written_bytes_total Bytes of the files that flushes and compactions wrote.
		# TYPE flagstone_store_job_written_bytes_total counter
		flagstone_store_job_written_bytes_total{kind="compaction",reason="reads",store="capacity"} 1300
		flagstone_store_job_written_bytes_total{kind="compaction",reason="size",store="capacity"} 0
		flagstone_store_job_written_bytes_total{kind="flush",reason="",store="capacity"} 32
	`), "flagstone_store_job_seconds_total", "flagstone_store_job_written_bytes_total")
	if err != nil {
		t.Error(err)
	}
	after := counters()
	for _, c := range []struct {
		counter string
		n       int
		begins  bool // it is there before
	}{
		{`flagstone_store_jobs_total end="cancelled" kind="compaction" reason="size" store="capacity"`, 1, true},
		{`flagstone_store_jobs_total end="done" kind="compaction" reason="reads" store="capacity"`, 2, false},
		{`flagstone_store_jobs_total end="done" kind="split" reason="" store="capacity"`, 1, false},
		{`flagstone_store_jobs_total end="failed" kind="flush" reason="" store="capacity"`, 1, true},
		{`flagstone_store_jobs_total end="refused" kind="load" reason="" store="capacity"`, 1, true},
		{`flagstone_store_jobs_total end="failed" kind="flush" reason="" store="high-performance"`, 0, true},
		{`flagstone_store_failures_total store="capacity" work="flush"`, 1, true},
	} {
		if !strings.Contains(after, fmt.Sprintf("%s %d\n", c.counter, c.n)) || strings.Contains(before, c.counter+" 0\n") != c.begins {
			t.Errorf("%s: want %d, begun before: %t; before:\n%s\nafter:\n%s", c.counter, c.n, c.begins, before, after)
		}
	}
}

// TestTheKnownJobsAreThoseOfTheEngine looks for kinds, reasons and works in the source of the engine.
func TestTheKnownJobsAreThoseOfTheEngine(t *testing.T) {
	in := func(pattern string, files ...string) (found []string) {
		t.Helper()
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				found = append(found, match[1])
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	var sources []string
	for _, pattern := range []string{"../../*.go", "../../*/*.go", "../../internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, files...)
	}
	sources = slices.DeleteFunc(sources, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	wantKinds := in(`Kind = "(.*)"`, "../../internal/event/event.go")
	wantKinds = slices.DeleteFunc(wantKinds, func(kind string) bool {
		return kind == string(flagstone.EventLogSegment) || kind == string(flagstone.EventFailure)
	})
	// Several compactions of one tree are one work. A failure is noted, or is that of a job.
	wantWorks := append(in(`event\.Failure, Reason: "(.*?)"`, sources...), in(`jobs\.Kind{.*Name: "(.*)"`, sources...)...)
	wantWorks = append(wantWorks, in(`(?m)^var compactions .*\n\t"(.*?)"`, "../../internal/upkeep/upkeep.go")...)
	slices.Sort(wantWorks)
	var gotKinds []string
	for kind := range kinds {
		gotKinds = append(gotKinds, string(kind))
	}
	slices.Sort(gotKinds)
	for what, c := range map[string]struct{ got, want []string }{
		"kinds":                  {gotKinds, wantKinds},
		"reasons of compactions": {kinds[flagstone.EventCompaction], in(`Reason = "(.*?)"`, "../../compaction/pick.go")},
		"reasons of stalls":      {kinds[flagstone.EventStall], in(`Reason(?::| =) "(.*?)"`, "../../internal/pressure/stall.go")},
		"works":                  {works, wantWorks},
	} {
		if got := slices.Sorted(slices.Values(c.got)); !slices.Equal(got, c.want) {
			t.Errorf("%s: there are %q, the engine has %q", what, got, c.want)
		}
	}
}

func TestOperationsOfATableAreTimed(t *testing.T) {
	m := withStore(t)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "flagstone_table_sampled_operation_duration_seconds" {
			continue
		}
		for _, metric := range f.Metric {
			h, last := metric.Histogram, uint64(0)
			for _, b := range h.Bucket {
				if b.GetCumulativeCount() < last {
					t.Errorf("the counts of the buckets fall: %v", h)
				}
				last = b.GetCumulativeCount()
			}
			if h.GetSampleCount() > 0 && last == h.GetSampleCount() && len(h.Bucket) == 12 && h.GetSampleSum() > 0 {
				return // no get took four seconds
			}
			t.Errorf("%v", h)
		}
	}
	t.Error("no operation was timed")
}

// requests returns the requests that were counted: operation, table, code and number.
func requests(t *testing.T, m *Metrics) (lines []string) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "flagstone_requests_total" {
			continue
		}
		for _, metric := range f.Metric {
			label := map[string]string{}
			for _, l := range metric.Label {
				label[l.GetName()] = l.GetValue()
			}
			lines = append(lines, fmt.Sprintf("%s %s %s %v", label["operation"], label["table"], label["code"], metric.Counter.GetValue()))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestTablesThatDoNotExistHaveNoLabel(t *testing.T) {
	m := without(new(sync.Map))
	for i := range 3 {
		served(m, "GetRow", fmt.Sprint("unknown", i), ots.CodeObjectNotExist)
		served(m, "BatchGetRow", fmt.Sprint("unknown", i), server.CodeOK)
	}
	served(m, "GetRow", "people", ots.CodeServerBusy)
	served(m, "GetRow", "people", server.CodeOK)
	served(m, "ListTable", "", server.CodeOK)
	want := []string{
		"BatchGetRow  OK 3", "GetRow  OTSObjectNotExist 3", "GetRow people OK 1", "GetRow people OTSServerBusy 1", "ListTable  OK 1",
	}
	if got := requests(t, m); !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
}

func TestTheFiguresOfADeletedTableGo(t *testing.T) {
	var gone sync.Map
	m := without(&gone)
	served(m, "PutRow", "people", server.CodeOK)
	served(m, "PutRow", "places", server.CodeOK)
	gone.Store("people", true)
	served(m, "DeleteTable", "people", server.CodeOK)
	want := []string{"DeleteTable  OK 1", "PutRow places OK 1"}
	if got := requests(t, m); !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
	served(m, "PutRow", "people", ots.CodeObjectNotExist)
	if got := requests(t, m); !slices.Contains(got, "PutRow  OTSObjectNotExist 1") {
		t.Errorf("counted %q", got)
	}
}

func TestTheNumberOfLabelsIsBounded(t *testing.T) {
	var gone sync.Map
	m := without(&gone)
	for i := range MostTables + 5 {
		served(m, "PutRow", fmt.Sprint("t", i), server.CodeOK)
	}
	got := requests(t, m)
	if len(got) != MostTables+1 || !slices.Contains(got, "PutRow (others) OK 5") {
		t.Errorf("%d labels; the first is %q", len(got), got[0])
	}
	gone.Store("t0", true)
	requests(t, m)
	served(m, "PutRow", "late", server.CodeOK)
	if got := requests(t, m); !slices.Contains(got, "PutRow late OK 1") {
		t.Error("the place of a deleted table is not used again")
	}
}

// TestNoFigureOutlivesItsTable deletes tables while requests to them are counted.
func TestNoFigureOutlivesItsTable(t *testing.T) {
	var gone sync.Map
	m := without(&gone)
	var wg sync.WaitGroup
	for i := range 200 {
		table := fmt.Sprint("t", i)
		for range 3 {
			wg.Go(func() {
				for range 100 {
					served(m, "PutRow", table, server.CodeOK)
				}
			})
		}
		wg.Go(func() {
			gone.Store(table, true)
			m.purge()
		})
	}
	wg.Wait()
	for _, line := range requests(t, m) {
		if !strings.HasPrefix(line, "PutRow  OK") {
			t.Errorf("%q is left", line)
		}
	}
}

func TestAScrapeOverHTTP(t *testing.T) {
	m := withStore(t)
	served(m, "GetRow", "people", server.CodeOK)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if w.Code != http.StatusOK || err != nil {
		t.Fatal(w.Code, err)
	}
	for _, want := range []string{
		`flagstone_requests_total{code="OK",instance_name="demo",operation="GetRow",table="people"} 1`,
		`flagstone_request_duration_seconds_bucket{instance_name="demo",operation="GetRow",table="people",le="0.005"} 1`,
		`flagstone_request_bytes_total{instance_name="demo"} 10`, "go_goroutines ", "flagstone_store_memtable_budget_bytes",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the answer lacks %s", want)
		}
	}
	compressed := scrapeCompressed(m)
	reader, err := gzip.NewReader(compressed.Body)
	if err != nil || compressed.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal(compressed.Header(), err)
	}
	if text, err := io.ReadAll(reader); err != nil || !strings.Contains(string(text), "flagstone_store_memtable_budget_bytes") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// scrapeCompressed is a scrape by a client that accepts gzip.
func scrapeCompressed(m *Metrics) *httptest.ResponseRecorder {
	r, answer := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
	r.Header.Set("Accept-Encoding", "gzip")
	m.Handler().ServeHTTP(answer, r)
	return answer
}

// noPanel has figures that the dashboard leaves out, and why.
var noPanel = map[string]string{
	"flagstone_store_job_input_bytes_total": "compaction_read_bytes has what compactions take, flushed_bytes what flushes make",
	"flagstone_store_visible_sequence":      "a position, to be compared with those of replicas",
	"flagstone_table_cells":                 "rows say as much",
}

// TestTheDashboardAsksForWhatThereIs looks for every name in the expressions of the dashboard, and for a panel of every
// figure of the server.
func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	m := withStore(t)
	served(m, "GetRow", "people", server.CodeOK)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(flagstone|go|process)_[a-z_]+`).FindAllString(string(text), -1)
	if len(names) < 20 {
		t.Errorf("%d names in the dashboard", len(names))
	}
	asked := map[string]bool{}
	for _, name := range names {
		name = strings.TrimSuffix(name, "_bucket")
		asked[name] = true
		if !known[name] {
			t.Errorf("the dashboard asks for %s", name)
		}
	}
	for name := range known {
		if strings.HasPrefix(name, "flagstone_") && asked[name] != (noPanel[name] == "") {
			t.Errorf("%s has a panel: %t; left out: %q", name, asked[name], noPanel[name])
		}
	}
}

// BenchmarkServed is what a request costs that is counted.
func BenchmarkServed(b *testing.B) {
	m := without(new(sync.Map))
	r := &server.Served{Operation: "GetRow", Instance: "demo", Table: "people", Code: server.CodeOK, Took: time.Millisecond}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Served(r)
		}
	})
}

// BenchmarkScrape is a scrape of a server with 200 tables of one partition.
func BenchmarkScrape(b *testing.B) {
	tables := make([]flagstone.TableMetrics, 200)
	for i := range tables {
		tables[i] = flagstone.TableMetrics{Name: fmt.Sprint("demo/t", i), Files: []int{3, 0, 0, 0, 0, 5, 9}, Bytes: make([]int64, 7)}
	}
	m := New(Config{
		Stores: func() map[ots.InstanceType]flagstone.Metrics {
			return map[ots.InstanceType]flagstone.Metrics{ots.HighPerformance: {Tables: tables}}
		},
		Throughput: func(string, string) (ots.Throughput, error) { return ots.Throughput{}, nil },
	})
	for i := range tables {
		for _, operation := range []string{"GetRow", "PutRow", "UpdateRow", "GetRange", "BatchWriteRow"} {
			served(m, operation, fmt.Sprint("t", i), server.CodeOK)
		}
	}
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		bytes = scrapeCompressed(m).Body.Len()
	}
	b.ReportMetric(float64(bytes), "bytes")
}

// TestTablesOfNoInstanceAreLeftOut: each store can have one of the same name, and a figure that comes twice
// makes the whole answer an error.
func TestTablesOfNoInstanceAreLeftOut(t *testing.T) {
	own := flagstone.Metrics{Tables: []flagstone.TableMetrics{{Name: ".tunnels"}}}
	m := New(Config{
		Stores: func() map[ots.InstanceType]flagstone.Metrics {
			return map[ots.InstanceType]flagstone.Metrics{ots.HighPerformance: own, ots.Capacity: own}
		},
		Throughput: func(string, string) (ots.Throughput, error) { return ots.Throughput{}, nil },
	})
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 || strings.Contains(answer.Body.String(), ".tunnels") {
		t.Errorf("%d %.300s", answer.Code, answer.Body)
	}
}
