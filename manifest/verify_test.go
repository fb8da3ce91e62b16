package manifest

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestVerifyBesideCommitsAndNewManifests verifies while edits are committed, of which each few hundred begin a new manifest.
func TestVerifyBesideCommitsAndNewManifests(t *testing.T) {
	l := newStore(t, vfs.NewSim(vfs.SimOptions{}))
	first, done := l.number, make(chan error, 1)
	go func() {
		var err error
		for i := uint64(1); i <= 1000 && err == nil; i++ {
			_, err = l.Commit(&Edit{LastSeq: i})
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		if err := l.Verify(); err != nil {
			t.Fatal(err)
		}
	}
	if l.number < first+3 {
		t.Errorf("manifests %d to %d: the test proves little", first, l.number)
	}
	closeLog(t, l)
	if err := l.Verify(); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// TestVerifyFindsDamageInEachRecord flips a byte of the header, the snapshot and each edit, also of the last one, which
// Load would take for torn.
func TestVerifyFindsDamageInEachRecord(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, fs)
	defer closeLog(t, l)
	commit(t, l, &Edit{LastSeq: 1}, &Edit{LastSeq: 2}, &Edit{LastSeq: 3})
	name := filepath.Join(testDir, manifestName(l.number))
	for offset := int64(20); offset < l.offset; offset += blockSize {
		flipped := fs.FlipByte(name, offset, 1)
		if err := l.Verify(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("offset %d: %v", offset, err)
		}
		if err := errors.Join(flipped, fs.FlipByte(name, offset, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
}

// TestVerifyWarnsOfADamagedCopy flips a byte of each block of the copy, and removes it.
func TestVerifyWarnsOfADamagedCopy(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{})
	l := newStore(t, fs)
	defer closeLog(t, l)
	var logged bytes.Buffer
	l.logger = slog.New(slog.NewTextHandler(&logged, nil))
	commit(t, l, &Edit{LastSeq: 1}, &Edit{LastSeq: 2}, &Edit{LastSeq: 3})
	name := filepath.Join(testDir, copyName(l.number))
	warned := func() bool {
		t.Helper()
		logged.Reset()
		if err := l.Verify(); err != nil {
			t.Error(err)
		}
		return strings.Contains(logged.String(), name)
	}
	if warned() {
		t.Errorf("intact: %s", logged.String())
	}
	for offset := int64(20); offset < l.offset; offset += blockSize {
		flipped := fs.FlipByte(name, offset, 1)
		if !warned() {
			t.Errorf("offset %d: no warning", offset)
		}
		if err := errors.Join(flipped, fs.FlipByte(name, offset, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
	if !warned() {
		t.Error("removed: no warning")
	}
}
