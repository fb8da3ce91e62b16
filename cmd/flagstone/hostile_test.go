package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
	"github.com/flagstone-db/flagstone/server/signature"
)

// This file tests hostile load: a server in its own process, with default flags; the attacks
// below against one instance, all at the same time; and a client of another instance. The
// server may refuse that client nothing, and its memory must stay within the bound of
// docs/reliability.md. The test takes 15 seconds, or FLAGSTONE_HOSTILE_SECONDS, and reports the
// latencies of that client:
//
//	FLAGSTONE_HOSTILE_SECONDS=60 go test -run TestHostileLoad -v ./cmd/flagstone

// serverEnv makes the test binary the server, besideEnv the client of another instance. The
// client has its own process, since attackers work on other machines, too.
const (
	serverEnv = "FLAGSTONE_TEST_SERVE"
	besideEnv = "FLAGSTONE_TEST_BESIDE"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(serverEnv) != "":
		os.Args = slices.Insert(slices.Clone(os.Args[1:]), 0, "flagstone")
		main()
	case os.Getenv(besideEnv) != "":
		d, err := time.ParseDuration(os.Args[2])
		if err == nil {
			err = child{addr: os.Args[1]}.behave(d)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	hostileKey    = "hostile-test"
	hostileSecret = "the secret of a server that lives for a test only"
	// There are two attacked instances, since flooding one would delay the other attacks on it.
	attacked, flooded, quiet = "attacked", "flooded", "quiet"
	memoryBudget             = 256 << 20 // the default
	cacheSize                = 256 << 20
	// memoryBound is the bound of docs/reliability.md.
	memoryBound = (memoryBudget+cacheSize)*5/4 + 1280<<20
)

// child is a server in its own process.
type child struct {
	addr string
	pid  int
}

func startServer(t testing.TB, args ...string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), serverEnv+"=1", envKeyID+"="+hostileKey, envKeySecret+"="+hostileSecret)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v\n%s", err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, ok := strings.Cut(strings.TrimSpace(line), " on http://")
	if err != nil || !ok {
		t.Fatalf("the server says %q, %v\n%s", line, err, log.String())
	}
	return child{addr: addr, pid: cmd.Process.Pid}
}

