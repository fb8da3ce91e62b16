package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
)

// rig is a console whose operations answer with their names.
func rig(t *testing.T) (*Console, *clocktest.Manual) {
	t.Helper()
	manual := clocktest.NewManual(1_700_000_000_000)
	c := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s?%s", r.Method, r.URL.Path, r.URL.RawQuery)
	}), NewFeed())
	c.clock = manual
	return c, manual
}

// request is a request to the console, from a page of its own unless the test changes it.
func (c *Console) request(method, path, token, body string, change func(*http.Request)) (status int, text string) {
	r := httptest.NewRequest(method, "http://127.0.0.1:4000"+path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Result().Body) // of a recorder
	return w.Code, string(answer)
}

// session begins a session.
func (c *Console) session(t *testing.T) string {
	t.Helper()
	_, code, _ := strings.Cut(c.Invite(), "#")
	status, answer := c.request("POST", "/console/session", "", `{"code":"`+code+`"}`, nil)
	token, ok := strings.CutPrefix(answer, `{"token":"`)
	if status != http.StatusOK || !ok {
		t.Fatal(status, answer)
	}
	return strings.TrimSuffix(token, "\"}\n")
}

func TestASessionDoesWhatItMayAndNoMore(t *testing.T) {
	c, _ := rig(t)
	token := c.session(t)
	for request, want := range map[string]int{
		"GET /console/api/figures": 200, "GET /console/api/tables?instance=demo": 200, "POST /console/api/rows": 200, "PATCH /console/api/table": 200,
		"GET /console/api/feed": 200, "GET /console/api/heat?instance=demo&table=t": 200, "DELETE /console/api/partitions": 200,
		"POST /console/api/keys": 405, "DELETE /console/api/keys": 405, "POST /console/api/instances": 405, "DELETE /console/api/instances": 405,
		"DELETE /console/api/table": 405, "POST /console/api/tables": 405, "POST /console/api/console": 405, "GET /console/api/": 404, "GET /console/api/keys": 404,
		"GET /console/api/../figures": 307, "GET /console/api//figures": 307,
	} {
		method, path, _ := strings.Cut(request, " ")
		status, answer := c.request(method, path, token, "", nil)
		if status != want {
			t.Errorf("%s: %d %s, want %d", request, status, answer, want)
		}
		if name, _, _ := strings.Cut(path, "?"); status == 200 && name != "/console/api/feed" && name != "/console/api/heat" {
			if begin := method + " " + strings.TrimPrefix(name, "/console/api"); !strings.HasPrefix(answer, begin+"?") {
				t.Errorf("%s was answered as %s", request, answer)
			}
		}
	}
}

