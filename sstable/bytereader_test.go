package sstable

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// recordingFile has no content but a length, and records its reads, in blocks of blockBytes.
type recordingFile struct {
	vfs.File
	blocks int
	reads  []string // "first block + number of blocks"
	broken int      // reads of this block fail, if it is not 0
	took   func()   // called by each read
}

const blockBytes = 4 << 10

func (f *recordingFile) ReadAt(p []byte, off int64) (int, error) {
	first, n := int(off/blockBytes), (len(p)+blockBytes-1)/blockBytes
	f.reads = append(f.reads, fmt.Sprintf("%d+%d", first, n))
	if f.took != nil {
		f.took()
	}
	if f.broken > 0 && f.broken >= first && f.broken < first+n {
		return 0, errBroken
	}
	return len(p), nil
}

func (f *recordingFile) Map(size int64) (*vfs.Mapping, error) {
	return vfs.NewMapping("memory", make([]byte, size)), nil
}

// walker goes from block to block of a recordingFile, as a block reader does.
type walker struct {
	*byteReader
	file  *recordingFile
	block int
}

func walk(file *recordingFile, p pattern, readAhead int) *walker {
	size := int64(file.blocks) * blockBytes
	f := &fileBytes{file: file, name: "f", align: 1, footer: footer{dataLength: size}}
	return &walker{&byteReader{f: f, most: readAhead, pattern: p, began: noScan, end: size}, file, -2}
}

// reads goes to blocks and returns what was read of the file for them.
func (w *walker) reads(blocks ...int) (reads []string, err error) {
	w.file.reads = nil
	for _, i := range blocks {
		from := int64(i) * blockBytes
		w.enter(i == w.block+1)
		w.block = i
		if _, err := w.read(from, from+blockBytes, from+blockBytes); err != nil {
			return w.file.reads, err
		}
	}
	return w.file.reads, nil
}

func (w *walker) want(t *testing.T, what string, blocks []int, want ...string) {
	t.Helper()
	if got, err := w.reads(blocks...); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: read %q, want %q: %v", what, got, want, err)
	}
}

// begin ends a movement with the block that was read last, and begins another, as of another
// reader.
func (w *walker) begin(p pattern) {
	w.seek(p)
	w.block, w.window = -2, nil
}

func upward(from, to int) (blocks []int) {
	for i := from; i < to; i++ {
		blocks = append(blocks, i)
	}
	return blocks
}

func backward(from, to int) []int {
	blocks := upward(from, to)
	slices.Reverse(blocks)
	return blocks
}

// Each way of going through a file has its reads: blocks of four KiB, of a file of a hundred.
func TestWhatIsReadDependsOnTheWayThroughTheFile(t *testing.T) {
	for _, c := range []struct {
		name      string
		pattern   pattern
		readAhead int
		blocks    []int
		want      []string
	}{
		{"gets", point, defaultReadAhead, []int{7, 3, 50, 3}, []string{"7+1", "3+1", "50+1", "3+1"}},
		{"the same block again", point, defaultReadAhead, []int{7, 7}, []string{"7+1"}},
		{"a reverse scan", point, defaultReadAhead, backward(4, 8), []string{"7+1", "6+1", "5+1", "4+1"}},
		{"a scan", scan, defaultReadAhead, upward(0, 90), []string{"0+1", "1+1", "2+16", "18+32", "50+50"}},
		{"a scan that stops soon", scan, defaultReadAhead, upward(0, 2), []string{"0+1", "1+1"}},
		{"a merge", merge, defaultReadAhead, upward(0, 90), []string{"0+1", "1+16", "17+32", "49+51"}},
		{"a merge with a smaller limit", merge, 10 * blockBytes, upward(0, 31), []string{"0+1", "1+10", "11+10", "21+10"}},
		{"a merge without read-ahead", merge, -1, upward(0, 4), []string{"0+1", "1+1", "2+1", "3+1"}},
		{"the end of the file", merge, defaultReadAhead, upward(95, 100), []string{"95+1", "96+4"}},
	} {
		w := walk(&recordingFile{blocks: 100}, point, c.readAhead)
		w.pattern = c.pattern
		w.begin(c.pattern)
		w.want(t, c.name, c.blocks, c.want...)
		w.free()
	}
}

