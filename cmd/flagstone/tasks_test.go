package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// task is a line of the table of docs/operations.md that compares other tools, and command lines that do it here, with
// a part of what each prints. STORE stands for the directory, URL for the endpoint, and METRICS for the address of metrics.
type task struct {
	name  string
	steps []step
}

// tasks are done in this order beside a server.
var tasks = []task{
	{"make, change, drop a table", []step{
		{"table create orders --key customer:string --key n:integer --versions 3", ""}, {"table alter orders --ttl 90000", ""},
		{"table create gone --key k:string", ""}, {"table drop gone --yes", ""},
	}},
	{"reserve throughput", []step{
		{"table alter orders --reserved-read 40 --reserved-write 7", ""}, {"table list", "Z  40/7"}, {"table alter orders --reserved-write 0", ""},
		{"table list", "40/0"}, {"table create busy --key k:string --reserved-write 5", ""}, {"table list", "0/5"}, {"table drop busy --yes", ""},
	}},
	{"list and describe tables", []step{{"table list", "orders"}, {"table describe orders", "90000"}}},
	{"write, change, delete a row", []step{
		{"put orders anna 1 -s state=new", ""}, {"update orders anna 1 -s state=paid", ""}, {"put orders bert 1 -s state=new", ""}, {"delete orders bert 1", ""},
	}},
	{"write a row only if it is new", []step{{"put orders anna 1 -s state=new --expect absent", "!OTSConditionCheckFail"}, {"put orders carl 1 -s total:integer=5 --expect absent", ""}}},
	{"a row, with versions", []step{{"get orders anna 1 --versions 3", "paid"}}},
	{"rows of a range", []step{{"scan orders anna --from 1 --to 9", "paid"}, {"scan orders", "carl"}}},
	{"count rows", []step{{"count orders", "2"}}},
	{"a filter in a scan", []step{{"scan orders --where total~>~4", "carl"}}},
	{"import and export rows", []step{{"export orders STORE/../orders.jsonl --endpoint URL", "exported 2 rows"}, {"import orders STORE/../orders.jsonl --endpoint URL", "imported 2 rows"}}},
	{"changes of a table", []step{{"table alter orders --stream 1", ""}, {"put orders anna 1 -s state=seen", ""}, {"stream tail orders", "state=seen"}}},
	{"flush, split", []step{{"table flush orders", ""}, {"table split orders b", ""}}},
	{"regions, tablets: list, split, merge", []step{{"partition list orders", "FINDINGS"}, {"partition merge orders b", ""}, {"partition split orders b", ""}}},
	{"merge everything now", []step{{"table compact orders", ""}}},
	{"hot keys", []step{{"advise orders", "demo/orders"}, {"partition list orders", "FINDINGS"}}},
	{"large values", []step{{"top --interval 100ms --count 1", "BYTES/ROW"}}},
	{"live figures", []step{{"top --interval 100ms --count 1", "orders"}}},
	{"pages", []step{{"console", "http://127.0.0.1:"}}},
	{"an interactive shell", []step{{"shell", "carl"}}},
	{"users and keys", []step{{"instance key add demo", "FLAGSTONE"}, {"instance key list demo", "made"}}},
	{"look into files of the log, the manifest, tables", []step{
		{"inspect log --limit 5", "segment"}, {"inspect manifest", "orders"}, {"inspect table-file STORE/sst/*/*.sst --limit 5", "rows"},
	}},
	{"draw the tree", []step{{"inspect tree orders", "LEVEL"}}},
	{"verify all files", []step{{"check --rate 1GiB", "no problem found"}}},
	{"back up, restore", []step{{"backup create STORE-backups", "are new"}}},
	{"restore to a moment", []step{
		{"backup create STORE-logged --keep-log 1GiB", "are new"}, {"backup log STORE-logged", "complete up to"},
	}},
	{"load generators", []step{{"bench c --rows 100 --duration 100ms --endpoint URL", "YCSB C"}}},
}

// TestEveryTaskOfTheTableIsDone does what the table of docs/operations.md says, and finds no other task in it.
func TestEveryTaskOfTheTableIsDone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	url, stop := serving(t, "--dir", dir, "--sync", "none", "--metrics-addr", "127.0.0.1:0")
	stop = sync.OnceValue(stop)
	defer stop()
	done := map[string][]string{}
	for _, task := range tasks {
		for _, s := range task.steps {
			done[task.name] = append(done[task.name], "flagstone "+s.line)
			doTask(t, dir, url, s)
		}
	}
	stop()
	doTask(t, dir, url, step{"check", "no problem found"})
	done["save what is intact in a damaged store"] = []string{"flagstone salvage"} // TestSalvageTellsWhetherSomethingWasLost
	done["metrics, health"] = []string{"serve --metrics-addr"}                     // TestMetricsAndHealth
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## What other tools do")
	lines := regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \| (.+) \|$`).FindAllStringSubmatch(table, -1)
	named := map[string]bool{"task": true, "---": true}
	if len(lines) < 15 {
		t.Fatalf("the table has %d lines", len(lines))
	}
	for _, line := range lines[1:] { // the first is the heading
		name := line[1]
		named[name] = true
		if done[name] == nil {
			t.Errorf("no test does %q", name)
			continue
		}
		does := strings.Join(done[name], "\n")
		commands := regexp.MustCompile("`(flagstone [a-z]+(?: [a-z]+)*|serve --metrics-addr)").FindAllStringSubmatch(line[2], -1)
		if !slices.ContainsFunc(commands, func(c []string) bool { return strings.Contains(does, c[1]) }) {
			t.Errorf("%q is done by %q; the table says %s", name, done[name], line[2])
		}
	}
	for name := range done {
		if !named[name] {
			t.Errorf("the table has no task %q", name)
		}
	}
}

// doTask runs a command line beside the server, or on its directory.
func doTask(t *testing.T, dir, url string, s step) {
	t.Helper()
	line := strings.NewReplacer("STORE", dir, "URL", url).Replace(s.line)
	args := append([]string{}, strings.Fields(line)...)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "~", " ")
		if strings.Contains(arg, "*") {
			if files, err := filepath.Glob(arg); err == nil && len(files) > 0 {
				args[i] = files[0]
			}
		}
	}
	if !strings.HasPrefix(line, "inspect table-file") {
		args = append(args, "--dir", dir)
	}
	var status int
	var out, errOut string
	if args[0] == "shell" {
		status, out, errOut = typed(t, dir, "scan orders\n")
	} else {
		status, out, errOut = command(t, args...)
	}
	want, fails := strings.CutPrefix(s.want, "!")
	if fails != (status != 0) || !strings.Contains(out+errOut, want) {
		t.Errorf("%s: status %d\n%s\n%s; want %q", s.line, status, out, errOut, s.want)
	}
}
