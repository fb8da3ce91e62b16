package partition

import (
	"runtime"
	"testing"
	"weak"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

// A flush must let go of the memtables it flushed at once, not when the next
// one is rotated out.
func TestFlushedMemtablesAreNotKeptAlive(t *testing.T) {
	v := newVersion(NewFiles(vfs.NewSim(vfs.SimOptions{}), "/", FilesOptions{}, func(string) {}), &manifest.Partition{})
	flushed := new(Env).newMemory(1)
	gone := weak.Make(flushed.table)
	old := newState([]*memory{flushed, new(Env).newMemory(2)}, v)
	next := old.without(1, v)
	old, flushed = nil, nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the memtable is still reachable")
	}
	runtime.KeepAlive(next)
}
