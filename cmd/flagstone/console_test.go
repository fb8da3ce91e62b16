package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
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
	status, _, errOut = command(t, "console", "--end", "--dir", dir)
	if r, err := http.NewRequest("GET", page+"api/feed", nil); err != nil {
		t.Error(err)
	} else {
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if status != 0 || answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("after the end: status %d, %s, %s", status, errOut, answer.Status)
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
	parser, err := newParser(t.Context(), new(commands), &output{})
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"dir": "FLAGSTONE_DIR", "instance": "FLAGSTONE_INSTANCE"}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			if want := variables[flag.Name]; want != "" && !slices.Contains(flag.Envs, want) && leaf.FullPath() != "flagstone serve" {
				t.Errorf("%s: --%s is not given by %s", leaf.FullPath(), flag.Name, want)
			}
		}
	}
}

func TestCompletionIsPrintedForEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, out, errOut := command(t, "completion", "--code", shell); status != 0 || !strings.Contains(out, "flagstone") {
			t.Errorf("%s: status %d, %s, %s", shell, status, out, errOut)
		}
	}
}
