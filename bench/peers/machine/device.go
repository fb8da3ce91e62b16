package machine

// This file measures the device and the page cache.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	page = 4096
	// logSize is the size of the preallocated file that records are appended to.
	logSize = 64 << 20
)

// aligned returns memory that direct I/O accepts: a mapping starts on a page.
func aligned(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("machine: mapping memory: %w", err)
	}
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b, nil
}

// syncs measures making 4 KiB durable, in the ways a log can.
func syncs(dir string) ([]limit, error) {
	buf, err := aligned(page)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(buf)
	var out []limit
	for _, v := range []struct {
		what    string
		flags   int
		prepare func(*os.File) error
		sync    bool
	}{
		{"append 4 KiB and fdatasync, the file grows", 0, nil, true},
		{"write 4 KiB and fdatasync, preallocated", 0, allocate, true},
		{"write 4 KiB and fdatasync, preallocated and written before", 0, writeZeros, true},
		{"write 4 KiB, O_DIRECT and O_DSYNC, preallocated", unix.O_DIRECT | unix.O_DSYNC, allocate, false},
		{"write 4 KiB, O_DIRECT and O_DSYNC, written before", unix.O_DIRECT | unix.O_DSYNC, writeZeros, false},
	} {
		took, err := syncing(path(dir, "log"), v.flags, v.prepare, v.sync, buf)
		if err != nil {
			out = append(out, limit{v.what, "not possible: " + err.Error()})
			continue
		}
		out = append(out, limit{v.what, fmt.Sprintf("p50 %s, p99 %s", us(quantile(took, 0.5)), us(quantile(took, 0.99)))})
	}
	return out, nil
}

func syncing(name string, flags int, prepare func(*os.File) error, sync bool, buf []byte) ([]time.Duration, error) {
	defer os.Remove(name)
	if prepare != nil {
		f, err := os.Create(name)
		if err != nil {
			return nil, err
		}
		if err := prepare(f); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|flags, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var at int64
	return repeat(700*time.Millisecond, func() error {
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
		at += page
		if prepare != nil {
			at %= logSize
		}
		if sync {
			return unix.Fdatasync(int(f.Fd()))
		}
		return nil
	})
}

func allocate(f *os.File) error {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, logSize); err != nil {
		return err
	}
	return f.Sync()
}

func writeZeros(f *os.File) error {
	zeros := make([]byte, 1<<20)
	for range logSize >> 20 {
		if _, err := f.Write(zeros); err != nil {
			return err
		}
	}
	return f.Sync()
}

// fileSize is the size of the file of the sequential probes.
const fileSize = 512 << 20

// sequential measures the bandwidth of the device in pieces of 1 MiB.
func sequential(dir string) ([]limit, error) {
	buf, err := aligned(1 << 20)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(buf)
	name := path(dir, "sequential")
	var out []limit
	add := func(what string, flags int, work func(*os.File) error) error {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|flags, 0o644)
		if err != nil {
			out = append(out, limit{what, "not possible: " + err.Error()})
			return nil
		}
		defer f.Close()
		start := time.Now()
		if err := work(f); err != nil {
			return err
		}
		out = append(out, limit{what, gbs(fileSize, time.Since(start))})
		return nil
	}
	write := func(f *os.File) error {
		for at := int64(0); at < fileSize; at += int64(len(buf)) {
			if _, err := f.WriteAt(buf, at); err != nil {
				return err
			}
		}
		return unix.Fdatasync(int(f.Fd()))
	}
	read := func(f *os.File) error {
		for at := int64(0); at < fileSize; at += int64(len(buf)) {
			if _, err := f.ReadAt(buf, at); err != nil {
				return err
			}
		}
		return nil
	}
	err = add("sequential write, buffered, new file, and fdatasync", 0, write)
	if err == nil {
		err = add("sequential read, buffered, from the page cache", 0, read)
	}
	if err == nil {
		err = drop(name)
	}
	if err == nil {
		err = add("sequential read, buffered, cold", 0, read)
	}
	if err == nil {
		err = drop(name)
	}
	if err == nil {
		err = add("sequential read, O_DIRECT", unix.O_DIRECT, read)
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err == nil {
		err = add("sequential write, O_DIRECT, new file", unix.O_DIRECT, write)
	}
	return out, err
}

// drop makes the kernel forget a file's pages.
func drop(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// pages measures random reads of 4 KiB, by read and through a mapping, from the
// page cache and from the device. It uses the file of sequential.
func pages(dir string) ([]limit, error) {
	name := path(dir, "sequential")
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	offset := func() int64 { return rng.Int64N(fileSize/page) * page }
	buf := make([]byte, page)
	var out []limit
	for _, warm := range []bool{false, true} {
		state := "cold"
		if warm {
			state = "from the page cache"
			if err := readAll(f); err != nil {
				return nil, err
			}
		} else if err := drop(name); err != nil {
			return nil, err
		}
		took, err := repeat(400*time.Millisecond, func() error {
			_, err := f.ReadAt(buf, offset())
			return err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, limit{"random 4 KiB by pread, " + state, us(mean(took))})

		if !warm {
			if err := drop(name); err != nil {
				return nil, err
			}
		}
		value, err := mapped(f, offset)
		if err != nil {
			return nil, err
		}
		out = append(out, limit{"random 4 KiB through a mapping, " + state, value})
	}
	return out, nil
}

// mapped touches random pages of a fresh mapping.
func mapped(f *os.File, offset func() int64) (string, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, fileSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return "", err
	}
	defer unix.Munmap(data)
	// Without this the kernel reads much around each page.
	if err := unix.Madvise(data, unix.MADV_RANDOM); err != nil {
		return "", err
	}
	var sum byte
	const steps = 64
	took, err := repeat(400*time.Millisecond, func() error {
		for range steps {
			sum += data[offset()]
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	_ = sum
	return us(mean(took) / steps), nil
}

func readAll(f *os.File) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < fileSize; at += int64(len(buf)) {
		if _, err := f.ReadAt(buf, at); err != nil {
			return err
		}
	}
	return nil
}
