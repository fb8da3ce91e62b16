package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/ots"
)

// TestTopShowsABusyTable reads figures beside a server to which rows were put.
func TestTopShowsABusyTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	defer stop()
	steps := []step{{"table create busy --key k:string", ""}, {"table create quiet --key k:string", ""}}
	for n := range 20 {
		steps = append(steps, step{fmt.Sprintf("put busy %d -s c=1", n), ""})
	}
	follow(t, dir, steps)
	status, out, errOut := command(t, "top", "--dir", dir, "--interval", "100ms", "--count", "2", "--tables", "1")
	if status != 0 || strings.Count(out, "high-performance: pressure 0%") != 2 || strings.Count(out, "GETS/S") != 2 ||
		strings.Count(out, "and 1 more tables") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("status %d, %s, %s", status, out, errOut)
	}
	status, out, errOut = command(t, "top", "--dir", dir, "--interval", "100ms", "--count", "1", "--json")
	var now figures
	if err := json.Unmarshal([]byte(out), &now); status != 0 || err != nil || len(now[ots.HighPerformance].Tables) != 2 {
		t.Errorf("status %d, %v, %s, %s", status, err, out, errOut)
	}
	if status, _, errOut := command(t, "top", "--dir", t.TempDir()); status != 1 || !strings.Contains(errOut, "flagstone serve") {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := command(t, "top", "--dir", dir, "--interval", "1ms"); status != 2 || !strings.Contains(errOut, "--interval") {
		t.Errorf("status %d, %s", status, errOut)
	}
}
