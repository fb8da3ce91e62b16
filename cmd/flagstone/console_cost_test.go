package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

// A server whose cost is measured has costTables tables in four instances, with costPartitions partitions each, and
// answers costRate requests a second. A phase is costPhase long.
const (
	costTables, costPartitions, costRate = 200, 5, 5000
	costPhase                            = 8 * time.Second
)

// BenchmarkConsoleCost measures the processor time of a server in its own process over three phases in turns: with
// requests alone, with pages of the console open and a scrape every five seconds alone, and with neither. The cost is what
// the second has above the third, as a share of the first. The heat map is recorded in all of them. Pairs of phases with
// requests, with and without the console, would differ by more than the cost on a machine that others use.
//
//	go test ./cmd/flagstone -run '^$' -bench ConsoleCost -benchtime 2x
func BenchmarkConsoleCost(b *testing.B) {
	m := newCost(b)
	m.phase(b, true, false) // rows are made, and caches are filled
	var requests, console, nothing time.Duration
	b.ResetTimer()
	for range b.N {
		requests += m.phase(b, true, false)
		console += m.phase(b, false, true)
		nothing += m.phase(b, false, false)
	}
	for name, took := range map[string]time.Duration{"cpus-requests": requests, "cpus-console": console, "cpus-idle": nothing} {
		b.ReportMetric(took.Seconds()/(costPhase.Seconds()*float64(b.N)), name)
	}
	b.ReportMetric(100*(console-nothing).Seconds()/requests.Seconds(), "%cost")
}

// cost is a server, a client of it, and the session of a page.
type cost struct {
	server         child
	clients        [4]*tablestore.TableStoreClient // by instance
	metrics, pages string
	token          string
}

func newCost(b *testing.B) *cost {
	b.Helper()
	ctx, dir := context.Background(), b.TempDir()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	m := &cost{metrics: "http://" + free.Addr().String() + "/metrics"}
	must(free.Close())
	m.server = startServer(b, "--dir", dir, "--sync", "none", "--log-level", "error", "--instance", "cost0", "--instance", "cost1", "--instance", "cost2", "--instance", "cost3",
		"--metrics-addr", strings.TrimSuffix(strings.TrimPrefix(m.metrics, "http://"), "/metrics"))
	owner, err := admin.Connect(ctx, dir)
	must(err)
	b.Cleanup(func() { _ = owner.Close() }) // the server has gone
	for i := range costTables {
		must(owner.CreateTable(ctx, costInstance(i), &instances.NewTable{Name: costTable(i), Key: []instances.KeyColumn{{Name: "k", Type: "string"}}}))
		for p := 1; p < costPartitions; p++ {
			must(owner.Split(ctx, costInstance(i), costTable(i), strconv.Itoa(p)))
		}
	}
	link, err := owner.Console(ctx)
	must(err)
	at, err := url.Parse(link)
	must(err)
	m.pages = "http://" + at.Host + at.Path
	var session struct{ Token string }
	answer, err := http.Post(m.pages+"session", "application/json", strings.NewReader(`{"code":"`+at.Fragment+`"}`))
	must(err)
	defer answer.Body.Close()
	must(json.NewDecoder(answer.Body).Decode(&session))
	m.token = session.Token
	b.Setenv(envKeyID, hostileKey)
	b.Setenv(envKeySecret, hostileSecret)
	for i := range m.clients {
		m.clients[i], err = endpointClient("http://"+m.server.addr, costInstance(i), usualKeys(dir), 16, requestPatience)
		must(err)
	}
	return m
}

func costTable(i int) string    { return fmt.Sprintf("table%03d", i) }
func costInstance(i int) string { return fmt.Sprintf("cost%d", i%4) }

// phase returns the processor time of the server over a phase.
func (m *cost) phase(b *testing.B, loaded, watched bool) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), costPhase)
	defer cancel()
	began := m.server.processor(b)
	var all sync.WaitGroup
	limit := rate.NewLimiter(costRate, costRate/100)
	workers := 16
	if !loaded {
		workers = 0
	}
	for range workers {
		all.Go(func() {
			for limit.Wait(ctx) == nil {
				if err := m.request(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if watched { // as the pages Load, Heat map, Files and Overview of one tab each
		of := "?instance=" + costInstance(7) + "&table=" + costTable(7)
		for path, every := range map[string]time.Duration{
			"figures": 2 * time.Second, "feed": 2 * time.Second, "partitions" + of: 2 * time.Second, "heat" + of: 5 * time.Second,
			"files" + of: time.Second, "tables?instance=cost3": 10 * time.Second,
		} {
			all.Go(func() { m.poll(ctx, b, m.pages+"api/"+path, every) })
		}
		all.Go(func() { m.poll(ctx, b, m.metrics, 5*time.Second) })
	}
	all.Wait()
	<-ctx.Done()
	return m.server.processor(b) - began
}

// request gets a row, or one of five times puts it.
func (m *cost) request() error {
	key := new(tablestore.PrimaryKey)
	n := rand.IntN(10_000)
	key.AddPrimaryKeyColumn("k", fmt.Sprint(n%costPartitions, "-customer-", n))
	i := rand.IntN(costTables)
	client, table := m.clients[i%4], costTable(i)
	if rand.IntN(5) > 0 {
		_, err := client.GetRow(&tablestore.GetRowRequest{SingleRowQueryCriteria: &tablestore.SingleRowQueryCriteria{
			TableName: table, PrimaryKey: key, MaxVersion: 1,
		}})
		return err
	}
	change := &tablestore.PutRowChange{TableName: table, PrimaryKey: key}
	change.AddColumn("c", strings.Repeat("v", 100))
	change.SetCondition(tablestore.RowExistenceExpectation_IGNORE)
	_, err := client.PutRow(&tablestore.PutRowRequest{PutRowChange: change})
	return err
}

// poll asks for something at once and then in intervals until ctx ends.
func (m *cost) poll(ctx context.Context, b *testing.B, what string, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r, err := http.NewRequest("GET", what, nil)
		if err != nil {
			b.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+m.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Error(err)
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Error(what, answer.Status, err)
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// processor is how much time the server has had of a processor, in ticks of 10 ms as Linux counts.
func (c child) processor(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(behind)
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
