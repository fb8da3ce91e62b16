package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/row"
)

// makeAhead makes a store with one row, under a clock that is ten years ahead.
func makeAhead(t *testing.T, dir string) {
	t.Helper()
	ahead := clock.NewShifted(clock.System())
	ahead.Advance(10 * 365 * 24 * time.Hour)
	store, err := flagstone.Open(dir, flagstone.Options{Seams: seams.Seams{Clock: ahead}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	table, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err == nil {
		err = table.Put(ctx, flagstone.Key(1), "c", store.NowMillis(), row.String("v"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClockCopiesAStoreOutOfTheFuture(t *testing.T) {
	dir, into := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	makeAhead(t, dir)
	makeAhead(t, filepath.Join(dir, instances.CapacityDir))
	if err := os.WriteFile(filepath.Join(dir, credentialsFile), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errOut := command(t, "clock", "--dir", dir); status != 0 || strings.Count(out, ", 10 years ahead; nothing is dropped as expired yet: 60 minutes of running time to go; ") != 2 ||
		strings.Count(out, "--into NEW") != 2 || strings.Contains(out, "copied") {
		t.Errorf("status %d, %q, %q", status, out, errOut)
	}
	status, out, errOut := command(t, "clock", "--dir", dir, "--into", into)
	if status != 0 || strings.Count(out, "copied 1 tables, 1 rows and 1 cells; 1 versions") != 2 {
		t.Fatalf("status %d, %q, %q", status, out, errOut)
	}
	for _, dir := range []string{into, filepath.Join(into, instances.CapacityDir)} {
		store, err := flagstone.Open(dir, flagstone.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ahead := store.NowMillis() - store.WallMillis(); ahead > 1 {
			t.Errorf("%s: %d ms ahead", dir, ahead)
		}
		table, err := store.Table("t")
		if err != nil {
			t.Fatal(err)
		}
		got, err := table.Get(context.Background(), flagstone.Key(1), flagstone.ReadOptions{})
		if v, ok := got.Value("c"); err != nil || !ok || v.Text() != "v" {
			t.Errorf("%s: the row is %v, %v", dir, got, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(into, credentialsFile)); err != nil || string(content) != "secret" {
		t.Errorf("credentials %q, %v", content, err)
	}
	for _, args := range [][]string{{"--into", into}, {"--dir", filepath.Join(dir, "absent")}} {
		if status, _, errOut := command(t, append([]string{"clock", "--dir", dir}, args...)...); status != 1 || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: status %d, %q", args, status, errOut)
		}
	}
}

func TestClockRefusesToCopyIntoTheStoreItself(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	makeAhead(t, dir)
	if err := os.Symlink(filepath.Join(dir, "wal"), link); err != nil {
		t.Fatal(err)
	}
	for _, into := range []string{dir, filepath.Join(dir, "copy"), filepath.Join(dir, "wal", "x", "y"), filepath.Join(link, "copy")} {
		status, _, errOut := command(t, "clock", "--dir", dir, "--into", into)
		if status != 1 || !strings.Contains(errOut, "lies in the store") {
			t.Errorf("%s: status %d, %q", into, status, errOut)
		}
	}
}

// TestACopyThatIsStoppedIsNoStore completes the copy of the first store; the copy of the second
// fails.
func TestACopyThatIsStoppedIsNoStore(t *testing.T) {
	dir, into := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	makeAhead(t, dir)
	makeAhead(t, filepath.Join(dir, instances.CapacityDir))
	stop := errors.New("stop")
	err := instances.Copy(context.Background(), dir, into, func(partial string) error {
		for _, args := range [][]string{{"check"}, {"clock"}} {
			if status, _, _ := command(t, append(args, "--dir", into)...); status != 1 {
				t.Errorf("%v of an unfinished copy: status %d", args, status)
			}
		}
		return stop
	}, func(string, flagstone.CopyReport) {})
	if !errors.Is(err, stop) || exists(into) || exists(into+".partial") {
		t.Errorf("stopped by %v; left: %v, %v", err, exists(into), exists(into+".partial"))
	}
	if err := os.Mkdir(into+".partial", 0o700); err != nil { // as left by a killed process
		t.Fatal(err)
	}
	if status, _, errOut := command(t, "clock", "--dir", dir, "--into", into); status != 1 || !strings.Contains(errOut, "an unfinished copy: delete it") {
		t.Errorf("status %d, %q", status, errOut)
	}
}
