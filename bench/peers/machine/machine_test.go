package machine

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestDescribeNamesProcessorAndVersion(t *testing.T) {
	if d := Describe(t.TempDir()); !strings.Contains(d, " x ") || !strings.Contains(d, "go1.") {
		t.Error(d)
	}
}

func TestMeasureEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	if err := Measure(ctx, t.TempDir(), &out); err != context.Canceled {
		t.Error(err)
	}
}
