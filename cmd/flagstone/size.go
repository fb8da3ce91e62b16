package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// size is a number of bytes on the command line: 4096, 64KiB, 512MiB, 2GiB.
type size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}, {"", 1},
}

// UnmarshalText parses a size. It must be at least one byte.
func (s *size) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/u.factor {
			break
		}
		*s = size(n * u.factor)
		return nil
	}
	return fmt.Errorf("%q is no size; write bytes or 64KiB, 512MiB, 2GiB", text)
}

// byteRate is a number of bytes per second on the command line, of what reads files beside a server.
type byteRate size

// leastByteRate reads a chunk of 256 KiB in 4 seconds. Less would hold files, and what waits for them, without a sign of
// life.
const leastByteRate = 64 << 10

// UnmarshalText parses a rate.
func (r *byteRate) UnmarshalText(text []byte) error {
	if err := (*size)(r).UnmarshalText(text); err != nil {
		return err
	}
	if *r < leastByteRate {
		return fmt.Errorf("%q is too slow; at least 64KiB per second", text)
	}
	return nil
}

// inDays is a duration on the command line, also in days: 36h, 30d.
type inDays time.Duration

// UnmarshalText parses a duration.
func (d *inDays) UnmarshalText(text []byte) error {
	var t time.Duration
	var err error
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 15)
		t = time.Duration(n) * 24 * time.Hour
	} else {
		t, err = time.ParseDuration(string(text))
	}
	if err != nil {
		return fmt.Errorf("%q is no time; write 36h or 30d", text)
	}
	*d = inDays(t)
	return nil
}

// String prints a duration.
func (d inDays) String() string { return time.Duration(d).String() }
