package manifest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// testFragment is of the upper partition of smallEdits, with a file that has its values elsewhere.
func testFragment(t testing.TB) *Fragment {
	add := &Edit{Values: []ValueAddition{{1, &ValueFile{Number: 8, UniqueID: [16]byte{8}, Size: 900, Checksum: 77, Values: 3, Bytes: 800}}}}
	file := testFile(9, 60, 70, 30)
	file.Values = []ValueUse{{File: 8, Values: 2, Bytes: 500}}
	file.SeqOffset = 7
	add.AddFile(3, 0, file)
	add.AddPastLimit(1, 3, 20)
	s := mustApply(t, NewState(testStore), append(smallEdits(), add)...)
	f, detached := s.Fragment(1, testKey(50, -1), nil)
	if detached != nil {
		t.Fatalf("partition %d is detached", detached.ID)
	}
	return f
}

func TestTheGoldenFragmentIsWrittenAsEverAndRead(t *testing.T) {
	f := testFragment(t)
	got := f.Append(nil)
	want := golden(t, "fragment-1", got)
	if !bytes.Equal(got, want) {
		t.Errorf("the format of fragments has changed\ngot:\n%s\nwant:\n%s", hex.Dump(got), hex.Dump(want))
	}
	read, err := DecodeFragment(want)
	if err != nil || !reflect.DeepEqual(read, f) {
		t.Errorf("%+v, %v", read, err)
	}
	if n := len(f.Files()); n != 2 || len(f.Values) != 1 || len(f.Table.Partitions) != 1 || f.Table.Partitions[0].Cut {
		t.Errorf("%d files, %+v", n, f.Table.Partitions[0])
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "format-fragment.md"))
	if err != nil {
		t.Fatal(err)
	}
	checkExample(t, string(doc), "fragment", (&Fragment{Table: testTable(1, 1, "orders"), LastSeq: 25, IssuedMillis: 1_700_000_000_500}).Append(nil))
}

