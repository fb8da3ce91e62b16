//go:build linux

// Powercut cuts the power of a real file system under a store that is being written, again and again, and
// checks what is left each time. It needs root.
//
//	go run ./fuzz/powercut -rounds 100
//
// The store lies in an ext4 file system of its own, in an image that is mounted by a loop device. A child
// process writes rows in the order of their keys. At a random moment the file system is shut down, so that nothing
// more reaches the image, not even its journal; or only the child is killed. Then the store must open and hold the
// rows up to some key, and no other: at least all that were durable by the child's account, and all that the last
// recovery has found. Each round has three such lives of one store, which is written in one of four ways:
//
//	always  SyncAlways
//	none    SyncNone
//	sync    SyncNone, and a Store.Sync now and then
//	tables  SyncNone, and every thousandth row goes to another table
//
// The exit status is 0 if every store was right. Else the image stays as it was found.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
	"golang.org/x/sys/unix"
)

const (
	lives     = 3
	imageSize = 3 << 30
	perSync   = 20_011 // rows between two calls of Store.Sync
	perOther  = 1000   // rows between two of the other table
	ext4Stop  = 0x8004587d
	noFlush   = 2 // of ext4Stop: the journal is not written
)

var modes = []string{"always", "none", "sync", "tables"}

func main() {
	rounds := flag.Int("rounds", 20, "how many stores are written")
	seed := flag.Uint64("seed", 1, "of the moments and modes")
	dir := flag.String("dir", os.TempDir(), "where the image is kept")
	child := flag.String("write", "", "write to the store in -dir in this mode; for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	var err error
	if *child != "" {
		err = write(*dir, *child, os.Stdout)
	} else {
		err = run(ctx, *dir, *rounds, rand.New(rand.NewPCG(*seed, 0)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		os.Exit(1)
	}
}

// disk is an image and where it is mounted.
type disk struct{ image, mount string }

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func (d disk) attach() error { return command("mount", "-o", "loop", d.image, d.mount) }
func (d disk) detach() error { return command("umount", d.mount) }

// cut shuts the file system down.
func (d disk) cut() error {
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), ext4Stop, noFlush)
}

func run(ctx context.Context, dir string, rounds int, rng *rand.Rand) (err error) {
	base, err := os.MkdirTemp(dir, "powercut-")
	if err != nil {
		return err
	}
	d := disk{filepath.Join(base, "image"), filepath.Join(base, "mount")}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, imageSize), os.Mkdir(d.mount, 0o700)); err != nil {
		return err
	}
	cuts := 0
	for n := range rounds {
		if err := errors.Join(command("mkfs.ext4", "-q", "-F", d.image), d.attach()); err != nil {
			return err
		}
		mode, rows := modes[rng.IntN(len(modes))], int64(0)
		for life := range lives {
			power := rng.IntN(3) > 0
			at := 300*time.Millisecond + time.Duration(rng.Int64N(int64(2500*time.Millisecond)))
			least, err := d.live(ctx, mode, at, power)
			if err == nil {
				rows, err = check(ctx, filepath.Join(d.mount, "store"), mode, max(rows, least))
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), d.detach(), os.RemoveAll(base))
			}
			if err != nil {
				return fmt.Errorf("round %d, life %d, %s: %w; the image is %s", n, life, mode, err, d.image)
			}
			what := "kill"
			if power {
				cuts, what = cuts+1, "power cut"
			}
			fmt.Printf("round %d, %s: %d rows after a %s, %d were durable\n", n, mode, rows, what, least)
		}
		if err := d.detach(); err != nil {
			return err
		}
	}
	fmt.Printf("%d power cuts and %d kills: every store was right\n", cuts, rounds*lives-cuts)
	return os.RemoveAll(base)
}

