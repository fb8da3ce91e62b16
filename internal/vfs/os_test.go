package vfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// lockDirVariable makes this test program a process that takes a lock, reports it, and waits to
// be killed.
const lockDirVariable = "FLAGSTONE_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockDirVariable); dir != "" {
		if _, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"), vfs.LockToWrite); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		// This returns when the parent's end of the pipe is closed, at the latest when the
		// parent dies.
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startHolder starts a process that holds the lock in dir.
func startHolder(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockDirVariable+"="+dir)
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd
}

func TestP15_ASecondProcessIsRefusedWithTheHolderNamed(t *testing.T) {
	dir := t.TempDir()
	holder := startHolder(t, dir)
	_, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"), vfs.LockToWrite)
	wantError(t, err, vfs.ErrLocked)
	if want := fmt.Sprintf("process %d", holder.Process.Pid); !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error %q does not name %s", err, want)
	}
}

func TestP15_TheLockOfAKilledProcessIsFreeAtOnce(t *testing.T) {
	dir := t.TempDir()
	holder := startHolder(t, dir)
	must(t, holder.Process.Kill())
	_ = holder.Wait() // returns an error, since it was killed
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"), vfs.LockToWrite)
	must(t, err)
	mustClose(t, lock)
}

func TestP15_ALockIsFoundThroughASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	store, alias := filepath.Join(dir, "store"), filepath.Join(dir, "alias")
	must(t, vfs.OS().MkdirAll(store))
	if err := os.Symlink(store, alias); err != nil {
		t.Logf("no symbolic links here (%v); nothing to protect from", err)
		return
	}
	lock, err := vfs.OS().Lock(filepath.Join(store, "LOCK"), vfs.LockToWrite)
	must(t, err)
	defer mustClose(t, lock)
	_, err = vfs.OS().Lock(filepath.Join(alias, "LOCK"), vfs.LockToWrite)
	wantError(t, err, vfs.ErrLocked)
}

func TestErrorsThatMeanNoSpace(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EFBIG: true,
		&fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}:                   true,
		fmt.Errorf("flush: %w", &fs.PathError{Op: "w", Path: "f", Err: syscall.EIO}): false,
		syscall.EIO: false, syscall.EMFILE: false, errors.New("no space left on device"): false,
	} {
		if vfs.IsNoSpace(err) != want {
			t.Errorf("IsNoSpace(%v) = %v", err, !want)
		}
	}
	if vfs.IsNoSpace(nil) {
		t.Error("IsNoSpace(nil)")
	}
}

func TestAlignedBuffersAreAlignedAndOfTheLengthAskedFor(t *testing.T) {
	for _, size := range []int{1, 512, 4096, 4097, 1 << 20} {
		b := vfs.AlignedBuffer(size)
		if len(b) != size || cap(b) != size || uintptr(unsafe.Pointer(&b[0]))%4096 != 0 {
			t.Errorf("size %d: length %d, capacity %d, address %p", size, len(b), cap(b), &b[0])
		}
	}
	if len(vfs.AlignedBuffer(0)) != 0 {
		t.Error("size 0")
	}
}

// TestOSPreallocateReservesSpace checks that Preallocate does more than set the size, where the
// file system offers that.
func TestOSPreallocateReservesSpace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, vfs.OS(), name)
	defer mustClose(t, f)
	must(t, f.Preallocate(1<<20))
	if blocks, ok := allocatedBytes(t, name); ok && blocks < 1<<20 {
		t.Errorf("%d bytes reserved of %d", blocks, 1<<20)
	}
}
