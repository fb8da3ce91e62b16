package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheConsoleOfAServerShowsWhatItDid opens the link as a page does, and asks for figures, files, and what was done.
func TestTheConsoleOfAServerShowsWhatItDid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	follow(t, dir, []step{{"table create orders --key k:string", ""}, {"put orders a -s c=1", ""}, {"table compact orders", ""}})
	status, link, errOut := command(t, "console", "--dir", dir)
	page, code, found := strings.Cut(strings.TrimSpace(link), "#")
	if status != 0 || !found {
		t.Fatalf("status %d, %s, %s", status, link, errOut)
	}
	token := ""
	ask := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequest(method, page+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s, %v", method, path, answer.Status, text, err)
		}
		return string(text)
	}
	if text := ask("GET", "", ""); !strings.Contains(text, "<title>Flagstone</title>") {
		t.Errorf("the page: %s", text)
	}
	var session struct{ Token string }
	if err := json.Unmarshal([]byte(ask("POST", "session", `{"code":"`+code+`"}`)), &session); err != nil {
		t.Fatal(err)
	}
	token = session.Token
	for path, part := range map[string]string{
		"api/figures": `"demo/orders"`, "api/files?instance=demo&table=orders": `"first":["a"]`, "api/feed": `"kind":"flush"`,
		"api/heat?instance=demo&table=orders": `"step_seconds":10`, "api/tables?instance=demo": `"orders"`,
	} {
		if text := ask("GET", path, ""); !strings.Contains(text, part) {
			t.Errorf("%s has no %s: %s", path, part, text)
		}
	}
	if status, out, errOut := command(t, "console", "--dir", t.TempDir()); status != 1 || out != "" || !strings.Contains(errOut, "flagstone serve") {
		t.Errorf("no server: status %d, %s, %s", status, out, errOut)
	}
}

func TestFlagsCanBeGivenByTheEnvironment(t *testing.T) {
	t.Setenv("FLAGSTONE_DIR", newHome(t))
	t.Setenv("FLAGSTONE_INSTANCE", "archive")
	if status, out, errOut := command(t, "table", "list", "--json"); status != 0 || out != "[]\n" {
		t.Errorf("status %d, %s, %s", status, out, errOut)
	}
}

func TestCompletionIsPrintedForEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, out, errOut := command(t, "completion", "--code", shell); status != 0 || !strings.Contains(out, "flagstone") {
			t.Errorf("%s: status %d, %s, %s", shell, status, out, errOut)
		}
	}
}
