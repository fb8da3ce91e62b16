package vfs

// The memory of a Linux machine, or of the control group that the process is in.

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot has the control groups of version 2 and, in its directory "memory", those of
// version 1.
const cgroupRoot = "/sys/fs/cgroup"

func (osFS) Memory() int64 {
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

// groupMemory is the smallest memory limit of the process's control group and its parents; 0
// means no limit. groups is the content of /proc/self/cgroup.
func groupMemory(root, groups string) int64 {
	limit := int64(0)
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		// A line is hierarchy:controllers:path. Version 2 has one hierarchy, number 0,
		// without controllers.
		hierarchy, file := root, "memory.max"
		if parts[0] != "0" {
			if !slices.Contains(strings.Split(parts[1], ","), "memory") {
				continue
			}
			hierarchy, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		for dir, more := parts[2], true; more; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(hierarchy, dir, file))
			n, perr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && perr == nil && (limit == 0 || n < limit) {
				limit = n
			}
			more = dir != "/" && dir != "."
		}
	}
	return limit
}
