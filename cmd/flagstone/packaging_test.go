package main

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

func TestTheManualPageHasEveryCommandAndFlag(t *testing.T) {
	page := done(t, "man")
	var cli commands
	parser, err := newParser(t.Context(), &cli, &output{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		_, section, found := strings.Cut(page, "\n.SS "+roff(leaf.Path())+"\n")
		if !found {
			t.Errorf("%s is not on the page", leaf.Path())
		}
		section, _, _ = strings.Cut(section, "\n.SS ")
		for _, f := range leaf.Flags {
			if !f.Hidden && !strings.Contains(section, roff("--"+f.Name)) {
				t.Errorf("%s has no --%s on the page", leaf.Path(), f.Name)
			}
		}
	}
	if got := roff("'a\n.b\\c"); got != `\&'a .b\ec` {
		t.Errorf("quoted: %s", got)
	}
}

func TestBashTakesTheCompletion(t *testing.T) {
	script := exec.Command("bash", "--norc", "-c", `eval "$(cat)"; complete -p flagstone`)
	script.Stdin = strings.NewReader(done(t, "completion", "--code", "bash"))
	if out, err := script.CombinedOutput(); err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), " flagstone") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	status, text := http.StatusOK, "ready\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	defer srv.Close()
	t.Setenv("FLAGSTONE_METRICS_ADDR", strings.TrimPrefix(srv.URL, "http://"))
	if got := done(t, "health"); got != text {
		t.Errorf("it printed %q", got)
	}
	status, text = http.StatusServiceUnavailable, "the stores are being recovered"
	if code, _, e := command(t, "health"); code != 1 || !strings.Contains(e, text) {
		t.Errorf("status %d, %s", code, e)
	}
	srv.Close()
	if code, _, e := command(t, "health"); code != 1 || e == "" {
		t.Errorf("without a server: status %d, %s", code, e)
	}
	for _, wrong := range []string{"--metrics-addr=http://127.0.0.1:1", "--metrics-addr=127.0.0.1", "--timeout=0"} {
		if code, _, e := command(t, "health", wrong); code != 2 || strings.Contains(e, "lookup") {
			t.Errorf("%s: status %d, %s", wrong, code, e)
		}
	}
}
