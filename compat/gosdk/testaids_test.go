package gosdk_test

// This file uses what tests of programs use of a server: its clock and faults
// on request, as docs/testing.md shows them.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// aided is a server with test aids and a client of it that repeats requests by
// itself, as the SDK does by default.
type aided struct {
	t *testing.T
	s *endpoint.Server
	c *ots.TableStoreClient
}

func startAided(t *testing.T) *aided {
	t.Helper()
	s, err := command.Start(t.TempDir(), "--test-clock", "--test-faults")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return &aided{t: t, s: s, c: ots.NewClient(s.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret)}
}

// control sends a request to the test paths and returns the answer.
func (a *aided) control(method, path, body string) string {
	a.t.Helper()
	r, err := http.NewRequest(method, a.s.URL+"/flagstone/test/"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		a.t.Fatalf("%s %s %s: %s %s %v", method, path, body, resp.Status, text, err)
	}
	return string(text)
}

// fault injects what the rule says instead of what was injected before.
func (a *aided) fault(rule string) {
	a.t.Helper()
	a.control("DELETE", "faults", "")
	a.control("POST", "faults", rule)
}

// hits returns how many requests or rows matched the rule, and how many it hit.
func (a *aided) hits() (matched, hit int) {
	a.t.Helper()
	var rules []struct{ Matched, Hit int }
	if err := json.Unmarshal([]byte(a.control("GET", "faults", "")), &rules); err != nil || len(rules) != 1 {
		a.t.Fatal(rules, err)
	}
	return rules[0].Matched, rules[0].Hit
}

func (a *aided) create(name string, spec table) {
	a.t.Helper()
	if _, err := a.c.CreateTable(spec.request(name, "s")); err != nil {
		a.t.Fatal(err)
	}
}

func (a *aided) put(name, row string, columns ...any) error {
	_, err := a.c.PutRow(&ots.PutRowRequest{PutRowChange: put(name, key("s", row), columns...)})
	return err
}

func (a *aided) get(name, row string) string {
	a.t.Helper()
	q := &ots.SingleRowQueryCriteria{TableName: name, PrimaryKey: key("s", row), MaxVersion: 1}
	r, err := a.c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
	if err != nil {
		a.t.Fatal(err)
	}
	return text(&r.PrimaryKey, r.Columns)
}

// TestTimeToLiveIsTestedBySettingTheClock lets a day pass at once. The SDK goes
// on working: dates of requests are judged by the machine's clock.
func TestTimeToLiveIsTestedBySettingTheClock(t *testing.T) {
	a := startAided(t)
	a.create("sessions", table{ttl: 86400})
	want(t, "put", a.put("sessions", "alice", "token", "x"), nil)
	a.control("POST", "clock", `{"advance":"23h59m"}`)
	want(t, "a minute before a day", a.get("sessions", "alice"), "(alice) token=x")
	a.control("POST", "clock", `{"advance":"2m"}`)
	want(t, "a minute after a day", a.get("sessions", "alice"), "")
	want(t, "put again", a.put("sessions", "alice", "token", "y"), nil)
	want(t, "with a new life", a.get("sessions", "alice"), "(alice) token=y")
	var now struct{ Now time.Time }
	if err := json.Unmarshal([]byte(a.control("POST", "clock", `{"set":"2100-01-01T00:00:00Z"}`)), &now); err != nil || now.Now.Year() != 2100 {
		t.Errorf("the clock shows %v, %v", now.Now, err)
	}
	want(t, "in 2100", a.get("sessions", "alice"), "")
	a.control("POST", "clock", `{"reset":true}`)
}

