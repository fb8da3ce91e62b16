package vfs

// The memory of a Linux machine, or of the control group that the process is in.

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where control groups (version 2) are found.
const cgroupRoot = "/sys/fs/cgroup"

func machineMemory() int64 {
	var total int64
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	if limit := groupMemory(cgroupRoot, string(groups)); limit > 0 && (total == 0 || limit < total) {
		return limit
	}
	return total
}

// groupMemory is the smallest memory limit of the process's control group and
// those above it; groups is the content of /proc/self/cgroup. 0: no limit.
func groupMemory(root, groups string) int64 {
	limit := int64(0)
	for line := range strings.Lines(groups) {
		dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ; ok; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(root, dir, "memory.max"))
			n, perr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && perr == nil && (limit == 0 || n < limit) {
				limit = n
			}
			ok = dir != "/" && dir != "."
		}
	}
	return limit
}
