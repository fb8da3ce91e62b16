package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
)

// TestPartitionsAreListedSplitAndMerged works on a store that no server has open.
func TestPartitionsAreListedSplitAndMerged(t *testing.T) {
	dir := newHome(t)
	do := func(args ...string) string {
		t.Helper()
		status, out, errOut := command(t, append([]string{"partition", args[0], "--dir", dir}, args[1:]...)...)
		if status != 0 {
			t.Fatalf("%v: status %d, %s", args, status, errOut)
		}
		return out
	}
	do("split", "--", "t", "-7")
	want := []string{"ID START END CUT BYTES READS/S WRITES/S BYTES/ROW UNITS/S BUSIEST KEY FINDINGS", `- -7 -`, `-7 - user`}
	lines := strings.Split(strings.TrimSpace(do("list", "t")), "\n")
	for i, line := range lines {
		fields := strings.Fields(line)
		if i > 0 {
			fields = fields[1 : len(fields)-6] // without id, figures and busiest key
		}
		if got := strings.Join(fields, " "); i >= len(want) || got != want[i] {
			t.Errorf("line %d is %q of %q", i, got, lines)
		}
	}
	var list []instances.Partition
	if err := json.Unmarshal([]byte(do("list", "demo/t", "--instance", "nowhere", "--json")), &list); err != nil || len(list) != 2 || *list[1].Start != "-7" {
		t.Errorf("%+v, %v", list, err)
	}
	do("merge", "--", "t", "-7")
	if lines := strings.Split(strings.TrimSpace(do("list", "t")), "\n"); len(lines) != 2 {
		t.Errorf("%q", lines)
	}
	for _, args := range [][]string{{"list", "nothing"}, {"list", "nowhere/t"}, {"split", "t", "1", "--instance", "nowhere"}} {
		status, out, errOut := command(t, append([]string{"partition", args[0], "--dir", dir}, args[1:]...)...)
		if status != 1 || out != "" || !strings.Contains(errOut, "not found") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: status %d, %q, %q", args, status, out, errOut)
		}
	}
}

// newHome makes a home with an instance of each type, a key and a table.
func newHome(t *testing.T) string {
	t.Helper()
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "store")
	home, err := instances.Open(dir, instances.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Create(ctx, "archive", ots.Capacity); err != nil {
		t.Fatal(err)
	}
	if _, err := home.AddKey(ctx, "demo"); err != nil {
		t.Fatal(err)
	}
	engine, name, _ := home.Service("demo")
	never, one := int32(-1), int32(1)
	if err := engine.CreateTable(ctx, name, &ots.CreateTableRequest{
		Table: "t", PrimaryKey: []ots.KeyColumn{{Name: "k", Type: 1}},
		Options: &ots.TableOptions{TimeToLive: &never, MaxVersions: &one},
	}); err != nil {
		t.Fatal(err)
	}
	if err := home.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}