// wrapped is a payload with the header and the checksum of a fragment.
func wrapped(payload []byte) []byte {
	b := append([]byte(fragmentMagic), formatVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func TestADamagedFragmentIsRefused(t *testing.T) {
	good := testFragment(t).Append(nil)
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if _, err := DecodeFragment(bad); !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
		if _, err := DecodeFragment(good[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := DecodeFragment(append(good, 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("with a byte more: %v", err)
	}
}

func TestAFragmentThatLiesIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *Fragment)
		want   string
	}{
		{"no table", func(f *Fragment) { f.Table = nil }, "no table"},
		{"no partition", func(f *Fragment) { f.Table.Partitions = nil }, "no partition"},
		{"too many partitions", func(f *Fragment) {
			for range maxFragmentParts {
				f.Table.Partitions = append(f.Table.Partitions, &Partition{})
			}
		}, "more than"},
		{"a change log", func(f *Fragment) { f.Table.Log = &ChangeLog{Of: 9} }, "change log"},
		{"large numbers", func(f *Fragment) { f.LastSeq = maxFragmentSeq + 1 }, "at most"},
		{"a number above the last", func(f *Fragment) { f.LastSeq = 20 }, "above the last"},
		{"a past limit above the last", func(f *Fragment) { f.Table.PastLimits = []PastLimit{{5, 1000}} }, "past limit up to"},
		{"a watermark in the future", func(f *Fragment) { f.Table.Watermark = f.IssuedMillis }, "watermark"},
		{"a watermark that overflows", func(f *Fragment) { f.Table.Watermark = 1 << 62 }, "watermark"},
		{"a version offset that overflows", func(f *Fragment) { f.Table.LargestOffset = 1 << 62 }, "version offset"},
		{"frozen", func(f *Fragment) { f.Table.Partitions[0].Service = Frozen }, "does not serve"},
		{"the same id twice", func(f *Fragment) { f.Files()[1].UniqueID = f.Files()[0].UniqueID }, "same id"},
		{"the id of a value file", func(f *Fragment) { f.Values[0].UniqueID = f.Files()[0].UniqueID }, "same id"},
		{"too many copies of a file", func(f *Fragment) {
			for number := range uint64(maxFragmentCopies) {
				other := *f.Files()[0]
				other.Number = 1000 + number
				f.Table.Partitions[0].Levels[0] = slices.Insert(f.Table.Partitions[0].Levels[0], int(number), &other)
			}
		}, "same id"},
		{"an unused value file", func(f *Fragment) {
			f.Values = append(f.Values, &ValueFile{Number: 99, Size: 1, Values: 1, Bytes: 1})
		}, "no table file that refers"},
		{"no value file", func(f *Fragment) { f.Values = nil }, "not there"},
		{"partitions with a gap", func(f *Fragment) {
			f.Table.Partitions = append(f.Table.Partitions, &Partition{Start: testKey(95, -1)})
		}, "is unbounded"},
		{"an end before the start", func(f *Fragment) { f.Table.Partitions[0].End = testKey(10, -1) }, "partition"},
		{"a file outside", func(f *Fragment) { f.Files()[1].Smallest, f.Files()[1].Largest = testKey(1, 0), testKey(2, 0) }, "outside"},
		{"overlapping files of a level", func(f *Fragment) {
			l := &f.Table.Partitions[0].Levels
			l[6], l[0] = append(l[6], l[0]...), nil
		}, "overlaps"},
		{"two descriptions of a file", func(f *Fragment) {
			l, other := &f.Table.Partitions[0].Levels, *f.Files()[0]
			other.Rows++
			l[3] = append(l[3], &other)
		}, "file 3"},
	} {
		f := testFragment(t)
		c.change(f)
		_, err := DecodeFragment(f.Append(nil))
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestAFragmentHasAFileUnderTwoNumbers is of a store that has ingested two ranges that shared files.
func TestAFragmentHasAFileUnderTwoNumbers(t *testing.T) {
	f := testFragment(t)
	value, file := *f.Values[0], *f.Files()[1]
	value.Number, file.Number = 90, 91
	file.Values = []ValueUse{{File: 90, Values: 2, Bytes: 500}}
	f.Values = append(f.Values, &value)
	f.Table.Partitions[0].Levels[0] = append(f.Table.Partitions[0].Levels[0], &file)
	if _, err := DecodeFragment(f.Append(nil)); err != nil {
		t.Error(err)
	}
	for _, change := range []func(){
		func() { file.Size++ }, func() { file.Checksum++; file.Size-- }, func() { value.Size++; file.Checksum-- },
	} {
		change()
		if _, err := DecodeFragment(f.Append(nil)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "other bytes") {
			t.Errorf("of other bytes: %v", err)
		}
	}
}

// TestAFragmentOfManyItemsIsRefusedEarly has as many as fit in the largest fragment, in two bytes each.
func TestAFragmentOfManyItemsIsRefusedEarly(t *testing.T) {
	b := wrapped(append([]byte{encodingFormat}, bytes.Repeat([]byte{2, 0}, MaxFragmentBytes/2-100)...))
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := DecodeFragment(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "too many") {
			t.Errorf("error %v", err)
		}
	})
	if allocated > 2*maxFragmentItems {
		t.Errorf("%v allocations", allocated)
	}
	if _, err := DecodeFragment(make([]byte, MaxFragmentBytes+1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a large one: %v", err)
	}
}

func TestAFragmentOfADetachedRangeIsNone(t *testing.T) {
	s := mustApply(t, NewState(testStore), smallEdits()...)
	s = mustApply(t, s, &Edit{Replaced: []*Replacement{{Table: 1, Old: []uint64{3}, After: 30, New: []*Partition{
		{ID: 4, Start: testKey(40, -1), Epoch: 4, FlushedSeq: 30, Service: Detached, Reason: "moved"},
	}}}})
	if f, detached := s.Fragment(1, nil, nil); f != nil || detached == nil || detached.ID != 4 {
		t.Errorf("%+v, %+v", f, detached)
	}
	if f, detached := s.Fragment(1, nil, testKey(40, -1)); f == nil || detached != nil {
		t.Errorf("below it: %+v, %+v", f, detached)
	}
}

// FuzzDecodeFragment decodes payloads with a right checksum: what is accepted has one encoding, and obeys the
// rules of a State.
func FuzzDecodeFragment(f *testing.F) {
	for _, fragment := range []*Fragment{testFragment(f), {Table: testTable(1, 1, "orders"), LastSeq: 25}} {
		b := fragment.Append(nil)
		f.Add(b[fragmentHeaderSize : len(b)-8])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		b := wrapped(payload)
		fragment, err := DecodeFragment(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer) {
				t.Fatalf("error %v", err)
			}
			return
		}
		again := fragment.Append(nil)
		if len(again) >= len(b) && !bytes.Equal(again, b) { // shorter: fields were skipped
			t.Fatalf("%x reads as a fragment that is written as %x", b, again)
		}
		if _, err := DecodeFragment(again); err != nil {
			t.Fatalf("written again it is refused: %v", err)
		}
		fragment.Files()
		fragment.Range()
	})
}
