package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroup bounds the memory of a child process, page cache included.
type cgroup struct{ dir string }

// newCgroup makes a memory cgroup below the one that this process is in. It
// fails where the machine does not let us.
func newCgroup(limit int64) (*cgroup, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		// Version 1 has a hierarchy for memory, version 2 one for everything.
		var parent, file string
		switch {
		case parts[1] == "memory":
			parent, file = filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes"
		case parts[0] == "0":
			parent, file = filepath.Join("/sys/fs/cgroup", parts[2]), "memory.max"
		default:
			continue
		}
		if c, err := makeCgroup(parent, file, limit); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("runner: no memory cgroup can be made here")
}

func makeCgroup(parent, file string, limit int64) (*cgroup, error) {
	dir := filepath.Join(parent, "flagstone-peers-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return nil, err
	}
	c := &cgroup{dir}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// remove removes the cgroup, whose process has ended; the kernel may need a
// moment to notice.
func (c *cgroup) remove() {
	for range 50 {
		if os.Remove(c.dir) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
