package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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
