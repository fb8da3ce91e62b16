package vfs

import (
	"bytes"
	"testing"
)

// TestReadsSpareThePageCacheAgainAfterAStreak reads one block until its file no longer asks for each read whether
// the page cache serves it. Then that is emptied, and other blocks are read: soon most of them go past it again.
func TestReadsSpareThePageCacheAgainAfterAStreak(t *testing.T) {
	const block, others = 4096, 200
	content, name, f := asyncFile(t, nil)
	if !past(t, f, name) {
		return
	}
	p := AlignedBuffer(block)
	read := func(at int) {
		t.Helper()
		if n, err := f.ReadAt(p, int64(at)); n != block || err != nil || !bytes.Equal(p, content[at:at+block]) {
			t.Fatalf("a read at %d: %d bytes, %v", at, n, err)
		}
	}
	file := f.(*sparingFile)
	for n := uint32(0); n <= presentStreak || n%askEvery > 0; n = file.present.Load() {
		read(0)
	}
	uncache(t, name)
	for i := range others {
		if i == askEvery-1 {
			if _, cached, err := cachedPages(file.fd, 0, file.size); err != nil || cached != uint64(i) {
				t.Errorf("%d of %d blocks came into the page cache before one was asked for: %v", cached, i, err)
			}
		}
		read((1 + i) * 2 * block)
	}
	_, cached, err := cachedPages(file.fd, 0, file.size)
	if most := uint64(askEvery + others/admitEvery); err != nil || cached > most {
		t.Errorf("%d of %d blocks came into the page cache, want at most %d: %v", cached, others, most, err)
	}
}