// live lets a child write until a moment, and returns how many rows are durable by its account. The file system is
// mounted again.
func (d disk) live(ctx context.Context, mode string, until time.Duration, power bool) (durable int64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	child := exec.Command(self, "-write", mode, "-dir", filepath.Join(d.mount, "store"))
	var said, failed bytes.Buffer
	child.Stdout, child.Stderr = &said, &failed
	if err := child.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case <-ended:
		return 0, fmt.Errorf("the writer has ended: %s", failed.String())
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(until):
	}
	if power && err == nil {
		err = d.cut()
	}
	_ = child.Process.Kill() // after the cut it may have ended by itself
	<-ended
	if whole := said.Len() / 8 * 8; whole > 0 {
		durable = int64(binary.LittleEndian.Uint64(said.Bytes()[whole-8:]))
	}
	return durable, errors.Join(err, d.detach(), d.attach())
}

// options make a store flush and begin segments of the log many times a second.
func options(mode string) flagstone.Options {
	o := flagstone.Options{MemtableSize: 1 << 20, MemoryBudget: 6 << 20, WALSegmentSize: 256 << 10, CacheSize: 4 << 20}
	if mode != "always" {
		o.Sync = flagstone.SyncNone
	}
	return o
}

func value(i int64) []byte {
	b, rng := make([]byte, 0, 320), rand.New(rand.NewPCG(uint64(i), 1))
	for len(b) < 320 {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b
}

// open opens the store and its tables, and returns how many rows it holds. It holds those from 0 on, and no other.
func open(ctx context.Context, dir, mode string) (s *flagstone.Store, tables [2]*flagstone.Table, rows int64, err error) {
	if s, err = flagstone.Open(dir, options(mode)); err != nil {
		return nil, tables, 0, err
	}
	var of [2]int64
	for n, name := range []string{"rows", "others"} {
		if tables[n], err = s.Table(name); errors.Is(err, flagstone.ErrTableNotFound) {
			tables[n], err = s.CreateTable(ctx, flagstone.TableSpec{
				Name: name, Options: flagstone.TableOptions{MaxVersions: 1}, Key: []flagstone.KeyColumn{{Name: "n", Type: row.TypeInteger}},
			})
		}
		if err != nil {
			return nil, tables, 0, errors.Join(err, s.Close())
		}
		scan := tables[n].Scan(ctx, nil, nil, flagstone.ScanOptions{})
		for scan.Next() {
			i := scan.Row().Key()[0].Int64()
			rows, of[n] = max(rows, i+1), of[n]+1
			if c := scan.Row().Cells(); len(c) != 1 || !bytes.Equal(c[0].Value, value(i)) {
				err = fmt.Errorf("row %d has another value", i)
			}
		}
		if err = errors.Join(err, scan.Err(), scan.Close()); err != nil {
			return nil, tables, 0, errors.Join(err, s.Close())
		}
	}
	others := int64(0)
	if mode == "tables" {
		others = rows / perOther
	}
	if of[0]+of[1] != rows || of[1] != others {
		err = fmt.Errorf("%d rows and %d others below %d", of[0], of[1], rows)
		return nil, tables, 0, errors.Join(err, s.Close())
	}
	return s, tables, rows, nil
}

// write writes rows until it fails or is killed. It puts out how many are durable, eight bytes for each number.
func write(dir, mode string, out io.Writer) error {
	ctx := context.Background()
	s, tables, i, err := open(ctx, dir, mode)
	for ; err == nil; i++ {
		t := tables[0]
		if mode == "tables" && i%perOther == perOther-1 {
			t = tables[1]
		}
		err = t.Put(ctx, []row.Value{row.Integer(i)}, "v", s.NowMillis(), row.Binary(value(i)))
		durable := mode == "always"
		if err == nil && mode == "sync" && i%perSync == 0 {
			durable, err = true, s.Sync(ctx)
		}
		if err == nil && durable {
			_, err = out.Write(binary.LittleEndian.AppendUint64(nil, uint64(i+1)))
		}
	}
	return err
}

// check opens the store, which must hold at least so many rows, and returns how many it holds.
func check(ctx context.Context, dir, mode string, least int64) (rows int64, err error) {
	s, _, rows, err := open(ctx, dir, mode)
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	if rows < least {
		return 0, fmt.Errorf("%d rows, %d were durable", rows, least)
	}
	report, err := flagstone.Check(ctx, dir, options(mode), nil)
	return rows, errors.Join(err, errors.Join(report.Problems...))
}