// resident is the memory of the server in bytes, without the pages of mapped files, which
// belong to the system. It is 0 where the system does not report it.
func (c child) resident() (bytes int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// headers returns the headers of a signed request.
func headers(instance, op string, body []byte) http.Header {
	sum := md5.Sum(body)
	fields := []signature.Field{
		{Name: "x-ots-accesskeyid", Value: hostileKey}, {Name: "x-ots-apiversion", Value: "2015-12-31"},
		{Name: "x-ots-contentmd5", Value: base64.StdEncoding.EncodeToString(sum[:])},
		{Name: "x-ots-date", Value: time.Now().UTC().Format("2006-01-02T15:04:05.000Z")},
		{Name: "x-ots-instancename", Value: instance},
	}
	h := http.Header{"X-Ots-Signature": {signature.Sign(hostileSecret, signature.AppendRequest(nil, "/"+op, fields))}}
	for _, f := range fields {
		h.Set(f.Name, f.Value)
	}
	return h
}

// client sends requests to one instance.
type client struct {
	child
	instance string
	http     *http.Client
}

func (c child) client(instance string) *client {
	return &client{child: c, instance: instance, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// do sends an encoded message and returns the body of the answer. A refusal is an error.
func (c *client) do(ctx context.Context, op string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.addr+"/"+op, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = headers(c.instance, op, body)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode == http.StatusOK {
		return answer, err
	}
	var refusal otspb.Error
	_ = proto.Unmarshal(answer, &refusal)
	return nil, fmt.Errorf("%s: %s %s", res.Status, refusal.GetCode(), refusal.GetMessage())
}

// call sends a message and decodes the answer.
func (c *client) call(ctx context.Context, op string, m, answer proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	got, err := c.do(ctx, op, body)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return proto.Unmarshal(got, answer)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// keyRow encodes a row with a key and cells.
func keyRow(key string, cells ...ots.Cell) []byte {
	return plainbuffer.AppendRow(plainbuffer.AppendHeader(nil), &ots.Row{Key: []ots.KeyValue{{Name: "pk", Value: row.String(key)}}, Cells: cells}, nil)
}

func bound(v row.Value) []byte {
	return plainbuffer.AppendKey(plainbuffer.AppendHeader(nil), []ots.KeyValue{{Name: "pk", Value: v}})
}

func (c *client) createTable(ctx context.Context, name string) error {
	return c.call(ctx, "CreateTable", &otspb.CreateTableRequest{
		TableMeta: &otspb.TableMeta{TableName: &name, PrimaryKey: []*otspb.PrimaryKeySchema{
			{Name: ptr("pk"), Type: otspb.PrimaryKeyType_STRING.Enum()},
		}},
		ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(0)), Write: ptr(int32(0))}},
		TableOptions:       &otspb.TableOptions{TimeToLive: ptr(int32(-1)), MaxVersions: ptr(int32(1))},
	}, &otspb.CreateTableResponse{})
}

var ignore = &otspb.Condition{RowExistence: otspb.RowExistenceExpectation_IGNORE.Enum()}

func (c *client) update(ctx context.Context, table, key string, cells ...ots.Cell) error {
	return c.call(ctx, "UpdateRow", &otspb.UpdateRowRequest{TableName: &table, RowChange: keyRow(key, cells...), Condition: ignore}, &otspb.UpdateRowResponse{})
}

func rangeOf(table string) *otspb.GetRangeRequest {
	return &otspb.GetRangeRequest{
		TableName: &table, Direction: otspb.Direction_FORWARD.Enum(), MaxVersions: ptr(int32(1)),
		InclusiveStartPrimaryKey: bound(row.Min()), ExclusiveEndPrimaryKey: bound(row.Max()),
	}
}

func getOf(table, key string) *otspb.GetRowRequest {
	return &otspb.GetRowRequest{TableName: &table, PrimaryKey: keyRow(key), MaxVersions: ptr(int32(1))}
}

// expression is a filter that matches a column with a regular expression.
func expression(regex string) []byte {
	inner, err := proto.Marshal(&otspb.SingleColumnValueFilter{
		Comparator: otspb.ComparatorType_CT_EQUAL.Enum(), ColumnName: ptr("text"), ColumnValue: plainbuffer.AppendVariant(nil, row.String("x")),
		FilterIfMissing: ptr(true), LatestVersionOnly: ptr(true), ValueTransRule: &otspb.ValueTransferRule{Regex: &regex},
	})
	if err != nil {
		panic(err)
	}
	b, err := proto.Marshal(&otspb.Filter{Type: otspb.FilterType_FT_SINGLE_COLUMN_VALUE.Enum(), Filter: inner})
	if err != nil {
		panic(err)
	}
	return b
}

// prepare fills the tables of the attacks: wide has a row of 80 MB and one of 30 MB; own has
// rows with 250 columns each that no other row has; text has a long string.
func (c *client) prepare(t *testing.T, ctx context.Context) {
	for _, table := range []string{"wide", "own", "text"} {
		must(t, c.createTable(ctx, table))
	}
	noise := make([]byte, 2<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for i := range 40 {
		cells := []ots.Cell{{Name: fmt.Sprintf("c%02d", i), Value: row.Binary(noise)}}
		must(t, c.update(ctx, "wide", "larger", cells...))
		if i < 15 {
			must(t, c.update(ctx, "wide", "large", cells...))
		}
	}
	for from := 0; from < 1000; from += 100 {
		batch := &otspb.TableInBatchWriteRowRequest{TableName: ptr("own")}
		for i := from; i < from+100; i++ {
			var cells []ots.Cell
			for j := range 250 {
				cells = append(cells, ots.Cell{Name: fmt.Sprintf("c%04d_%03d", i, j), Value: row.Integer(1)})
			}
			batch.Rows = append(batch.Rows, &otspb.RowInBatchWriteRowRequest{
				Type: otspb.OperationType_PUT.Enum(), RowChange: keyRow(fmt.Sprintf("%04d", i), cells...), Condition: ignore,
			})
		}
		must(t, c.call(ctx, "BatchWriteRow", &otspb.BatchWriteRowRequest{Tables: []*otspb.TableInBatchWriteRowRequest{batch}}, &otspb.BatchWriteRowResponse{}))
	}
	must(t, c.update(ctx, "text", "t", ots.Cell{Name: "text", Value: row.String(strings.Repeat("a", 36<<10))}))
}

// attack is one action that several goroutines repeat. Errors are expected.
type attack struct {
	name string
	many int
	on   string // instance
	once func(ctx context.Context, c *client)
}

// message makes an attack from a message, which it encodes once.
func message(op string, m proto.Message) func(context.Context, *client) {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return repeated(op, body)
}

// repeated makes an attack from a body. It signs once and discards the answers, to cost little
// of the processors that test and server share.
func repeated(op string, body []byte) func(context.Context, *client) {
	var once sync.Once
	var signed http.Header
	return func(ctx context.Context, c *client) {
		once.Do(func() { signed = headers(c.instance, op, body) })
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.addr+"/"+op, bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header = signed.Clone()
		if res, err := c.http.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
}

// raw makes an attack that sends bytes on a new connection and reads nothing until the server
// closes it, or for some seconds.
func raw(bytesOf func(c *client) []byte) func(context.Context, *client) {
	return func(ctx context.Context, c *client) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		if _, err := conn.Write(bytesOf(c)); err != nil {
			return
		}
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for range 100 { // one byte at a time
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
}

// request encodes a signed request; declared may exceed the length of its body.
func request(op string, m proto.Message, declared int) func(c *client) []byte {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return func(c *client) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", op, len(body)+declared)
		_ = headers(c.instance, op, body).Write(&b)
		return append(append(b.Bytes(), "\r\n"...), body...)
	}
}

// slowRange reads a row by an expression that takes about as long as one may.
func slowRange() *otspb.GetRangeRequest {
	slow := rangeOf("text")
	slow.Filter = expression("(a{1,40}){1,10}b")
	return slow
}

// attacks returns all attacks.
func attacks() []attack {
	matrix := rangeOf("own")
	matrix.DataBlockTypeHint = otspb.DataBlockType_DBT_SIMPLE_ROW_MATRIX.Enum()
	slow := slowRange()
	judged := &otspb.TableInBatchGetRowRequest{TableName: ptr("text"), MaxVersions: ptr(int32(1)), Filter: slow.Filter}
	for range 100 {
		judged.PrimaryKey = append(judged.PrimaryKey, keyRow("t"))
	}
	filtered := &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{judged}}
	condition := &otspb.UpdateRowRequest{
		TableName: ptr("text"), RowChange: keyRow("t", ots.Cell{Name: "n", Value: row.Integer(1)}),
		Condition: &otspb.Condition{RowExistence: otspb.RowExistenceExpectation_IGNORE.Enum(), ColumnCondition: slow.Filter},
	}
	entries, same := &otspb.BatchGetRowRequest{}, &otspb.TableInBatchGetRowRequest{TableName: ptr("wide"), MaxVersions: ptr(int32(1))}
	for range 10_000 {
		entries.Tables = append(entries.Tables, &otspb.TableInBatchGetRowRequest{TableName: ptr("text"), MaxVersions: ptr(int32(1)), Filter: slow.Filter})
	}
	for range 100 {
		same.PrimaryKey = append(same.PrimaryKey, keyRow("large"))
	}
	hundred := &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{same}}
	manyKeys := ots.Row{}
	for i := range 100_000 {
		manyKeys.Key = append(manyKeys.Key, ots.KeyValue{Name: fmt.Sprint("k", i), Value: row.Integer(1)})
	}
	var deletes []ots.Cell
	for i := range 200_000 {
		deletes = append(deletes, ots.Cell{Name: fmt.Sprint("d", i), Op: ots.OpDeleteAllVersion})
	}
	garbage := make([]byte, 5_000_000)
	bytesOf := func(s string) func(*client) []byte { return func(*client) []byte { return []byte(s) } }
	var session atomic.Int64
	return []attack{
		{"expressions in filters", 30, attacked, message("GetRange", slow)},
		{"expressions in batches", 30, attacked, message("BatchGetRow", filtered)},
		{"expressions in conditions", 30, attacked, message("UpdateRow", condition)},
		{"matrices of own columns", 2, attacked, message("GetRange", matrix)},
		{"table entries", 2, attacked, message("BatchGetRow", entries)},
		{"a large row a hundred times", 2, flooded, message("BatchGetRow", hundred)},
		{"a row that is too large", 2, attacked, message("GetRow", getOf("wide", "larger"))},
		{"ranges of large rows", 2, flooded, message("GetRange", rangeOf("wide"))},
		{"key cells", 1, attacked, message("GetRow", &otspb.GetRowRequest{
			TableName: ptr("text"), MaxVersions: ptr(int32(1)), PrimaryKey: plainbuffer.AppendKey(plainbuffer.AppendHeader(nil), manyKeys.Key),
		})},
		{"column deletes", 1, attacked, message("UpdateRow", &otspb.UpdateRowRequest{TableName: ptr("text"), RowChange: keyRow("t", deletes...), Condition: ignore})},
		{"bodies of garbage", 8, flooded, repeated("GetRow", garbage)},
		{"transactions", 2, attacked, func(ctx context.Context, c *client) {
			_ = c.call(ctx, "StartLocalTransaction", &otspb.StartLocalTransactionRequest{
				TableName: ptr("text"), Key: keyRow(fmt.Sprint(session.Add(1))),
			}, &otspb.StartLocalTransactionResponse{})
		}},
		{"readers that hardly read", 40, flooded, raw(request("GetRow", getOf("wide", "large"), 0))},
		{"lengths that are declared", 100, flooded, raw(request("GetRow", getOf("wide", "large"), 4_900_000))},
		{"kept test paths", 1000, attacked, raw(bytesOf("GET /flagstone/test/clock HTTP/1.1\r\nHost: x\r\n\r\n"))},
		{"strangers who say nothing", 1000, attacked, raw(bytesOf("P"))},
		{"bodies of strangers", 20, attacked, raw(bytesOf("POST /GetRow HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + string(garbage[:1<<20])))},
	}
}

// latencies are the latencies of a client's requests.
type latencies struct {
	mu   sync.Mutex
	took []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d)
}

func (l *latencies) String() string {
	slices.Sort(l.took)
	if len(l.took) == 0 {
		return "none"
	}
	at := func(q float64) time.Duration {
		return l.took[int(q*float64(len(l.took)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d requests, p50 %v, p99 %v, longest %v", len(l.took), at(0.5), at(0.99), at(1))
}

// behave is the other client until the context ends: a few goroutines write and read small
// rows, sometimes on a new connection. It reports errors.
func (c *client) behave(ctx context.Context, seed uint64, l *latencies) error {
	r := rand.New(rand.NewPCG(seed, 0))
	table := "t"
	limited := rangeOf(table)
	limited.Limit = ptr(int32(10))
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprint("k", r.IntN(1000))
		begun := time.Now()
		var err error
		// Finish a request that has begun.
		switch whole := context.WithoutCancel(ctx); n % 4 {
		case 0:
			err = c.update(whole, table, key, ots.Cell{Name: "c", Value: row.String(strings.Repeat("v", 100))})
		case 1:
			err = c.call(whole, "GetRow", getOf(table, key), &otspb.GetRowResponse{})
		case 2:
			err = c.call(whole, "GetRange", limited, &otspb.GetRangeResponse{})
		case 3:
			gets := &otspb.TableInBatchGetRowRequest{TableName: &table, MaxVersions: ptr(int32(1)), PrimaryKey: [][]byte{keyRow(key), keyRow("k1")}}
			answer := new(otspb.BatchGetRowResponse)
			err = c.call(whole, "BatchGetRow", &otspb.BatchGetRowRequest{Tables: []*otspb.TableInBatchGetRowRequest{gets}}, answer)
			for _, t := range answer.Tables {
				for _, r := range t.Rows {
					if !r.GetIsOk() {
						err = errors.Join(err, fmt.Errorf("a row of a batch: %s", r.GetError().GetCode()))
					}
				}
			}
		}
		if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		l.add(time.Since(begun))
		if n%100 == 99 {
			c.http.CloseIdleConnections()
		}
	}
	return nil
}

// behave runs well-behaved clients for a while and prints their latencies.
func (c child) behave(d time.Duration) error {
	const clients = 4
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	l := new(latencies)
	var errs [clients]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			one := c.client(quiet)
			defer one.http.CloseIdleConnections()
			errs[i] = one.behave(ctx, uint64(i), l)
		})
	}
	all.Wait()
	fmt.Print(l)
	return errors.Join(errs[:]...)
}

// load runs behave in its own process and returns its output.
func (c child) load(t *testing.T, d time.Duration) string {
	cmd := exec.Command(os.Args[0], c.addr, d.String())
	cmd.Env = append(os.Environ(), besideEnv+"=1")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	said, err := cmd.Output()
	if err != nil {
		t.Errorf("the client of another instance: %v\n%s", err, complaints.String())
	}
	return string(said)
}

func TestHostileLoadOfOneInstanceIsBoundedAndRefusesNothingToAnother(t *testing.T) {
	seconds := 15
	if text := os.Getenv("FLAGSTONE_HOSTILE_SECONDS"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	server := startServer(t, "--dir", t.TempDir(), "--instance", attacked, "--instance", flooded, "--instance", quiet)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, instance := range []string{attacked, flooded} {
		server.client(instance).prepare(t, ctx)
	}
	must(t, server.client(quiet).createTable(ctx, "t"))
	must(t, server.client(attacked).call(ctx, "GetRange", slowRange(), &otspb.GetRangeResponse{})) // it is not refused
	t.Logf("alone: %s; %d MiB resident", server.load(t, time.Duration(seconds)*time.Second/5), server.resident()>>20)

	// Attacks with the same key compete for its share. A third of them runs at a time, in turn,
	// so that each makes progress.
	const turns = 3
	var turn atomic.Int64
	var attackers, watch sync.WaitGroup
	list := attacks()
	counts := make([]atomic.Int64, len(list))
	for i, a := range list {
		for range a.many {
			attackers.Go(func() {
				one := server.client(a.on)
				defer one.http.CloseIdleConnections()
				for ctx.Err() == nil {
					if turn.Load()%turns == int64(i%turns) {
						a.once(ctx, one)
						counts[i].Add(1)
					}
					select {
					case <-time.After(time.Duration(a.many) * time.Millisecond): // real hosts are slower than loopback
					case <-ctx.Done():
					}
				}
			})
		}
	}
	most := int64(0)
	watch.Go(func() {
		for n := int64(0); ctx.Err() == nil; n++ {
			most = max(most, server.resident())
			turn.Store(n / 75) // 1.5 seconds
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	beside := server.load(t, time.Duration(seconds)*time.Second)
	cancel()
	attackers.Wait()
	watch.Wait()
	for i, a := range list {
		t.Logf("%6d x %s", counts[i].Load(), a.name)
	}
	t.Logf("beside: %s; at most %d MiB resident of %d", beside, most>>20, memoryBound>>20)
	if most > memoryBound {
		t.Errorf("the server had %d MiB resident, more than the %d MiB of the documentation", most>>20, memoryBound>>20)
	}
}
