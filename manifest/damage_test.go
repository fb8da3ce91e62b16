package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func resealHeader(b []byte) {
	binary.LittleEndian.PutUint64(b[40:], xxhash.Sum64(b[:40]))
}

// damagedStore is a small store with a snapshot and edits, closed properly or left as by a
// crash.
type damagedStore struct {
	sim      *vfs.Sim
	manifest string
	content  []byte
	current  []byte
	before   []string // images of the states after each record
}

func newDamagedStore(t *testing.T, closed bool) *damagedStore {
	t.Helper()
	d := &damagedStore{sim: vfs.NewSim(vfs.SimOptions{})}
	l := newStore(t, d.sim)
	d.before = append(d.before, image(l.State()))
	for _, e := range smallEdits() {
		commit(t, l, e)
		d.before = append(d.before, image(l.State()))
	}
	d.manifest = filepath.Join(testDir, manifestName(2))
	if closed {
		closeLog(t, l)
	} else {
		// The process dies: no end record.
		d.sim = d.sim.Crash(vfs.CrashLoseAll, 1)
	}
	var err error
	if d.content, err = d.sim.ReadFile(d.manifest); err != nil {
		t.Fatal(err)
	}
	if d.current, err = d.sim.ReadFile(filepath.Join(testDir, CurrentName)); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *damagedStore) right() string { return d.before[len(d.before)-1] }

// load reads the store after replacing the content of one file.
func (d *damagedStore) load(t *testing.T, name string, content []byte) (string, Report, error) {
	t.Helper()
	if err := d.sim.Edit(name, func([]byte) []byte { return content }); err != nil {
		t.Fatal(err)
	}
	s, report, err := Load(d.sim, testDir)
	if err != nil && (s != nil || !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer)) {
		t.Fatalf("state %v, error %v", s, err)
	}
	return image(s), report, err
}

// recordAt returns the index of the record whose header or payload holds this offset, or -1 for
// the file's header and padding.
func (d *damagedStore) recordAt(offset int) int {
	at := blockSize
	for i := range d.before {
		end := at + recordHeaderSize + int(binary.LittleEndian.Uint32(d.content[at:]))
		if offset >= at && offset < end {
			return i
		}
		at = int(roundUp(int64(end)))
	}
	return -1
}

// TestP13EveryDamagedByteIsNoticedOrHarmless damages every byte of the manifest and of CURRENT
// in several ways. The store opens with the right state or not at all, except, as the format
// documents, for the last edit of a log that was not closed.
func TestP13EveryDamagedByteIsNoticedOrHarmless(t *testing.T) {
	for _, closed := range []bool{true, false} {
		d := newDamagedStore(t, closed)
		last := len(d.before) - 1
		refused := 0
		for offset := range d.content {
			// Padding is not read, so one byte of each run of it is enough.
			if d.recordAt(offset) < 0 && offset >= headerSize && offset%512 != 511 {
				continue
			}
			for _, mask := range []byte{0x01, 0x80, 0xFF} {
				b := append([]byte(nil), d.content...)
				b[offset] ^= mask
				got, report, err := d.load(t, d.manifest, b)
				switch record := d.recordAt(offset); {
				case err != nil:
					refused++
					if !strings.Contains(err.Error(), d.manifest) {
						t.Fatalf("offset %d: the error does not name the file: %v", offset, err)
					}
				case got == d.right():
				case !closed && record == last && got == d.before[last-1] && report.Torn != 0:
				default:
					t.Fatalf("closed %v, offset %d (record %d) ^ %#x: a wrong state without an error", closed, offset, record, mask)
				}
				if record := d.recordAt(offset); err == nil && record >= 0 && (closed || record < last) {
					t.Fatalf("closed %v: damage at offset %d in record %d is not noticed", closed, offset, record)
				}
			}
		}
		if refused == 0 {
			t.Error("no damage was noticed")
		}
	}
}

func TestP13EveryDamagedByteOfCurrentIsNoticed(t *testing.T) {
	d := newDamagedStore(t, true)
	name := filepath.Join(testDir, CurrentName)
	for offset := range d.current {
		for bit := range 8 {
			b := append([]byte(nil), d.current...)
			b[offset] ^= 1 << bit
			if _, _, err := d.load(t, name, b); !errors.Is(err, ErrCorrupt) {
				t.Errorf("offset %d, bit %d: %v", offset, bit, err)
			}
		}
		if _, _, err := d.load(t, name, d.current[:offset]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", offset, err)
		}
	}
}

