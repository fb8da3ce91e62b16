package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// storedRow is a row, or a part of one, and the bytes of the file that it needs: a segment and a head.
type storedRow struct {
	key   []byte
	cells []row.Cell
	needs [2][2]int64
	block [2]int64 // which is read at once
}

func storedRows(t *testing.T, r *Reader) (rows []storedRow) {
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	for g := range r.index.groups {
		for i := r.index.firstBlock(g); i < r.index.firstBlock(g+1); i++ {
			from, to := r.index.blockRange(i)
			if !it.load(g, i) {
				t.Fatal(it.err)
			}
			b := it.blocks.block
			for n := range b.rows {
				it.setRow(g, n)
				it.openRow()
				if !it.openValues() {
					t.Fatal(it.err)
				}
				k := b.segmentOf(n)
				s := storedRow{key: bytes.Clone(it.key), block: [2]int64{from, to}, needs: [2][2]int64{
					{from + int64(b.partEnd.before(b.data, k)), from + int64(b.partEnd.at(b.data, k))},
					{from + int64(b.partEnd.at(b.data, b.segments-1)), to},
				}}
				for c := it.low - it.flagged(); c < it.high; c++ {
					it.setCell(c)
					s.cells = append(s.cells, cloneCell(&it.cell))
				}
				rows = append(rows, s)
			}
		}
	}
	return rows
}

func cloneCell(c *row.Cell) row.Cell {
	clone := *c
	clone.Column, clone.Value = bytes.Clone(c.Column), bytes.Clone(c.Value)
	return clone
}

// damageFileRandomly flips a byte, zeroes a part, cuts the end, or makes a part unreadable.
func damageFileRandomly(rng *rand.Rand, data []byte) (what string, damaged *badSector) {
	from := rng.IntN(len(data))
	to := min(from+1+rng.IntN(1+rng.IntN(len(data))), len(data))
	f := &badSector{memFile: memFile{data: bytes.Clone(data)}, err: syscall.EIO}
	switch rng.IntN(4) {
	case 0:
		f.data[from] ^= byte(1 + rng.IntN(255))
		return fmt.Sprintf("flip %d", from), f
	case 1:
		clear(f.data[from:to])
		return fmt.Sprintf("zero %d to %d", from, to), f
	case 2:
		f.data = f.data[:from]
		return fmt.Sprintf("cut at %d", from), f
	}
	f.from, f.to = int64(from/findUnit*findUnit), int64((to+findUnit-1)/findUnit*findUnit) // as devices do
	return fmt.Sprintf("unreadable %d to %d", f.from, to), f
}

func goOn() error { return nil }

// sameInSmallPieces looks for the blocks of a file with the smallest window and with small chunks. It expects those of r.
func sameInSmallPieces(t *testing.T, what string, r *Reader, file vfs.File, rows []storedRow, largest []byte) {
	t.Helper()
	f := newFinder(newReader(file, ReaderOptions{FileName: damagedName, UniqueID: r.footer.uniqueID}), goOn)
	f.r.footer.uniqueID = r.footer.uniqueID
	f.chunk, f.window = 64, 0 // findUnit is a multiple of it
	for _, s := range rows {
		f.window = max(f.window, trailerSize+int(s.needs[1][1]-s.needs[1][0]))
	}
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := f.findBlocks(size, largest); err != nil || !found || !reflect.DeepEqual(&f.r.index, &r.index) {
		t.Fatalf("%s: in small pieces: %t, %v, or other blocks", what, found, err)
	}
}

// TestTheSearchForBlocksCanBeStopped stops it at the second chunk.
func TestTheSearchForBlocksCanBeStopped(t *testing.T) {
	stopped, calls := errors.New("stopped"), 0
	_, err := OpenDamaged(&memFile{data: make([]byte, 3*findChunk)}, ReaderOptions{FileName: damagedName, UniqueID: [16]byte{1}}, nil, func() error {
		if calls++; calls == 2 {
			return stopped
		}
		return nil
	})
	if !errors.Is(err, stopped) || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestIntegersAreNoHeads counts the ends of vectors of small integers at which a whole head would have to be hashed.
func TestIntegersAreNoHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, width := range []int{2, 4, 8} {
		for _, most := range []int{2, 256, 1000, 60_000} {
			data := make([]byte, 1<<20)
			for at := 0; at < len(data); at += width {
				binary.LittleEndian.PutUint16(data[at:], uint16(rng.IntN(most)))
			}
			ends, hashed := 0, 0
			for n := 2 * trailerSize; n+headLengthSize <= len(data); n++ {
				length := int(binary.LittleEndian.Uint32(data[n:]))
				if length < trailerSize || length > n-trailerSize || data[n-trailerSize] > byte(CompressZstd) {
					continue
				}
				ends++
				if mayBeHead(data[n-length : n]) {
					hashed += length
				}
			}
			if hashed > 64*len(data) { // which takes milliseconds
				t.Errorf("%d bytes each, below %d: %d bytes hashed for %d ends", width, most, hashed, ends)
			}
		}
	}
}

