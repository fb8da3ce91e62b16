package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sender, the instance and the time of all tests.
const (
	testKey      = "akid"
	testSecret   = "aksecret"
	testInstance = "myinst"
)

func testNow() time.Time { return time.Date(2026, 11, 21, 1, 34, 5, 500_000_000, time.UTC) }

// fakeService counts calls and gives the answer that the test sets. Without one it panics,
// through the embedded nil Service.
type fakeService struct {
	ots.Service
	calls atomic.Int64

	mu       sync.Mutex
	request  any    // of the last call
	instance string // of the last DescribeTable
	response any    // of the next calls: an error, a func() any or a response
}

func (f *fakeService) answer(response any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.response = response
}

func (f *fakeService) lastRequest() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.request
}

// serve records a request and returns its answer.
func serve[R any](ctx context.Context, f *fakeService, request any) (r R, err error) {
	f.calls.Add(1)
	f.mu.Lock()
	f.request = request
	response := f.response
	f.mu.Unlock()
	if fn, ok := response.(func(context.Context) any); ok {
		response = fn(ctx)
	}
	if err, ok := response.(error); ok {
		return r, err
	}
	r, _ = response.(R)
	return r, nil
}

func (f *fakeService) CreateTable(ctx context.Context, _ string, req *ots.CreateTableRequest) error {
	_, err := serve[any](ctx, f, req)
	return err
}

func (f *fakeService) ListTable(ctx context.Context, _ string) ([]string, error) {
	return serve[[]string](ctx, f, nil)
}

func (f *fakeService) DescribeTable(ctx context.Context, instance, table string) (*ots.TableDescription, error) {
	f.instance = instance
	return serve[*ots.TableDescription](ctx, f, table)
}

func (f *fakeService) UpdateTable(ctx context.Context, _ string, req *ots.UpdateTableRequest) (*ots.TableDescription, error) {
	return serve[*ots.TableDescription](ctx, f, req)
}

func (f *fakeService) DeleteTable(ctx context.Context, _, table string) error {
	_, err := serve[any](ctx, f, table)
	return err
}

func (f *fakeService) ComputeSplitPointsBySize(ctx context.Context, _ string, req *ots.SplitPointsRequest) (*ots.SplitPointsResponse, error) {
	return serve[*ots.SplitPointsResponse](ctx, f, req)
}

func (f *fakeService) GetRow(ctx context.Context, _ string, req *ots.GetRowRequest) (*ots.ReadResult, error) {
	return serve[*ots.ReadResult](ctx, f, req)
}

func (f *fakeService) GetRange(ctx context.Context, _ string, req *ots.GetRangeRequest) (*ots.GetRangeResponse, error) {
	return serve[*ots.GetRangeResponse](ctx, f, req)
}

func (f *fakeService) BatchGetRow(ctx context.Context, _ string, req *ots.BatchGetRowRequest) (*ots.BatchGetRowResponse, error) {
	return serve[*ots.BatchGetRowResponse](ctx, f, req)
}

func (f *fakeService) WriteRow(ctx context.Context, _ string, req *ots.WriteRowRequest) (*ots.WriteResult, error) {
	return serve[*ots.WriteResult](ctx, f, req)
}

func (f *fakeService) BatchWriteRow(ctx context.Context, _ string, req *ots.BatchWriteRowRequest) (*ots.BatchWriteRowResponse, error) {
	return serve[*ots.BatchWriteRowResponse](ctx, f, req)
}

func (f *fakeService) StartLocalTransaction(ctx context.Context, _ string, req *ots.StartTransactionRequest) (string, error) {
	return serve[string](ctx, f, req)
}

func (f *fakeService) CommitTransaction(ctx context.Context, _, id string) error {
	_, err := serve[any](ctx, f, "commit "+id)
	return err
}

func (f *fakeService) AbortTransaction(ctx context.Context, _, id string) error {
	_, err := serve[any](ctx, f, "abort "+id)
	return err
}

func (f *fakeService) ListStream(ctx context.Context, _, table string) ([]ots.StreamSummary, error) {
	return serve[[]ots.StreamSummary](ctx, f, table)
}

func (f *fakeService) DescribeStream(ctx context.Context, _ string, req *ots.DescribeStreamRequest) (*ots.StreamDescription, error) {
	return serve[*ots.StreamDescription](ctx, f, req)
}

func (f *fakeService) GetShardIterator(ctx context.Context, _ string, req *ots.GetShardIteratorRequest) (string, error) {
	return serve[string](ctx, f, req)
}

func (f *fakeService) GetStreamRecord(ctx context.Context, _ string, req *ots.GetStreamRecordRequest) (*ots.GetStreamRecordResponse, error) {
	return serve[*ots.GetStreamRecordResponse](ctx, f, req)
}

func (f *fakeService) CreateTunnel(ctx context.Context, _ string, req *ots.CreateTunnelRequest) (string, error) {
	return serve[string](ctx, f, req)
}

func (f *fakeService) ListTunnel(ctx context.Context, _, table string) ([]ots.TunnelInfo, error) {
	return serve[[]ots.TunnelInfo](ctx, f, table)
}