// TestTheSDKRepeatsWhatIsInjected: the errors by which the service promises that
// nothing was applied are repeated for reads and writes, by a client that is as
// it comes, and the program sees only success.
func TestTheSDKRepeatsWhatIsInjected(t *testing.T) {
	a := startAided(t)
	a.create("T", table{})
	for _, code := range []string{"OTSServerBusy", "OTSStorageServerBusy", "OTSRowOperationConflict", "OTSPartitionUnavailable", "OTSTableNotReady", "OTSNotEnoughCapacityUnit", "OTSQuotaExhausted"} {
		a.fault(fmt.Sprintf(`{"code":%q,"operation":"PutRow","table":"T","times":3}`, code))
		want(t, code+", put", a.put("T", "r", "c", code), nil)
		matched, hit := a.hits()
		want(t, code+", times it was answered", hit, 3)
		want(t, code+", rules ended", matched, 3)
		a.fault(fmt.Sprintf(`{"code":%q,"operation":"GetRow","times":2}`, code))
		want(t, code+", get", a.get("T", "r"), "(r) c="+code)
		_, hit = a.hits()
		want(t, code+", times it was answered to a get", hit, 2)
	}
	for _, code := range []string{"OTSTimeout", "OTSInternalServerError", "OTSServerUnavailable"} {
		a.fault(fmt.Sprintf(`{"code":%q,"times":2}`, code))
		wantError(t, code+", put", a.put("T", "r", "c", "new"), code, "")
		want(t, code+", get", a.get("T", "r"), "(r) c=OTSQuotaExhausted")
		_, hit := a.hits()
		want(t, code+", times", hit, 2)
	}
	for _, code := range []string{"OTSFlowControl", "OTSOperationThrottled", "OTSCapacityUnitExhausted", "OTSRequestTimeout"} {
		a.fault(fmt.Sprintf(`{"code":%q,"times":1}`, code))
		wantError(t, code+", which this SDK does not repeat", a.put("T", "r", "c", "new"), code, "")
	}
}

// TestFaultsHitByOperationTableAndRate with a client that repeats nothing.
func TestFaultsHitByOperationTableAndRate(t *testing.T) {
	a := startAided(t)
	a.c = connect(a.s)
	a.create("A", table{})
	a.create("B", table{})
	a.fault(`{"code":"OTSServerBusy","operation":"PutRow","table":"A","rate":0.25}`)
	var pattern string
	for range 8 {
		if err := a.put("A", "r", "c", 1); err != nil {
			wantError(t, "put", err, "OTSServerBusy", "Server is busy.")
			pattern += "x"
		} else {
			pattern += "."
		}
	}
	want(t, "every fourth", pattern, "x...x...")
	want(t, "another table", a.put("B", "r", "c", 1), nil)
	want(t, "another operation", a.get("A", "r"), "(r) c=1")
	a.fault(`{"code":"OTSTableNotReady","operation":"DescribeTable"}`)
	_, err := a.c.DescribeTable(&ots.DescribeTableRequest{TableName: "A"})
	wantError(t, "describe", err, "OTSTableNotReady", "The table is not ready.")
	a.control("DELETE", "faults", "")
	_, err = a.c.DescribeTable(&ots.DescribeTableRequest{TableName: "A"})
	wantError(t, "describe without faults", err, "", "")
}

// TestALostAnswerLeavesTheWriteApplied: the client sees a time-out, and the
// increment was done. Who repeats it blindly counts twice.
func TestALostAnswerLeavesTheWriteApplied(t *testing.T) {
	a := startAided(t)
	a.create("T", table{})
	increment := func() error {
		c := &ots.UpdateRowChange{TableName: "T", PrimaryKey: key("s", "r")}
		c.SetCondition(ots.RowExistenceExpectation_IGNORE)
		c.IncrementColumn("n", 1)
		_, err := a.c.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: c})
		return err
	}
	a.fault(`{"code":"OTSTimeout","operation":"UpdateRow","times":1,"applied":true}`)
	wantError(t, "the answer is lost", increment(), "OTSTimeout", "Operation timeout.")
	want(t, "after the time-out", a.get("T", "r"), "(r) n=1")
	want(t, "repeated blindly", increment(), nil)
	want(t, "counted twice", a.get("T", "r"), "(r) n=2")
}

