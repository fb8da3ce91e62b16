package vfs_test

import (
	"os"
	"syscall"
	"testing"
)

// allocatedBytes returns the space that a file takes on the disk; ok is false
// where the file system does not reserve space (those that compress or copy on
// write answer in their own way).
func allocatedBytes(t *testing.T, name string) (size int64, ok bool) {
	t.Helper()
	const ext, xfs, tmpfs = 0xEF53, 0x58465342, 0x01021994
	var st syscall.Statfs_t
	must(t, syscall.Statfs(name, &st))
	if st.Type != ext && st.Type != xfs && st.Type != tmpfs {
		return 0, false
	}
	info, err := os.Stat(name)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512, true
}