func TestWithoutASessionThereAreOnlyPages(t *testing.T) {
	c, _ := rig(t)
	c.session(t)
	for _, token := range []string{"", "x", c.Invite(), strings.Repeat("A", 26)} {
		for _, path := range []string{"/console/api/figures", "/console/api/feed", "/console/api/heat"} {
			if status, answer := c.request("GET", path, token, "", nil); status != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d %s", path, token, status, answer)
			}
		}
	}
	for path, want := range map[string]int{
		"/console/": 200, "/console/main.js": 200, "/console/uplot/uPlot.js": 200, "/console/uplot/LICENSE": 200, "/console/nothing.js": 404, "/console/uplot": 404, "/console/uplot/": 404,
		"/console/..%2f..%2fconsole.go": 404,
	} {
		if status, _ := c.request("GET", path, "", "", nil); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

func TestACodeWorksOnceAndASessionEnds(t *testing.T) {
	c, manual := rig(t)
	_, code, _ := strings.Cut(c.Invite(), "#")
	body := `{"code":"` + code + `"}`
	if status, _ := c.request("POST", "/console/session", "", body, nil); status != http.StatusOK {
		t.Error(status)
	}
	if status, _ := c.request("POST", "/console/session", "", body, nil); status != http.StatusUnauthorized {
		t.Errorf("the second time: %d", status)
	}
	_, code, _ = strings.Cut(c.Invite(), "#")
	manual.Advance(inviteTime + time.Second)
	if status, _ := c.request("POST", "/console/session", "", `{"code":"`+code+`"}`, nil); status != http.StatusUnauthorized {
		t.Errorf("later: %d", status)
	}
	for _, bad := range []string{"", "{", `{"code":""}`, `{"code":5}`, `{"code":"` + strings.Repeat("x", 2000) + `"}`} {
		if status, _ := c.request("POST", "/console/session", "", bad, nil); status != http.StatusUnauthorized && status != http.StatusBadRequest {
			t.Errorf("%.20s: %d", bad, status)
		}
	}

	token := c.session(t)
	for range 3 { // use keeps it
		manual.Advance(idleTime - time.Minute)
		if status, _ := c.request("GET", "/console/api/feed", token, "", nil); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	manual.Advance(idleTime + time.Second)
	if status, _ := c.request("GET", "/console/api/feed", token, "", nil); status != http.StatusUnauthorized {
		t.Errorf("idle for too long: %d", status)
	}

	token = c.session(t)
	if status, _ := c.request("DELETE", "/console/session", token, "", nil); status != http.StatusOK {
		t.Errorf("ending a session: %d", status)
	}
	other := c.session(t)
	_, code, _ = strings.Cut(c.Invite(), "#")
	c.End()
	for _, ended := range []string{token, other} {
		if status, _ := c.request("GET", "/console/api/feed", ended, "", nil); status != http.StatusUnauthorized {
			t.Errorf("an ended session: %d", status)
		}
	}
	if status, _ := c.request("POST", "/console/session", "", `{"code":"`+code+`"}`, nil); status != http.StatusUnauthorized {
		t.Errorf("a link from before the end: %d", status)
	}

	first := c.session(t)
	for range maxTokens {
		c.session(t)
	}
	if status, _ := c.request("GET", "/console/api/feed", first, "", nil); status != http.StatusUnauthorized {
		t.Errorf("there are more than %d sessions: %d", maxTokens, status)
	}
}

func TestOtherPagesAndOtherNamesAreRefused(t *testing.T) {
	c, _ := rig(t)
	token := c.session(t)
	for what, change := range map[string]func(*http.Request){
		"a name that resolves to this machine": func(r *http.Request) { r.Host = "evil.example:4000" },
		"a name that begins as this machine":   func(r *http.Request) { r.Host = "127.0.0.1.evil.example:4000" },
		"no name":                              func(r *http.Request) { r.Host = "" },
		"a page elsewhere":                     func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"another port":                         func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:4001") },
		"a page without a name":                func(r *http.Request) { r.Header.Set("Origin", "null") },
		"a script elsewhere":                   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a frame of another port": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
			r.Header.Set("Sec-Fetch-Dest", "iframe")
		},
	} {
		for _, path := range []string{"/console/", "/console/api/feed"} {
			if status, _ := c.request("GET", path, token, "", change); status != http.StatusForbidden {
				t.Errorf("%s asks for %s: %d", what, path, status)
			}
		}
	}
	for what, change := range map[string]func(*http.Request){
		"its own page": func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:4000") },
		"localhost": func(r *http.Request) {
			r.Host = "localhost:4000"
			r.Header.Set("Origin", "http://localhost:4000")
		},
		"a link elsewhere": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Dest", "document")
		},
		"a forwarded port": func(r *http.Request) { r.Host = "localhost:9999" },
		"IPv6":             func(r *http.Request) { r.Host = "[::1]:4000" },
	} {
		if status, _ := c.request("GET", "/console/api/feed", token, "", change); status != http.StatusOK {
			t.Errorf("%s: %d", what, status)
		}
	}
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	c, _ := rig(t)
	for path, change := range map[string]func(*http.Request){
		"/console/": nil, "/console/nothing": nil, "/console/api/feed": nil, "/console/api//feed": nil,
		"/console/lib.js": func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none';", "script-src 'self';", "connect-src 'self';", "form-action 'none';", "frame-ancestors 'none';", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s without %s: %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || w.Header().Get("Connection") != "close" || w.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}