// TestTheSDKRepeatsTheRowsOfABatchThatFailed: of a batch of which only some rows
// are in conflict, only these are sent again.
func TestTheSDKRepeatsTheRowsOfABatchThatFailed(t *testing.T) {
	a := startAided(t)
	a.create("T", table{})
	a.fault(`{"code":"OTSRowOperationConflict","operation":"BatchWriteRow","rows":true,"rate":0.5,"times":5}`)
	batch := new(ots.BatchWriteRowRequest)
	for i := range 10 {
		batch.AddRowChange(put("T", key("s", fmt.Sprint(i)), "c", i))
	}
	r, err := a.c.BatchWriteRow(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range r.TableToRowsResult["T"] {
		if !row.IsSucceed || int(row.Index) != i {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	matched, hit := a.hits()
	want(t, "rows that failed", hit, 5)
	want(t, "rows that the rule saw before it ended", matched, 9)
	for i := range 10 {
		want(t, "the row", a.get("T", fmt.Sprint(i)), fmt.Sprintf("(%d) c=%d", i, i))
	}
	a.fault(`{"code":"OTSServerBusy","operation":"BatchGetRow","rows":true,"times":3}`)
	q := &ots.MultiRowQueryCriteria{TableName: "T", MaxVersion: 1}
	for i := range 4 {
		q.AddRow(key("s", fmt.Sprint(i)))
	}
	got, err := a.c.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{q}})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range got.TableToRowsResult["T"] {
		want(t, "the row of a batch", text(&row.PrimaryKey, row.Columns), fmt.Sprintf("(%d) c=%d", i, i))
	}
	_, hit = a.hits()
	want(t, "rows that failed to be read", hit, 3)
}

// TestTestAidsAreOffUnlessAskedFor, and never beyond this machine.
func TestTestAidsAreOffUnlessAskedFor(t *testing.T) {
	for path, flag := range map[string]string{"clock": "--test-clock", "faults": "--test-faults"} {
		resp, err := http.Post(shared.URL+"/flagstone/test/"+path, "application/json", strings.NewReader(`{"advance":"1h","code":"OTSTimeout"}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(text), flag) {
			t.Errorf("%s: %s %s %v", path, resp.Status, text, err)
		}
		r, err := command.Run(nil, "serve", "--addr", "0.0.0.0:0", "--dir", t.TempDir(), flag)
		if err != nil || r.Status != 1 {
			t.Errorf("%s on all addresses: status %d, %v", flag, r.Status, err)
		}
		wantOneLine(t, flag, lastLine(r.Stderr), "loopback")
	}
}

// TestInjectedErrorsAreThoseOfTheService compares the message and the HTTP
// status of each error that the server gives on request.
func TestInjectedErrorsAreThoseOfTheService(t *testing.T) {
	a := startAided(t)
	a.c = connect(a.s)
	a.create("T", table{})
	for _, e := range []struct {
		code, message string
		status        int
	}{
		{"OTSServerBusy", "Server is busy.", 503},
		{"OTSStorageServerBusy", "Server is busy.", 503},
		{"OTSTimeout", "Operation timeout.", 503},
		{"OTSServerUnavailable", "Server is not available.", 503},
		{"OTSPartitionUnavailable", "The partition is not available.", 503},
		{"OTSOperationThrottled", "", 503},
		{"OTSInternalServerError", "Internal server error.", 500},
		{"OTSFlowControl", "", 429},
		{"OTSRowOperationConflict", "Data is being modified by the other request.", 409},
		{"OTSRequestTimeout", "Request timeout.", 408},
		{"OTSTableNotReady", "The table is not ready.", 404},
		{"OTSNotEnoughCapacityUnit", "Remaining capacity unit is not enough.", 403},
		{"OTSCapacityUnitExhausted", "Capacity unit is not enough.", 403},
		{"OTSQuotaExhausted", "Too frequent table operations.", 403},
	} {
		a.fault(fmt.Sprintf(`{"code":%q,"times":1}`, e.code))
		err := a.put("T", "r", "c", 1)
		wantError(t, e.code, err, e.code, e.message)
		if own, ok := err.(*ots.OtsError); ok {
			want(t, e.code+", status", own.HttpStatusCode, e.status)
		}
	}
}
