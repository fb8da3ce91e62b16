package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/mattn/go-shellwords"

	"github.com/flagstone-db/flagstone/flagstonetest"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/server/faults"
)

// TestTheCommandsOfThePageOnImportingRun does what docs/importing.md says, line by line.
func TestTheCommandsOfThePageOnImportingRun(t *testing.T) {
	text, err := os.ReadFile("../../docs/importing.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, served := newHome(t), filepath.Join(t.TempDir(), "served")
	url, stop := serving(t, "--dir", served, "--sync", "none")
	defer stop()
	done(t, "table", "create", "orders", "--dir", served, "--key", "customer:string", "--key", "n:integer")
	t.Chdir(filepath.Dir(dir))
	if err := os.Rename(dir, "flagstone-data"); err != nil {
		t.Fatal(err)
	}
	orders := "customer,n,total,state\ncustomer-500,17,12.5,new\ncustomer-500,3,20,paid\nanna,1,,new\n"
	if err := os.WriteFile("orders.csv", []byte(orders), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("shop.csv", []byte("kunde,nr,summe,note\nberta,7,12.5,gift\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := `{"key":[{"name":"customer","value":"anna"},{"name":"n","value":1}],"columns":[{"name":"old","version":1600000000000,"value":1}]}`
	if err := os.WriteFile("old.in.jsonl", []byte(old+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(text)) {
		line, isCommand := strings.CutPrefix(strings.TrimRight(line, "\n"), "    flagstone ")
		if !isCommand {
			continue
		}
		args, err := shellwords.Parse(strings.ReplaceAll(line, "http://127.0.0.1:8087", url))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "--endpoint") {
			args = append(args, "--dir", served)
		}
		if strings.Contains(line, "--to-endpoint") {
			args = append(args, "--to-dir", served)
		}
		if line == "archive orders old.jsonl --older-than 24h" { // an archive of nothing would leave no file
			done(t, "table", "alter", "orders", "--version-offset", "4000000000")
			done(t, "import", "orders", "old.in.jsonl", "--merge")
		}
		done(t, args...)
		ran++
	}
	if ran < 8 {
		t.Errorf("the page has %d commands", ran)
	}
	for name, want := range map[string]string{"some.csv": "customer:string,n:integer,state:string,total:double\ncustomer-500,17,new,12.5\n"} {
		if content, err := os.ReadFile(name); err != nil || string(content) != want {
			t.Errorf("%s holds %s, %v", name, content, err)
		}
	}
	if got := done(t, "get", "orders", "berta", "7"); !strings.Contains(got, "total") || strings.Contains(got, "note") {
		t.Errorf("with other names: %s", got)
	}
	if got := done(t, "count", "copy"); strings.TrimSpace(got) != "3" {
		t.Errorf("the copy has %s rows", got)
	}
	a, _ := os.ReadFile("orders.jsonl")
	if b, err := os.ReadFile("served.jsonl"); err != nil || string(a) != string(b) {
		t.Errorf("the endpoint has %s, want %s, %v", b, a, err)
	}
}

// TestAnImportGoesOnWhenTheEndpointFails lets requests and rows fail, with and without being carried out.
func TestAnImportGoesOnWhenTheEndpointFails(t *testing.T) {
	srv := flagstonetest.New(t)
	t.Setenv(envKeyID, srv.AccessKeyID)
	t.Setenv(envKeySecret, srv.AccessKeySecret)
	var o, e strings.Builder
	at := []string{"--endpoint", srv.Endpoint, "--instance", srv.Instance}
	meta := &tablestore.TableMeta{TableName: "t"}
	meta.AddPrimaryKeyColumn("k", tablestore.PrimaryKeyType_INTEGER)
	client := tablestore.NewClient(srv.Endpoint, srv.Instance, srv.AccessKeyID, srv.AccessKeySecret)
	if _, err := client.CreateTable(&tablestore.CreateTableRequest{
		TableMeta: meta, TableOption: tablestore.NewTableOption(-1, 1), ReservedThroughput: &tablestore.ReservedThroughput{},
	}); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []faults.Rule{
		{Operation: "BatchWriteRow", Code: "OTSRowOperationConflict", Rate: 0.01, Rows: true},
		{Operation: "BatchWriteRow", Code: "OTSTimeout", Rate: 0.1, Applied: true},
		{Operation: "BatchWriteRow", Code: "OTSServerUnavailable", Rate: 0.1},
		{Operation: "GetRange", Code: "OTSFlowControl", Rate: 1, Times: 2},
	} {
		if err := srv.Faults.Add(rule); err != nil {
			t.Fatal(err)
		}
	}
	in, want := "k,a\nbad,x\n", "k:integer,a:string\n"
	for n := range 2000 {
		line := fmt.Sprintf("%d,%d\n", n, n)
		in, want = in+fmt.Sprintf("%d,old\n", n)+line, want+line // the last row stays, whatever fails
		if n == 1000 {
			in += "5000," + strings.Repeat("x", 2<<20+1) + "\n" // longer than a value may be
		}
	}
	args := append([]string{"import", "t", "-", "--format", "csv", "--workers", "4", "--max-rejects", "2"}, at...)
	if status := run(context.Background(), args, &output{in: strings.NewReader(in), out: &o, err: &e}); status != 0 {
		t.Fatal(e.String())
	}
	if got := done(t, append([]string{"export", "t", "--format", "csv"}, at...)...); got != want {
		t.Errorf("the table has %.500s", got)
	}
	for _, rule := range srv.Faults.List() {
		if rule.Hit == 0 {
			t.Errorf("no request was hit by %+v", rule)
		}
	}
	if !strings.Contains(e.String(), "rejected 2 lines") || !strings.Contains(e.String(), "imported 4000 rows") {
		t.Errorf("it said %s", e.String())
	}
	refused(t, "table t", append([]string{"export", "t", "--instance", "nobody"}, at[:2]...)...)
}

// TestAnExportOfManyRangesIsInOrder has a table that the endpoint divides.
func TestAnExportOfManyRangesIsInOrder(t *testing.T) {
	dir := newHome(t)
	var in strings.Builder
	in.WriteString("k:integer,a:string\n")
	random := rand.NewChaCha8([32]byte{1}) // it must not be compressed into one range
	value := make([]byte, 20_000)
	for n := range 1000 {
		_, _ = random.Read(value)
		fmt.Fprintf(&in, "%d,%x\n", n, value)
	}
	name := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(name, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "import", "t", name, "--dir", dir, "--spread", "3")
	url, stop := serving(t, "--dir", dir)
	defer stop()
	client, err := endpointClient(url, "demo", (&at{Dir: dir}).usualKeys(), 1, benchPatience)
	if err != nil {
		t.Fatal(err)
	}
	source := endpointSource{client: client}
	if ranges, _, err := source.ranges(t.Context(), &instances.Query{Table: "t"}); err != nil || len(ranges) < 3 {
		t.Fatalf("%d ranges, %v", len(ranges), err)
	}
	if got := done(t, "export", "t", "--endpoint", url, "--dir", dir, "--format", "csv"); got != in.String() {
		t.Errorf("the export has %d bytes, want %d", len(got), in.Len())
	}
	copied := newHome(t)
	saysWhatIsLeft(t, "export", "t", filepath.Join(t.TempDir(), "out.jsonl"), "--endpoint", url, "--dir", dir)
	saysWhatIsLeft(t, "copy", "t", "--endpoint", url, "--dir", dir, "--to-dir", copied)
	saysWhatIsLeft(t, "export", "t", filepath.Join(t.TempDir(), "out.jsonl"), "--dir", copied)
	saysWhatIsLeft(t, "copy", "t", "--dir", copied, "--to-dir", newHome(t))
}

// saysWhatIsLeft runs a command, which says how much of its table is done, in steps that grow, and how long the rest takes.
func saysWhatIsLeft(t *testing.T, args ...string) {
	t.Helper()
	status, _, errOut := command(t, append(args, "--progress", "1ns")...)
	last, steps := 0.0, 0
	for _, shown := range regexp.MustCompile(`rows/s, ([0-9.]+) %, [0-9hms]+ left`).FindAllStringSubmatch(errOut, -1) {
		share, err := strconv.ParseFloat(shown[1], 64)
		if err != nil || share < last || share >= 100 {
			t.Errorf("%q: %s %% after %g %%, %v", args, shown[1], last, err)
		}
		if share > last {
			steps++
		}
		last = share
	}
	if status != 0 || steps < 2 {
		t.Errorf("%q: status %d, %d steps:\n%s", args, status, steps, errOut)
	}
}
