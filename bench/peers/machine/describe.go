// Package machine measures what the machine itself can do: the limits that an
// engine's figures stand beside.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Describe names the machine in one line: processor, memory, kernel, and the
// file system of dir.
func Describe(dir string) string {
	var parts []string
	cpu := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			cpu = strings.Trim(line, " \t:")
		}
	}
	parts = append(parts, fmt.Sprintf("%d x %s", runtime.NumCPU(), cpu))
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		parts = append(parts, fmt.Sprintf("%.0f GB memory", float64(info.Totalram)*float64(info.Unit)/1e9))
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		parts = append(parts, "Linux "+unix.ByteSliceToString(name.Release[:]))
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		kinds := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
			unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs"}
		kind := kinds[int64(fs.Type)]
		if kind == "" {
			kind = fmt.Sprintf("file system %#x", fs.Type)
		}
		parts = append(parts, kind)
	}
	return strings.Join(append(parts, runtime.Version()), ", ")
}