// TestAShortenedManifestGivesAnEarlierStateOrAnError: a manifest cut short looks like one whose
// last records were never written. So its state is an earlier one, never another.
func TestAShortenedManifestGivesAnEarlierStateOrAnError(t *testing.T) {
	d := newDamagedStore(t, true)
	for size := 0; size <= len(d.content); size++ {
		if size > headerSize && d.recordAt(size) < 0 && size%512 > 1 {
			continue
		}
		got, _, err := d.load(t, d.manifest, d.content[:size])
		if err != nil {
			if size >= 3*blockSize {
				t.Errorf("cut to %d bytes, behind the snapshot: %v", size, err)
			}
			continue
		}
		complete := 0 // records before the cut
		for i := range d.before {
			end := blockSize
			for d.recordAt(end) != i {
				end++
			}
			for d.recordAt(end) == i {
				end++
			}
			if end <= size {
				complete = i
			}
		}
		if got != d.before[complete] {
			t.Errorf("cut to %d bytes: not the state after record %d", size, complete)
		}
	}
}

// TestBlocksInTheWrongPlaceAreNoticed: valid blocks in the wrong place or file are refused, as
// left by lost, doubled and misdirected writes.
func TestBlocksInTheWrongPlaceAreNoticed(t *testing.T) {
	d := newDamagedStore(t, true)
	block := func(b []byte, i int) []byte { return b[i*blockSize : (i+1)*blockSize] }
	other := newDamagedStore(t, true)
	foreign, err := other.sim.ReadFile(other.manifest)
	if err != nil {
		t.Fatal(err)
	}
	copy(foreign[16:], "another store id")
	for name, change := range map[string]func(b []byte){
		"lost write in the middle": func(b []byte) { clear(block(b, 3)) },
		"lost snapshot":            func(b []byte) { clear(block(b, 1)) },
		"record of the next block": func(b []byte) { copy(block(b, 2), block(b, 3)) },
		"records exchanged": func(b []byte) {
			t := append([]byte(nil), block(b, 2)...)
			copy(block(b, 2), block(b, 3))
			copy(block(b, 3), t)
		},
		"number of another file":    func(b []byte) { b[32]++; resealHeader(b) },
		"store id of another store": func(b []byte) { copy(b[16:], foreign[16:32]); resealHeader(b) },
		"format version 0":          func(b []byte) { b[8] = 0; resealHeader(b) },
		"other magic":               func(b []byte) { b[0] = 'F'; resealHeader(b) },
	} {
		b := append([]byte(nil), d.content...)
		change(b)
		if got, _, err := d.load(t, d.manifest, b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v, right state: %v", name, err, got == d.right())
		}
	}
}

// appendRecord puts a record with a right checksum at a block of a manifest.
func appendRecord(b []byte, block int, kind uint32, index uint64, payload []byte) []byte {
	at := block * blockSize
	b = append(b[:at:at], make([]byte, recordHeaderSize)...)
	b = append(b, payload...)
	sealRecord(b[at:], kind, index, place{2, testStore, int64(at)})
	return b
}

