package gosdk_test

// This file uses data tunnels through the SDK's tunnel client and its worker daemons, unmodified:
// docs/tunnels.md. tunnel_kill_test.go has the test with splits, dead workers and killed servers.

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tunnel"
	"github.com/aliyun/aliyun-tablestore-go-sdk/tunnel/protocol"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// tunnelLimit is when a test gives up waiting.
const tunnelLimit = 90 * time.Second

// sink takes what workers deliver. The rows of its tables count their changes in column "c", from
// 1. A delivery may be repeated, but then all that follow it come again: what comes after change n is
// change n+1 at most, and what came last is in the end the newest change.
type sink struct {
	mu      sync.Mutex
	last    map[string]int64 // by row, the change that came last
	newest  map[string]int64 // by row, the newest change that came
	deleted map[string]bool
	records int
	again   int
	faults  []string
	changed chan struct{}
	about   func() string // what to print if nothing comes
}

func newSink() *sink {
	return &sink{last: map[string]int64{}, newest: map[string]int64{}, deleted: map[string]bool{}, changed: make(chan struct{}, 1), about: func() string { return "" }}
}

// take is the ProcessFunc of workers.
func (s *sink) take(_ *tunnel.ChannelContext, records []*tunnel.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.records++
		var parts []string
		for _, c := range r.PrimaryKey.PrimaryKeys {
			parts = append(parts, fmt.Sprint(c.Value))
		}
		row := strings.Join(parts, "/")
		if r.Type == tunnel.AT_Delete {
			s.deleted[row] = true
			continue
		}
		for _, c := range r.Columns {
			if *c.Name == "c" {
				s.count(row, c.Value.(int64), r.SequenceInfo == nil)
			}
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// count takes change n of a row. A row of the base stands for all changes up to it.
func (s *sink) count(row string, n int64, base bool) {
	if n <= s.newest[row] {
		s.again++
	}
	if n > s.last[row]+1 && !base {
		s.faults = append(s.faults, fmt.Sprintf("row %s: change %d comes after %d", row, n, s.last[row]))
	}
	s.last[row] = n
	s.newest[row] = max(s.newest[row], n)
}

// wait waits until done is true of the sink.
func (s *sink) wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(tunnelLimit)
	for {
		s.mu.Lock()
		ok := done()
		faults := slices.Clone(s.faults)
		s.mu.Unlock()
		if len(faults) > 0 {
			t.Fatalf("%s: %s", what, strings.Join(faults[:min(len(faults), 5)], "\n"))
		}
		if ok {
			return
		}
		select {
		case <-s.changed:
		case <-limit:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("%s: not within %v; %d records of %d rows came\n%s", what, tunnelLimit, s.records, len(s.last), s.about())
		}
	}
}

// tunnelClient returns a client of tunnels.
func tunnelClient(url string, transport http.RoundTripper) tunnel.TunnelClient {
	config := &tunnel.TunnelConfig{MaxRetryElapsedTime: 75 * time.Second, RequestTimeout: time.Minute, Transport: transport}
	return tunnel.NewTunnelClientWithConfig(url, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, config)
}

// newTunnel creates a tunnel and returns its id.
func newTunnel(t *testing.T, c tunnel.TunnelClient, table, name string, kind tunnel.TunnelType, config *tunnel.StreamTunnelConfig) string {
	t.Helper()
	r, err := c.CreateTunnel(&tunnel.CreateTunnelRequest{TableName: table, TunnelName: name, Type: kind, StreamTunnelConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	return r.TunnelId
}

// work runs a worker daemon until the test ends. The channel gets the error of its end.
func work(t *testing.T, c tunnel.TunnelClient, id string, process func(*tunnel.ChannelContext, []*tunnel.Record) error) <-chan error {
	t.Helper()
	return workWith(t, c, id, &tunnel.SimpleProcessFactory{
		CpInterval: 200 * time.Millisecond, Logger: zap.NewNop(), SyncCloseResource: true, ProcessFunc: process,
	})
}

// workWith is work with a factory of processors.
func workWith(t *testing.T, c tunnel.TunnelClient, id string, factory tunnel.ChannelProcessorFactory) <-chan error {
	t.Helper()
	log := tunnel.DefaultLogConfig
	log.Level = zap.NewAtomicLevelAt(zapcore.FatalLevel)
	daemon := tunnel.NewTunnelDaemon(c, id, &tunnel.TunnelWorkerConfig{
		HeartbeatInterval: 200 * time.Millisecond, HeartbeatTimeout: 3 * time.Second,
		LogConfig: &log, LogWriteSyncer: zapcore.AddSync(io.Discard),
		BackoffConfig:    &tunnel.ChannelBackoffConfig{MaxDelay: 50 * time.Millisecond},
		ProcessorFactory: factory,
	})
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- daemon.Run()
	}()
	t.Cleanup(func() {
		daemon.Close()
		<-done
	})
	return ended
}

// wantTunnelError fails the test unless err is the server's error of that code.
func wantTunnelError(t *testing.T, what string, err error, code, part string) {
	t.Helper()
	var own *tunnel.TunnelError
	if !errors.As(err, &own) || own.Code != code || !strings.Contains(own.Message, part) || own.RequestId == "" {
		t.Errorf("%s: got %v; want %s ...%q...", what, err, code, part)
	}
}

func TestTunnelsAreCreatedListedDescribedAndDeleted(t *testing.T) {
	name := create(t, table{}, "s")
	c := tunnelClient(shared.URL, http.DefaultTransport)
	ids := map[string]string{}
	for kind, stage := range map[tunnel.TunnelType]string{
		tunnel.TunnelTypeBaseData: "ProcessBaseData", tunnel.TunnelTypeStream: "ProcessStream", tunnel.TunnelTypeBaseStream: "ProcessBaseData",
	} {
		ids[string(kind)] = newTunnel(t, c, name, string(kind), kind, nil)
		d, err := c.DescribeTunnel(&tunnel.DescribeTunnelRequest{TableName: name, TunnelName: string(kind)})
		if err != nil {
			t.Fatal(err)
		}
		i := d.Tunnel
		if i.TunnelId != ids[string(kind)] || i.TunnelName != string(kind) || i.TunnelType != string(kind) || i.TableName != name ||
			i.InstanceName != endpoint.Instance || i.Stage != stage || i.Expired || time.Since(i.CreateTime).Abs() > time.Hour ||
			(i.StreamId == "") != (kind == tunnel.TunnelTypeBaseData) {
			t.Errorf("%s: %+v", kind, i)
		}
		channels := map[tunnel.TunnelType]int{tunnel.TunnelTypeBaseStream: 2}
		want(t, string(kind)+", channels", len(d.Channels), max(channels[kind], 1))
		for _, ch := range d.Channels {
			if ch.ChannelStatus != "WAIT" || ch.ClientId != "" || !strings.HasPrefix(ch.ChannelId, ch.ChannelType) {
				t.Errorf("%s: channel %+v", kind, ch)
			}
		}
	}
	list, err := c.ListTunnel(&tunnel.ListTunnelRequest{TableName: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Tunnels {
		want(t, i.TunnelName, i.TunnelId, ids[i.TunnelName])
	}
	want(t, "tunnels", len(list.Tunnels), 3)

	described, err := client.DescribeTable(&ots.DescribeTableRequest{TableName: name})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "hours of the stream", described.StreamDetails.ExpirationTime, 168)
	_, err = client.UpdateTable(&ots.UpdateTableRequest{TableName: name, StreamSpec: &ots.StreamSpecification{EnableStream: false}})
	wantError(t, "disabling the stream", err, "OTSParameterInvalid", "read by tunnel 'BaseAndStream'")

	for kind := range ids {
		if _, err := c.DeleteTunnel(&tunnel.DeleteTunnelRequest{TableName: name, TunnelName: kind}); err != nil {
			t.Error(err)
		}
	}
	_, err = c.DescribeTunnel(&tunnel.DescribeTunnelRequest{TableName: name, TunnelName: "Stream"})
	wantTunnelError(t, "describing a deleted one", err, tunnel.ErrCodeParamInvalid, "does not exist")
	if _, err = client.UpdateTable(&ots.UpdateTableRequest{TableName: name, StreamSpec: &ots.StreamSpecification{EnableStream: false}}); err != nil {
		t.Error(err)
	}
	tables, err := client.ListTable()
	if err != nil || slices.ContainsFunc(tables.TableNames, func(n string) bool { return strings.Contains(n, "tunnel") && n != name }) {
		t.Errorf("%v, %v", tables, err)
	}
}

func TestTunnelRefusals(t *testing.T) {
	name := create(t, table{}, "s")
	c := tunnelClient(shared.URL, http.DefaultTransport)
	for i := range 10 {
		newTunnel(t, c, name, fmt.Sprint("t", i), tunnel.TunnelTypeStream, nil)
	}
	made := func(request *tunnel.CreateTunnelRequest) error {
		_, err := c.CreateTunnel(request)
		return err
	}
	stream := tunnel.TunnelTypeStream
	for what, refused := range map[string]struct {
		err        error
		code, part string
	}{
		"an eleventh":   {made(&tunnel.CreateTunnelRequest{TableName: name, TunnelName: "t10", Type: stream}), "OTSQuotaExhausted", "10"},
		"a name in use": {made(&tunnel.CreateTunnelRequest{TableName: name, TunnelName: "t1", Type: stream}), tunnel.ErrCodeTunnelExist, "t1"[:0]},
		"a bad name":    {made(&tunnel.CreateTunnelRequest{TableName: name, TunnelName: "a/b", Type: stream}), tunnel.ErrCodeParamInvalid, "a/b"},
		"no table":      {made(&tunnel.CreateTunnelRequest{TableName: "missing", TunnelName: "t", Type: stream}), "OTSObjectNotExist", "table"},
		"an end offset": {made(&tunnel.CreateTunnelRequest{TableName: name, TunnelName: "x", Type: stream, StreamTunnelConfig: &tunnel.StreamTunnelConfig{EndOffset: 1}}), tunnel.ErrCodeParamInvalid, "end offset"},
		"time series":   {made(&tunnel.CreateTunnelRequest{TableName: name, TunnelName: "x", Type: stream, NeedAllTimeSeriesColumns: true}), tunnel.ErrCodeParamInvalid, "Time series"},
	} {
		wantTunnelError(t, what, refused.err, refused.code, refused.part)
	}
	_, err := c.GetRpo(&tunnel.GetRpoRequest{TunnelId: "x"})
	wantTunnelError(t, "GetRpo", err, tunnel.ErrCodeParamInvalid, "The operation is known")
	_, err = c.Schedule(&tunnel.ScheduleRequest{TunnelId: "x"})
	wantTunnelError(t, "Schedule", err, tunnel.ErrCodeParamInvalid, "The operation is known")
	if err := <-work(t, c, "11111111-2222-3333-4444-555555555555", newSink().take); err == nil {
		t.Error("a worker of no tunnel ends without an error")
	} else {
		wantTunnelError(t, "a worker of no tunnel", err, tunnel.ErrCodeParamInvalid, "does not exist")
	}
}

func TestAWorkerEndsWhenItsTunnelIsDeleted(t *testing.T) {
	name := create(t, table{}, "s")
	c := tunnelClient(shared.URL, http.DefaultTransport)
	id := newTunnel(t, c, name, "gone", tunnel.TunnelTypeStream, nil)
	s := newSink()
	ended := work(t, c, id, s.take)
	write(t, put(name, key("s", "r"), "c", 1))
	s.wait(t, "a change", func() bool { return s.last["r"] == 1 })
	if _, err := c.DeleteTunnel(&tunnel.DeleteTunnelRequest{TableName: name, TunnelName: "gone"}); err != nil {
		t.Fatal(err)
	}
	wantTunnelError(t, "the worker", <-ended, tunnel.ErrCodeParamInvalid, "does not exist")
}

// TestATunnelBeginsWhereItWasAskedTo reads the changes of one table from now, from the oldest one and
// from a time.
func TestATunnelBeginsWhereItWasAskedTo(t *testing.T) {
	name := streamed(t, table{}, nil, "s")
	c := tunnelClient(shared.URL, http.DefaultTransport)
	write(t, put(name, key("s", "old"), "c", 1))
	earliest := newTunnel(t, c, name, "earliest", tunnel.TunnelTypeStream, &tunnel.StreamTunnelConfig{Flag: protocol.StartOffsetFlag_EARLIEST})
	timed := newTunnel(t, c, name, "timed", tunnel.TunnelTypeStream, &tunnel.StreamTunnelConfig{StartOffset: uint64(time.Now().Add(-time.Hour).UnixMilli())})
	latest := newTunnel(t, c, name, "latest", tunnel.TunnelTypeStream, nil)
	write(t, put(name, key("s", "new"), "c", 1), remove(name, key("s", "old")))
	for what, id := range map[string]string{"earliest": earliest, "timed": timed, "latest": latest} {
		s := newSink()
		work(t, c, id, s.take)
		s.wait(t, what, func() bool { return s.last["new"] == 1 && s.deleted["old"] })
		s.mu.Lock()
		want(t, what+", the old change", s.last["old"] == 1, what != "latest")
		s.mu.Unlock()
	}
}

// TestTheBaseOfATunnelIsTheRowsThatThereAre reads a table in several channels. Rows that were deleted or
// have expired are not delivered.
func TestTheBaseOfATunnelIsTheRowsThatThereAre(t *testing.T) {
	request := table{versions: 2, ttl: 86400, offset: 10 * 86400}.request("TunnelBase", "s", "i")
	if _, err := client.CreateTable(request); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: "TunnelBase"}); err != nil {
			t.Error(err)
		}
	})
	const rows = 12_000 // more than two pages
	for at := 0; at < rows; at += 200 {
		batch := new(ots.BatchWriteRowRequest)
		for i := range 200 {
			batch.AddRowChange(put("TunnelBase", key("s", fmt.Sprintf("p%02d", (at+i)%40), "i", at+i), "c", 1))
		}
		if _, err := client.BatchWriteRow(batch); err != nil {
			t.Fatal(err)
		}
	}
	write(t, remove("TunnelBase", key("s", "p00", "i", 0)), put("TunnelBase", key("s", "p01", "i", 1), fmt.Sprintf("c@%d", -20*3600_000), 1))
	if _, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: "TunnelBase", TableOption: &ots.TableOption{TimeToAlive: 10 * 3600, MaxVersion: 2}}); err != nil {
		t.Fatal(err)
	}
	c := tunnelClient(shared.URL, http.DefaultTransport)
	id := newTunnel(t, c, "TunnelBase", "base", tunnel.TunnelTypeBaseData, nil)
	s := newSink()
	var order sync.Mutex
	lastKey := map[string]string{}
	work(t, c, id, func(ctx *tunnel.ChannelContext, records []*tunnel.Record) error {
		order.Lock()
		for _, r := range records {
			k := fmt.Sprintf("%s/%08d", r.PrimaryKey.PrimaryKeys[0].Value, r.PrimaryKey.PrimaryKeys[1].Value)
			if k <= lastKey[ctx.ChannelId] || r.Type != tunnel.AT_Put || r.SequenceInfo != nil || ctx.IsStreamChannel {
				t.Errorf("%s: %v after %s, stream %v", ctx.ChannelId, r, lastKey[ctx.ChannelId], ctx.IsStreamChannel)
			}
			lastKey[ctx.ChannelId] = k
		}
		order.Unlock()
		return s.take(ctx, records)
	})
	s.wait(t, "the base", func() bool { return len(s.last) >= rows-2 })
	for limit := time.Now().Add(tunnelLimit); ; {
		d, err := c.DescribeTunnel(&tunnel.DescribeTunnelRequest{TableName: "TunnelBase", TunnelName: "base"})
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().After(limit) {
			t.Fatalf("channels do not end: %v", d.Channels)
		}
		if !slices.ContainsFunc(d.Channels, func(ch *tunnel.ChannelInfo) bool { return ch.ChannelStatus != "TERMINATED" }) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) != rows-2 || s.last["p00/0"] != 0 || s.last["p01/1"] != 0 {
		t.Errorf("%d rows; deleted %d, expired %d", len(s.last), s.last["p00/0"], s.last["p01/1"])
	}
}

