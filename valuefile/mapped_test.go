package valuefile

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// While a verification is trusted, damage to a mapped value may go unseen. The first read that
// begins an interval after the verifying read finds it, and so does every read of a value that
// was not verified. With no interval every read finds it.
func TestAMappedValueIsVerifiedAgainAfterTheInterval(t *testing.T) {
	for _, compress := range []bool{false, true} {
		testVerifiedAgain(t, compress)
	}
}

func testVerifiedAgain(t *testing.T, compress bool) {
	s := write(t, vfs.OS(), filepath.Join(t.TempDir(), "f"), false, compress, bytes.Repeat([]byte("value"), 100), bytes.Repeat([]byte("other"), 100))
	if packed := s.refs[0].Stored < s.refs[0].Raw; packed != compress {
		t.Fatalf("packed: %t", packed)
	}
	now := time.Hour
	s.mapped, s.elapsed = true, func() time.Duration { return now }
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.mapped == nil {
		t.Log("no mappings here")
		return
	}
	s.mapped = false
	strict, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	var buffer []byte
	read := func(i int) error {
		_, err := r.Value(&buffer, s.refs[i])
		return err
	}
	for range 2 {
		if err := read(0); err != nil {
			t.Fatal(err)
		}
		if _, err := strict.Value(&buffer, s.refs[0]); err != nil {
			t.Fatal(err)
		}
		now += believed - 1 // a trusted read does not renew the interval
	}
	for i := range s.refs { // both change on the device
		f, err := s.fs.OpenReadWrite(s.name, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{'X'}, int64(s.refs[i].Offset)+int64(s.refs[i].Stored)-2); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := read(1); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), s.name) {
		t.Fatalf("a value that was never verified: %v", err)
	}
	if err := read(0); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("after the interval: %v", err)
	}
	if _, err := strict.Value(&buffer, s.refs[0]); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a reader that believes nothing: %v", err)
	}
}

// TestAFaultOfAMappedValueIsAnError: a page that cannot be read fails the read,
// names the file, and leaves the reader usable.
func TestAFaultOfAMappedValueIsAnError(t *testing.T) {
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	s := write(t, fault, testName, false, true, smallValues()...)
	s.mapped = true
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var buffer []byte
	if _, err := r.Value(&buffer, s.refs[2]); err != nil {
		t.Fatal(err)
	}
	fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: 1, Action: vfs.FailWith(syscall.EIO)})
	_, err = r.Value(&buffer, s.refs[2])
	if err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), testName) {
		t.Fatal(err)
	}
	fault.Clear()
	if got, err := r.Value(&buffer, s.refs[2]); err != nil || !bytes.Equal(got, s.values[2]) {
		t.Fatal(err)
	}
}

// TestASlowAccessSendsTheNextReadsToCalls: while values are not in the page cache
// they are read by calls.
func TestASlowAccessSendsTheNextReadsToCalls(t *testing.T) {
	s := write(t, vfs.NewSim(vfs.SimOptions{}), testName, false, false, []byte("value"))
	var now, step time.Duration
	s.mapped, s.elapsed = true, func() time.Duration { now += step; return now }
	r, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var buffer []byte
	read := func() {
		t.Helper()
		if got, err := r.Value(&buffer, s.refs[0]); err != nil || string(got) != "value" {
			t.Fatal(err)
		}
	}
	read()
	step = time.Millisecond
	read()
	step = 0
	if r.mapped.cold.Load() != coldStreak {
		t.Fatal("a slow access is not noticed")
	}
	for range coldStreak {
		read()
	}
	if !r.mapped.believes(s.refs[0].Offset, now) {
		t.Fatal("the mapping is never used again")
	}
}

// TestAFileForgetsWhatWasVerifiedLongAgo, or a file of many values would take ever more memory.
func TestAFileForgetsWhatWasVerifiedLongAgo(t *testing.T) {
	const interval = 100
	m := mapped{interval: interval, verified: map[uint64]time.Duration{}}
	for i := range 100 * leastVerified {
		m.note(uint64(i), time.Duration(i))
		if !m.believes(uint64(max(i-interval+1, 0)), time.Duration(i)) {
			t.Fatalf("at %d what was verified within the interval is forgotten", i)
		}
	}
	if n := len(m.verified); n > 2*leastVerified {
		t.Errorf("%d records are remembered", n)
	}
}
