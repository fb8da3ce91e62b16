package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

// A server whose cost is measured has costTables tables in four instances, with costPartitions partitions each, and
// gets costRate requests a second from costClients programs. A window is costWindow long. Pages and scrapes ask costTimes
// as often as they would, and their cost is divided by that: windows differ by more than the cost of one browser.
const (
	costTables, costPartitions, costRate, costClients = 200, 5, 5000, 64
	costTimes                                         = 10
	costWindow                                        = 10 * time.Second
	costRequests                                      = 250 // that each program has signed before, and sends in turns
)

// BenchmarkConsoleCost measures the processor time of a server in its own process, under requests that come by a timetable
// whether earlier ones were answered or not. Windows with four pages of the console in sight and a scrape every five
// seconds follow such without, or the other way round in every second pair. The cost is the median of the differences of
// pairs, as a share of the windows without. The heat map is recorded in all of them. Each pair is logged.
//
//	go test ./cmd/flagstone -run '^$' -bench ConsoleCost -benchtime 6x
func BenchmarkConsoleCost(b *testing.B) {
	m := newCost(b)
	m.window(b, false) // rows are made, and caches are filled
	var alone, costs []float64
	b.ResetTimer()
	for i := range b.N {
		var took [2]time.Duration
		for _, watched := range []int{i % 2, 1 - i%2} {
			took[watched] = m.window(b, watched == 1)
		}
		b.Logf("alone %v, watched %v", took[0], took[1])
		alone, costs = append(alone, took[0].Seconds()), append(costs, (took[1]-took[0]).Seconds()/costTimes)
	}
	b.ReportMetric(median(alone)/costWindow.Seconds(), "cpus-alone")
	b.ReportMetric(median(costs)/costWindow.Seconds(), "cpus-console")
	b.ReportMetric(100*median(costs)/median(alone), "%cost")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// cost is a server, programs that use it, and the session of a page.
type cost struct {
	server         child
	programs       [costClients]program
	metrics, pages string
	token          string
}

// program sends signed requests on a connection. It leaves most of the machine to the server, as an SDK would not.
type program struct {
	connection net.Conn
	answers    *bufio.Reader
	requests   [costRequests][]byte
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
		must(owner.CreateTable(ctx, costInstance(i), &instances.NewTable{Name: costTable(i), Key: []instances.KeyColumn{{Name: "pk", Type: "string"}}}))
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
	for i := range m.programs {
		must(m.programs[i].begin(m.server, i))
		b.Cleanup(func() { _ = m.programs[i].connection.Close() })
	}
	return m
}

func costTable(i int) string    { return fmt.Sprintf("table%03d", i) }
func costInstance(i int) string { return fmt.Sprintf("cost%d", i%4) }

// window returns the processor time of the server over a window.
func (m *cost) window(b *testing.B, watched bool) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), costWindow)
	defer cancel()
	began := m.server.processor(b)
	var last atomic.Int64 // request that was sent
	var all sync.WaitGroup
	due := clocktest.Timetable(ctx, clock.System(), costRate)
	for client := range costClients {
		all.Go(func() {
			for sent := 0; ; sent++ {
				n, ok := <-due
				if !ok {
					return
				}
				last.Store(int64(n))
				if err := m.programs[client].send(sent); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if watched { // as the pages Overview, Load, Heat map and Files; each asks for the figures
		of := "?instance=" + costInstance(7) + "&table=" + costTable(7)
		for path, every := range map[string]time.Duration{
			"figures": 2 * time.Second, "figures?page=2": 2 * time.Second, "figures?page=3": 2 * time.Second, "figures?page=4": 2 * time.Second,
			"feed": 2 * time.Second, "partitions" + of: 2 * time.Second, "heat" + of: 5 * time.Second, "files" + of: time.Second,
			"instances": 10 * time.Second,
		} {
			all.Go(func() { m.poll(ctx, b, m.pages+"api/"+path, every/costTimes) })
		}
		all.Go(func() { m.poll(ctx, b, m.metrics, 5*time.Second/costTimes) })
	}
	<-ctx.Done()
	all.Wait() // for late requests
	if asked := int(last.Load()); asked < costRate*int(costWindow/time.Second)*2/3 {
		b.Errorf("the rate is too much for the machine: only %d requests were sent in %v", asked, costWindow)
	}
	return m.server.processor(b) - began
}

// begin connects a program, and signs its requests: gets, and one put of five.
func (p *program) begin(server child, n int) (err error) {
	if p.connection, err = net.Dial("tcp", server.addr); err != nil {
		return err
	}
	p.answers = bufio.NewReader(p.connection)
	of := server.client(costInstance(n))
	for i := range p.requests {
		number, table := rand.IntN(10_000), costTable(n%4+4*rand.IntN(costTables/4))
		key := fmt.Sprint(number%costPartitions, "-customer-", number)
		if i%5 > 0 {
			p.requests[i] = request("GetRow", getOf(table, key), 0)(of)
			continue
		}
		p.requests[i] = request("PutRow", &otspb.PutRowRequest{
			TableName: &table, Row: keyRow(key, ots.Cell{Name: "c", Value: row.String(strings.Repeat("v", 100))}), Condition: ignore,
		}, 0)(of)
	}
	return nil
}

// send sends a request, and waits for its answer.
func (p *program) send(n int) error {
	if _, err := p.connection.Write(p.requests[n%costRequests]); err != nil {
		return err
	}
	answer, err := http.ReadResponse(p.answers, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
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
