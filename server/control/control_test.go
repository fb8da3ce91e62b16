package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/server/faults"
)

// ask sends a request from this machine; change may alter that.
func ask(h http.Handler, method, path, body string, change func(*http.Request)) (int, string) {
	r := httptest.NewRequest(method, "http://127.0.0.1:8087"+Prefix+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestTheClockIsSetAndShown(t *testing.T) {
	h := Handler(clock.NewShifted(clocktest.NewManual(1_500_000_000_000)), nil, nil)
	for _, c := range []struct {
		method, body string
		status       int
		part         string
	}{
		{"GET", "", 200, `"now":"2017-07-14T02:40:00Z","now_millis":1500000000000,"ahead":"0s"`},
		{"POST", `{"advance":"26h"}`, 200, `"now":"2017-07-15T04:40:00Z"`},
		{"POST", `{"advance":"-1h"}`, 200, `"ahead":"25h0m0s"`},
		{"POST", `{"set":"2030-01-01T00:00:00Z"}`, 200, `"now":"2030-01-01T00:00:00Z"`},
		{"POST", `{"reset":true}`, 200, `"ahead":"0s"`},
		{"POST", `{"advance":"1 day"}`, 400, "error"},
		{"POST", `{"set":"yesterday"}`, 400, "error"},
		{"POST", `{"advance":"1h","reset":true}`, 400, "give one of"},
		{"POST", `{}`, 400, "give one of"},
		{"POST", `{"advanced":"1h"}`, 400, "unknown field"},
		{"POST", ``, 400, "a JSON object is wanted"},
		{"POST", `{"set":"1969-12-31T23:59:59Z"}`, 400, "1970-01-01"},
		{"POST", `{"set":"9999-01-01T00:00:00Z"}`, 400, "2262-01-01"},
		{"POST", `{"advance":"-2562047h"}`, 400, "1970-01-01"},
		{"POST", `{"advance":"2562047h"}`, 400, "2262-01-01"},
		{"POST", `{"set":"2262-01-01T00:00:00Z"}`, 200, `"now":"2262-01-01T00:00:00Z","now_millis":9214646400000,"ahead":"2142957h20m0s"`},
		{"POST", `{"set":"1970-01-01T00:00:00Z"}`, 200, `"now":"1970-01-01T00:00:00Z","now_millis":0,"ahead":"-416666h40m0s"`},
		{"POST", `{"reset":true}`, 200, `"ahead":"0s"`},
		{"PUT", `{"advance":"1h"}`, 405, "GET, POST"},
		{"DELETE", "", 405, "GET, POST"},
		{"GET", "", 200, `"ahead":"0s"`},
	} {
		if status, got := ask(h, c.method, "clock", c.body, nil); status != c.status || !strings.Contains(got, c.part) {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.body, status, got, c.status, c.part)
		}
	}
}

func TestFaultsAreAddedShownAndRemoved(t *testing.T) {
	in := new(faults.Injector)
	h := Handler(nil, in, nil)
	for _, c := range []struct {
		method, body string
		status       int
		part         string
	}{
		{"GET", "", 200, "[]"},
		{"POST", `{"operation":"PutRow","table":"T","code":"OTSServerBusy","rate":0.5,"times":3}`, 200,
			`[{"operation":"PutRow","table":"T","code":"OTSServerBusy","rate":0.5,"times":3,"matched":0,"hit":0}]`},
		{"POST", `{"delay":"50ms"}`, 200, `{"rate":1,"delay":"50ms","matched":0,"hit":0}`},
		{"POST", `{"code":"OTSServerBusy","rate":0}`, 400, "rate"},
		{"POST", `{"code":"OTSNonsense"}`, 400, "OTSNonsense"},
		{"POST", `{"code":"OTSTimeout","delay":"soon"}`, 400, "soon"},
		{"POST", `{"kode":"OTSTimeout"}`, 400, "unknown field"},
		{"DELETE", "", 200, "[]"},
	} {
		if status, got := ask(h, c.method, "faults", c.body, nil); status != c.status || !strings.Contains(got, c.part) {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.body, status, got, c.status, c.part)
		}
	}
}

func TestWhatIsOffIsRefusedWithAHint(t *testing.T) {
	for path, part := range map[string]string{"clock": "--test-clock", "faults": "--test-faults", "other": "docs/testing.md"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if status, got := ask(Handler(nil, nil, nil), method, path, `{"advance":"1h","code":"OTSTimeout"}`, nil); status != 403 && status != 404 || !strings.Contains(got, part) {
				t.Errorf("%s %s: got %d %s", method, path, status, got)
			}
		}
	}
}

func TestOnlyThisMachineIsServed(t *testing.T) {
	h := Handler(clock.NewShifted(clocktest.NewManual(0)), new(faults.Injector), func(context.Context) error { return nil })
	for what, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"IPv6":             {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:40000", "[::1]:8087" }, 200},
		"mapped IPv4":      {func(r *http.Request) { r.RemoteAddr = "[::ffff:127.0.0.1]:40000" }, 200},
		"localhost":        {func(r *http.Request) { r.Host = "localhost:8087" }, 200},
		"no port":          {func(r *http.Request) { r.Host = "localhost" }, 200},
		"another machine":  {func(r *http.Request) { r.RemoteAddr = "192.168.1.7:40000" }, 403},
		"no address":       {func(r *http.Request) { r.RemoteAddr = "@" }, 403},
		"another host":     {func(r *http.Request) { r.Host = "attacker.example" }, 403},
		"its address":      {func(r *http.Request) { r.Host = "192.168.1.7" }, 403},
		"a page elsewhere": {func(r *http.Request) { r.Header.Set("Origin", "http://attacker.example") }, 403},
	} {
		if status, got := ask(h, "POST", "clock", `{"advance":"1h"}`, c.change); status != c.status {
			t.Errorf("%s: got %d %s, want %d", what, status, got, c.status)
		}
	}
}

// TestAResetEndsWhatATestHasSet resets a clock and faults, and has the tables dropped.
func TestAResetEndsWhatATestHasSet(t *testing.T) {
	wall, in, dropped := clock.NewShifted(clocktest.NewManual(0)), new(faults.Injector), 0
	var fails error
	h := Handler(wall, in, func(context.Context) error { dropped++; return fails })
	wall.Advance(time.Hour)
	if err := in.Add(faults.Rule{Code: "OTSServerBusy", Rate: 1}); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(h, "GET", "reset", "", nil); status != 405 || dropped != 0 || wall.Offset() == 0 {
		t.Errorf("GET: %d %s", status, text)
	}
	if status, text := ask(h, "POST", "reset", "", nil); status != 200 || dropped != 1 || wall.Offset() != 0 || len(in.List()) > 0 {
		t.Errorf("POST: %d %s; dropped %d times, clock %s ahead, faults %v", status, text, dropped, wall.Offset(), in.List())
	}
	fails = errors.New("no luck")
	if status, text := ask(h, "POST", "reset", "", nil); status != 500 || !strings.Contains(text, "no luck") {
		t.Errorf("a failure: %d %s", status, text)
	}
	if status, text := ask(Handler(nil, nil, nil), "POST", "reset", "", nil); status != 403 || !strings.Contains(text, "--memory") {
		t.Errorf("off: %d %s", status, text)
	}
}
