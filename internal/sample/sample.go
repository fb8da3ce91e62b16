// Package sample chooses rows that represent the rows around them, spread evenly over bytes. It
// reads nothing itself.
package sample

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// Row is a row of a sample.
type Row struct {
	Key     []byte // encoded
	Bytes   int64  // that it represents
	Version int64  // the newest of its cells; 0 if it has none
	Own     int64  // bytes of the key and the cells that were read, values as they were put
}

// Of makes the Row that represents itself. The cells may be references.
func Of(key []byte, cells []row.Cell) Row {
	r := Row{Key: slices.Clone(key), Bytes: int64(len(key))}
	references := int64(0) // how much longer than them and their records the values are
	for i := range cells {
		c := &cells[i]
		r.Version = max(r.Version, c.Version)
		r.Bytes += int64(len(c.Column) + len(c.Value))
		if c.Separate {
			if ref, err := row.ParseReference(c.Value); err == nil { // else reading the value reports it
				r.Bytes += int64(ref.Stored)
				references += int64(ref.Raw) - int64(ref.Stored) - row.ReferenceBytes
			}
		}
	}
	r.Own = r.Bytes + references
	return r
}

// OfAll chooses fewer than 2n of the rows, or all if there are fewer: one of every 1, 2, 4, ...
// rows, and a large row with higher probability. What they represent adds up to about size. The
// same rows give the same sample.
func OfAll(rows iter.Seq[Row], n int, size int64) (sample []Row) {
	rng := rand.New(rand.NewPCG(1, 2))
	join := func(a, b Row) Row {
		kept, sum := a, a.Bytes+b.Bytes
		if rng.Int64N(sum) < b.Bytes {
			kept = b
		}
		kept.Bytes = sum
		return kept
	}
	var total int64
	stride, joined := 1, 0 // rows that one kept row represents, and those that the last one represents so far
	for r := range rows {
		total += r.Bytes
		if last := len(sample) - 1; joined > 0 {
			sample[last] = join(sample[last], r)
		} else {
			sample = append(sample, r)
		}
		if joined++; joined < stride {
			continue
		}
		joined = 0
		if len(sample) == 2*n {
			for i := range n {
				sample[i] = join(sample[2*i], sample[2*i+1])
			}
			sample, stride = sample[:n], 2*stride
		}
	}
	scale(sample, total, size)
	return sample
}

// scale scales weights that add up to sum, so that they add up to about size.
func scale(sample []Row, sum, size int64) {
	for i := range sample {
		sample[i].Bytes = max(int64(float64(sample[i].Bytes)*float64(size)/float64(sum)), 1)
	}
}

// At returns the rows at, or before, places at equal distances of about size/n bytes. anchors are
// keys in order, each with the bytes since the one before, about step or more. before finds the rows
// at a place or before it, which represent the bytes since the last place where it found any. If
// these are many, rows or values are large: then before should look at all rows that these bytes
// belong to (see Before). They are few, since no anchor lies between them.
func At(anchors iter.Seq2[[]byte, int64], n int, size, step int64,
	before func(place []byte, since, apart int64, many bool) ([]Row, error)) (sample []Row, err error) {
	apart := max(size/int64(n), 1)
	// Large rows around an anchor make one place, however many bytes they have. Their bytes
	// beyond apart must not increase the distance elsewhere.
	for range 4 {
		var spread int64
		for _, bytes := range anchors {
			spread += min(bytes, apart)
		}
		apart = max(spread/int64(n), 1)
	}
	var since int64
	for key, bytes := range anchors {
		if since += bytes; since < apart {
			continue
		}
		found, err := before(key, since, apart, since >= 2*max(apart, step))
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			sample = append(sample, found...)
			since = 0
		}
	}
	return distinct(sample), nil
}

// distinct sorts rows and joins equal ones: where several runs overlap, a row can be found twice.
func distinct(sample []Row) []Row {
	slices.SortStableFunc(sample, func(a, b Row) int { return bytes.Compare(a.Key, b.Key) })
	kept := sample[:0]
	for _, r := range sample {
		if last := len(kept) - 1; last >= 0 && bytes.Equal(kept[last].Key, r.Key) {
			kept[last].Bytes += r.Bytes
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// Before returns the rows that represent the since bytes before a place; rows are those before it
// in descending order. It returns the first one, or, if the bytes are many, one for every apart
// bytes.
func Before(rows iter.Seq[Row], since, apart int64, many bool) (sample []Row) {
	var total, left int64 // of all rows, of those that no sampled row represents
	for r := range rows {
		if !many {
			r.Bytes = since
			return []Row{r}
		}
		total, left = total+r.Bytes, left+r.Bytes
		if left >= apart || len(sample) == 0 {
			r.Bytes, left = left, 0
			sample = append(sample, r)
		}
		if total >= since {
			break
		}
	}
	scale(sample, max(total-left, 1), since)
	return sample
}
