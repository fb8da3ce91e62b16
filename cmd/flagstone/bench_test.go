package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/cmd/flagstone/ycsb"
)

// TestBenchMeasuresAStoreAndAnEndpoint runs every workload for a moment, in this process and through the SDK.
func TestBenchMeasuresAStoreAndAnEndpoint(t *testing.T) {
	dir, scratch := filepath.Join(t.TempDir(), "store"), t.TempDir()
	url, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	for name, where := range map[string][]string{
		"store": {"--in", scratch, "--sync", "none"}, "endpoint": {"--endpoint", url, "--dir", dir}, "open loop": {"--in", scratch, "--rate", "200"},
	} {
		args := append([]string{"bench", "--json", "--rows", "300", "--columns", "2", "--duration", "100ms", "--workers", "3"}, where...)
		status, out, errOut := command(t, append(args, workloadNames()...)...)
		if status != 0 || !strings.Contains(errOut, "loaded 300 rows of 2 columns") {
			t.Fatalf("%s: status %d, %s, %s", name, status, out, errOut)
		}
		lines := json.NewDecoder(strings.NewReader(out))
		for _, workload := range workloadNames() {
			var r ycsb.Result
			if err := lines.Decode(&r); err != nil || r.Workload != workload || r.Operations == 0 ||
				!slices.ContainsFunc(r.Kinds, func(k ycsb.KindResult) bool { return k.Count > 0 && k.P99 > 0 }) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			if open := name == "open loop"; open != (r.Timers != nil) || open != (r.Asked == 200) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	done(t, "table", "create", "bench_abcdefghij27", "--key", "k:string", "--dir", dir) // as a bench that was killed leaves it
	done(t, "table", "create", "bench_of_mine", "--key", "k:string", "--dir", dir)
	_, _, errOut := command(t, "bench", "get", "--rows", "10", "--duration", "100ms", "--endpoint", url, "--dir", dir)
	if !strings.Contains(errOut, "'flagstone table drop bench_abcdefghij27 --yes'") || strings.Contains(errOut, "mine") {
		t.Errorf("of tables that are left it says %s", errOut)
	}
	done(t, "table", "drop", "bench_abcdefghij27", "--yes", "--dir", dir)
	done(t, "table", "drop", "bench_of_mine", "--yes", "--dir", dir)
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if status, out, _ := command(t, "table", "list", "--dir", dir); status != 0 || strings.Contains(out, "bench") {
		t.Errorf("left at the endpoint: %s", out)
	}
}

func TestBenchPrintsATableAndAChart(t *testing.T) {
	status, out, errOut := command(t, "bench", "A", "--rows", "200", "--duration", "2100ms", "--rate", "100", "--sync", "none", "--in", t.TempDir())
	if status != 0 {
		t.Fatalf("status %d, %s", status, errOut)
	}
	for _, want := range []string{"YCSB A: half gets", "100/s were asked for", "P99.99", "update  ", "timers  ", "operations in each second"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestBenchRefusesWhatItCannotDo(t *testing.T) {
	for args, want := range map[string]string{
		"x":                                      "a, b, c, d, e, f, get,",
		"a --rows 0":                             "--rows",
		"a --columns 0":                          "--columns",
		"a --columns 1000 --value 2KiB":          "make rows smaller",
		"a --workers 0":                          "--workers",
		"a --duration 1ms":                       "--duration",
		"a --in . --endpoint http://127.0.0.1:1": "give one of them",
		"a --rate -1":                            "--rate",
		"a --rate NaN":                           "--rate",
		"a --endpoint localhost:8087":            "http://127.0.0.1:8087",
		"a --in /no/such/place":                  "/no/such/place",
		"a --endpoint http://127.0.0.1:1":        "FLAGSTONE_ACCESS_KEY_ID",
	} {
		status, _, errOut := command(t, append([]string{"bench", "--dir", t.TempDir()}, strings.Fields(args)...)...)
		if status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d, %s", args, status, errOut)
		}
	}
}

func TestLatenciesHaveAUnit(t *testing.T) {
	for us, want := range map[float64]string{0: "0us", 1.234: "1.23us", 999: "999us", 999.7: "1ms", 12_345: "12.3ms", 2.5e6: "2.5s"} {
		if got := latencyText(us); got != want {
			t.Errorf("%v us are %s", us, got)
		}
	}
}
