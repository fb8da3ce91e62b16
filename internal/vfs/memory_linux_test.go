package vfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSmallestLimitOfTheControlGroupsCounts(t *testing.T) {
	root := t.TempDir()
	for dir, limit := range map[string]string{"": "max", "a": "1000\n", "a/b": "2000\n", "a/b/c": "max\n"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "memory.max"), []byte(limit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v1 := filepath.Join(root, "memory", "old", "deep")
	if err := os.MkdirAll(v1, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, limit := range map[string]string{filepath.Dir(v1): "500\n", v1: "9223372036854771712\n"} {
		if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(limit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]int64{
		"4:memory:/old/deep\n": 500, "4:cpu,memory:/old\n0::/a\n": 500, "4:cpu:/old\n0::/a\n": 1000, "4:memory:/new\n": 0,
		"": 0, "0::/\n": 0, "0::/a\n": 1000, "0::/a/b\n": 1000, "0::/a/b/c\n": 1000, "0::/x\n": 0, "5:memory:/a\n": 0,
		"7:cpu:/\n0::/a/b\n": 1000,
	} {
		if got := groupMemory(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
	if OS().Memory() < 1<<20 {
		t.Errorf("a machine of %d bytes", OS().Memory())
	}
}
