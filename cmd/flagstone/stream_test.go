package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-shellwords"
)

// served starts a server, which the commands of the test find by its folder.
func served(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	t.Cleanup(func() { stop() })
	t.Setenv("FLAGSTONE_DIR", dir)
}

// interrupted is written to by a command that is interrupted then.
type interrupted struct {
	bytes.Buffer
	interrupt context.CancelFunc
	at        string // only when it writes this
}

func (i *interrupted) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.at) {
		i.interrupt()
	}
	return i.Buffer.Write(p)
}

// followed runs a command line with --follow, interrupts it at its first line, and returns what it printed.
func followed(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var errOut bytes.Buffer
	out := &interrupted{interrupt: cancel}
	if status := run(ctx, args, &output{out: out, err: &errOut}); status != 0 {
		t.Errorf("%v: status %d, %s", args, status, errOut.String())
	}
	return out.String()
}

// TestAFollowerEndsWithItsReader reads one line of a process that waits for more.
func TestAFollowerEndsWithItsReader(t *testing.T) {
	served(t)
	done(t, "table", "create", "t", "--key", "k:integer", "--stream", "1")
	done(t, "put", "t", "1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for a process that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "stream", "tail", "t", "--follow")
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "put") {
		t.Errorf("%q, %v", line, err)
	}
	out.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// interruptedPipe is a pipe that breaks as the command is interrupted.
type interruptedPipe struct{ interrupt context.CancelFunc }

func (p interruptedPipe) Write([]byte) (int, error) {
	p.interrupt()
	return 0, io.ErrClosedPipe
}

// TestTheCommandsOfThePagesOnStreamsAndTunnelsRun does what the pages say, line by line.
func TestTheCommandsOfThePagesOnStreamsAndTunnelsRun(t *testing.T) {
	served(t)
	var lines []string
	for _, page := range []string{"streams", "tunnels"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    flagstone "); ok {
				lines = append(lines, line)
			}
		}
	}
	t.Chdir(t.TempDir())
	want := map[string]string{
		"stream list": "events", "stream tail events": "state=paid", "stream tail events --since 10m --json": `"action":"update"`,
		"stream tail events --follow --json --state events.position": `"value":2.5`,
		"stream readers events": "true",
		"tunnel list":           "BaseAndStream", "tunnel describe events copy": "BaseData_0000",
	}
	for _, line := range lines {
		args, err := shellwords.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		runs := done
		if strings.Contains(line, "--follow") {
			runs = followed
		}
		if out := runs(t, args...); !strings.Contains(out, want[line]) {
			t.Errorf("%s prints %s, want %q", line, out, want[line])
		}
		delete(want, line)
	}
	if len(want) > 0 {
		t.Errorf("the pages have no %v", want)
	}
	if out := done(t, "tunnel", "list", "--json"); out != "" {
		t.Errorf("left: %s", out)
	}
	done(t, "backup", "create", "backups")
	if out := done(t, "backup", "rehearse", "backups"); !strings.Contains(out, "demo/events") || strings.Contains(out, ".tunnels") {
		t.Errorf("rehearse prints %s", out)
	}
	for wanted, line := range map[string]string{
		"does not exist": "tunnel describe events copy", "--yes": "tunnel delete events copy", "not exist": "tunnel create none copy",
		"--endpoint": "tunnel list --endpoint 127.0.0.1", "no stream": "stream tail plain",
		"--since": "stream tail events --since 0",
	} {
		if wanted == "no stream" {
			done(t, "table", "create", "plain", "--key", "k:string")
		}
		refused(t, wanted, strings.Fields(line)...)
	}
}

// TestATailGoesOnAtItsPosition interrupts it, splits the table, and damages the file of its position.
func TestATailGoesOnAtItsPosition(t *testing.T) {
	served(t)
	state := filepath.Join(t.TempDir(), "position")
	tail := []string{"stream", "tail", "t", "--json", "--state", state}
	done(t, "table", "create", "t", "--key", "k:string", "--stream", "1")
	done(t, "put", "t", "a", "-s", "c=1", "-s", "d=x")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var errOut bytes.Buffer
	if status := run(ctx, append(tail, "--follow"), &output{out: interruptedPipe{cancel}, err: &errOut}); status == 0 || !strings.Contains(errOut.String(), "closed pipe") {
		t.Errorf("a change that was not printed: status %d, %s", status, errOut.String())
	}
	first := followed(t, append(tail, "--follow")...)
	done(t, "update", "t", "a", "-s", "c=2", "-u", "d")
	done(t, "table", "split", "t", "b")
	done(t, "put", "t", "c", "-s", "c=3")
	done(t, "delete", "t", "a")
	second := done(t, tail...)
	var actions []string
	for line := range strings.Lines(first + second) {
		var change changeLine
		if err := json.Unmarshal([]byte(line), &change); err != nil {
			t.Fatal(err)
		}
		key := change.Key[0].Value.Text()
		for _, c := range change.Cells {
			key += " " + c.Name + c.Deleted
			if c.Value != nil {
				key += "=" + c.Value.Text()
			}
		}
		actions = append(actions, change.Action+" "+key)
	}
	got := strings.Join(actions, ", ")
	for _, want := range []string{"put a c=1 d=x, update a c=2 dall", "put c c=3", "delete a"} {
		if !strings.Contains(got, want) || len(actions) != 4 {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if out := done(t, tail...); out != "" {
		t.Errorf("once more: %s", out)
	}
	if out := done(t, "stream", "tail", "t"); strings.Count(out, "\n") != 4 || !strings.Contains(out, "-d") {
		t.Errorf("for people: %s", out)
	}
	if out := done(t, "stream", "list", "t", "--json"); !strings.Contains(out, `"shards":3,"open":2`) {
		t.Errorf("the list: %s", out)
	}
	done(t, "table", "create", "other", "--key", "k:string", "--stream", "1")
	refused(t, "give another --state", "stream", "tail", "other", "--state", state)
	content, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(state, content, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "checksum", tail...)
}

// TestAnswersThatAreNoneAreRefused talks to an endpoint that redirects, to one whose answers are empty, and to none.
func TestAnswersThatAreNoneAreRefused(t *testing.T) {
	t.Setenv("FLAGSTONE_ACCESS_KEY_ID", "id")
	t.Setenv("FLAGSTONE_ACCESS_KEY_SECRET", "secret")
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "\n\x00") // a first field without content
	}))
	defer empty.Close()
	redirects := httptest.NewServer(http.RedirectHandler(empty.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	refused(t, "307", "tunnel", "list", "--endpoint", redirects.URL)
	for _, list := range []string{"stream", "tunnel"} {
		refused(t, "another with --endpoint", list, "list", "--dir", t.TempDir())
	}
	t.Setenv("FLAGSTONE_ENDPOINT", redirects.URL)
	refused(t, "307", "tunnel", "list")
	refused(t, "empty id", "tunnel", "create", "t", "copy", "--endpoint", empty.URL)
	refused(t, "not set", "tunnel", "describe", "t", "copy", "--endpoint", empty.URL)
	empty.Close()
	refused(t, "table t", "stream", "tail", "t", "--follow", "--endpoint", empty.URL)
}