func TestRecordsThatAreWrongInThemselvesAreRefused(t *testing.T) {
	d := newDamagedStore(t, false)
	next := 2 + len(smallEdits())
	index := uint64(next - 1)
	var again Edit
	again.CreateTable(testTable(1, 1, "orders"))
	end := appendRecord(d.content, next, kindEnd, index, nil)
	end = append(end, make([]byte, int(roundUp(int64(len(end))))-len(end))...)
	for _, c := range []struct {
		name    string
		content []byte
		want    error
	}{
		{"an edit that cannot be applied", appendRecord(d.content, next, kindEdit, index, AppendEdit(nil, &again)), ErrCorrupt},
		{"an edit that cannot be decoded", appendRecord(d.content, next, kindEdit, index, []byte{0}), ErrCorrupt},
		{"an edit of a newer version", appendRecord(d.content, next, kindEdit, index, []byte{2}), errNewer},
		{"a second snapshot", appendRecord(d.content, next, kindSnapshot, index, appendSnapshot(nil, NewState(testStore))), ErrCorrupt},
		{"an unknown kind", appendRecord(d.content, next, 4, index, nil), errNewer},
		{"a wrong index", appendRecord(d.content, next, kindEdit, index+1, AppendEdit(nil, &Edit{})), ErrCorrupt},
		{"a record behind the end", appendRecord(end, next+1, kindEdit, index+1, AppendEdit(nil, &Edit{})), ErrCorrupt},
		{"an edit in place of the snapshot", appendRecord(d.content, 1, kindEdit, 0, AppendEdit(nil, &Edit{})), ErrCorrupt},
		{"no records", d.content[:blockSize], ErrCorrupt},
	} {
		if _, _, err := d.load(t, d.manifest, c.content); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	if got, report, err := d.load(t, d.manifest, end); err != nil || got != d.right() || !report.Closed {
		t.Errorf("an end record: %+v, %v", report, err)
	}
}

func TestATornLastRecordIsCutAndReported(t *testing.T) {
	d := newDamagedStore(t, false)
	next := 2 + len(smallEdits())
	whole := appendRecord(d.content, next, kindEdit, uint64(next-1), AppendEdit(nil, smallEdits()[1]))
	for size := next*blockSize + 1; size < len(whole); size += 7 {
		got, report, err := d.load(t, d.manifest, whole[:size])
		if err != nil || got != d.right() {
			t.Fatalf("%d bytes of a record: %v", size-next*blockSize, err)
		}
		if report.Torn != int64(next*blockSize) || report.Size != int64(size) {
			t.Fatalf("%d bytes of a record: torn at %d of %d", size-next*blockSize, report.Torn, report.Size)
		}
	}
	l := openStore(t, d.sim)
	if image(l.State()) != d.right() {
		t.Error("opening a store with a torn record changed the state")
	}
	closeLog(t, l)
}

func TestABadReadIsNotTakenForATornRecord(t *testing.T) {
	d := newDamagedStore(t, false)
	reads := vfs.NewFault(d.sim, 1)
	if _, _, err := Load(reads, testDir); err != nil {
		t.Fatal(err)
	}
	for nth := range reads.Calls(vfs.OpReadAt) {
		for _, action := range []vfs.Action{vfs.FlipBit(), vfs.Short(3, nil), vfs.FailWith(errors.New("boom")), vfs.Misdirect(blockSize)} {
			fault := vfs.NewFault(d.sim, uint64(nth))
			fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: nth + 1, Action: action})
			if s, _, err := Load(fault, testDir); err == nil && image(s) != d.right() {
				t.Errorf("%s at read %d: a wrong state without an error", action, nth+1)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	sim := vfs.NewSim(vfs.SimOptions{})
	l := newStore(f, sim)
	commit(f, l, smallEdits()...)
	closeLog(f, l)
	manifest := filepath.Join(testDir, manifestName(2))
	content, err := sim.ReadFile(manifest)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(currentLine(manifestName(2))), pack(content), false)
	f.Add([]byte(currentLine(manifestName(2))), pack(content[:3*blockSize]), true)
	f.Add([]byte(currentLine(manifestName(3))), []byte{}, true)
	f.Fuzz(func(t *testing.T, current, packed []byte, seal bool) {
		manifest := unpack(packed)
		if seal {
			manifest = resealAll(manifest)
		}
		sim := vfs.NewSim(vfs.SimOptions{})
		if err := vfs.MakeDir(sim, "", testDir); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{CurrentName: current, manifestName(2): manifest} {
			file, err := sim.Create(filepath.Join(testDir, name), vfs.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l, s, err := Open(sim, testDir, nil)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNewer) {
				t.Fatalf("error %v", err)
			}
			return
		}
		want := image(s)
		closeLog(t, l)
		if again, _, err := Load(sim, testDir); err != nil || image(again) != want {
			t.Fatalf("what was opened cannot be opened again: %v", err)
		}
	})
}

// pack removes the zeros at the ends of blocks, so that the fuzzer does not change them in vain:
// each block becomes its length in 2 bytes and its bytes.
func pack(b []byte) []byte {
	var packed []byte
	for ; len(b) > 0; b = b[blockSize:] {
		block := bytes.TrimRight(b[:blockSize], "\x00")
		packed = binary.LittleEndian.AppendUint16(packed, uint16(len(block)))
		packed = append(packed, block...)
	}
	return packed
}

// unpack is the inverse of pack. The last block may be cut short.
func unpack(packed []byte) []byte {
	var b []byte
	for len(packed) >= 2 {
		n := min(int(binary.LittleEndian.Uint16(packed)), len(packed)-2, blockSize)
		b = append(b, make([]byte, int(roundUp(int64(len(b))))-len(b))...)
		b = append(b, packed[2:2+n]...)
		packed = packed[2+n:]
	}
	return b
}

// resealAll gives the header and the record at each block a right checksum, so that the fuzzer
// gets past these.
func resealAll(b []byte) []byte {
	b = append([]byte(nil), b...)
	if len(b) < blockSize {
		return b
	}
	resealHeader(b)
	at := place{number: binary.LittleEndian.Uint64(b[32:])}
	copy(at.storeID[:], b[16:32])
	for offset := blockSize; offset+recordHeaderSize <= len(b); offset += blockSize {
		length := min(int(binary.LittleEndian.Uint32(b[offset:])), len(b)-offset-recordHeaderSize)
		record := b[offset : offset+recordHeaderSize+length]
		at.offset = int64(offset)
		sealRecord(record, binary.LittleEndian.Uint32(record[4:]), binary.LittleEndian.Uint64(record[8:]), at)
	}
	return b
}