func (f *fakeService) DescribeTunnel(ctx context.Context, _ string, ref ots.TunnelRef) (*ots.TunnelDescription, error) {
	return serve[*ots.TunnelDescription](ctx, f, ref)
}

func (f *fakeService) DeleteTunnel(ctx context.Context, _ string, ref ots.TunnelRef) error {
	_, err := serve[any](ctx, f, ref)
	return err
}

func (f *fakeService) ConnectTunnel(ctx context.Context, _, id string, timeout int64) (string, error) {
	return serve[string](ctx, f, tunnelCall{id, timeout, nil})
}

func (f *fakeService) HeartbeatTunnel(ctx context.Context, _, id, client string, reports []tunnel.Report) ([]tunnel.Report, error) {
	return serve[[]tunnel.Report](ctx, f, tunnelCall{id, client, reports})
}

func (f *fakeService) ShutdownTunnel(ctx context.Context, _, id, client string) error {
	_, err := serve[any](ctx, f, tunnelCall{id, client, nil})
	return err
}

func (f *fakeService) GetTunnelCheckpoint(ctx context.Context, _ string, at ots.TunnelChannel) (tunnel.Token, int64, error) {
	token, err := serve[tunnel.Token](ctx, f, at)
	return token, 7, err
}

func (f *fakeService) CheckpointTunnel(ctx context.Context, _ string, at ots.TunnelChannel, token tunnel.Token, sequence int64) error {
	_, err := serve[any](ctx, f, tunnelCall{at, token, sequence})
	return err
}

func (f *fakeService) ReadTunnel(ctx context.Context, _ string, at ots.TunnelChannel, token tunnel.Token) (*ots.TunnelPage, error) {
	return serve[*ots.TunnelPage](ctx, f, tunnelCall{at, token, nil})
}

// tunnelCall are the arguments of an operation on a tunnel.
type tunnelCall struct{ a, b, c any }

