package manifest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestALengthThatIsOfHolesTakesNoMemory: a sparse manifest takes a few blocks of the disk, and a
// record in it may claim to be as long as the file.
func TestALengthThatIsOfHolesTakesNoMemory(t *testing.T) {
	const size, length, mostBytes = 1 << 30, 900 << 20, 64 << 20
	dir := t.TempDir()
	if err := Create(vfs.OS(), dir, NewState([16]byte{1})); err != nil {
		t.Fatal(err)
	}
	want, report, err := Load(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, manifestName(report.Number)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var header [recordHeaderSize]byte
	binary.LittleEndian.PutUint32(header[:], length)
	binary.LittleEndian.PutUint32(header[4:], kindEdit)
	if _, err := f.WriteAt(header[:], roundUp(report.Size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, report, err := Load(vfs.OS(), dir)
	runtime.ReadMemStats(&after)
	if err != nil || got.StoreID != want.StoreID || report.Torn == 0 {
		t.Errorf("loaded %+v, %v", report, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > mostBytes {
		t.Errorf("%d bytes of memory were taken, want %d at most", taken, int64(mostBytes))
	}
	// A file longer than any manifest can be is not read at all.
	if err := f.Truncate(maxFileBytes + 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(vfs.OS(), dir); err == nil {
		t.Error("a manifest of more bytes than can be was read")
	}
}