// TestAnAsyncWorkerLosesNothingAtTheEndOfAChannel fails its first commits, after the end of the channel
// was read. The records come again, and the channel ends when they were committed.
func TestAnAsyncWorkerLosesNothingAtTheEndOfAChannel(t *testing.T) {
	name := create(t, table{}, "s")
	write(t, put(name, key("s", "r"), "c", 1))
	c := tunnelClient(shared.URL, http.DefaultTransport)
	id := newTunnel(t, c, name, "async", tunnel.TunnelTypeBaseStream, nil)
	s := newSink()
	deliveries := 0
	workWith(t, c, id, &tunnel.AsyncProcessFactory{
		CpInterval: 200 * time.Millisecond, Logger: zap.NewNop(), SyncCloseResource: true,
		ProcessFunc: func(ctx *tunnel.ChannelContext, records []*tunnel.Record) error {
			if !ctx.IsStreamChannel {
				s.mu.Lock()
				deliveries++
				uncommitted := deliveries == 1
				s.mu.Unlock()
				if uncommitted {
					return s.take(ctx, records)
				}
			}
			if err := s.take(ctx, records); err != nil {
				return err
			}
			return ctx.Processor.CommitToken(ctx.NextToken)
		},
	})
	s.wait(t, "the base, again", func() bool { return deliveries > 1 })
	write(t, put(name, key("s", "r"), "c", 2))
	s.wait(t, "a change", func() bool { return s.last["r"] == 2 })
}