// A scan reads at first as far as those before it mostly went, and no further than its bound.
func TestAScanBeginsWithTheLengthOfThoseBefore(t *testing.T) {
	w := walk(&recordingFile{blocks: 1000}, point, defaultReadAhead)
	for range 40 {
		w.begin(scan)
		if _, err := w.reads(upward(100, 116)...); err != nil {
			t.Fatal(err)
		}
	}
	w.begin(scan)
	w.want(t, "the first call", upward(500, 516), "500+18") // an eighth more than the sixteen
	w.begin(point)
	w.want(t, "a get", []int{700}, "700+1")
	w.begin(scan)
	w.end = 510 * blockBytes
	w.want(t, "the end of what is wanted", upward(500, 510), "500+10")
	w.end = 1000 * blockBytes
	for range 200 {
		w.begin(scan)
		if _, err := w.reads(300); err != nil {
			t.Fatal(err)
		}
	}
	w.begin(scan)
	w.want(t, "after scans of one block", []int{600}, "600+2")
}

// What cannot be read ahead does not spoil what was asked for.
func TestAnUnreadablePlaceAheadIsNotMetBeforeItsBlock(t *testing.T) {
	w := walk(&recordingFile{blocks: 100, broken: 9}, merge, defaultReadAhead)
	w.want(t, "up to it", upward(6, 9), "6+1", "7+16", "7+1", "8+16", "8+1")
	if _, err := w.reads(9); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	w.want(t, "after it", upward(10, 20), "10+16")
}

func TestABlockIsReadThroughTheMappingWhileThePageCacheHasIt(t *testing.T) {
	now, slow := time.Duration(1), false
	f := &recordingFile{blocks: 1000}
	f.took = func() {
		if slow {
			now += time.Millisecond
		}
	}
	w := walk(f, point, defaultReadAhead)
	w.f.mapping, _ = f.Map(w.f.footer.dataLength)
	w.f.residency.elapsed = func() time.Duration { return now }
	var asked []int64
	w.f.prefetch.open(w.f.footer.dataLength, func(offset, _ int64) { asked = append(asked, offset/blockBytes) })
	w.want(t, "resident blocks", []int{1, 2, 3, 900})
	if !w.mapped || len(asked) > 0 {
		t.Error("not through the mapping, or asked for what is there", asked)
	}
	w.f.residency.misses.Store(missStreak)
	slow = true
	w.want(t, "blocks that are not there", []int{5, 700}, "5+1", "700+1")
	if w.mapped || !slices.Equal(asked, []int64{0, 640}) {
		t.Error("asked for chunks at the blocks", asked)
	}
	for _, p := range []pattern{merge, scan} {
		w.pattern = p
		w.begin(p)
		_, _ = w.reads(400) // the beginning of a scan is as a get
		asked = nil
		if _, err := w.reads(upward(401, 600)...); err != nil || len(asked) > 0 {
			t.Error("asked for chunks that windows read", asked, err)
		}
	}
	slow = false
	for i := range missStreak {
		w.window = nil
		if _, err := w.reads(2 * i); err != nil {
			t.Fatal(err)
		}
	}
	w.window = nil
	w.want(t, "resident again", []int{5, 700})
}

// Windows in memory of a pool are given back.
func TestWindowsCanLieOffTheHeap(t *testing.T) {
	memory := offheaptest.New(t)
	w := walk(&recordingFile{blocks: 100}, merge, defaultReadAhead)
	w.memory = memory
	w.want(t, "a merge", upward(0, 90), "0+1", "1+16", "17+32", "49+51")
	w.free()
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
}
