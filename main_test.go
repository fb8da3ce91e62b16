package flagstone

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow to five times what is live before it is collected. The tests make
// thousands of small stores, and would spend half of their time in the collector.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
