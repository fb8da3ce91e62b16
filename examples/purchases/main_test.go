package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// server is what all tests talk to, with memtables so small that most of what
// they write is flushed; command is the program that it is, dir what it serves.
var (
	server  *endpoint.Server
	command *endpoint.Command
	dir     string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	var err error
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err = os.MkdirTemp("", "flagstone-purchases-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	command, err = endpoint.Build()
	if err != nil {
		return fail(err)
	}
	defer command.Remove()
	server, err = command.Start(dir, "--memtable-size", "256KiB", "--table-file-size", "256KiB", "--log-level", "warn")
	if err != nil {
		return fail(err)
	}
	defer server.Kill()
	status := m.Run()
	if err := server.Stop(); err != nil {
		return fail(err)
	}
	return status
}

// environment holds the server's access key.
func environment(name string) string {
	return map[string]string{envKeyID: endpoint.KeyID, envKeySecret: endpoint.KeySecret}[name]
}

func client() *tablestore.TableStoreClient {
	return tablestore.NewClient(server.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret)
}

func tables(t *testing.T) string {
	t.Helper()
	r, err := client().ListTable()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(r.TableNames, " ")
}

func TestTheTourEndsWell(t *testing.T) {
	for _, keep := range []bool{true, false} {
		var stdout, stderr bytes.Buffer
		args := []string{"--endpoint", server.URL, "--records", "4321", "--workers", "3", "--seed", "5", fmt.Sprintf("--keep=%v", keep)}
		if status := run(args, environment, &stdout, &stderr); status != 0 || stderr.Len() > 0 {
			t.Fatalf("status %d\n%s%s", status, stdout.String(), stderr.String())
		}
		if !strings.Contains(stdout.String(), "every record is where it belongs, and everything is in order: 4,321 records in 4 tables") {
			t.Errorf("it printed\n%s", stdout.String())
		}
		kept := ""
		if keep {
			kept = "purchases_by_card purchases_by_device purchases_by_order purchases_spliced"
		}
		if got := tables(t); got != kept {
			t.Errorf("tables at the end: %q; want %q", got, kept)
		}
	}
}

// TestAdviceTellsTheFourKeysApart asks the server about the keys of the tour's
// tables and compares the answers with the records.
func TestAdviceTellsTheFourKeysApart(t *testing.T) {
	const records = 8000
	args := []string{"--endpoint", server.URL, "--records", fmt.Sprint(records), "--seed", "7"}
	var stdout, stderr bytes.Buffer
	if status := run(args, environment, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	tills := map[int64]int{}
	busiest := int64(0)
	for _, p := range generate(records, 7) {
		if tills[p.DeviceID]++; tills[p.DeviceID] > tills[busiest] {
			busiest = p.DeviceID
		}
	}
	for i := range layouts {
		name := layouts[i].table
		r, err := command.Run(nil, "advise", name, "--json", "--dir", dir)
		if err != nil || r.Status != 0 {
			t.Fatalf("%v, status %d, %s", err, r.Status, r.Stderr)
		}
		type spread struct {
			Distinct int
			Heavy    bool
			Top      []struct {
				Key  string
				Part float64
			}
		}
		var report struct {
			Size, Load spread
			Newest     struct{ Crowded bool }
			Proposals  []struct {
				Go      string
				Largest float64
			}
		}
		if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
			t.Fatal(err)
		}
		uneven := name == byDevice.table
		if report.Size.Heavy != uneven || report.Load.Heavy != uneven || report.Newest.Crowded || (len(report.Proposals) > 0) != uneven {
			t.Errorf("%s: %s", name, r.Stdout)
		}
		if !uneven || len(report.Proposals) == 0 {
			continue
		}
		part := float64(tills[busiest]) / records
		for what, s := range map[string]spread{"size": report.Size, "load": report.Load} {
			top := s.Top[0]
			if top.Key != fmt.Sprint(busiest) || top.Part < part-0.04 || top.Part > part+0.04 {
				t.Errorf("%s: the busiest till is %s with %.3f; it is %d with %.3f", what, top.Key, top.Part, busiest, part)
			}
		}
		if report.Size.Distinct != len(tills) {
			t.Errorf("%d tills, there are %d", report.Size.Distinct, len(tills))
		}
		if p := report.Proposals[0]; p.Largest > 0.01 || !strings.Contains(p.Go, `"OrderNumber"`) {
			t.Errorf("proposed %+v", p)
		}
	}
}

// TestTheTourFindsDifferences plants one difference after the other.
func TestTheTourFindsDifferences(t *testing.T) {
	tour := &tour{client: client(), workers: 4, out: new(bytes.Buffer), records: generate(500, 1)}
	victim := &tour.records[123]
	surplus := *victim
	surplus.OrderNumber += ordersPerDay / 2
	changed := *victim
	changed.Amount++
	if err := tour.makeTables(); err != nil {
		t.Fatal(err)
	}
	defer tour.dropTables()
	for i := range layouts {
		l := &layouts[i]
		if err := tour.load(l); err != nil {
			t.Fatal(err)
		}
		put := func(p *purchase) func() error {
			return func() error {
				_, err := tour.client.PutRow(&tablestore.PutRowRequest{PutRowChange: l.put(p)})
				return err
			}
		}
		remove := func(p *purchase) func() error {
			return func() error {
				change := &tablestore.DeleteRowChange{TableName: l.table, PrimaryKey: l.rowKey(p)}
				change.SetCondition(tablestore.RowExistenceExpectation_EXPECT_EXIST)
				_, err := tour.client.DeleteRow(&tablestore.DeleteRowRequest{DeleteRowChange: change})
				return err
			}
		}
		for _, c := range []struct {
			what     string
			do, undo func() error
			scan     string // what the scan finds
			byKey    bool   // reading by key finds it too
		}{
			{"nothing", func() error { return nil }, func() error { return nil }, "", false},
			{"a missing row", remove(victim), put(victim), "499 rows; want 500", true},
			{"a changed row", put(&changed), put(victim), fmt.Sprintf("Amount=%d; want Amount=%d", changed.Amount, victim.Amount), true},
			{"a surplus row", put(&surplus), remove(&surplus), "501 rows; want 500", false},
		} {
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			tour.wrong = differences{}
			if err := tour.scanAll(l, tour.sorted(l)); err != nil {
				t.Fatal(err)
			}
			all := strings.Join(tour.wrong.all, "\n")
			if (all == "") != (c.scan == "") || !strings.Contains(all, c.scan) {
				t.Errorf("%s, %s: the scan finds %q; want %q", l.table, c.what, all, c.scan)
			}
			tour.wrong = differences{}
			if err := tour.readByKey(l); err != nil {
				t.Fatal(err)
			}
			if found := len(tour.wrong.all) > 0; found != c.byKey {
				t.Errorf("%s, %s: reading by key finds %q", l.table, c.what, tour.wrong.all)
			}
			if err := c.undo(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWhatTheTourRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte(envKeyID+"="+endpoint.KeyID+"\n"+envKeySecret+"=wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := func(string) string { return "" }
	for _, c := range []struct {
		what   string
		args   []string
		getenv func(string) string
		status int
		says   string
	}{
		{"no key", nil, nothing, 2, "--credentials"},
		{"a file that is not there", []string{"--credentials", file + "x"}, nothing, 2, file + "x"},
		{"a key that is wrong", []string{"--endpoint", server.URL, "--credentials", file, "--records", "1"}, nothing, 1, "OTSAuthFailed"},
		{"the environment wins", []string{"--endpoint", server.URL, "--credentials", file, "--records", "1", "--keep=false"}, environment, 0, ""},
		{"an instance that is not there", []string{"--endpoint", server.URL, "--instance", "nowhere", "--records", "1"}, environment, 1, "The instance is not found."},
		{"no records", []string{"--records", "0"}, environment, 2, "--records"},
		{"an unknown flag", []string{"--nonsense"}, environment, 2, "nonsense"},
		{"an argument", []string{"surplus"}, environment, 2, "surplus"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(c.args, c.getenv, &stdout, &stderr); status != c.status || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: status %d, %q; want %d, ...%q...", c.what, status, stderr.String(), c.status, c.says)
		}
	}
}
