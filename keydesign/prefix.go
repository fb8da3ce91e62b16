package keydesign

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Prefix spreads keys over buckets by a hash of a part of the key. A reader that knows this part
// knows the bucket; a reader of a range reads one range for each bucket.
type Prefix struct {
	buckets int
	width   int
}

// MaxBuckets bounds the buckets of a Prefix.
const MaxBuckets = 10_000

// NewPrefix describes prefixes of so many buckets, 2 to MaxBuckets. The number is part of every
// key and cannot be changed later.
func NewPrefix(buckets int) (*Prefix, error) {
	if buckets < 2 || buckets > MaxBuckets {
		return nil, fmt.Errorf("keydesign: %d buckets, want 2 to %d", buckets, MaxBuckets)
	}
	return &Prefix{buckets: buckets, width: len(strconv.Itoa(buckets - 1))}, nil
}

// Of returns the prefix for a text: decimal digits, always the same number of them. It is the
// xxhash64 of the text modulo the number of buckets, in every later version too, since it is
// part of stored keys.
func (p *Prefix) Of(text string) string { return p.show(p.bucket(text)) }

func (p *Prefix) bucket(text string) int {
	return int(xxhash.Sum64String(text) % uint64(p.buckets))
}

func (p *Prefix) show(bucket int) string { return fmt.Sprintf("%0*d", p.width, bucket) }

// All returns the prefixes of all buckets, ascending. A range over the rest of the key is read
// once behind each.
func (p *Prefix) All() []string {
	all := make([]string, p.buckets)
	for i := range all {
		all[i] = p.show(i)
	}
	return all
}
