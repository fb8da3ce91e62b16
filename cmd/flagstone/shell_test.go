package main

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// typed runs a shell on lines from a pipe.
func typed(t *testing.T, dir, lines string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(context.Background(), append([]string{"shell", "--dir", dir}, args...),
		&output{in: strings.NewReader(lines), out: &stdout, err: &stderr})
	return status, stdout.String(), stderr.String()
}

func TestAShellExecutesLines(t *testing.T) {
	dir := newHome(t)
	status, out, errOut := typed(t, dir, `
# a note
table create orders --key customer:string --key n:integer
put orders "anna b" 7 -s 'note=it''s' -s state=new
get orders "anna b" 7 --csv --columns note,state
use archive
table list --json
use demo
help get
exit
get nothing
`)
	if status != 0 || !strings.Contains(out, "customer,n,note,state\nanna b,7,its,new\n") || !strings.Contains(out, "[]") ||
		!strings.Contains(out, "Usage: flagstone get") || !strings.Contains(errOut, "made table orders") {
		t.Errorf("status %d, %s, %s", status, out, errOut)
	}
	for lines, want := range map[string]string{
		"table list\nget nothing x\ntable list": "line 2 failed",
		"serve":                                 "is for the shell of the system",
		"use":                                   "needs the name",
		"put orders 'a":                         "a quote is not closed",
		"use nowhere\ntable list":               "there is no instance nowhere; there are: ",
		"put t 1 -s url=http://h/?a=1&b=2":      "have no meaning here",
		"scan t | wc":                           "have no meaning here",
		"tabel list":                            `did you mean "table"`,
		"table list --instance nowhere":         "not found",
	} {
		if status, _, errOut := typed(t, dir, lines); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d, %s", lines, status, errOut)
		}
	}
	if status, out, errOut := typed(t, dir, "table list --json", "--instance", "archive"); status != 0 || out != "[]\n" {
		t.Errorf("status %d, %s, %s", status, out, errOut)
	}
}

func TestAShellCompletes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	follow(t, dir, []step{{"table create orders --key k:string", ""}, {"table create other --key k:string", ""}})
	s := &shellCommand{inInstance{at{Dir: dir}, "demo"}}
	for line, want := range map[string]string{
		"tab": "table", "table cr": "create", "table compact ord": "orders", "get o": "orders other", "scan orders --rev": "", "get orders --ver": "--version --versions",
		"get --js": "--json", "us": "use", "exi": "exit", "get orders o": "", "partition ": "list merge split",
	} {
		head, completions, tail := completer{s, context.Background()}.complete(line+" more", len(line))
		got := strings.Join(strings.Fields(strings.Join(completions, "")), " ")
		if got != want || head != line[:strings.LastIndex(line, " ")+1] || tail != " more" {
			t.Errorf("%q is completed by %q between %q and %q; want %q", line, got, head, tail, want)
		}
	}
	// The shell of the system asks by an environment variable.
	t.Setenv("FLAGSTONE_DIR", dir)
	t.Setenv("COMP_LINE", "flagstone get o")
	t.Setenv("COMP_POINT", "15")
	status, out, errOut := command(t, "flagstone", "o", "get")
	if names := strings.Fields(out); status != 0 || errOut != "" || !slices.Contains(names, "orders") || !slices.Contains(names, "other") {
		t.Errorf("status %d, %q, %q", status, out, errOut)
	}
}