// newTestServer returns a server on a fake service; change may be nil.
func newTestServer(t testing.TB, change func(*Config)) (*Server, *fakeService) {
	t.Helper()
	fake := &fakeService{}
	cfg := Config{
		Instances: func(name string) (ots.Service, string, bool) {
			own := strings.ToLower(name)
			return fake, own, own == testInstance || own == "another"
		},
		Credentials: func(id string) (AccessKey, bool) {
			switch id {
			case testKey:
				return AccessKey{Secret: testSecret}, true
			case "other":
				return AccessKey{Secret: "othersecret", Instance: "another"}, true
			}
			return AccessKey{}, false
		},
		Now: testNow,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, fake
}

// listen serves on a loopback port until the test ends, and checks that Serve returns nil.
func listen(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Shutdown(ctx) // closes connections that a test left open
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// draft is a request under construction. The tests sign with their own code, which shares
// nothing with package signature.
type draft struct {
	method, path, host string
	headers            [][2]string // in this order and spelling
	body               []byte
	chunked            bool
}

func newDraft(op string, body []byte) *draft {
	d := &draft{method: "POST", path: "/" + op, host: "localhost", body: body}
	d.set("x-ots-date", testNow().Format("2006-01-02T15:04:05.000Z"))
	d.set("x-ots-apiversion", "2015-12-31")
	if strings.HasPrefix(op, "tunnel/") {
		d.set("x-ots-apiversion", "2018-04-01")
	}
	d.set("x-ots-accesskeyid", testKey)
	d.set("x-ots-instancename", testInstance)
	d.setMD5()
	return d
}

func (d *draft) setMD5() *draft {
	sum := md5.Sum(d.body)
	return d.set("x-ots-contentmd5", base64.StdEncoding.EncodeToString(sum[:]))
}

func (d *draft) set(name, value string) *draft {
	for i := range d.headers {
		if d.headers[i][0] == name {
			d.headers[i][1] = value
			return d
		}
	}
	return d.add(name, value)
}

func (d *draft) add(name, value string) *draft {
	d.headers = append(d.headers, [2]string{name, value})
	return d
}

func (d *draft) drop(name string) *draft {
	kept := d.headers[:0]
	for _, h := range d.headers {
		if h[0] != name {
			kept = append(kept, h)
		}
	}
	d.headers = kept
	return d
}

func (d *draft) value(name string) string {
	for _, h := range d.headers {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

func hmacSHA1(secret, text string) string {
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (d *draft) sign(secret string) *draft {
	d.drop("x-ots-signature")
	return d.set("x-ots-signature", hmacSHA1(secret, d.text()))
}

// signedWith reports whether every header occurs once and the signature is right.
func (d *draft) signedWith(secret string) bool {
	seen := map[string]bool{}
	for _, h := range d.headers {
		if name := strings.ToLower(h[0]); seen[name] {
			return false
		} else {
			seen[name] = true
		}
	}
	again := &draft{path: d.path, headers: slices.Clone(d.headers)}
	if got := strings.TrimSpace(d.value("x-ots-signature")); got != "" {
		return again.sign(secret).value("x-ots-signature") == got
	}
	again.signV4(secret, d.value("x-ots-signdate"), d.value("x-ots-signregion"))
	return again.value("x-ots-signaturev4") == d.value("x-ots-signaturev4")
}

// signV4 signs with version 4. It omits an empty date or region.
func (d *draft) signV4(secret, date, region string) *draft {
	d.drop("x-ots-signature").drop("x-ots-signaturev4")
	if date != "" {
		d.set("x-ots-signdate", date)
	}
	if region != "" {
		d.set("x-ots-signregion", region)
	}
	mac := func(key, text string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(text))
		return string(h.Sum(nil))
	}
	key := mac(mac(mac(mac("aliyun_v4"+secret, date), region), "ots"), "aliyun_v4_request")
	key = base64.StdEncoding.EncodeToString([]byte(key))
	return d.set("x-ots-signaturev4", base64.StdEncoding.EncodeToString([]byte(mac(key, d.text()+"ots"))))
}

// text is the canonical text to sign.
func (d *draft) text() string {
	var lines []string
	for _, h := range d.headers {
		if name := strings.ToLower(h[0]); strings.HasPrefix(name, "x-ots-") && name != "x-ots-signaturev4" && name != "x-ots-signature" {
			lines = append(lines, name+":"+strings.TrimSpace(h[1])+"\n")
		}
	}
	sort.Strings(lines)
	path, _, _ := strings.Cut(d.path, "?")
	return path + "\nPOST\n\n" + strings.Join(lines, "")
}

// raw is the request as bytes on the wire.
func (d *draft) raw() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", d.method, d.path, d.host)
	for _, h := range d.headers {
		fmt.Fprintf(&b, "%s:%s\r\n", h[0], h[1])
	}
	if d.chunked {
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(d.body), d.body)
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(d.body), d.body)
	}
	return b.Bytes()
}

// request is the draft for an http.Handler.
func (d *draft) request() *http.Request {
	r := httptest.NewRequest(d.method, d.path, bytes.NewReader(d.body))
	for _, h := range d.headers {
		r.Header.Add(h[0], h[1])
	}
	return r
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends raw bytes over a new connection and reads one answer.
func send(t testing.TB, addr, method string, raw []byte) reply {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	sent := make(chan struct{})
	go func() { // the server may answer before it has read all
		defer close(sent)
		c.Write(raw)
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	c.Close()
	<-sent
	return reply{res.StatusCode, res.Header, body}
}

// handle passes the draft to the server's handler.
func handle(s *Server, d *draft) reply {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, d.request())
	header := make(http.Header) // with the spelling that Get looks for
	for name, values := range w.Header() {
		header[http.CanonicalHeaderKey(name)] = values
	}
	return reply{w.Code, header, w.Body.Bytes()}
}

// call sends a signed message and decodes the answer, which must be a success.
func call(t testing.TB, s *Server, op string, message, answer proto.Message) {
	t.Helper()
	r := handle(s, newDraft(op, marshal(t, message)).sign(testSecret))
	if r.status != http.StatusOK {
		code, text := r.refusal(t)
		t.Fatalf("%s: %d %s %s", op, r.status, code, text)
	}
	if err := proto.Unmarshal(r.body, answer); err != nil {
		t.Fatalf("%s: %v", op, err)
	}
}

// callRefused sends a signed message, which must be refused.
func callRefused(t testing.TB, s *Server, op string, message proto.Message) (status int, code, text string) {
	t.Helper()
	r := handle(s, newDraft(op, marshal(t, message)).sign(testSecret))
	if r.status == http.StatusOK {
		t.Fatalf("%s: not refused", op)
	}
	code, text = r.refusal(t)
	return r.status, code, text
}

func (r *reply) refusal(t testing.TB) (code, text string) {
	t.Helper()
	var e otspb.Error
	if err := proto.Unmarshal(r.body, &e); err != nil {
		t.Fatalf("status %d without an error message: %v %q", r.status, err, r.body)
	}
	return e.GetCode(), e.GetMessage()
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ptr[T any](v T) *T { return &v }

func key(values ...row.Value) []ots.KeyValue {
	var kvs []ots.KeyValue
	for i, v := range values {
		kvs = append(kvs, ots.KeyValue{Name: fmt.Sprintf("pk%d", i+1), Value: v})
	}
	return kvs
}

func blob(r ots.Row) []byte {
	return plainbuffer.AppendRow(plainbuffer.AppendHeader(nil), &r, nil)
}

func getRowMessage() *otspb.GetRowRequest {
	return &otspb.GetRowRequest{
		TableName:   ptr("t"),
		PrimaryKey:  blob(ots.Row{Key: key(row.String("a"), row.Integer(1))}),
		MaxVersions: ptr(int32(1)),
	}
}

// captureLog returns a logger and a function for its output.
func captureLog() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var buf bytes.Buffer
	w := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return buf.Write(p)
	})
	read := func() string {
		mu.Lock()
		defer mu.Unlock()
		return buf.String()
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})), read
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