// TestEveryRowOutsideOfDamageIsSalvaged damages files at random places, some of them also in the index or the footer. It
// expects the rows whose segment and head are intact, no others, and losses that tell of the rest and of nothing else.
func TestEveryRowOutsideOfDamageIsSalvaged(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	found, lostSome, lostNone := 0, 0, 0
	for n := range 240 {
		table, f := randomTable(rng, 1+rng.IntN(80), 1+rng.IntN(200)), &memFile{}
		if n%4 == 0 { // long rows next to each other
			for i := range table {
				table[i].cells = randomCells(rng, 40, 80, 60)
			}
		}
		table.write(t, f, WriterOptions{Compression: compressions[n%3], BlockSize: 100 << rng.IntN(6), FilterBitsPerKey: 10})
		intact := openFile(t, &memFile{data: f.data}, nil)
		rows := storedRows(t, intact)
		what, file := damageFileRandomly(rng, f.data)
		damaged := file.data
		what = fmt.Sprintf("seed %d, file %d, %s", seed, n, what)
		if at := int(intact.footer.dataLength+intact.footer.filterLength) + rng.IntN(int(intact.footer.indexLength)); n%2 == 0 && at < len(damaged) {
			damaged[at] ^= 0x20
		}
		if at := len(damaged) - 1 - rng.IntN(footerSize); n%5 == 0 && at >= int(intact.footer.dataLength) {
			damaged[at] ^= 0x20
		}
		touched := func(r [2]int64) bool {
			return r[1] > int64(len(damaged)) || !bytes.Equal(damaged[r[0]:r[1]], f.data[r[0]:r[1]])
		}
		told := func(err error) {
			if !errors.Is(err, syscall.EIO) || file.to == 0 {
				expected(t, what, err)
			}
		}
		var want, got []string
		back := map[string]bool{}
		var lost []storedRow
		for _, s := range rows {
			if touched(s.needs[0]) || touched(s.needs[1]) || s.block[0] < file.to && file.from < s.block[1] {
				lost = append(lost, s)
				continue
			}
			for i := range s.cells {
				want = append(want, fmt.Sprintf("%x %s", s.key, &s.cells[i]))
			}
		}
		r, err := OpenDamaged(file, ReaderOptions{FileName: damagedName, UniqueID: intact.footer.uniqueID}, intact.props.LargestKey, goOn)
		if err != nil {
			told(err)
			if len(want) > 0 {
				t.Fatalf("%s: %v, but %d of %d cells are intact", what, err, len(want), len(want)+len(lost))
			}
			continue
		}
		if r.gaps != nil {
			sameInSmallPieces(t, what, r, file, rows, intact.props.LargestKey)
		}
		var losses []Loss
		err = r.Salvage(func(key []byte, c *row.Cell) error {
			back[string(key)] = true
			got = append(got, fmt.Sprintf("%x %s", key, c))
			return nil
		}, func(l Loss) { losses = append(losses, l) })
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %v; %d cells came back, want %d", what, err, len(got), len(want))
		}
		covers := func(l *Loss, key []byte) bool {
			return bytes.Compare(l.From, key) <= 0 && (l.To == nil || bytes.Compare(key, l.To) <= 0)
		}
		// What is left of a row is told by a loss that says so, which tells of no row that is whole.
		partial := func(key []byte) bool {
			return slices.ContainsFunc(losses, func(l Loss) bool {
				return l.Partial && bytes.Compare(l.From, key) <= 0 && (l.To == nil || bytes.Compare(key, l.To) < 0 || bytes.Equal(key, l.From))
			})
		}
		inPart := map[string]bool{}
		for _, s := range lost {
			inPart[string(s.key)] = true
			if !slices.ContainsFunc(losses, func(l Loss) bool { return covers(&l, s.key) }) {
				t.Fatalf("%s: row %x is lost, and no loss says so: %v", what, s.key, losses)
			}
		}
		for _, s := range rows {
			if back[string(s.key)] && partial(s.key) != inPart[string(s.key)] {
				t.Fatalf("%s: row %x is back, in part: %t; the losses are %v", what, s.key, inPart[string(s.key)], losses)
			}
		}
		for _, l := range losses {
			told(l.Err)
			if !slices.ContainsFunc(lost, func(s storedRow) bool { return covers(&l, s.key) }) {
				t.Fatalf("%s: a loss of nothing: %v", what, l)
			}
		}
		if r.gaps != nil {
			found++
		}
		if len(lost) > 0 {
			lostSome++
		} else if len(losses) > 0 {
			t.Fatalf("%s: nothing is lost, but %v", what, losses)
		} else {
			lostNone++
		}
	}
	if found < 50 || lostSome < 50 || lostNone == 0 {
		t.Errorf("seed %d: %d files without an index, %d with and %d without losses are no example", seed, found, lostSome, lostNone)
	}
}

// TestAnOldFileWithoutItsIndexIsLost damages the index of the kept file of each format version. One whose blocks do not
// say where they end is lost, and the error says so.
func TestAnOldFileWithoutItsIndexIsLost(t *testing.T) {
	for _, g := range goldenFiles {
		data := readGolden(t, g.name)
		intact := openFile(t, &memFile{data: data}, nil)
		data[intact.footer.dataLength+intact.footer.filterLength] ^= 1
		version, largest := intact.footer.version, intact.props.LargestKey
		_, err := OpenDamaged(&memFile{data: data}, ReaderOptions{FileName: damagedName, UniqueID: testID}, largest, goOn)
		switch {
		case version >= versionSegments:
			if err != nil {
				t.Errorf("%s: %v", g.name, err)
			}
		case !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName) || !strings.Contains(err.Error(), fmt.Sprintf("of format version %d cannot be found", version)):
			t.Errorf("%s: %v", g.name, err)
		}
	}
}
