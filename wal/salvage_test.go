package wal

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// badBlockFS fails reads of one block of one file.
type badBlockFS struct {
	vfs.FS
	name string
	at   int64
	err  error
}

func (b badBlockFS) Open(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := b.FS.Open(name, o)
	if err != nil || name != b.name {
		return f, err
	}
	return badBlockFile{f, b}, nil
}

type badBlockFile struct {
	vfs.File
	b badBlockFS
}

func (f badBlockFile) ReadAt(p []byte, off int64) (int, error) {
	if off < f.b.at+blockSize && f.b.at < off+int64(len(p)) {
		return 0, f.b.err
	}
	return f.File.ReadAt(p, off)
}

// salvageRecords salvages a log, and returns the positions of the records of stream 0 and the losses.
func salvageRecords(opts Options, check func() error) (positions []uint64, losses []Loss, err error) {
	err = Salvage(opts, 0, check, func(r Record) error {
		positions = append(positions, r.Position)
		return nil
	}, func(l Loss) { losses = append(losses, l) })
	return positions, losses, err
}

func uncancelled() error { return nil }

// threeSegments makes a log of at least three segments, each record in a block of its own, and returns the
// number of records.
func threeSegments(t *testing.T, opts Options) (records uint64, segments []uint64) {
	t.Helper()
	w, _ := mustOpen(t, opts, 0, new(oracle))
	var err error
	for err == nil && len(w.Segments()) < 3 {
		var lsn LSN
		records++
		if lsn, err = w.Append(0, records, testPayload(records, 3000)); err == nil {
			err = w.Sync(lsn)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	segments = w.Segments()
	mustClose(t, w)
	return records, segments
}

func TestSalvageListsEveryMissingSegment(t *testing.T) {
	for _, remove := range [][]uint64{{1}, {2}, {1, 2}} {
		opts := testOptions(newSim())
		records, segments := threeSegments(t, opts)
		if !slices.Equal(segments, []uint64{1, 2, 3}) {
			t.Fatal(segments)
		}
		for _, n := range remove {
			if err := opts.FS.Remove(logFile(n)); err != nil {
				t.Fatal(err)
			}
		}
		got, losses, err := salvageRecords(opts, uncancelled)
		missing := slices.DeleteFunc(losses, func(l Loss) bool { return !strings.Contains(l.Err.Error(), "missing") })
		if err != nil || len(got) == 0 || len(got) >= int(records) || len(missing) != 1 || missing[0].File != logFile(remove[0]) {
			t.Errorf("without %v: %d of %d records, losses %v, %v", remove, len(got), records, losses, err)
		}
	}
}

func TestSalvageListsAHugeGapOnce(t *testing.T) {
	opts := testOptions(newSim())
	records, _ := threeSegments(t, opts)
	f, err := opts.FS.Create(logFile(1<<64-1), vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, losses, err := salvageRecords(opts, uncancelled)
	if err != nil || len(got) != int(records) || len(losses) > 3 {
		t.Errorf("%d of %d records, losses %v, %v", len(got), records, losses, err)
	}
}

func TestSalvageLosesOnlyTheBlockThatCannotBeRead(t *testing.T) {
	opts := testOptions(newSim())
	records, _ := threeSegments(t, opts)
	disk := opts.FS
	for segment, at := range map[uint64]int64{1: 2 * blockSize, 3: blockSize} {
		opts.FS = badBlockFS{disk, logFile(segment), at, syscall.EIO}
		got, losses, err := salvageRecords(opts, uncancelled)
		if err != nil || len(got) != int(records)-1 || len(losses) != 1 || losses[0].From != at || losses[0].To != at+blockSize {
			t.Errorf("segment %d: %d of %d records, losses %v, %v", segment, len(got), records, losses, err)
		}
	}
	opts.FS = badBlockFS{disk, logFile(3), 2 * blockSize, syscall.EIO} // the end, which is no torn one
	if got, losses, err := salvageRecords(opts, uncancelled); err != nil || len(got) != int(records) || len(losses) != 1 {
		t.Errorf("the end: %d of %d records, losses %v, %v", len(got), records, losses, err)
	}
}

func TestSalvageEndsWithAnErrorThatIsNoDamage(t *testing.T) {
	opts := testOptions(newSim())
	threeSegments(t, opts)
	disk := opts.FS
	opts.FS = badBlockFS{disk, logFile(2), blockSize, syscall.EACCES}
	if _, losses, err := salvageRecords(opts, uncancelled); !errors.Is(err, syscall.EACCES) || len(losses) > 0 {
		t.Errorf("a read that is not allowed: %v, %v", losses, err)
	}
	opts.FS = disk
	stop := errors.New("stop")
	if got, _, err := salvageRecords(opts, func() error { return stop }); err != stop || len(got) > 0 {
		t.Errorf("cancelled: %v, %v", got, err)
	}
	opts.StoreID[0]++
	if _, losses, err := salvageRecords(opts, uncancelled); !errors.Is(err, errWrongStore) || len(losses) > 0 {
		t.Errorf("of another store: %v, %v", losses, err)
	}
}
