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
	if most := uint64(askEvery + others/admitOften); err != nil || cached > most {
		t.Errorf("%d of %d blocks came into the page cache, want at most %d: %v", cached, others, most, err)
	}
}

// TestReadsCanBeStartedBeforeTheirBytesAreNeeded starts as many reads as may be in flight, and waits for them later.
func TestReadsCanBeStartedBeforeTheirBytesAreNeeded(t *testing.T) {
	const block, apart, most = 4096, 64 << 10, asyncSlots / 2
	a := NewAsyncReads()
	defer a.Close()
	content, name, f := asyncFile(t, a)
	if !past(t, f, name) {
		return
	}
	if a.start.Do(a.begin); !a.usable.Load() {
		t.Log("this kernel refuses asynchronous reads")
		return
	}
	start := func(p []byte, off int) (Started, bool) { return f.(Starter).StartRead(p, int64(off)) }
	var started []Started
	var buffers [][]byte
	for i := range most + 1 {
		p := AlignedBuffer(block)
		r, ok := start(p, i*apart)
		if ok != (i < most) {
			t.Fatalf("read %d was started: %v", i, ok)
		}
		if ok {
			started, buffers = append(started, r), append(buffers, p)
		}
	}
	for i, r := range started {
		if at := i * apart; !r.Wait() || !bytes.Equal(buffers[i], content[at:at+block]) {
			t.Errorf("read %d did not read what is there", i)
		}
	}
	uncache(t, name)
	p, last := AlignedBuffer(block), len(content)/block*block
	if r, ok := start(p, last); !ok || !r.Wait() || !bytes.Equal(p[:len(content)-last], content[last:]) {
		t.Error("the end of the file was not read")
	}
	for what, off := range map[string]int{"behind the end": last + block, "unaligned": 1, "negative": -block} {
		if _, ok := start(p, off); ok {
			t.Errorf("a read %s was started", what)
		}
	}
	if _, ok := start(AlignedBuffer(2*MostStarted), 0); ok {
		t.Error("a long read was started")
	}
	if _, err := f.(*sparingFile).through.ReadAt(p, 0); err != nil { // now it is in the page cache
		t.Fatal(err)
	}
	if _, ok := start(p, 0); ok {
		t.Error("a read of what the page cache has was started")
	}
}
